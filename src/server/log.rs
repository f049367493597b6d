//! Lines in the server's log.

use super::api::api;
use redis_module::raw::RedisModuleCtx;
use std::ffi::{CStr, CString};

pub(super) fn notice(ctx: *mut RedisModuleCtx, line: &str) {
    write(ctx, c"notice", line);
}

pub(super) fn warning(ctx: *mut RedisModuleCtx, line: &str) {
    write(ctx, c"warning", line);
}

/// `ctx` may be null: the server then leaves the module's name out, so every line names it.
fn write(ctx: *mut RedisModuleCtx, level: &CStr, line: &str) {
    let line = CString::new(line.replace('\0', "\\0")).unwrap_or_default();
    // SAFETY: the format takes one C string, and the three strings outlive the call.
    unsafe { api!(RedisModule_Log)(ctx, level.as_ptr(), c"%s".as_ptr(), line.as_ptr()) };
}
