//! Whether a waiter that was granted the lock gets to hear of it.
//!
//! The server calls the reply callback also for a client that it has decided to close, as after `ACL DELUSER`. It drops
//! the reply, frees the client at the end of the same turn of its event loop, and calls no disconnect callback. So the
//! reply callback has to find out for itself, and a grant that is not going to be heard of goes back.
//!
//! ```text
//!   file events, timers   ACL DELUSER: the waiter is to be closed    a release: it is granted the lock
//!   beforeSleep           reply callback: is the client about to be closed?    yes: the grant goes back
//!                         replies are written, clients that are to be closed are freed
//! ```
//!
//! That the client is gone at the end of the turn proves nothing. It may have been sent its grant, and have ended by
//! a `QUIT` that it had sent ahead, a mistake in what it sent, or an eviction of clients. Then it keeps the lock:
//! that nobody holds a lock beside it (L1) comes before waiting for a lease in vain (L5).
//!
//! A client whose user is deleted is given the default user before it is closed. A client that waits cannot change its
//! user by itself, so whoever waited as another user and is the default user now is about to be closed. No time limit is needed
//! for this, and no command has to be recognized.
//!
//! For all other reasons, only `CLIENT LIST` tells that a client is about to be closed, and asking takes as long as half a
//! hand-off. So it is asked only about clients that the server may have decided to close while they waited: those that it
//! sends messages to, which have limits for that, and all of them on a Valkey with threads that read and write.

use super::ffi::api::optional;
use super::ffi::client::{self, User};
use super::ffi::main_thread::MainThread;
use super::ffi::server_flavor;
use super::host::Server;
use super::locks::LOCKS;
use leasehold_core::engine::WaiterGrant;
use redis_module::raw::{self, RedisModuleCtx};
use std::cell::Cell;
use std::ffi::CStr;

/// The setting that says whether threads of the server's write what clients are sent.
///
/// A Valkey that has such threads does not free a client whose connection has ended while one of them is writing to it. It
/// marks the client, calls the reply callback, and frees the client later.
pub(super) const THREADS_SETTING: &CStr = c"io-threads";

/// Not known until a waiter is first told of its grant, nor right after the setting has changed.
static THREADS_MAY_WRITE: MainThread<Cell<Option<bool>>> = MainThread::new(Cell::new(None));

/// The setting may have changed.
pub(super) fn reset() {
    THREADS_MAY_WRITE.set(None);
}

/// Where the server cannot be asked, because the command was renamed, there may be threads.
fn threads_may_write(ctx: *mut RedisModuleCtx) -> bool {
    THREADS_MAY_WRITE.get().unwrap_or_else(|| {
        let may = server_flavor::is_valkey(ctx)
            && server_flavor::setting(ctx, THREADS_SETTING).is_none_or(|threads| threads != b"1");
        THREADS_MAY_WRITE.set(Some(may));
        may
    })
}

/// The waiter whose context this is, and who began to wait as this user, is being sent the fence of its grant.
pub(super) fn sent(ctx: *mut RedisModuleCtx, granted: WaiterGrant, user: User) {
    let client = client::id(ctx);
    let is_without_user = user == User::Other && User::of(ctx, client) == User::Default;
    if is_without_user || (may_be_closing(ctx, client) && client::is_closing(ctx, client)) {
        LOCKS.mark_undeliverable(&Server { ctx }, granted);
    } else {
        LOCKS.mark_delivered(granted.fence.number());
    }
}

/// Redis 6.2 decides to close a client also when it notices that its connection has ended. Later servers free it there
/// and then.
fn may_be_closing(ctx: *mut RedisModuleCtx, client: u64) -> bool {
    let came_with_7_0 = optional!(RedisModule_GetCommand).is_some();
    let is_sent_messages = client::flags(client)
        & u64::from(
            raw::REDISMODULE_CLIENTINFO_FLAG_PUBSUB | raw::REDISMODULE_CLIENTINFO_FLAG_TRACKING,
        );
    !came_with_7_0 || is_sent_messages != 0 || threads_may_write(ctx)
}
