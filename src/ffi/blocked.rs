//! The server's handle of a blocked client.

use super::api::{Ctx, api};
use redis_module::raw::{self, RedisModuleBlockedClient};
use std::ffi::c_void;
use std::ptr::{self, NonNull};

/// Unblocks a client. There is one handle for each blocked client, it cannot be copied, and [`Handle::unblock`]
/// consumes it. So no client is unblocked twice, which would crash the server. A lost handle leaves its client
/// blocked.
#[derive(Debug)]
#[must_use]
pub(crate) struct Handle(NonNull<RedisModuleBlockedClient>);

/// Identifies a blocked client, and cannot unblock it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address(*mut RedisModuleBlockedClient);

/// The functions that the server calls for a blocked client.
#[derive(Clone, Copy)]
pub(crate) struct Callbacks {
    pub(crate) reply: raw::RedisModuleCmdFunc,
    /// For a client that `CLIENT UNBLOCK` ends. Without this callback the server refuses `CLIENT UNBLOCK`.
    pub(crate) interrupted: raw::RedisModuleCmdFunc,
    pub(crate) disconnected: raw::RedisModuleDisconnectFunc,
    /// Called last. Gets what was passed to [`Handle::unblock`].
    pub(crate) free: Option<unsafe extern "C" fn(ctx: Ctx, private_data: *mut c_void)>,
}

impl Handle {
    /// Blocks the client of the current command, without a native timeout. `None` if the server does not block the
    /// client.
    pub(crate) fn block(ctx: Ctx, callbacks: Callbacks) -> Option<Self> {
        let Callbacks { reply, interrupted, disconnected, free } = callbacks;
        // SAFETY: the context is that of the current command, in which blocking is allowed. The callbacks have the
        // signatures that the server calls. 0 means no native timeout.
        let handle = unsafe { api!(RedisModule_BlockClient)(ctx, reply, interrupted, free, 0) };
        let handle = NonNull::new(handle)?;
        // SAFETY: the handle is new and valid, and the callback has the signature that the server calls.
        unsafe { api!(RedisModule_SetDisconnectCallback)(handle.as_ptr(), disconnected) };
        Some(Self(handle))
    }

    pub(crate) fn address(&self) -> Address {
        Address(self.0.as_ptr())
    }

    /// For a server callback, which gets the handle back.
    pub(crate) fn into_raw(self) -> *mut c_void {
        self.0.as_ptr().cast()
    }

    /// # Safety
    /// `raw` is what [`Handle::into_raw`] returned, and comes back for the first and only time.
    pub(crate) unsafe fn from_raw(raw: *mut c_void) -> Option<Self> {
        NonNull::new(raw.cast()).map(Self)
    }

    /// Unblocks the client, after `reply` has replied to it.
    pub(crate) fn reply(self, reply: impl FnOnce(Ctx)) {
        // SAFETY: the handle came from `block`, and the context is freed before the client is unblocked.
        unsafe {
            let ctx = api!(RedisModule_GetThreadSafeContext)(self.0.as_ptr());
            reply(ctx);
            api!(RedisModule_FreeThreadSafeContext)(ctx);
        }
        self.unblock(ptr::null_mut());
    }

    /// Unblocks the client. The callbacks that follow get this data.
    pub(crate) fn unblock(self, private_data: *mut c_void) {
        // SAFETY: the handle came from `block`, and is used only once, because it is consumed here.
        unsafe { api!(RedisModule_UnblockClient)(self.0.as_ptr(), private_data) };
    }
}

impl From<*mut RedisModuleBlockedClient> for Address {
    fn from(handle: *mut RedisModuleBlockedClient) -> Self {
        Self(handle)
    }
}
