//! Slots that move: what `src/cluster/slots.rs` does, and the server around it.

use super::{Slot, World};
use crate::both::Which;
use crate::server::Held;
use crate::setting::{Disturbed, Mistake, Setting, Way};

impl World {
    /// `slots::about_to_grant`.
    pub(super) fn about_to_grant(&mut self, server: Which, setting: &Setting) {
        let is_expected = self.slot == Slot::Leaves(server.other());
        let is_free = !self.servers.get(server).is_held(self.now);
        if is_expected && is_free && setting.is_without(Mistake::ComingSlotDoesNotLift) {
            self.servers.get_mut(server).lift(self.now, setting);
            self.note_lift(setting);
        }
    }

    /// From where the slot may leave now.
    fn leaving(&self, way: Way, setting: &Setting) -> Option<Which> {
        let Slot::At(from) = self.slot else { return None };
        let rests = self.servers.get(from).fences.is_quarantined();
        let may_leave = setting.disturbed == Disturbed::ByQuarantine || !rests;
        let are_up = self.servers.iter().all(|server| server.is_up);
        let may = setting.moves.contains(&way) && may_leave && are_up;
        (may && self.may_take_over(setting)).then_some(from)
    }

    pub(super) fn moved_at_once(&self, setting: &Setting) -> Option<Self> {
        let from = self.leaving(Way::AtOnce, setting)?;
        let mut next = self.clone();
        let former = next.servers.get_mut(from);
        former.expire(self.now, setting);
        let key = former.key;
        former.store(None);
        next.servers.get_mut(from.other()).store(key);
        next.has_come(from.other(), setting);
        Some(next)
    }

    pub(super) fn expect(&self, setting: &Setting) -> Option<Self> {
        let from = self.leaving(Way::ByHand, setting)?;
        let mut next = self.clone();
        // A node deletes keys of slots that it has not.
        next.servers.get_mut(from.other()).store(None);
        next.slot = Slot::Leaves(from);
        Some(next)
    }

    pub(super) fn migrate(&self) -> Option<Self> {
        let Slot::Leaves(from) = self.slot else { return None };
        let (former, to) = (self.servers.get(from), self.servers.get(from.other()));
        let is_there = to.is_held(self.now);
        if !former.is_up || !to.is_up || is_there || !former.is_held(self.now) {
            return None;
        }
        let key: Option<Held> = former.migrated(to, self.now);
        let mut next = self.clone();
        next.servers.get_mut(from).store(None);
        next.servers.get_mut(from.other()).store(key);
        Some(next)
    }

    pub(super) fn read_slots(&self, setting: &Setting) -> Option<Self> {
        let Slot::Leaves(from) = self.slot else { return None };
        let are_up = self.servers.iter().all(|server| server.is_up);
        if !are_up || self.servers.get(from).is_held(self.now) {
            return None;
        }
        let mut next = self.clone();
        next.servers.get_mut(from).store(None);
        next.has_come(from.other(), setting);
        Some(next)
    }

    fn has_come(&mut self, to: Which, setting: &Setting) {
        self.slot = Slot::At(to);
        if setting.is_without(Mistake::SlotDoesNotLift) {
            self.servers.get_mut(to).lift(self.now, setting);
        }
        self.note_lift(setting);
    }
}
