//! Replicates changes to replicas and the append-only file.
//!
//! It replicates effects, not commands: a grant and every new deadline is `SET key value PXAT deadline`, a release is
//! `DEL key`. If several owners hold a lock, a new holder is `APPEND key line`, and a holder that changes or leaves is
//! `SETRANGE key place bytes`, each with `PEXPIREAT key deadline`. So servers without the module load, replicate and
//! read the same data, and nothing depends on another server's clock.
//!
//! Nothing is replicated while nobody listens: see [`listeners`].

use super::listeners::{self, Audience};
use crate::authority;
use crate::ffi::{Ctx, MainThread, OwnedString, RawString, api, status};
use leasehold_core::command::Error;
use leasehold_core::engine::Authority;
use leasehold_core::lock::Deadline;
use redis_module::raw::RedisModuleString;
use std::cell::Cell;
use std::ffi::{CStr, c_int, c_longlong};
use std::io;
use std::ptr::{self, NonNull};

const SET: &CStr = c"SET";
const DEL: &CStr = c"DEL";
const APPEND: &CStr = c"APPEND";
const SETRANGE: &CStr = c"SETRANGE";
const PEXPIREAT: &CStr = c"PEXPIREAT";

/// A flag of Valkey (9.0 on): Valkey need not look up each replicated command. [`obstacle`] has done that at load, and
/// no command is renamed after it.
pub(crate) const SKIP_COMMAND_VALIDATION: u32 = 1 << 4;

/// The last two words of a grant, kept as strings of the server. The first is constant. Under load the second repeats:
/// grants of the same millisecond usually have the same deadline.
struct CachedExpiryArgs {
    pxat: Cell<Option<NonNull<RedisModuleString>>>,
    deadline: Cell<Option<(Deadline, NonNull<RedisModuleString>)>>,
}

static CACHED_EXPIRY_ARGS: MainThread<CachedExpiryArgs> =
    MainThread::new(CachedExpiryArgs { pxat: Cell::new(None), deadline: Cell::new(None) });

impl CachedExpiryArgs {
    fn pxat(&self) -> RawString {
        if self.pxat.get().is_none() {
            self.pxat.set(kept(b"PXAT"));
        }
        self.pxat.get().map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    fn deadline(&self, deadline: Deadline) -> RawString {
        if let Some((last, string)) = self.deadline.get()
            && last == deadline
        {
            return string.as_ptr();
        }
        let string = kept(itoa::Buffer::new().format(signed_millis(deadline)).as_bytes());
        if let Some((_, former)) = self.deadline.replace(string.map(|string| (deadline, string))) {
            free(former);
        }
        string.map_or(ptr::null_mut(), NonNull::as_ptr)
    }
}

/// A string that outlives the command. Never null: a server without memory ends itself.
fn kept(bytes: &[u8]) -> Option<NonNull<RedisModuleString>> {
    let (start, len) = (bytes.as_ptr().cast(), bytes.len());
    // SAFETY: the server copies the bytes. A string without a context is freed only by us.
    NonNull::new(unsafe { api!(RedisModule_CreateString)(ptr::null_mut(), start, len) })
}

fn free(string: NonNull<RedisModuleString>) {
    // SAFETY: made by `kept` and freed once, since `CachedExpiryArgs` has let go of it. A replication that still needs
    // the string holds its own reference.
    unsafe { api!(RedisModule_FreeString)(ptr::null_mut(), string.as_ptr()) };
}

/// Tells the listeners of a change, if there are any. Work that only they need is done in `replicate`.
fn tell(ctx: Ctx, replicate: impl FnOnce() -> c_int) -> Result<(), Error> {
    match listeners::of_change(ctx) {
        Audience::Nobody => Ok(()),
        Audience::Somebody if replicate() == status(true) => Ok(()),
        // A command may have been executed right behind the pause, in one transaction.
        Audience::Somebody if authority::of_the_server(ctx) == Authority::NotNow => {
            Err(Error::NotNow)
        }
        Audience::Somebody => Err(Error::NotReplicated),
    }
}

pub(crate) fn set(
    ctx: Ctx,
    name: RawString,
    value: RawString,
    deadline: Option<Deadline>,
) -> Result<(), Error> {
    tell(ctx, || set_of(ctx, name, value, deadline))
}

/// Like `set`, for a value that is not yet a string of the server.
pub(crate) fn set_bytes(
    ctx: Ctx,
    name: RawString,
    value: &[u8],
    deadline: Deadline,
) -> Result<(), Error> {
    tell(ctx, || set_of(ctx, name, OwnedString::new(ctx, value).string(), Some(deadline)))
}

fn set_of(ctx: Ctx, name: RawString, value: RawString, deadline: Option<Deadline>) -> c_int {
    let Some(deadline) = deadline else {
        // SAFETY: the format takes two strings, and the server takes its own reference to each.
        return unsafe {
            api!(RedisModule_Replicate)(ctx, SET.as_ptr(), c"ss".as_ptr(), name, value)
        };
    };
    // Strings throughout, although the format also knows C strings and numbers: the server would convert those to
    // strings each time, and that is most of a grant's cost.
    let (pxat, deadline) = (CACHED_EXPIRY_ARGS.pxat(), CACHED_EXPIRY_ARGS.deadline(deadline));
    // SAFETY: the format takes four strings, and the server takes its own reference to each.
    unsafe {
        let format = c"ssss".as_ptr();
        api!(RedisModule_Replicate)(ctx, SET.as_ptr(), format, name, value, pxat, deadline)
    }
}

pub(crate) fn del(ctx: Ctx, name: RawString) -> Result<(), Error> {
    // SAFETY: the format takes one string.
    tell(ctx, || unsafe { api!(RedisModule_Replicate)(ctx, DEL.as_ptr(), c"s".as_ptr(), name) })
}

pub(crate) fn append(ctx: Ctx, name: RawString, line: &[u8]) -> Result<(), Error> {
    tell(ctx, || {
        let line = OwnedString::new(ctx, line);
        // SAFETY: the format takes two strings, and the server takes its own reference to each.
        unsafe {
            let format = c"ss".as_ptr();
            api!(RedisModule_Replicate)(ctx, APPEND.as_ptr(), format, name, line.string())
        }
    })
}

pub(crate) fn set_range(ctx: Ctx, name: RawString, at: usize, bytes: &[u8]) -> Result<(), Error> {
    tell(ctx, || {
        let at = c_longlong::try_from(at).unwrap_or(c_longlong::MAX);
        let bytes = OwnedString::new(ctx, bytes);
        // SAFETY: the format takes a string, a number and a string, and the server takes its own reference to the
        // strings.
        unsafe {
            let format = c"sls".as_ptr();
            api!(RedisModule_Replicate)(ctx, SETRANGE.as_ptr(), format, name, at, bytes.string())
        }
    })
}

pub(crate) fn expire_at(ctx: Ctx, name: RawString, deadline: Deadline) -> Result<(), Error> {
    tell(ctx, || {
        let deadline = CACHED_EXPIRY_ARGS.deadline(deadline);
        // SAFETY: the format takes two strings, and the server takes its own reference to each.
        unsafe {
            api!(RedisModule_Replicate)(ctx, PEXPIREAT.as_ptr(), c"ss".as_ptr(), name, deadline)
        }
    })
}

/// A deadline as the server counts it. No deadline is near the end of the signed range: see `Ttl::LONGEST`.
pub(crate) fn signed_millis(deadline: Deadline) -> c_longlong {
    c_longlong::try_from(deadline.millis()).unwrap_or(c_longlong::MAX)
}

/// Why this server could not replicate grants and releases. `None` if it can.
///
/// The server looks up the replicated command by name. After `rename-command SET ...` the name is gone: grants would
/// be made, and would silently be missing from every replica and the file.
pub(crate) fn obstacle(ctx: Ctx) -> Option<String> {
    let (beside, changed) = ("a grant beside others", "a change beside others");
    let needed = [
        (SET, "a grant"),
        (DEL, "a release"),
        (APPEND, beside),
        (SETRANGE, changed),
        (PEXPIREAT, changed),
    ];
    needed.into_iter().find(|(name, _)| is_unknown(ctx, name)).map(|(name, what)| {
        let name = name.to_string_lossy();
        format!(
            "the command {name} is renamed or disabled (rename-command), \
                 and {what} is replicated as {name}"
        )
    })
}

/// Asks for the keys of the command without arguments, which executes nothing. The error tells an unknown command from
/// a known one.
fn is_unknown(ctx: Ctx, name: &CStr) -> bool {
    let name = OwnedString::new(ctx, name.to_bytes());
    let (mut words, mut count) = ([name.string()], 0);
    // SAFETY: one valid string, which the server only reads. There are no keys, so the server makes no list of them.
    let keys =
        unsafe { api!(RedisModule_GetCommandKeys)(ctx, words.as_mut_ptr(), 1, &raw mut count) };
    debug_assert!(keys.is_null());
    io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT)
}
