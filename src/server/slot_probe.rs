//! What the server says of its slots.

use super::authority;
use super::ffi::call_reply::CallReply;
use super::ffi::string::OwnedString;
use leasehold_core::cluster::{OwnSlots, Slot};
use redis_module::raw::RedisModuleCtx;
use std::cell::OnceCell;

/// Asks the server about slots, for one command that names them.
pub(super) struct SlotProbe {
    ctx: *mut RedisModuleCtx,
    /// Read when it is first needed: a client that is about to be refused may name every slot.
    own: OnceCell<Option<OwnSlots>>,
}

impl SlotProbe {
    /// The context is not that of a command: the server serves more to clients that come with `ASKING`.
    pub(super) fn new(ctx: *mut RedisModuleCtx) -> Self {
        Self { ctx, own: OnceCell::new() }
    }

    /// Whether the server serves the slot now, and the slot is not on its way out.
    ///
    /// The server is asked to read a key of the slot that does not exist: it refuses if the slot is
    /// elsewhere, nobody's, on its way in or on its way out.
    pub(super) fn is_served(&self, slot: Slot) -> bool {
        let key = OwnedString::new(self.ctx, &slot.vacant_key());
        match authority::ask_to_read(self.ctx, &[key.string()]) {
            None => true,
            Some(libc::EPERM) => false,
            // While the cluster is down the server does not say whose slot it is. Nor where EXISTS
            // is renamed.
            Some(_) => self.own().is_some_and(|own| own.settled.contains(slot)),
        }
    }

    fn own(&self) -> Option<&OwnSlots> {
        self.own.get_or_init(|| own_slots(self.ctx)).as_ref()
    }
}

/// `None` if `CLUSTER` is renamed.
pub(super) fn own_slots(ctx: *mut RedisModuleCtx) -> Option<OwnSlots> {
    let reply = CallReply::to(ctx, c"CLUSTER", &[c"NODES"]);
    OwnSlots::read(reply?.text()?)
}
