//! Counts what clients were told, for comparison with the counters that an operator sees.

use super::names::Names;
use crate::engine::{Answer, Done};
use crate::lock::{Decision, WaitKind};
use crate::observe::Observer;

macro_rules! tally {
    ($($counter:ident)*) => {
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(super) struct Tally {
            $(pub(super) $counter: u64,)*
        }

        impl Tally {
            pub(super) fn of(observer: &Observer) -> Self {
                Self { $($counter: observer.counters().$counter,)* }
            }
        }
    };
}

tally! {
    grants retries hand_offs waits_granted waits_timed_out waits_refused tries_refused
    releases releases_refused extends extends_refused queue_full
}

impl Tally {
    /// Counts the outcome of a request whose client does not wait.
    pub(super) fn requested(&mut self, done: &Done<'_>, names: &Names) {
        let locks = count(names.len());
        match done.decision {
            Decision::Granted(_) => self.grants += locks,
            Decision::Again { .. } => self.retries += locks,
            Decision::Busy { .. } | Decision::NotUpgraded { .. } => self.tries_refused += 1,
            Decision::Released(_) => {
                self.releases += count(done.released);
                self.releases_refused += locks - count(done.released);
            }
            Decision::Extended { .. } => self.extends += locks,
            Decision::NotExtended { .. } => self.extends_refused += 1,
            Decision::NoFenceLeft | Decision::Wait(_) | Decision::Raised(_) => {}
        }
    }

    pub(super) fn answered(&mut self, kind: WaitKind, answer: &Answer) {
        match (answer, kind) {
            (Answer::Granted { names, .. }, _) => {
                self.grants += count(names.iter().count());
                self.hand_offs += count(names.iter().count());
                self.waits_granted += 1;
            }
            (Answer::Again { names, .. }, _) => {
                self.retries += count(names.iter().count());
                self.waits_granted += 1;
            }
            (Answer::GaveUp, WaitKind::Blocked) => self.waits_timed_out += 1,
            // The owner is told nothing.
            (Answer::GaveUp, WaitKind::Ticket) => {}
            (Answer::Refused(_), _) => self.waits_refused += 1,
        }
    }
}

fn count(locks: usize) -> u64 {
    u64::try_from(locks).expect("a few")
}
