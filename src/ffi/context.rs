//! A context that belongs to no command.

use super::api::{Ctx, api};
use super::main_thread::MainThread;
use redis_module::raw::RedisModuleCtx;
use std::cell::Cell;
use std::ptr::NonNull;

static DETACHED: MainThread<Cell<Option<NonNull<RedisModuleCtx>>>> =
    MainThread::new(Cell::new(None));

/// Makes the detached context, unless it exists, from any call's context.
pub(crate) fn detach(ctx: Ctx) {
    if DETACHED.get().is_none() {
        // SAFETY: takes a valid context.
        let detached = unsafe { api!(RedisModule_GetDetachedThreadSafeContext)(ctx) };
        DETACHED.set(NonNull::new(detached));
    }
}

/// The detached context. `None` until it is made.
pub(crate) fn detached() -> Option<Ctx> {
    DETACHED.get().map(NonNull::as_ptr)
}

/// Frees the detached context when the server unloads the module.
pub(crate) fn free() {
    if let Some(ctx) = DETACHED.take() {
        // SAFETY: made in `detach` and forgotten just now.
        unsafe { api!(RedisModule_FreeThreadSafeContext)(ctx.as_ptr()) };
    }
}
