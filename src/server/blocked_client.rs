//! Clients that are blocked, and what they are sent when they are not any more.
//!
//! The server's rules, each paid for with a crash or a leak somewhere: a handle is unblocked exactly once,
//! also when its client is gone; no native timeout, which may fire in the very loop in which the client
//! is unblocked, and then nobody replies; never block in a context that denies it.
//!
//! A waiter in a queue owns the [`Handle`] of its client, which cannot be copied: so a client is unblocked by whoever takes
//! its waiter out of the queue, and by nobody else. The callbacks of the server know a client by [`Address`]. While it
//! waits, [`waiter_at`] says which waiter that is. When it is unblocked, the address is forgotten, and a [`PendingReply`]
//! travels with the handle until the server passes it to the last callback. The answer in it is taken once.

use super::ffi::api::api;
use super::ffi::blocked::{Address, Handle};
use super::ffi::client::User;
use super::ffi::main_thread::MainThread;
use leasehold_core::engine::Answer;
use leasehold_core::lock::{KeptOwner, WaiterId};
use redis_module::raw::RedisModuleCtx;
use std::cell::{Cell, LazyCell, RefCell};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;

/// The connection of a waiter.
#[derive(Debug)]
#[must_use]
pub(super) struct BlockedClient {
    pub(super) handle: Handle,
    pub(super) id: u64,
    pub(super) user: User,
    /// It asked for an owner to be made up, and does not know it yet.
    pub(super) minted: bool,
}

impl BlockedClient {
    /// Tells the client, who has left its queue, what became of its wait.
    pub(super) fn unblock(self, owner: KeptOwner, answer: Answer) {
        let Self { handle, user, minted, .. } = self;
        forget(handle.address());
        let reply = PendingReply { answer: Cell::new(Some(answer)), owner, user, minted };
        handle.unblock(Box::into_raw(Box::new(reply)).cast());
    }

    /// Lets go of a client, who has left its queue, and tells it nothing.
    pub(super) fn let_go(self) {
        forget(self.handle.address());
        self.handle.unblock(ptr::null_mut());
    }
}

/// What a client that was unblocked is about to be sent.
pub(super) struct PendingReply {
    /// Taken by whoever comes first: the reply, or the end of the connection.
    pub(super) answer: Cell<Option<Answer>>,
    pub(super) owner: KeptOwner,
    pub(super) user: User,
    pub(super) minted: bool,
}

impl PendingReply {
    /// What [`BlockedClient::unblock`] gave to the server with the handle of this callback's client, if it did.
    ///
    /// # Safety
    /// The context is that of a callback for a blocked client, and the reference does not outlive it.
    pub(super) unsafe fn of<'c>(ctx: *mut RedisModuleCtx) -> Option<&'c Self> {
        // SAFETY: null, or what `BlockedClient::unblock` made, which lives until the last callback of all.
        unsafe { api!(RedisModule_GetBlockedClientPrivateData)(ctx).cast::<Self>().as_ref() }
    }

    /// The same in the last callback of all. `None` if the client was let go.
    ///
    /// # Safety
    /// It is what the server passes to that callback.
    pub(super) unsafe fn come_back(pending: *mut c_void) -> Option<Box<Self>> {
        // SAFETY: what `BlockedClient::unblock` turned into a pointer, come back for the first and only time.
        (!pending.is_null()).then(|| unsafe { Box::from_raw(pending.cast()) })
    }
}

/// Those who are blocked. Lent out for a moment at a time, and never while the server is called, which could call back.
static BLOCKED: MainThread<LazyCell<RefCell<HashMap<Address, WaiterId>>>> =
    MainThread::new(LazyCell::new(RefCell::default));

/// Room for so many is kept when nobody is blocked any more.
const KEPT: usize = 100;

/// This waiter's client has begun to wait.
pub(super) fn remember(address: Address, waiter: WaiterId) {
    BLOCKED.borrow_mut().insert(address, waiter);
}

/// Who waits there. `None` if the client has been unblocked already.
pub(super) fn waiter_at(address: Address) -> Option<WaiterId> {
    BLOCKED.borrow().get(&address).copied()
}

fn forget(address: Address) {
    let mut blocked = BLOCKED.borrow_mut();
    blocked.remove(&address);
    if blocked.is_empty() {
        // What a crowd needed is not kept when the crowd has gone.
        blocked.shrink_to(KEPT);
    }
}
