//! The reply of a guarded command that another module holds back.
//!
//! Valkey from 9.0 on lets a module block a client by a key event: the command has been executed, and its reply waits until
//! the module has dealt with the change, as until a search index has it. Where a client must not be blocked, and a module
//! does so, the server dies. So guarded commands are called as ones that may be blocked (`K`), and then it is the client of
//! `LOCK.GUARD` that waits for the reply.
//!
//! This is not for commands that block by themselves, such as `BLPOP`, which are to reply at once. Nor for Redis: it lets no
//! event block a client, and `FLUSHALL` would block there unless it must not.

use super::ffi::blocked::{Callbacks, Handle};
use super::ffi::call_reply::CallReply;
use super::ffi::main_thread::MainThread;
use super::ffi::server_flavor;
use super::respond::respond;
use super::{authority, guard};
use leasehold_core::command::{Error, Reply};
use redis_module::raw::{RedisModuleCallReply, RedisModuleCtx};
use std::cell::Cell;
use std::ffi::c_void;

static IS_POSSIBLE: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// Decides once whether the server lets modules hold back replies.
pub(super) fn decide_whether_possible(ctx: *mut RedisModuleCtx) {
    IS_POSSIBLE.set(CallReply::may_be_promised() && server_flavor::lets_events_block(ctx));
}

pub(super) fn is_possible() -> bool {
    IS_POSSIBLE.get()
}

/// Blocks the client of the command being executed until the reply comes, which it then gets. An error where it cannot be
/// blocked: the guarded command has been executed, and nobody is told what it replies.
pub(super) fn wait(ctx: *mut RedisModuleCtx, promise: &CallReply) -> Result<(), Error> {
    if authority::denies_blocking(ctx) {
        return Err(Error::GuardedHeldBack);
    }
    let callbacks = Callbacks { reply: None, interrupted: None, disconnected: None, free: None };
    let handle = Handle::block(ctx, callbacks).ok_or(Error::GuardedHeldBack)?;
    promise.when_kept(Some(kept), handle.into_raw());
    Ok(())
}

/// The reply has come, whether or not the client is still there.
unsafe extern "C" fn kept(
    _ctx: *mut RedisModuleCtx,
    reply: *mut RedisModuleCallReply,
    handle: *mut c_void,
) {
    // SAFETY: the server gives the reply away, and what `wait` gave it.
    let (reply, handle) = unsafe { (CallReply::given(reply), Handle::from_raw(handle)) };
    let (Some(reply), Some(handle)) = (reply, handle) else { return };
    handle.reply(|ctx| {
        let outcome = guard::value("reply-kept", Err(Error::Internal), || {
            if reply.forward(ctx) { Ok(()) } else { Err(Error::GuardedRefused) }
        });
        if let Err(error) = outcome {
            respond(ctx, &Reply::Error(error));
        }
    });
}
