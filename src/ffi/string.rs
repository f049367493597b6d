//! Strings of the server.

use super::api::api;
use redis_module::raw::{RedisModuleCtx, RedisModuleString};
use std::mem::ManuallyDrop;
use std::slice;

/// The bytes of a server string.
///
/// # Safety
/// The string is valid, and neither freed nor changed while the bytes are in use.
pub(crate) unsafe fn bytes_of<'s>(string: *mut RedisModuleString) -> &'s [u8] {
    let mut len = 0;
    // SAFETY: the caller guarantees that the string is valid. The server returns its bytes and their number.
    unsafe {
        let bytes = api!(RedisModule_StringPtrLen)(string, &raw mut len);
        slice::from_raw_parts(bytes.cast(), len)
    }
}

/// A server string that is ours to free.
pub(crate) struct OwnedString {
    ctx: *mut RedisModuleCtx,
    string: *mut RedisModuleString,
}

impl OwnedString {
    pub(crate) fn new(ctx: *mut RedisModuleCtx, bytes: &[u8]) -> Self {
        // SAFETY: the server copies the bytes.
        let string =
            unsafe { api!(RedisModule_CreateString)(ctx, bytes.as_ptr().cast(), bytes.len()) };
        Self { ctx, string }
    }

    /// # Safety
    /// The string belongs to the server, and nobody else frees it.
    pub(crate) unsafe fn given(ctx: *mut RedisModuleCtx, string: *mut RedisModuleString) -> Self {
        Self { ctx, string }
    }

    pub(crate) fn string(&self) -> *mut RedisModuleString {
        self.string
    }

    /// Gives up ownership without freeing the string.
    pub(crate) fn given_away(self) -> *mut RedisModuleString {
        ManuallyDrop::new(self).string
    }
}

impl Drop for OwnedString {
    fn drop(&mut self) {
        // SAFETY: created in `new` or handed over in `given`, and freed once here. Another user of the value holds its
        // own reference.
        unsafe { api!(RedisModule_FreeString)(self.ctx, self.string) };
    }
}
