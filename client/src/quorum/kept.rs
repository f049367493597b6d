//! The task that renews one lock of a quorum, and sees it end.

use super::guard::Held;
use crate::Loss;
use crate::clock::{Moment, sleep_until};
use crate::gate::Inside;
use crate::lease::Next;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Kept {
    held: Arc<Held>,
    _inside: Inside,
}

impl Kept {
    pub(super) fn new(held: Arc<Held>, inside: Inside) -> Self {
        Self { held, _inside: inside }
    }

    pub(super) async fn run_until_closed(self) {
        let close = || {
            if self.held.lease.end(Loss::Closed) {
                self.held.leave_everywhere();
            }
        };
        self.held.servers.gate.stay(self.run(), close).await;
    }

    async fn run(&self) {
        let Held { lease, changed, .. } = &*self.held;
        // After a renewal that failed there may be time for another one.
        let mut not_before = Moment::now();
        loop {
            let next = match lease.next() {
                Next::Renew { at } => at.max(not_before).min(lease.valid_until()),
                Next::End { at } => at,
            };
            tokio::select! {
                () = lease.over.cancelled() => return,
                () = changed.notified() => continue,
                () = sleep_until(next) => {}
            }
            let now = Moment::now();
            if now >= lease.valid_until() {
                return self.held.lose(Loss::Expired);
            }
            if matches!(lease.next(), Next::Renew { at } if at <= now) {
                let renewing = self.held.extend(lease.renewal_ttl(now));
                tokio::select! {
                    () = lease.over.cancelled() => return,
                    () = sleep_until(lease.valid_until()) => {}
                    outcome = renewing => if outcome.is_err() {
                        let rest = lease.valid_for(now).checked_div(3).unwrap_or_default();
                        not_before = Moment::now().later(rest.max(Duration::from_millis(10)));
                    }
                }
            }
        }
    }
}

impl Drop for Kept {
    /// The runtime ends, and nobody renews any more.
    fn drop(&mut self) {
        if self.held.lease.ended().is_none() {
            self.held.lose(Loss::Expired);
        }
    }
}
