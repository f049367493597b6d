//! The reply of a guarded command, when another module holds it back.
//!
//! Valkey from 9.0 on lets a module block a client inside a keyspace event: the command has been executed, and its
//! reply waits until the module has handled the change, for example in a search index. If a module does so while the
//! client must not be blocked, the server crashes. So guarded commands are called as ones that may block (`K`), and
//! the client of `LOCK.GUARD` waits for the reply.
//!
//! This is not for commands that block by themselves, such as `BLPOP`: they must reply at once. Nor is it for Redis,
//! where no event can block a client, and where `FLUSHALL` would block if it were allowed to.

use crate::ffi::{CallReply, Callbacks, Ctx, Handle, MainThread, server_flavor};
use crate::reply::respond;
use crate::{authority, guard};
use leasehold_core::command::{Error, Reply};
use redis_module::raw::RedisModuleCallReply;
use std::cell::Cell;
use std::ffi::c_void;

static IS_POSSIBLE: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// Decides once whether modules can hold replies back on this server.
pub(crate) fn decide_whether_possible(ctx: Ctx) {
    IS_POSSIBLE.set(CallReply::may_be_promised() && server_flavor::lets_events_block(ctx));
}

pub(crate) fn is_possible() -> bool {
    IS_POSSIBLE.get()
}

/// Blocks the client of the current command until the reply arrives, then forwards the reply. Returns an error if the
/// client cannot be blocked: the guarded command has been executed, and nobody learns its reply.
pub(crate) fn wait(ctx: Ctx, promise: &CallReply) -> Result<(), Error> {
    if authority::denies_blocking(ctx) {
        return Err(Error::GuardedHeldBack);
    }
    let callbacks = Callbacks { reply: None, interrupted: None, disconnected: None, free: None };
    let handle = Handle::block(ctx, callbacks).ok_or(Error::GuardedHeldBack)?;
    promise.when_kept(Some(kept), handle.into_raw());
    Ok(())
}

/// The reply has arrived. The client may be gone.
unsafe extern "C" fn kept(_ctx: Ctx, reply: *mut RedisModuleCallReply, handle: *mut c_void) {
    // SAFETY: the server gives up the reply, and passes back the handle that `wait` gave it.
    let (reply, handle) = unsafe { (CallReply::given(reply), Handle::from_raw(handle)) };
    let (Some(reply), Some(handle)) = (reply, handle) else { return };
    handle.reply(|ctx| {
        let outcome = guard::value("reply-kept", Err(Error::Internal), || {
            if reply.forward(ctx) { Ok(()) } else { Err(Error::GuardedRefused) }
        });
        if let Err(error) = outcome {
            respond(ctx, Reply::Error(error));
        }
    });
}
