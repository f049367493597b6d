//! What the server says of its slots.

use super::api::api;
use super::key::OwnedString;
use super::reply::Reply;
use crate::cluster::{OwnSlots, Slot};
use redis_module::raw::RedisModuleCtx;
use std::ffi::CStr;
use std::io;

#[cfg(not(target_os = "macos"))]
use libc::__errno_location as errno;
#[cfg(target_os = "macos")]
use libc::__error as errno;

/// Whether the server serves the slot now, and the slot is not on its way out.
///
/// The server is asked to read a key of the slot that does not exist: it refuses if the slot is
/// elsewhere, nobody's, on its way in or on its way out. The context is not that of a command: the
/// server serves more to clients that come with `ASKING`.
pub(super) fn is_served(ctx: *mut RedisModuleCtx, slot: Slot) -> bool {
    let key = OwnedString::new(ctx, &slot.vacant_key());
    let refusal = match exists(ctx, &key, c"Ds") {
        // Before Redis 7.2 there is no dry run.
        (_, libc::EBADF) => match exists(ctx, &key, c"s") {
            (Some(_), _) => 0,
            (None, refusal) => refusal,
        },
        (_, refusal) => refusal,
    };
    match refusal {
        0 => true,
        libc::EPERM => false,
        // While the cluster is down the server does not say whose slot it is. Nor where EXISTS is
        // renamed.
        _ => own_slots(ctx).is_some_and(|own| own.settled.contains(slot)),
    }
}

/// Has the server execute `EXISTS`; its reply, and the error number. Of a dry run only the latter
/// means something: some servers reply to one that succeeds, and some do not.
fn exists(ctx: *mut RedisModuleCtx, key: &OwnedString, format: &CStr) -> (Option<Reply>, i32) {
    // SAFETY: the format takes one string; the reply goes nowhere else. The error number is this
    // thread's own.
    let reply = unsafe {
        *errno() = 0;
        Reply::of_call(api!(RedisModule_Call)(
            ctx,
            c"EXISTS".as_ptr(),
            format.as_ptr(),
            key.string(),
        ))
    };
    (reply, io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// `None` if `CLUSTER` is renamed.
pub(super) fn own_slots(ctx: *mut RedisModuleCtx) -> Option<OwnSlots> {
    // SAFETY: the format takes one C string; the reply goes nowhere else.
    let reply = unsafe {
        Reply::of_call(api!(RedisModule_Call)(
            ctx,
            c"CLUSTER".as_ptr(),
            c"c".as_ptr(),
            c"NODES".as_ptr(),
        ))
    };
    OwnSlots::read(reply?.text()?)
}
