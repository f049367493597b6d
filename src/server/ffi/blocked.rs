//! The server's handle of a client that a module has blocked.

use super::api::api;
use redis_module::raw::{self, RedisModuleBlockedClient, RedisModuleCtx};
use std::ffi::c_void;
use std::ptr::{self, NonNull};

/// By which a client is unblocked. There is one for each blocked client, it cannot be copied, and [`Handle::unblock`] takes
/// it: so nobody is unblocked twice, of which the server dies. It must not be lost, or its client stays blocked.
#[derive(Debug)]
#[must_use]
pub(crate) struct Handle(NonNull<RedisModuleBlockedClient>);

/// By which a blocked client is known, and not unblocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address(*mut RedisModuleBlockedClient);

/// What the server calls for a blocked client.
#[derive(Clone, Copy)]
pub(crate) struct Callbacks {
    pub(crate) reply: raw::RedisModuleCmdFunc,
    /// For a client that `CLIENT UNBLOCK` ends. Without it, the server refuses that.
    pub(crate) interrupted: raw::RedisModuleCmdFunc,
    pub(crate) disconnected: raw::RedisModuleDisconnectFunc,
    /// Gets what [`Handle::unblock`] was given, last of all.
    pub(crate) free:
        Option<unsafe extern "C" fn(ctx: *mut RedisModuleCtx, private_data: *mut c_void)>,
}

impl Handle {
    /// Blocks the client of the command being executed, without a native timeout. `None` if the server does not block it.
    pub(crate) fn block(ctx: *mut RedisModuleCtx, callbacks: Callbacks) -> Option<Self> {
        let Callbacks { reply, interrupted, disconnected, free } = callbacks;
        // SAFETY: the context is that of the command being executed, in which blocking is allowed; the callbacks
        // have the signatures the server calls; 0 is no native timeout.
        let handle = unsafe { api!(RedisModule_BlockClient)(ctx, reply, interrupted, free, 0) };
        let handle = NonNull::new(handle)?;
        // SAFETY: the handle is new and valid; the callback has the signature the server calls.
        unsafe { api!(RedisModule_SetDisconnectCallback)(handle.as_ptr(), disconnected) };
        Some(Self(handle))
    }

    pub(crate) fn address(&self) -> Address {
        Address(self.0.as_ptr())
    }

    /// For a callback of the server's, which gets it back.
    pub(crate) fn into_raw(self) -> *mut c_void {
        self.0.as_ptr().cast()
    }

    /// # Safety
    /// It is what [`Handle::into_raw`] returned, come back for the first and only time.
    pub(crate) unsafe fn from_raw(raw: *mut c_void) -> Option<Self> {
        NonNull::new(raw.cast()).map(Self)
    }

    /// Unblocks the client, and lets this reply to it.
    pub(crate) fn reply(self, reply: impl FnOnce(*mut RedisModuleCtx)) {
        // SAFETY: the handle came from `block`; the context is freed before the client is unblocked.
        unsafe {
            let ctx = api!(RedisModule_GetThreadSafeContext)(self.0.as_ptr());
            reply(ctx);
            api!(RedisModule_FreeThreadSafeContext)(ctx);
        }
        self.unblock(ptr::null_mut());
    }

    /// Unblocks the client. The callbacks that come after it find this data.
    pub(crate) fn unblock(self, private_data: *mut c_void) {
        // SAFETY: the handle came from `block`, and this is the only time that it is used: it is consumed here.
        unsafe { api!(RedisModule_UnblockClient)(self.0.as_ptr(), private_data) };
    }
}

impl From<*mut RedisModuleBlockedClient> for Address {
    fn from(handle: *mut RedisModuleBlockedClient) -> Self {
        Self(handle)
    }
}
