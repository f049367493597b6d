//! What a keeper may be called for, besides its orders. However often it is called before it looks,
//! as on a runtime that nobody drives, there is only so much that it is told.

use crate::clock::Moment;
use crate::poison::locked;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

#[derive(Default)]
pub(crate) struct Calls {
    open: Mutex<Open>,
    called: Notify,
    answered: Notify,
}

/// What it has not heard yet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Open {
    /// Somebody asks whether its runtime is driven.
    pub(crate) answer: bool,
    /// When others may need help with their releases.
    pub(crate) help_at: Option<Moment>,
    /// The leases that may end at another moment now.
    pub(crate) look_again: BTreeSet<u64>,
}

impl Calls {
    /// Others may need help then.
    pub(crate) fn help(&self, at: Moment) {
        self.call(|open| open.help_at = open.help_at.into_iter().chain([at]).min());
    }

    pub(crate) fn look_again(&self, lease: u64) {
        self.call(|open| {
            open.look_again.insert(lease);
        });
    }

    /// Whether the keeper answers within this time.
    pub(crate) async fn is_answered(&self, within: Duration) -> bool {
        let answered = self.answered.notified();
        self.call(|open| open.answer = true);
        timeout(within, answered).await.is_ok()
    }

    /// For the keeper: waits until it is called.
    pub(crate) async fn heard(&self) {
        self.called.notified().await;
    }

    /// For the keeper.
    pub(crate) fn take(&self) -> Open {
        let open = std::mem::take(&mut *self.open());
        if open.answer {
            self.answered.notify_waiters();
        }
        open
    }

    fn call(&self, note: impl FnOnce(&mut Open)) {
        note(&mut self.open());
        self.called.notify_one();
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        locked(&self.open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_keeper_that_does_not_look_is_told_no_more_than_once() {
        let (calls, now) = (Calls::default(), Moment::now());
        for millis in 0..1_000 {
            calls.help(now + Duration::from_millis(millis));
            calls.look_again(7);
            assert!(!calls.is_answered(Duration::ZERO).await);
        }
        calls.heard().await;
        assert_eq!(calls.take(), Open { answer: true, help_at: Some(now), look_again: [7].into() });
        assert!(timeout(Duration::ZERO, calls.heard()).await.is_err());
        assert_eq!(calls.take(), Open::default());
    }
}
