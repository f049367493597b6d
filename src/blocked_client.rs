//! Blocked clients, and what they are sent when they are unblocked.
//!
//! Three rules of the server, each learned from a crash or a leak. A handle is unblocked exactly once, even if its
//! client is gone. No native timeout: it may fire in the same loop that unblocks the client, and then nobody replies.
//! Never block in a context that denies blocking.
//!
//! A waiter in a queue owns the [`Handle`] of its client. The handle cannot be copied, so only the code that takes the
//! waiter out of the queue can unblock the client. The server's callbacks identify a client by its [`Address`]. While
//! the client waits, [`waiter_at`] returns its waiter. When the client is unblocked, the address is forgotten, and a
//! [`PendingReply`] travels with the handle until the server passes it to the last callback. Its answer is taken once.

use crate::ffi::{Address, Callbacks, Ctx, Handle, MainThread, User, api, client};
use leasehold_core::command::Error;
use leasehold_core::engine::Answer;
use leasehold_core::lock::{KeptOwner, WaiterId};
use redis_module::raw;
use std::cell::{Cell, LazyCell, RefCell};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;

/// The connection of a waiter.
#[derive(Debug)]
#[must_use]
pub(crate) struct BlockedClient {
    pub(crate) handle: Handle,
    pub(crate) id: u64,
    pub(crate) user: User,
    /// The client asked for a minted owner, and does not know it yet.
    pub(crate) minted: bool,
}

static CALLBACKS: MainThread<Cell<Option<Callbacks>>> = MainThread::new(Cell::new(None));

/// Says what the server calls for each client that is blocked from now on.
pub(crate) fn begin(callbacks: Callbacks) {
    CALLBACKS.set(Some(callbacks));
}

/// Blocks the client of the current command.
pub(crate) fn block(ctx: Ctx, minted: bool) -> Result<BlockedClient, Error> {
    let id = client::id(ctx);
    let handle = CALLBACKS.get().and_then(|callbacks| Handle::block(ctx, callbacks));
    let handle = handle.ok_or_else(|| why_not_blocked(id))?;
    Ok(BlockedClient { handle, id, user: User::of(ctx, id), minted })
}

/// Why the server did not block this client. Valkey since 8.1 does not block clients with subscriptions.
fn why_not_blocked(client: u64) -> Error {
    let subscribed = u64::from(raw::REDISMODULE_CLIENTINFO_FLAG_PUBSUB);
    if client::flags(client) & subscribed == 0 {
        Error::CannotBeBlocked
    } else {
        Error::SubscribersCannotBeBlocked
    }
}

impl BlockedClient {
    /// Tells a client, whose waiter has left its queue, how its wait ended.
    pub(crate) fn unblock(self, owner: KeptOwner, answer: Answer) {
        let Self { handle, user, minted, .. } = self;
        forget(handle.address());
        let reply = PendingReply { answer: Cell::new(Some(answer)), owner, user, minted };
        handle.unblock(Box::into_raw(Box::new(reply)).cast());
    }

    /// Unblocks a client, whose waiter has left its queue, and tells it nothing.
    pub(crate) fn let_go(self) {
        forget(self.handle.address());
        self.handle.unblock(ptr::null_mut());
    }
}

/// What an unblocked client is about to be sent.
pub(crate) struct PendingReply {
    /// Taken once: by the reply, or by the end of the connection.
    pub(crate) answer: Cell<Option<Answer>>,
    pub(crate) owner: KeptOwner,
    pub(crate) user: User,
    pub(crate) minted: bool,
}

impl PendingReply {
    /// What [`BlockedClient::unblock`] passed to the server with the handle of this callback's client, if anything.
    ///
    /// # Safety
    /// The context is that of a callback for a blocked client, and the reference does not outlive the callback.
    pub(crate) unsafe fn of<'c>(ctx: Ctx) -> Option<&'c Self> {
        // SAFETY: null, or made by `BlockedClient::unblock`, and alive until the last callback of all.
        unsafe { api!(RedisModule_GetBlockedClientPrivateData)(ctx).cast::<Self>().as_ref() }
    }

    /// What [`BlockedClient::unblock`] passed, taken back in the last callback of all. `None` if the client was let
    /// go.
    ///
    /// # Safety
    /// `pending` is what the server passes to that callback.
    pub(crate) unsafe fn come_back(pending: *mut c_void) -> Option<Box<Self>> {
        // SAFETY: `BlockedClient::unblock` turned the box into this pointer, and it comes back for the first and only
        // time.
        (!pending.is_null()).then(|| unsafe { Box::from_raw(pending.cast()) })
    }
}

/// The blocked clients. Borrowed briefly, and never while the server is called, because it could call back.
static BLOCKED: MainThread<LazyCell<RefCell<HashMap<Address, WaiterId>>>> =
    MainThread::new(LazyCell::new(RefCell::default));

/// Capacity that is kept when nobody is blocked any more.
const KEPT: usize = 100;

/// Notes that this waiter's client has begun to wait.
pub(crate) fn remember(address: Address, waiter: WaiterId) {
    BLOCKED.borrow_mut().insert(address, waiter);
}

/// The waiter at this address. `None` if the client has been unblocked already.
pub(crate) fn waiter_at(address: Address) -> Option<WaiterId> {
    BLOCKED.borrow().get(&address).copied()
}

fn forget(address: Address) {
    let mut blocked = BLOCKED.borrow_mut();
    blocked.remove(&address);
    if blocked.is_empty() {
        // Gives back the memory that a crowd needed.
        blocked.shrink_to(KEPT);
    }
}
