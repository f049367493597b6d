//! Grants that were published, and that no subscriber received.
//!
//! Usually the program that asked for the ticket was killed. Its hold gets a short lease. If nobody claims the hold in
//! that time, all places are given up whose grants would be published on the same channel. So a killed process with
//! many places costs a lock one such window, and not one for each place.
//!
//! ```text
//!   granted to a, published on "c": nobody hears      b, on "c", too: given up      d, on "e"
//!   ├──────────── Host::window_millis ───────────────►│─────────────────────────────►│ granted
//! ```
//!
//! A program that is alive after all asks again, and queues anew.

use super::WaiterGrant;
use crate::lock::Monotonic;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

#[derive(Debug)]
pub(super) struct Unheard {
    pub(super) grant: WaiterGrant,
    pub(super) channel: Rc<[u8]>,
    pub(super) due: Monotonic,
}

/// Indexed by fence, in the order of the grants; by when they are due; and by channel.
#[derive(Debug, Default)]
pub(super) struct UnheardGrants {
    grants: BTreeMap<u64, Unheard>,
    due: BTreeSet<(Monotonic, u64)>,
    channels: BTreeSet<(Rc<[u8]>, u64)>,
    /// Channels without subscribers, while the grants and places of their tickets are given up.
    pub(super) deaf: VecDeque<Rc<[u8]>>,
}

impl UnheardGrants {
    pub(super) const fn new() -> Self {
        Self {
            grants: BTreeMap::new(),
            due: BTreeSet::new(),
            channels: BTreeSet::new(),
            deaf: VecDeque::new(),
        }
    }

    pub(super) fn next_due(&self) -> Option<Monotonic> {
        let now = self.deaf.front().map(|_| Monotonic::default());
        now.or_else(|| self.due.first().map(|&(due, _)| due))
    }

    pub(super) fn add(&mut self, unheard: Unheard) {
        let number = unheard.grant.fence.number();
        self.channels.insert((Rc::clone(&unheard.channel), number));
        self.due.insert((unheard.due, number));
        self.grants.insert(number, unheard);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.grants.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.grants.is_empty()
    }

    pub(super) fn take(&mut self, fence_number: u64) -> Option<Unheard> {
        let grant = self.grants.remove(&fence_number)?;
        self.due.remove(&(grant.due, fence_number));
        self.channels.remove(&(Rc::clone(&grant.channel), fence_number));
        Some(grant)
    }

    /// Takes the channel whose turn it is, of those on which nobody has claimed a grant in time.
    pub(super) fn next_deaf(&mut self, now: Monotonic) -> Option<Rc<[u8]>> {
        let due = self.due.first().filter(|(due, _)| *due <= now).map(|&(_, number)| number);
        if let Some(Unheard { channel, .. }) = due.and_then(|number| self.take(number))
            && self.deaf.back() != Some(&channel)
        {
            self.deaf.push_back(channel);
        }
        self.deaf.pop_front()
    }

    /// Takes a grant that was published on this channel.
    pub(super) fn take_of(&mut self, channel: &Rc<[u8]>) -> Option<Unheard> {
        let first = (Rc::clone(channel), 0);
        let number = self.channels.range(first..).next().filter(|(of, _)| of == channel)?.1;
        self.take(number)
    }
}
