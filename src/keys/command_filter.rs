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
//! most once in a while. A command that only reads frees no lock: it may make the server notice an expiry, but the
//! module knows when the lease ends. A command in a transaction passes the filter when it is queued, not when it is
//! executed, so [`Queues::suspect`](leasehold_core::lock::Queues::suspect) makes the module look for a while. Changes
//! that name no key arrive as their own events (a flush, a swap, an eviction), or are found when each contended lock
//! is rechecked.

use super::effect::Readers;
use super::eviction;
use crate::cluster::slots;
use crate::engine::ENGINE;
use crate::ffi::api::{api, flag};
use crate::ffi::main_thread::MainThread;
use crate::ffi::string::bytes_of;
use crate::ffi::{call_filter, context};
use crate::{clock, guard};
use leasehold_core::lock::Suspicion;
use redis_module::raw::{self, RedisModuleCommandFilterCtx, RedisModuleCtx};
use std::cell::Cell;
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
pub(crate) fn install(ctx: *mut RedisModuleCtx) {
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
pub(crate) fn install_in_cluster(ctx: *mut RedisModuleCtx) {
    if slots::is_in_cluster() {
        install(ctx);
    }
}

/// Removes the filter if nobody waits. Called with a delay after the last waiter has left, because the next waiter may
/// come soon.
pub(crate) fn remove_if_idle(ctx: *mut RedisModuleCtx) {
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
