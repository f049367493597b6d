//! Finds waiters that were granted the lock and will never receive the grant.
//!
//! The server calls the reply callback also for a client that it has decided to close, as after `ACL DELUSER`. The
//! server drops the reply, frees the client at the end of the same turn of its event loop, and calls no disconnect
//! callback. So the reply callback itself must find out, and return a grant that will not be delivered.
//!
//! ```text
//!   file events, timers   ACL DELUSER: the waiter will be closed     a release: it is granted the lock
//!   beforeSleep           reply callback: is the client about to be closed?    yes: the grant goes back
//!                         replies are written, clients that are to be closed are freed
//! ```
//!
//! A client that is gone at the end of the turn may have received its grant: its connection may have ended because of
//! a pipelined `QUIT`, a protocol error, or client eviction. Then it keeps the lock, because one holder at a time (L1)
//! matters more than a needless wait for the end of a lease (L5).
//!
//! The server gives a client the default user before it closes the client for a deleted user. A waiting client cannot
//! change its user. So a client that began to wait as another user, and now has the default user, is about to be
//! closed. This needs no time limit, and no command must be recognized.
//!
//! For all other reasons, only `CLIENT LIST` shows that a client is about to be closed, and asking costs half a
//! hand-off. So the module asks only about clients that the server may have decided to close while they waited:
//! clients that receive messages, whose output buffers are limited, and all clients on a Valkey with I/O threads.

use super::host::Server;
use crate::engine::ENGINE;
use crate::ffi::{Ctx, MainThread, User, client, optional, server_flavor};
use leasehold_core::engine::WaiterGrant;
use redis_module::raw;
use std::cell::Cell;
use std::ffi::CStr;

/// The setting that says how many I/O threads the server has.
///
/// A Valkey with I/O threads does not free a client whose connection ends while a thread writes to it. Valkey marks
/// the client, calls the reply callback, and frees the client later.
pub(crate) const THREADS_SETTING: &CStr = c"io-threads";

/// Unknown until the first waiter is sent its grant, and after the setting has changed.
static THREADS_MAY_WRITE: MainThread<Cell<Option<bool>>> = MainThread::new(Cell::new(None));

/// Forgets the setting, which may have changed.
pub(crate) fn reset() {
    THREADS_MAY_WRITE.set(None);
}

/// Whether threads write to clients. If `CONFIG` was renamed, nobody can be asked, and there may be threads.
fn threads_may_write(ctx: Ctx) -> bool {
    THREADS_MAY_WRITE.get().unwrap_or_else(|| {
        let may = server_flavor::is_valkey(ctx)
            && server_flavor::setting(ctx, THREADS_SETTING).is_none_or(|threads| threads != b"1");
        THREADS_MAY_WRITE.set(Some(may));
        may
    })
}

/// The waiter of this context, who began to wait as this user, is being sent the fence of its grant.
pub(crate) fn sent(ctx: Ctx, granted: WaiterGrant, user: User) {
    let client = client::id(ctx);
    let is_without_user = user == User::Other && User::of(ctx, client) == User::Default;
    if is_without_user || (may_be_closing(ctx, client) && client::is_closing(ctx, client)) {
        ENGINE.on(&Server { ctx }).mark_undeliverable(granted);
    } else {
        ENGINE.mark_delivered(granted.fence.number());
    }
}

/// Whether the server may have decided to close the client while it waited. Redis 6.2 also does so when it notices
/// that the connection has ended. Later servers free such a client immediately.
fn may_be_closing(ctx: Ctx, client: u64) -> bool {
    let came_with_7_0 = optional!(RedisModule_GetCommand).is_some();
    let is_sent_messages = client::flags(client)
        & u64::from(
            raw::REDISMODULE_CLIENTINFO_FLAG_PUBSUB | raw::REDISMODULE_CLIENTINFO_FLAG_TRACKING,
        );
    !came_with_7_0 || is_sent_messages != 0 || threads_may_write(ctx)
}
