//! Waiting for the end of a lease, and for a turn to extend it, on whatever runtime.

use super::Lease;
use crate::clock::{Moment, sleep_until};
use crate::home::Home;
use crate::{Error, Loss, story};
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Handle;
use tokio::time::timeout_at;

impl Lease {
    /// Waits until it is over. Whoever renews it may be on a runtime that nobody drives, so its end
    /// is seen here, too.
    pub(crate) async fn lost(&self) -> Loss {
        let is_timed = Handle::try_current().is_ok();
        loop {
            let sooner = self.sooner.notified();
            let end = self.valid_until();
            tokio::select! {
                biased;
                () = self.over.cancelled() => return self.ended().unwrap_or(Loss::Expired),
                () = sooner => {}
                () = sleep_until(end), if is_timed => {
                    if Moment::now() >= self.valid_until() && self.end(Loss::Expired) {
                        story::lost(self, Loss::Expired);
                    }
                }
            }
        }
    }

    /// Sees its end on this runtime, too.
    pub(crate) fn watch_here(self: &Arc<Self>) {
        let (Ok(runtime), here) = (Handle::try_current(), Home::here()) else { return };
        let mut state = self.state();
        if state.watched_on.contains(&here) {
            return;
        }
        state.watched_on.push(here);
        drop(state);
        let lease = Arc::clone(self);
        runtime.spawn(async move { lease.lost().await });
    }

    /// Waits until nobody else extends it.
    pub(crate) async fn alone(
        &self,
        until: Instant,
    ) -> Result<tokio::sync::MutexGuard<'_, ()>, Error> {
        let alone = timeout_at(until.into(), self.extending.lock()).await;
        alone.map_err(|_| Error::Unreachable {
            reason: "another extension of this lease has not ended: the runtime that it was begun \
                     on has to be driven"
                .to_owned(),
        })
    }
}
