//! The task that renews one lock of a quorum, and sees it end.

use super::held::Held;
use crate::Loss;
use crate::clock::{Moment, sleep_until};
use crate::lease::{Counted, Next};
use std::sync::Arc;

pub(super) struct Kept {
    held: Arc<Held>,
}

impl Kept {
    pub(super) fn new(held: Arc<Held>) -> Self {
        Self { held }
    }

    pub(super) async fn run(self) {
        tokio::select! {
            biased;
            _ = self.held.lease.lost() => {}
            () = self.renew() => {}
        }
    }

    /// Until it is over.
    async fn renew(&self) {
        let lease = &self.held.lease;
        // After a renewal that failed there may be time for another one.
        let mut not_before = Moment::now();
        loop {
            let shortened = lease.shortened();
            let Next::Renew { at } = lease.next() else {
                shortened.await;
                continue;
            };
            tokio::select! {
                biased;
                () = shortened => continue,
                () = sleep_until(at.max(not_before)) => {}
            }
            let now = Moment::now();
            match self.held.renew().await {
                Ok(Counted::Over) => return,
                Ok(Counted::Fully | Counted::Less) => {}
                Err(_) => not_before = Moment::now().later(lease.retry_after(now)),
            }
        }
    }
}

impl Drop for Kept {
    /// The runtime ends, and nobody renews any more.
    fn drop(&mut self) {
        if self.held.lease.ended().is_none() {
            self.held.lease.lose(Loss::Expired);
        }
    }
}
