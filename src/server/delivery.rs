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
//! A client whose user is deleted is given the default user before it is closed. A client that waits cannot change its
//! user by itself, so whoever waited as another user and is the default user now is about to be closed. No time limit is needed
//! for this, and no command has to be recognized.
//!
//! For all other reasons, only `CLIENT LIST` tells that a client is about to be closed, and asking takes as long as half a
//! hand-off. So it is asked only about clients that the server may have decided to close while they waited: those that it
//! sends messages to, which have limits for that, and all of them on a Valkey with threads that read and write.

use super::api::{api, optional};
use super::call::bytes_of;
use super::call_reply::CallReply;
use super::host::Server;
use super::key::OwnedString;
use super::state::STATE;
use super::{alarm, server_flavor};
use leasehold_core::engine::WaiterGrant;
use redis_module::raw::{self, RedisModuleCtx};
use std::cell::Cell;
use std::ffi::{CStr, c_longlong, c_void};

/// Whether threads of the server's write what clients are sent.
///
/// A Valkey that has such threads does not free a client whose connection has ended while one of them is writing to it. It
/// marks the client, calls the reply callback, and frees the client later.
pub(super) struct Writers {
    /// Not known until a waiter is first told of its grant, nor right after the setting has changed.
    are_threads: Cell<Option<bool>>,
}

impl Writers {
    /// The setting.
    pub(super) const SETTING: &CStr = c"io-threads";

    pub(super) const fn new() -> Self {
        Self { are_threads: Cell::new(None) }
    }

    pub(super) fn reset(&self) {
        self.are_threads.set(None);
    }

    /// Where the server cannot be asked, because the command was renamed, there may be threads.
    fn may_be_threads(&self, ctx: *mut RedisModuleCtx) -> bool {
        self.are_threads.get().unwrap_or_else(|| {
            let may_be = server_flavor::is_valkey(ctx)
                && server_flavor::setting(ctx, Self::SETTING).is_none_or(|threads| threads != b"1");
            self.are_threads.set(Some(may_be));
            may_be
        })
    }
}

/// As whom a client is logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum User {
    /// The one that cannot be deleted, as clients that never logged in are. Also those without a user, who may do
    /// everything.
    Default,
    Other,
}

impl User {
    pub(super) fn of(ctx: *mut RedisModuleCtx, client: u64) -> Self {
        // SAFETY: takes a valid context and a number; the server answers null if the client has no user, and else a
        // string that is ours.
        let name = unsafe {
            let name = api!(RedisModule_GetClientUserNameById)(ctx, client);
            (!name.is_null()).then(|| OwnedString::given(ctx, name))
        };
        // SAFETY: the string lives until the end of this function.
        match name.as_ref().map(|name| unsafe { bytes_of(name.string()) }) {
            None | Some(b"default") => Self::Default,
            Some(_) => Self::Other,
        }
    }
}

/// The waiter whose context this is, and who began to wait as this user, is being sent the fence of its grant.
pub(super) fn sent(ctx: *mut RedisModuleCtx, granted: WaiterGrant, user: User) {
    // SAFETY: takes a valid context.
    let client = unsafe { api!(RedisModule_GetClientId)(ctx) };
    let is_without_user = user == User::Other && User::of(ctx, client) == User::Default;
    if is_without_user || (may_be_closing(ctx, client) && is_closing(ctx, client)) {
        STATE.locks.mark_undeliverable(&Server { ctx }, granted);
        alarm::set(ctx);
    } else {
        STATE.locks.mark_delivered(granted.fence.number());
    }
}

/// Redis 6.2 decides to close a client also when it notices that its connection has ended. Later servers free it there
/// and then.
fn may_be_closing(ctx: *mut RedisModuleCtx, client: u64) -> bool {
    let came_with_7_0 = optional!(RedisModule_GetCommand).is_some();
    let is_sent_messages = client_flags(client)
        & u64::from(
            raw::REDISMODULE_CLIENTINFO_FLAG_PUBSUB | raw::REDISMODULE_CLIENTINFO_FLAG_TRACKING,
        );
    !came_with_7_0 || is_sent_messages != 0 || STATE.writers.may_be_threads(ctx)
}

/// Whether the server is about to close the connection, and drops what it is sent. False where it cannot be asked,
/// because the command was renamed.
fn is_closing(ctx: *mut RedisModuleCtx, client: u64) -> bool {
    let Ok(client) = c_longlong::try_from(client) else { return false };
    // SAFETY: the format takes two C strings and a number, after the name of the command; the reply goes nowhere else.
    let reply = unsafe {
        CallReply::of_call(api!(RedisModule_Call)(
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

/// How much room the server's structure has for an address.
const ADDRESS_LENGTH: usize = 46;

/// None if it is not connected, as a call of another module that waits for its reply is not.
pub(super) fn client_flags(client: u64) -> u64 {
    let mut info = raw::RedisModuleClientInfo {
        version: 1,
        flags: 0,
        id: 0,
        addr: [0; ADDRESS_LENGTH],
        port: 0,
        db: 0,
    };
    let start: *mut c_void = (&raw mut info).cast();
    // SAFETY: the server fills in the structure, which is of the version that it names.
    unsafe { api!(RedisModule_GetClientInfoById)(start, client) };
    info.flags
}
