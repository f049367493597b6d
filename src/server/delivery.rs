//! Whether a waiter that was granted the lock gets to hear of it.
//!
//! The server calls the reply callback also for a client that it has decided to close, as after `ACL DELUSER`. It drops
//! the reply, frees the client at the end of the same turn of its event loop, and calls no disconnect callback. So a
//! grant counts as heard of only when its client has outlived the turn:
//!
//! ```text
//!   file events, timers   a release: the waiter is granted the lock
//!   beforeSleep           reply callback: the grant is on its way
//!                         replies are written, clients that are to be closed are freed
//!   afterSleep            is the client still there?  yes: it has heard   no: the grant goes back
//!   file events           a client that has read its reply may close the connection: it keeps the lock
//! ```
//!
//! A client can also end in that turn after its reply was written. Then the grant must stay, because the client may have
//! read it. There are two ways. The server evicts clients (`maxmemory-clients`), which it counts. Or a command that runs
//! after the reply callback closes connections, or serves them before it ends. Before such a command the server is
//! asked which of the clients it is about to close; the grants of the others stay.
//!
//! Redis 6.2 has no event for the turns of its loop. It is asked about each client, which takes as long as half a
//! hand-off.

use super::api::api;
use super::handoff::{self, GiveBack};
use super::reply::Reply;
use super::state::STATE;
use super::{alarm, clock, guard, product, subscription};
use crate::lock::{Fence, KeptOwner, Name};
use crate::plant::{Bug, planted};
use redis_module::raw::{self, RedisModuleCtx, RedisModuleEvent};
use std::cell::{Cell, RefCell};
use std::ffi::{c_longlong, c_void};
use std::ptr;

/// A grant to a waiter.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) name: Name,
    pub(super) owner: KeptOwner,
    pub(super) fence: Fence,
}

#[derive(Debug)]
struct Delivery {
    client: u64,
    granted: Granted,
}

/// Grants in reply to which something was sent in this turn.
pub(super) struct Deliveries {
    on_their_way: RefCell<Vec<Delivery>>,
    /// Whether the server tells of its turns. It is asked to only while locks are handed on: it takes some time in
    /// each turn.
    is_told: Cell<bool>,
    /// Whether a lock was handed on since the server's routine last ran.
    in_use: Cell<bool>,
    /// Whether the server is to be told that it need not tell any more.
    to_end: Cell<bool>,
    /// How many clients the server had evicted when it was last asked.
    evicted: Cell<u64>,
}

/// Room for so many is kept.
const KEPT: usize = 100;

impl Deliveries {
    pub(super) const fn new() -> Self {
        Self {
            on_their_way: RefCell::new(Vec::new()),
            is_told: Cell::new(false),
            in_use: Cell::new(false),
            to_end: Cell::new(false),
            evicted: Cell::new(0),
        }
    }

    pub(super) fn reset(&self) {
        self.on_their_way.borrow_mut().clear();
        self.is_told.set(false);
        self.in_use.set(false);
        self.to_end.set(false);
    }

    /// Whether there is something for [`end_if_unused`] to do.
    pub(super) fn is_to_end(&self) -> bool {
        self.to_end.get()
    }

    pub(super) fn is_any_on_its_way(&self) -> bool {
        !self.on_their_way.borrow().is_empty()
    }

    fn take(&self) -> Vec<Delivery> {
        std::mem::take(&mut *self.on_their_way.borrow_mut())
    }
}

/// The waiter whose context this is, is being sent the fence of its grant.
pub(super) fn sent(ctx: *mut RedisModuleCtx, granted: Granted) {
    // SAFETY: takes a valid context.
    let client = unsafe { api!(RedisModule_GetClientId)(ctx) };
    let delivery = Delivery { client, granted };
    if !is_connected(client) {
        // No connection that could end, but a call of another module that goes on waiting for its reply.
        heard(&delivery);
    } else if is_told_of_turns(ctx) {
        STATE.deliveries.in_use.set(true);
        STATE.deliveries.on_their_way.borrow_mut().push(delivery);
    } else {
        judge(ctx, delivery);
    }
}

/// Nobody has heard of this grant by now, and its waiter never will. Unless the same owner has heard of it on another
/// connection, the grant is given back: the lock must not stay with somebody who does not know that it has it.
pub(super) fn failed(ctx: *mut RedisModuleCtx, granted: Granted) {
    let Granted { name, owner, fence } = granted;
    if STATE.heard(fence.number()) && !planted(Bug::GrantNotGivenBack) {
        handoff::give_back(ctx, GiveBack { name, owner, fence, due: clock::monotonic() });
    }
}

fn heard(delivery: &Delivery) {
    STATE.heard(delivery.granted.fence.number());
}

/// A command of somebody's is about to be executed while grants are on their way. `ctx` is one of the module's own.
pub(super) fn before_command(ctx: *mut RedisModuleCtx, name: &[u8]) {
    if may_end_others(name) {
        STATE.deliveries.take().into_iter().for_each(|delivery| judge(ctx, delivery));
    }
}

/// Whether other connections may be closed before this command is done: by the command, by one that it executes, or
/// because the server goes on serving connections while it takes long.
fn may_end_others(name: &[u8]) -> bool {
    const THESE: [&[u8]; 10] = [
        b"acl",
        b"client",
        b"debug",
        b"exec",
        b"eval",
        b"evalsha",
        b"eval_ro",
        b"evalsha_ro",
        b"fcall",
        b"fcall_ro",
    ];
    // Commands of other modules may execute any other.
    name.contains(&b'.') || THESE.iter().any(|this| this.eq_ignore_ascii_case(name))
}

fn judge(ctx: *mut RedisModuleCtx, delivery: Delivery) {
    if is_closing(ctx, delivery.client) { failed(ctx, delivery.granted) } else { heard(&delivery) }
}

/// Whether the server is about to close the connection, and drops what it is sent. False where it cannot be asked,
/// because the command was renamed.
fn is_closing(ctx: *mut RedisModuleCtx, client: u64) -> bool {
    let Ok(client) = c_longlong::try_from(client) else { return false };
    // SAFETY: the format takes two C strings and a number, after the name of the command; the reply goes nowhere else.
    let reply = unsafe {
        Reply::of_call(api!(RedisModule_Call)(
            ctx,
            c"CLIENT".as_ptr(),
            c"ccl".as_ptr(),
            c"LIST".as_ptr(),
            c"ID".as_ptr(),
            client,
        ))
    };
    let flags = |text: &[u8]| {
        let mut fields = text.split(|&byte| byte == b' ');
        fields.find_map(|field| field.strip_prefix(b"flags=")).is_some_and(|it| it.contains(&b'A'))
    };
    reply.is_some_and(|reply| reply.text().is_some_and(flags))
}

fn is_connected(client: u64) -> bool {
    // SAFETY: a null pointer asks for nothing but whether the client is there.
    let outcome = unsafe { api!(RedisModule_GetClientInfoById)(ptr::null_mut(), client) };
    outcome == guard::status(true)
}

/// False on servers that have no such event.
fn is_told_of_turns(ctx: *mut RedisModuleCtx) -> bool {
    let deliveries = &STATE.deliveries;
    if !deliveries.is_told.get()
        && subscription::to_server_event(ctx, raw::REDISMODULE_EVENT_EVENTLOOP, Some(turn))
    {
        deliveries.is_told.set(true);
        deliveries.evicted.set(evicted_clients(ctx));
    }
    deliveries.is_told.get()
}

/// The server's routine. Where locks are not handed on any more, the server need not tell of its turns.
pub(super) fn routine(ctx: *mut RedisModuleCtx) {
    let deliveries = &STATE.deliveries;
    if !deliveries.is_told.get() {
        return;
    }
    if deliveries.in_use.take() {
        deliveries.evicted.set(evicted_clients(ctx));
    } else {
        // Not at once: the server is going through the list of those whom it tells of events, of which the routine
        // is one, and does not expect that to change.
        deliveries.to_end.set(true);
        alarm::set(ctx);
    }
}

/// Has the server tell of its turns no more, if that was decided. Never called from the callback of an event.
pub(super) fn end_if_unused(ctx: *mut RedisModuleCtx) {
    let deliveries = &STATE.deliveries;
    if deliveries.to_end.take() && !deliveries.in_use.get() {
        subscription::to_server_event(ctx, raw::REDISMODULE_EVENT_EVENTLOOP, None);
        deliveries.is_told.set(false);
    }
}

unsafe extern "C" fn turn(
    ctx: *mut RedisModuleCtx,
    _event: RedisModuleEvent,
    stage: u64,
    _data: *mut c_void,
) {
    guard::event("turn", || {
        if stage == raw::REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP {
            turned(ctx);
        }
    });
}

/// The turn of the event loop is over in which these grants were sent.
fn turned(ctx: *mut RedisModuleCtx) {
    let mut on_their_way = STATE.deliveries.on_their_way.borrow_mut();
    if on_their_way.is_empty() {
        return;
    }
    let gone: Vec<_> =
        on_their_way.extract_if(.., |delivery| !is_connected(delivery.client)).collect();
    on_their_way.iter().for_each(heard);
    on_their_way.clear();
    on_their_way.shrink_to(KEPT);
    drop(on_their_way);
    if gone.is_empty() {
        return;
    }
    let evicted = evicted_clients(ctx);
    if STATE.deliveries.evicted.replace(evicted) == evicted {
        gone.into_iter().for_each(|delivery| failed(ctx, delivery.granted));
    } else {
        gone.iter().for_each(heard);
    }
}

fn evicted_clients(ctx: *mut RedisModuleCtx) -> u64 {
    let field = product::info_field(ctx, c"stats", c"evicted_clients");
    field.and_then(|number| number.parse().ok()).unwrap_or(0)
}
