//! When to check each waiter's patience. Blocked waiters come first: they get a reply, and a ticket's owner gets none.

use super::{Queues, WaiterId};
use crate::lock::lease::Monotonic;
use crate::lock::wait::WaitKind;

impl<C> Queues<C> {
    /// The waiter of this kind whose patience must be checked first.
    pub(super) fn first_patience(&self, kind: WaitKind) -> Option<(WaitKind, Monotonic, WaiterId)> {
        let first = (kind, Monotonic::default(), WaiterId(0));
        self.patience.range(first..).next().filter(|(of, ..)| *of == kind).copied()
    }

    fn first_impatient(&self, now: Monotonic) -> Option<(WaitKind, Monotonic, WaiterId)> {
        let mut kinds = [WaitKind::Blocked, WaitKind::Ticket].into_iter();
        kinds.find_map(|kind| self.first_patience(kind).filter(|(_, end, _)| *end <= now))
    }

    /// Whether the patience of any waiter must be checked now.
    pub fn is_patience_due(&self, now: Monotonic) -> bool {
        self.first_impatient(now).is_some()
    }

    /// Takes the first waiter whose patience may have ended by now.
    pub(super) fn take_impatient(&mut self, now: Monotonic) -> Option<(Monotonic, WaiterId)> {
        let first = self.first_impatient(now)?;
        self.patience.remove(&first);
        Some((first.1, first.2))
    }

    /// Makes sure that this waiter's patience is checked no later than it ends.
    pub(super) fn expect_patience(&mut self, id: WaiterId) {
        let Some(waiting) = self.waiters.get_mut(id.0) else { return };
        let (kind, end) = (waiting.waiter.told.kind(), waiting.waiter.gives_up);
        if let (Some(asked_at), Some(end)) = (waiting.asked_at, end)
            && asked_at <= end
        {
            return;
        }
        if let Some(former) = std::mem::replace(&mut waiting.asked_at, end) {
            self.patience.remove(&(kind, former, id));
        }
        self.patience.extend(end.map(|end| (kind, end, id)));
    }
}
