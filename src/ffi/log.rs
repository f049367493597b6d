//! Lines in the server's log.

use super::api::{Ctx, api};
use std::ffi::{CStr, CString};

pub(crate) fn notice(ctx: Ctx, line: &str) {
    write(ctx, c"notice", line);
}

pub(crate) fn warning(ctx: Ctx, line: &str) {
    write(ctx, c"warning", line);
}

/// Writes a line. The server puts the module's name in front, except if `ctx` is null.
fn write(ctx: Ctx, level: &CStr, line: &str) {
    let name = if ctx.is_null() { "leasehold: " } else { "" };
    let line = CString::new(format!("{name}{line}").replace('\0', "\\0")).unwrap_or_default();
    // SAFETY: the format takes one C string, and the three strings outlive the call.
    unsafe { api!(RedisModule_Log)(ctx, level.as_ptr(), c"%s".as_ptr(), line.as_ptr()) };
}
