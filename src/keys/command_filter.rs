//! The command filter, which notices commands of other clients that may free a contended lock.
//!
//! Keyspace events would be exact. But the server makes them for every key of every client: each `DEL` and each `SET`
//! with an expiry would cost a few percent more. Most servers cannot unsubscribe, so the cost would last as long as
//! the module is loaded. Every server can remove a **command filter**. The filter is installed when the first client
//! begins to wait, and removed when nobody waits any more.
//!
//! ```text
//!   a client's command ──► filter ──► is one of its words the name of a contended lock?
//!                                     no: nothing    yes: may it change the lock?
//!                                                         no: nothing    yes: suspect it, look at it soon
//! ```
//!
//! The filter does not know whether the command is allowed. So a suspicion only makes the module look at the key, at
//! most once in a while. If the words do not tell, the command counts as one that frees the lock. A command that only
//! reads frees no lock: it may make the server notice an expiry, but the module knows when the lease ends. A command in
//! a transaction passes the filter when it is queued, not when it is executed, so
//! [`Queues::suspect`](leasehold_core::lock::Queues::suspect) makes the module look for a while. Changes that name no
//! key arrive as their own events (a flush, a swap, an eviction), or are found when each contended lock is rechecked.

use super::eviction;
use crate::cluster::slots;
use crate::engine::ENGINE;
use crate::ffi::{CallReply, Ctx, MainThread, api, bytes_of, call_filter, context, flag};
use crate::{clock, guard};
use leasehold_core::lock::Suspicion;
use redis_module::raw::{self, RedisModuleCommandFilterCtx};
use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr::NonNull;

const OURS: &[u8] = b"lock.";

/// The filter, while somebody waits.
static FILTER: MainThread<Cell<Option<NonNull<raw::RedisModuleCommandFilter>>>> =
    MainThread::new(Cell::new(None));

/// The commands that only read. Unknown until the first client waits.
static READERS: MainThread<Readers> = MainThread::new(Readers::new());

pub(crate) fn reset() {
    FILTER.set(None);
    READERS.reset();
    call_filter::enter_by(Some(called));
}

/// Installs the filter, unless it is installed: somebody waits.
pub(crate) fn install(ctx: Ctx) {
    if FILTER.get().is_some() {
        return;
    }
    READERS.learn(ctx);
    // The server passes no module context to a filter.
    context::detach(ctx);
    // The module itself probes contended keys with commands: see `authority`.
    let flags = flag(raw::REDISMODULE_CMDFILTER_NOSELF);
    // SAFETY: the callback has the signature that the server calls.
    let filter = unsafe { api!(RedisModule_RegisterCommandFilter)(ctx, Some(filter), flags) };
    FILTER.set(NonNull::new(filter));
}

/// In a cluster the filter is always installed, to see slots come and go.
pub(crate) fn install_in_cluster(ctx: Ctx) {
    if slots::is_in_cluster() {
        install(ctx);
    }
}

/// Removes the filter if nobody waits. Called with a delay after the last waiter has left, because the next waiter may
/// come soon.
pub(crate) fn remove_if_idle(ctx: Ctx) {
    if !ENGINE.with_queues(|queues| queues.is_empty()) {
        return;
    }
    eviction::nobody_waits(ctx);
    if !slots::is_in_cluster()
        && let Some(filter) = FILTER.take()
    {
        // SAFETY: registered in `install` and forgotten just now; no filter is being called.
        unsafe { api!(RedisModule_UnregisterCommandFilter)(ctx, filter.as_ptr()) };
    }
}

unsafe extern "C" fn filter(filtered: *mut RedisModuleCommandFilterCtx) {
    let Some(ctx) = context::detached() else { return };
    guard::event("filter", ctx, || {
        if slots::is_in_cluster() {
            slots::hear(ctx, Words::starting_at(0, filtered));
        }
        // The command's name is not the name of a lock.
        ENGINE.suspect(Words::starting_at(1, filtered), || suspicion(filtered), clock::now);
    });
}

/// The server is about to execute a command that the module calls.
unsafe extern "C" fn called(filtered: *mut RedisModuleCommandFilterCtx) {
    // SAFETY: the server has passed this context to `called`, which has not returned.
    guard::value("called", (), || unsafe { call_filter::look(filtered) });
}

/// Notes a command that the module has called, since the filter does not see it.
pub(crate) fn hear_of_call<'w, W: Iterator<Item = &'w [u8]>>(
    command: &[u8],
    arguments: impl Fn() -> W,
) {
    let options = || arguments().skip(usize::from(OPTIONS_OF_SET_AT).saturating_sub(1));
    ENGINE.suspect(arguments(), || suspicion_of(command, options()), clock::now);
}

/// The options follow the command, the key and the value.
const OPTIONS_OF_SET_AT: u8 = 3;

fn suspicion(filtered: *mut RedisModuleCommandFilterCtx) -> Option<Suspicion> {
    let command = Words::starting_at(0, filtered).next()?;
    suspicion_of(command, Words::starting_at(OPTIONS_OF_SET_AT.into(), filtered))
}

/// The module's own commands settle their changes themselves.
fn suspicion_of<'w>(command: &[u8], options: impl Iterator<Item = &'w [u8]>) -> Option<Suspicion> {
    let is_ours = command.get(..OURS.len()).is_some_and(|start| start.eq_ignore_ascii_case(OURS));
    if is_ours { None } else { READERS.suspicion(command, options) }
}

/// The words of the command being filtered. Nobody changes them meanwhile.
struct Words<'f> {
    filtered: *mut RedisModuleCommandFilterCtx,
    next: c_int,
    /// The words belong to the server until the filter returns.
    call: PhantomData<&'f ()>,
}

impl Words<'_> {
    fn starting_at(next: c_int, filtered: *mut RedisModuleCommandFilterCtx) -> Self {
        Self { filtered, next, call: PhantomData }
    }
}

impl<'f> Iterator for Words<'f> {
    type Item = &'f [u8];

    fn next(&mut self) -> Option<Self::Item> {
        // SAFETY: takes the context that the filter was called with, and a position. Returns null past the end.
        let word = unsafe { api!(RedisModule_CommandFilterArgGet)(self.filtered, self.next) };
        self.next = self.next.saturating_add(1);
        if word.is_null() {
            return None;
        }
        // SAFETY: the server keeps the word until the command has been executed.
        Some(unsafe { bytes_of(word) })
    }
}

/// The commands that only read, as the server lists them.
struct Readers {
    /// Sorted. Longer names are left out, and count as commands that free a lock.
    names: RefCell<Vec<Name>>,
}

/// A name of up to 16 characters, in lower case.
type Name = u128;

impl Readers {
    const fn new() -> Self {
        Self { names: RefCell::new(Vec::new()) }
    }

    fn reset(&self) {
        self.names.borrow_mut().clear();
    }

    /// Asks the server which commands only read. Commands of modules loaded later are missing. If the server does not
    /// answer, the list is empty, and locks are looked at more often than necessary.
    fn learn(&self, ctx: Ctx) {
        if !self.names.borrow().is_empty() {
            return;
        }
        let reply = CallReply::to(ctx, c"ACL", &[c"CAT", c"read"]);
        let mut names: Vec<_> =
            reply.iter().flat_map(|reply| reply.whole().texts()).filter_map(name).collect();
        names.sort_unstable();
        self.names.replace(names);
    }

    /// What a command may do to a lock that it names. `None` if the command leaves the lock unchanged. `options` are
    /// the words after the third.
    fn suspicion<'w>(
        &self,
        command: &[u8],
        options: impl Iterator<Item = &'w [u8]>,
    ) -> Option<Suspicion> {
        let command = name(command);
        if command == SET {
            return set(options);
        }
        let leaves_it = command.is_some_and(|command| {
            Some(command) == SETNX || self.names.borrow().binary_search(&command).is_ok()
        });
        (!leaves_it).then_some(Suspicion::Freed)
    }
}

/// What a `SET` with these options may do.
fn set<'w>(options: impl Iterator<Item = &'w [u8]>) -> Option<Suspicion> {
    let (mut is_new, mut expires) = (false, false);
    for option in options {
        let is_any_of = |known: &[&[u8]]| known.iter().any(|it| option.eq_ignore_ascii_case(it));
        if is_any_of(&[b"IFEQ", b"IFNE", b"IFDEQ", b"IFDNE"]) {
            // Any word may follow this option.
            return Some(Suspicion::Freed);
        }
        is_new |= is_any_of(&[b"NX"]);
        expires |= is_any_of(&[b"EX", b"PX", b"EXAT", b"PXAT"]);
    }
    match (is_new, expires) {
        (true, _) => None,
        // The new value may have expired already.
        (false, true) => Some(Suspicion::Freed),
        (false, false) => Some(Suspicion::Rewritten),
    }
}

const SET: Option<Name> = Some(Name::from_le_bytes(*b"set\0\0\0\0\0\0\0\0\0\0\0\0\0"));
const SETNX: Option<Name> = Some(Name::from_le_bytes(*b"setnx\0\0\0\0\0\0\0\0\0\0\0"));

fn name(word: &[u8]) -> Option<Name> {
    let mut letters = [0; size_of::<Name>()];
    letters.get_mut(..word.len())?.copy_from_slice(word);
    letters.make_ascii_lowercase();
    Some(Name::from_le_bytes(letters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_suspicion(command: &str, expected: Option<Suspicion>) {
        let mut names: Vec<_> =
            ["get", "mget", "ttl"].iter().filter_map(|word| name(word.as_bytes())).collect();
        names.sort_unstable();
        let readers = Readers { names: RefCell::new(names) };
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let options = words.iter().copied().skip(3);
        assert_eq!(readers.suspicion(words[0], options), expected, "{command}");
    }

    #[test]
    fn a_command_that_only_reads_leaves_a_lock_as_it_is() {
        for command in ["GET k", "get k", "MGet a k", "TTL k"] {
            assert_suspicion(command, None);
        }
    }

    #[test]
    fn a_set_leaves_the_key_there_and_may_leave_it_as_it_is() {
        for command in ["SET k v NX", "set k v px 1000 nx", "SET k v NX GET", "SETNX k v"] {
            assert_suspicion(command, None);
        }
        for command in
            ["SET k v", "SET k NX", "set NX NX", "SET k v KEEPTTL", "SET k v XX", "SET k"]
        {
            assert_suspicion(command, Some(Suspicion::Rewritten));
        }
        for command in ["SET k v PX 1", "set k v xx pxat 1", "SET k v IFEQ NX", "SET k v IFNE x NX"]
        {
            assert_suspicion(command, Some(Suspicion::Freed));
        }
    }

    #[test]
    fn any_other_command_may_free_a_lock() {
        for command in ["DEL k", "GETDEL k", "", "EVAL x 1 k", "a-name-longer-than-any k", "gets k"]
        {
            assert_suspicion(command, Some(Suspicion::Freed));
        }
    }
}
