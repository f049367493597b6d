//! What the server knows about a client.

use super::api::{Ctx, api};
use super::call_reply::CallReply;
use super::string::{OwnedString, bytes_of};
use redis_module::raw;
use std::ffi::{CString, c_void};

/// The user of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// The default user, which cannot be deleted. Clients that never logged in have it. Also stands for no user: such
    /// clients may do everything.
    Default,
    Other,
}

impl User {
    pub(crate) fn of(ctx: Ctx, client: u64) -> Self {
        match user(ctx, client).as_deref() {
            None | Some(b"default") => Self::Default,
            Some(_) => Self::Other,
        }
    }
}

/// The name of this client's user. `None` if the client is not connected, or has no user.
pub(crate) fn user(ctx: Ctx, client: u64) -> Option<Vec<u8>> {
    // SAFETY: takes a valid context and a number. The server returns null, or a string that is ours, whose bytes are
    // copied before it is freed.
    unsafe {
        let name = api!(RedisModule_GetClientUserNameById)(ctx, client);
        (!name.is_null()).then(|| bytes_of(OwnedString::given(ctx, name).string()).to_vec())
    }
}

/// The client of this context.
pub(crate) fn id(ctx: Ctx) -> u64 {
    // SAFETY: takes a valid context.
    unsafe { api!(RedisModule_GetClientId)(ctx) }
}

/// Whether the server is about to close the connection, and drops what is sent to it. False if the server cannot be
/// asked, because the command was renamed.
pub(crate) fn is_closing(ctx: Ctx, client: u64) -> bool {
    let Ok(client) = CString::new(client.to_string()) else { return false };
    let reply = CallReply::to(ctx, c"CLIENT", &[c"LIST", c"ID", &client]);
    let flags = |text: &[u8]| {
        let mut fields = text.split(|&byte| byte == b' ');
        fields.find_map(|field| field.strip_prefix(b"flags=")).is_some_and(|it| it.contains(&b'A'))
    };
    reply.is_some_and(|reply| reply.text().is_some_and(flags))
}

/// Whether this is a connection. The client of a script, or of another module's call, is not. The check asks for the
/// user, because Valkey 9.1 answers all other questions also for the client that is executing something. The link to a
/// primary has no user, but sends no requests.
pub(crate) fn is_connected(ctx: Ctx, client: u64) -> bool {
    user(ctx, client).is_some()
}

/// The size of an address in the server's structure.
const ADDRESS_LENGTH: usize = 46;

/// The client's flags. None if it is not connected: a call of another module that waits for its reply is not.
pub(crate) fn flags(client: u64) -> u64 {
    let mut info = raw::RedisModuleClientInfo {
        version: 1,
        flags: 0,
        id: 0,
        addr: [0; ADDRESS_LENGTH],
        port: 0,
        db: 0,
    };
    let start: *mut c_void = (&raw mut info).cast();
    // SAFETY: the server fills in the structure, whose version field is set.
    unsafe { api!(RedisModule_GetClientInfoById)(start, client) };
    info.flags
}
