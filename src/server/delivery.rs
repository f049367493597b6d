//! Whether a waiter that was granted the lock gets to hear of it.
//!
//! The server calls the reply callback also for a client that it has decided to close, as after `ACL DELUSER`. It drops
//! the reply, frees the client at the end of the same turn of its event loop, and calls no disconnect callback. So the
//! reply callback has to find out for itself, and a grant that is not going to be heard of goes back.
//!
//! ```text
//!   file events, timers   ACL DELUSER: the waiter is to be closed    a release: it is granted the lock
//!   beforeSleep           reply callback: is the client about to be closed?    yes: the grant goes back
//!                         replies are written, clients that are to be closed are freed
//! ```
//!
//! That the client is gone at the end of the turn proves nothing. It may have been sent its grant, and have ended by
//! a `QUIT` that it had sent ahead, a mistake in what it sent, or an eviction of clients. Then it keeps the lock:
//! that nobody holds a lock beside it (L1) comes before waiting for a lease in vain (L5).
//!
//! Only `CLIENT LIST` tells that a client is about to be closed, and asking takes as long as half a hand-off. So it is
//! asked only about clients that the server may have decided to close while they waited: all of them after a command
//! about users, and those that it sends messages to, which have limits for that.

use super::api::{api, optional};
use super::clock;
use super::handoff::{self, GiveBack};
use super::reply::Reply;
use super::state::STATE;
use crate::lock::{Fence, KeptOwner, Monotonic, Name};
use crate::plant::{Bug, planted};
use redis_module::raw::{self, RedisModuleCtx};
use std::cell::Cell;
use std::ffi::{c_longlong, c_void};

/// A grant to a waiter.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) name: Name,
    pub(super) owner: KeptOwner,
    pub(super) fence: Fence,
}

/// For so long after a command about users each client is asked about. The server closes clients at the end of the turn
/// in which it decides to, but no turn is bounded.
const MILLIS_OF_DOUBT: u64 = 1_000;

/// When somebody last sent a command about users.
pub(super) struct Users {
    changed: Cell<Option<Monotonic>>,
}

impl Users {
    pub(super) const fn new() -> Self {
        Self { changed: Cell::new(None) }
    }

    pub(super) fn reset(&self) {
        self.changed.set(None);
    }

    /// A command of this name is about to be executed.
    pub(super) fn hear(&self, name: &[u8]) {
        if name.eq_ignore_ascii_case(b"acl") {
            self.changed.set(Some(clock::monotonic()));
        }
    }

    fn may_have_gone(&self) -> bool {
        self.changed
            .get()
            .is_some_and(|changed| clock::monotonic().millis_since(changed) < MILLIS_OF_DOUBT)
    }
}

/// The waiter whose context this is, is being sent the fence of its grant.
pub(super) fn sent(ctx: *mut RedisModuleCtx, granted: Granted) {
    // SAFETY: takes a valid context.
    let client = unsafe { api!(RedisModule_GetClientId)(ctx) };
    if may_be_closing(client) && is_closing(ctx, client) {
        failed(ctx, granted);
    } else {
        STATE.heard(granted.fence.number());
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

/// Redis 6.2 decides to close a client also when it notices that its connection has ended. Later servers free it there
/// and then.
fn may_be_closing(client: u64) -> bool {
    let came_with_7_0 = optional!(RedisModule_GetCommand).is_some();
    let is_sent_messages = client_flags(client)
        & u64::from(
            raw::REDISMODULE_CLIENTINFO_FLAG_PUBSUB | raw::REDISMODULE_CLIENTINFO_FLAG_TRACKING,
        );
    !came_with_7_0 || is_sent_messages != 0 || STATE.users.may_have_gone()
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

/// None if it is not connected, as a call of another module that waits for its reply is not.
pub(super) fn client_flags(client: u64) -> u64 {
    let mut info =
        raw::RedisModuleClientInfo { version: 1, flags: 0, id: 0, addr: [0; _], port: 0, db: 0 };
    let start: *mut c_void = (&raw mut info).cast();
    // SAFETY: the server fills in the structure, which is of the version that it names.
    unsafe { api!(RedisModule_GetClientInfoById)(start, client) };
    info.flags
}
