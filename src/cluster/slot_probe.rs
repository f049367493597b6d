//! What the server says about its slots.

use crate::authority;
use crate::ffi::{CallReply, Ctx, OwnedString};
use leasehold_core::cluster::{OwnSlots, Slot};
use std::cell::OnceCell;

/// Asks the server about slots, for one command that names slots.
pub(crate) struct SlotProbe {
    ctx: Ctx,
    /// Read only when needed: a client that is about to be refused may name every slot.
    own: OnceCell<Option<OwnSlots>>,
}

impl SlotProbe {
    /// The context must not be that of a command: after `ASKING` the server serves more slots to that client.
    pub(crate) fn new(ctx: Ctx) -> Self {
        Self { ctx, own: OnceCell::new() }
    }

    /// Whether the server serves the slot now, and the slot is not being migrated away.
    ///
    /// The probe reads a key of the slot that does not exist. The server refuses if the slot is on another node,
    /// unassigned, being imported or being migrated away.
    pub(crate) fn is_served(&self, slot: Slot) -> bool {
        let key = OwnedString::new(self.ctx, &slot.vacant_key());
        match authority::ask_to_read(self.ctx, &[key.string()]) {
            None => true,
            Some(libc::EPERM) => false,
            // While the cluster is down, or if EXISTS is renamed, a refusal does not say who owns the slot.
            Some(_) => self.own().is_some_and(|own| own.settled.contains(slot)),
        }
    }

    fn own(&self) -> Option<&OwnSlots> {
        self.own.get_or_init(|| own_slots(self.ctx)).as_ref()
    }
}

/// The slots of this node. `None` if `CLUSTER` is renamed.
pub(crate) fn own_slots(ctx: Ctx) -> Option<OwnSlots> {
    let reply = CallReply::to(ctx, c"CLUSTER", &[c"NODES"]);
    OwnSlots::read(reply?.text()?)
}
