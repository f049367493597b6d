//! The lookout: who notices that a lock somebody waits for may have been freed by a command that is not ours.
//!
//! Key events would tell, and exactly. But the server makes them for every key of everybody: each `DEL` and
//! each `SET` with an expiry would cost some percent more, on most servers for as long as the module is loaded,
//! because most know no way to stop listening. So the lookout is a **command filter**, which every server can
//! take off again: posted when the first client begins to wait, withdrawn when nobody waits any more.
//!
//! ```text
//!   a client's command ──► filter ──► is one of its words the name of a contended lock?
//!                                     no: nothing    yes: may it change the lock?
//!                                                         no: nothing    yes: touch it, and look at it soon
//! ```
//!
//! Whether the command is allowed to is not known yet: a touch makes the module look at the key, no more, and not
//! again for a moment. A command that only reads frees no lock: it may make the server notice that a lease is over,
//! but that moment is known. A command that is queued in a transaction passes here when it is queued and
//! not when it is executed, which is why [`Queues::suspect`](leasehold_core::lock::Queues::suspect) goes on looking for a
//! while. What has no name in it comes as an event of its own (a flush, a swap, an eviction), or is noticed by the
//! look each second.

use super::api::api;
use super::call::bytes_of;
use super::effect::Readers;
use super::state::STATE;
use super::{alarm, authority, clock, guard, slots};
use leasehold_core::lock::Suspicion;
use leasehold_core::plant::{Bug, planted};
use redis_module::raw::{self, RedisModuleCommandFilterCtx, RedisModuleCtx};
use std::cell::Cell;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr::NonNull;

const OURS: &[u8] = b"lock.";

pub(super) struct Lookout {
    /// The filter, while somebody waits.
    filter: Cell<Option<NonNull<raw::RedisModuleCommandFilter>>>,
    /// A filter is given no context of the module's, but needs one to have work done later.
    ctx: Cell<Option<NonNull<RedisModuleCtx>>>,
    /// Nothing is known of them until somebody waits for the first time.
    readers: Readers,
}

impl Lookout {
    pub(super) const fn new() -> Self {
        Self { filter: Cell::new(None), ctx: Cell::new(None), readers: Readers::new() }
    }

    pub(super) fn reset(&self) {
        self.filter.set(None);
        self.ctx.set(None);
        self.readers.reset();
    }
}

/// Somebody waits.
pub(super) fn post(ctx: *mut RedisModuleCtx) {
    let lookout = &STATE.lookout;
    if lookout.filter.get().is_some() {
        return;
    }
    lookout.readers.learn(ctx);
    if lookout.ctx.get().is_none() {
        // SAFETY: takes a valid context.
        let detached = unsafe { api!(RedisModule_GetDetachedThreadSafeContext)(ctx) };
        lookout.ctx.set(NonNull::new(detached));
    }
    // The module itself asks the server to try a command on a contended key: see `authority`.
    let flags = guard::flag(raw::REDISMODULE_CMDFILTER_NOSELF);
    // SAFETY: the callback has the signature the server calls.
    let filter = unsafe { api!(RedisModule_RegisterCommandFilter)(ctx, Some(filter), flags) };
    lookout.filter.set(NonNull::new(filter));
}

/// In a cluster the lookout is always posted, for slots that come and go.
pub(super) fn post_in_cluster(ctx: *mut RedisModuleCtx) {
    STATE.in_cluster.set(authority::is_in_cluster(ctx));
    if STATE.in_cluster.get() {
        post(ctx);
    }
    slots::begin();
}

/// A context that belongs to no command, once the lookout was posted.
pub(super) fn context() -> Option<*mut RedisModuleCtx> {
    STATE.lookout.ctx.get().map(NonNull::as_ptr)
}

/// Withdraws the lookout if nobody waits. Not right after the last has left: the next may be about to come.
pub(super) fn withdraw_if_idle(ctx: *mut RedisModuleCtx) {
    if !STATE.locks.with_queues(|queues| queues.is_empty()) {
        return;
    }
    STATE.evictions_heard.cancel(ctx);
    if !STATE.in_cluster.get()
        && let Some(filter) = STATE.lookout.filter.take()
    {
        // SAFETY: registered in `post` and forgotten just now; no filter is being called.
        unsafe { api!(RedisModule_UnregisterCommandFilter)(ctx, filter.as_ptr()) };
    }
}

/// The module is about to be unloaded. The server takes the filter off itself.
pub(super) fn dismiss() {
    STATE.lookout.filter.set(None);
    if let Some(ctx) = STATE.lookout.ctx.take() {
        // SAFETY: made in `post` and forgotten just now.
        unsafe { api!(RedisModule_FreeThreadSafeContext)(ctx.as_ptr()) };
    }
}

unsafe extern "C" fn filter(filtered: *mut RedisModuleCommandFilterCtx) {
    guard::event("filter", || {
        let Some(ctx) = STATE.lookout.ctx.get() else { return };
        if STATE.in_cluster.get() {
            slots::hear(ctx.as_ptr(), Words::starting_at(0, filtered));
        }
        if touch_named(filtered) {
            alarm::set(ctx.as_ptr());
        }
    });
}

/// Touches the contended locks that the command names; whether any of them is to be looked at sooner than before.
fn touch_named(filtered: *mut RedisModuleCommandFilterCtx) -> bool {
    if planted(Bug::DeletionUnnoticed) {
        return false;
    }
    STATE.locks.suspect(Words::starting_at(1, filtered), || suspicion(filtered), clock::now)
}

/// The module's own commands settle what they change themselves.
fn suspicion(filtered: *mut RedisModuleCommandFilterCtx) -> Option<Suspicion> {
    let command = Words::starting_at(0, filtered).next()?;
    let is_ours = command.get(..OURS.len()).is_some_and(|start| start.eq_ignore_ascii_case(OURS));
    if is_ours {
        return None;
    }
    // Behind the command, the key and the value are the options of `SET`.
    STATE.lookout.readers.suspicion(command, Words::starting_at(3, filtered))
}

/// The words of the command that is being filtered, which nobody changes meanwhile.
struct Words<'f> {
    filtered: *mut RedisModuleCommandFilterCtx,
    next: c_int,
    /// The words are the server's, until the filter returns.
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
        // SAFETY: takes the context that the filter was called with, and a position; null past the end.
        let word = unsafe { api!(RedisModule_CommandFilterArgGet)(self.filtered, self.next) };
        self.next = self.next.saturating_add(1);
        if word.is_null() {
            return None;
        }
        // SAFETY: the server keeps the word until the command has been executed.
        Some(unsafe { bytes_of(word) })
    }
}
