//! What replicas and the append-only file are told.
//!
//! Effects, not commands: a grant and every new end of a lease is `SET key value PXAT deadline`, a release is `DEL
//! key`. Where several hold a lock, one that comes is `APPEND key line`, one that changes or goes is `SETRANGE key
//! place bytes`, each with `PEXPIREAT key deadline`. So the data loads, replicates and reads the same on servers
//! without the module, and nothing depends on another server's clock.
//!
//! Nobody is told where nobody listens: [`listeners`] says when that is.

use super::ffi::api::{api, status};
use super::ffi::main_thread::MainThread;
use super::ffi::string::OwnedString;
use super::listeners::{self, Audience};
use leasehold_core::command::Error;
use leasehold_core::lock::Deadline;
use redis_module::raw::{RedisModuleCtx, RedisModuleString};
use std::cell::Cell;
use std::ffi::{CStr, c_int, c_longlong};
use std::io;
use std::ptr::{self, NonNull};

const SET: &CStr = c"SET";
const DEL: &CStr = c"DEL";
const APPEND: &CStr = c"APPEND";
const SETRANGE: &CStr = c"SETRANGE";
const PEXPIREAT: &CStr = c"PEXPIREAT";

/// Of Valkey (9.0 on): what is replicated need not be looked up among the commands each time. It was at load (see
/// [`obstacle`]), and no command is renamed after that.
pub(super) const SKIP_COMMAND_VALIDATION: u32 = 1 << 4;

/// The last two words of a grant, as strings of the server's that are kept. The first is always the same, and where
/// grants are many the second often is: those of one millisecond mostly end in one, too.
struct CachedExpiryArgs {
    pxat: Cell<Option<NonNull<RedisModuleString>>>,
    deadline: Cell<Option<(Deadline, NonNull<RedisModuleString>)>>,
}

static CACHED_EXPIRY_ARGS: MainThread<CachedExpiryArgs> =
    MainThread::new(CachedExpiryArgs { pxat: Cell::new(None), deadline: Cell::new(None) });

impl CachedExpiryArgs {
    fn pxat(&self) -> *mut RedisModuleString {
        if self.pxat.get().is_none() {
            self.pxat.set(kept(b"PXAT"));
        }
        self.pxat.get().map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    fn deadline(&self, deadline: Deadline) -> *mut RedisModuleString {
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

/// A string that outlives the command. The server makes one or ends itself: it is never null.
fn kept(bytes: &[u8]) -> Option<NonNull<RedisModuleString>> {
    let (start, len) = (bytes.as_ptr().cast(), bytes.len());
    // SAFETY: the server copies the bytes. Without a context, the string is nobody's but ours.
    NonNull::new(unsafe { api!(RedisModule_CreateString)(ptr::null_mut(), start, len) })
}

fn free(string: NonNull<RedisModuleString>) {
    // SAFETY: made by `kept`, and freed once: `CachedExpiryArgs` has let go of it. Whoever still replicates it has a share of
    // its own.
    unsafe { api!(RedisModule_FreeString)(ptr::null_mut(), string.as_ptr()) };
}

/// Has those who listen told of a change, if anybody does. What is only for them is made in `replicate`.
fn tell(ctx: *mut RedisModuleCtx, replicate: impl FnOnce() -> c_int) -> Result<(), Error> {
    match listeners::of_change(ctx) {
        Audience::Nobody => Ok(()),
        Audience::Somebody if replicate() == status(true) => Ok(()),
        Audience::Somebody => Err(Error::NotReplicated),
    }
}

pub(super) fn set(
    ctx: *mut RedisModuleCtx,
    name: *mut RedisModuleString,
    value: *mut RedisModuleString,
    deadline: Option<Deadline>,
) -> Result<(), Error> {
    tell(ctx, || set_of(ctx, name, value, deadline))
}

/// The same of a value that is no string of the server's yet.
pub(super) fn set_bytes(
    ctx: *mut RedisModuleCtx,
    name: *mut RedisModuleString,
    value: &[u8],
    deadline: Deadline,
) -> Result<(), Error> {
    tell(ctx, || set_of(ctx, name, OwnedString::new(ctx, value).string(), Some(deadline)))
}

fn set_of(
    ctx: *mut RedisModuleCtx,
    name: *mut RedisModuleString,
    value: *mut RedisModuleString,
    deadline: Option<Deadline>,
) -> c_int {
    let Some(deadline) = deadline else {
        // SAFETY: the format takes two strings; the server takes its own share of them.
        return unsafe {
            api!(RedisModule_Replicate)(ctx, SET.as_ptr(), c"ss".as_ptr(), name, value)
        };
    };
    // Strings throughout, although the format knows C strings and numbers: of these the server would make strings
    // each time, and this is the most of what a grant costs.
    let (pxat, deadline) = (CACHED_EXPIRY_ARGS.pxat(), CACHED_EXPIRY_ARGS.deadline(deadline));
    // SAFETY: the format takes four strings; the server takes its own share of them.
    unsafe {
        let format = c"ssss".as_ptr();
        api!(RedisModule_Replicate)(ctx, SET.as_ptr(), format, name, value, pxat, deadline)
    }
}

pub(super) fn del(ctx: *mut RedisModuleCtx, name: *mut RedisModuleString) -> Result<(), Error> {
    // SAFETY: the format takes one string.
    tell(ctx, || unsafe { api!(RedisModule_Replicate)(ctx, DEL.as_ptr(), c"s".as_ptr(), name) })
}

pub(super) fn append(
    ctx: *mut RedisModuleCtx,
    name: *mut RedisModuleString,
    line: &[u8],
) -> Result<(), Error> {
    tell(ctx, || {
        let line = OwnedString::new(ctx, line);
        // SAFETY: the format takes two strings; the server takes its own share of them.
        unsafe {
            let format = c"ss".as_ptr();
            api!(RedisModule_Replicate)(ctx, APPEND.as_ptr(), format, name, line.string())
        }
    })
}

pub(super) fn set_range(
    ctx: *mut RedisModuleCtx,
    name: *mut RedisModuleString,
    at: usize,
    bytes: &[u8],
) -> Result<(), Error> {
    tell(ctx, || {
        let at = c_longlong::try_from(at).unwrap_or(c_longlong::MAX);
        let bytes = OwnedString::new(ctx, bytes);
        // SAFETY: the format takes a string, a number and a string; the server takes its own share of the strings.
        unsafe {
            let format = c"sls".as_ptr();
            api!(RedisModule_Replicate)(ctx, SETRANGE.as_ptr(), format, name, at, bytes.string())
        }
    })
}

pub(super) fn expire_at(
    ctx: *mut RedisModuleCtx,
    name: *mut RedisModuleString,
    deadline: Deadline,
) -> Result<(), Error> {
    tell(ctx, || {
        let deadline = CACHED_EXPIRY_ARGS.deadline(deadline);
        // SAFETY: the format takes two strings; the server takes its own share of them.
        unsafe {
            api!(RedisModule_Replicate)(ctx, PEXPIREAT.as_ptr(), c"ss".as_ptr(), name, deadline)
        }
    })
}

/// Counts a change that nobody is told of, for the server's `save` rules.
pub(super) fn count(ctx: *mut RedisModuleCtx) {
    // SAFETY: the format takes nothing. It says that neither replicas nor the file are told.
    let outcome = unsafe { api!(RedisModule_Replicate)(ctx, DEL.as_ptr(), c"AR".as_ptr()) };
    debug_assert_eq!(outcome, status(true));
}

/// The same, many times as fast. Only where the server has just said that nobody listens: who does is told of whatever the
/// context's client runs.
pub(super) fn count_where_nobody_listens(ctx: *mut RedisModuleCtx) {
    // SAFETY: takes a context that has a client, as those of events have.
    unsafe { api!(RedisModule_ReplicateVerbatim)(ctx) };
}

/// A deadline as the server counts it. None is near the end of the signed range: see `Ttl::LONGEST`.
pub(super) fn signed_millis(deadline: Deadline) -> c_longlong {
    c_longlong::try_from(deadline.millis()).unwrap_or(c_longlong::MAX)
}

/// Why grants and releases could not be replicated here; `None` if they can.
///
/// The server looks up the command it is told to replicate by name. With `rename-command SET ...` the name
/// is gone: grants would be made, and silently missing from every replica and the file.
pub(super) fn obstacle(ctx: *mut RedisModuleCtx) -> Option<String> {
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

/// Asks for the keys of the command without any, and nothing is executed: an unknown one is told from a known one by the error.
fn is_unknown(ctx: *mut RedisModuleCtx, name: &CStr) -> bool {
    let name = OwnedString::new(ctx, name.to_bytes());
    let (mut words, mut count) = ([name.string()], 0);
    // SAFETY: one valid string, which the server only reads. There are no keys, so the server makes no list of them.
    let keys =
        unsafe { api!(RedisModule_GetCommandKeys)(ctx, words.as_mut_ptr(), 1, &raw mut count) };
    debug_assert!(keys.is_null());
    io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT)
}
