//! Waiting for the end of a lease, on whatever runtime.

use super::Lease;
use crate::clock::{Moment, sleep_until};
use crate::home::Home;
use crate::{Loss, story};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::futures::Notified;
use tokio::time::timeout;

impl Lease {
    /// Ends it, and tells so unless it had ended before.
    pub(crate) fn lose(&self, loss: Loss) {
        if self.end(loss) {
            story::lost(self, loss);
        }
    }

    /// Waits until it is over. Whoever renews it may be on a runtime that nobody drives, so its end
    /// is seen here, too.
    pub(crate) async fn lost(&self) -> Loss {
        let is_timed = Handle::try_current().is_ok();
        loop {
            let sooner = self.shortened();
            let end = self.valid_until();
            tokio::select! {
                biased;
                () = self.over.cancelled() => return self.ended().unwrap_or(Loss::Expired),
                () = sooner => {}
                () = sleep_until(end), if is_timed => {
                    if Moment::now() >= self.valid_until() {
                        self.lose(Loss::Expired);
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

    /// Waits until no shorter extension is waited for, and no longer than for one answer: somebody
    /// may have begun one whose answer nobody reads.
    pub(crate) async fn until_shorter_are_heard(&self, ttl: Duration, limit: Duration) {
        let heard = async {
            loop {
                let heard = self.heard.notified();
                if !self.unanswered().is_any_shorter(ttl) {
                    return;
                }
                heard.await;
            }
        };
        let _ = timeout(limit, heard).await;
    }

    /// Ends when it may end sooner than it would have, from the moment of this call on.
    pub(crate) fn shortened(&self) -> Notified<'_> {
        self.sooner.notified()
    }
}
