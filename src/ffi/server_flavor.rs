//! Identifies the server, where its functions do not tell.

use super::api::{Ctx, api, flag, optional};
use super::call_reply::CallReply;
use std::ffi::{CStr, c_int};

/// Valkey from 8.1 until 9.1 delivers keyspace events on behalf of the client that caused them, in the database of the
/// key, and leaves the client in that database. With a subscriber, every client that sends a `MOVE`, or a `COPY` to
/// another database, ends up in that database, and so does a replica's link to its primary (valkey#4024).
pub(crate) fn misplaces_clients(ctx: Ctx) -> bool {
    valkey_version(ctx).is_some_and(|version| ((8, 1)..(9, 1)).contains(&version))
}

/// Whether the server's I/O threads may ask a module for the keys of a command (`getkeys-api`). The server then counts
/// nested executions, and replicates at the end, as if it were on its main thread, and crashes.
///
/// Redis from 8.2 on does so, in a cluster or not, if it has I/O threads. Valkey does so in a cluster from 8.0 on, and
/// from 9.0 on it may get I/O threads at any time.
pub(crate) fn asks_for_keys_in_threads(ctx: Ctx, is_in_cluster: bool) -> bool {
    let has_threads = || setting(ctx, c"io-threads").is_none_or(|number| number != b"1");
    match valkey_version(ctx) {
        Some(version) if version >= (9, 0) => is_in_cluster,
        Some(version) if version >= (8, 0) => is_in_cluster && has_threads(),
        Some(_) => false,
        None => redis_version(ctx).is_none_or(|version| version >= (8, 0)) && has_threads(),
    }
}

/// Whether a module may block a client inside a keyspace event: Valkey from 9.0 on. Valkey 8.1 does not block clients
/// that must not be blocked.
pub(crate) fn lets_events_block(ctx: Ctx) -> bool {
    valkey_version(ctx).is_some_and(|version| version >= (9, 0))
}

pub(crate) type Version = (u32, u32, u32);

/// The version of the server, whichever it is.
pub(crate) fn version(ctx: Ctx) -> Option<Version> {
    let [redis, valkey] = info_fields(ctx, c"server", [c"redis_version", c"valkey_version"]);
    valkey.or(redis).map(|version| numbers(&version))
}

fn redis_version(ctx: Ctx) -> Option<(u32, u32)> {
    let (major, minor, _) = numbers(&info_field(ctx, c"server", c"redis_version")?);
    Some((major, minor))
}

/// Valkey's version. `None` for Redis.
fn valkey_version(ctx: Ctx) -> Option<(u32, u32)> {
    let (major, minor, _) = numbers(&info_field(ctx, c"server", c"valkey_version")?);
    Some((major, minor))
}

fn numbers(version: &str) -> Version {
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

/// Whether the server is known to copy its data to a replica only by a fork, and to report the fork in the same step:
/// see [`listeners`](crate::replication::listeners).
pub(crate) fn forks_for_replicas(ctx: Ctx) -> bool {
    match valkey_version(ctx) {
        Some(version) => [(8, 0), (8, 1), (9, 1)].contains(&version),
        None => {
            redis_version(ctx).is_some_and(|version| [(7, 0), (8, 0), (8, 6)].contains(&version))
        }
    }
}

/// Whether this is Valkey. Some event numbers mean one thing to Valkey and another to Redis.
pub(crate) fn is_valkey(ctx: Ctx) -> bool {
    valkey_version(ctx).is_some()
}

/// The module options of `promise` that this Valkey knows. None on Redis, where the same bits may come to mean
/// something else.
pub(crate) fn options_of_valkey(ctx: Ctx, promise: u32) -> c_int {
    // SAFETY: takes no arguments.
    let known = optional!(RedisModule_GetModuleOptionsAll).map_or(0, |all| unsafe { all() });
    if is_valkey(ctx) { known & flag(promise) } else { 0 }
}

/// A field of the server's INFO, which works even if an operator has renamed `INFO`.
pub(crate) fn info_field(ctx: Ctx, section: &CStr, field: &CStr) -> Option<String> {
    let [text] = info_fields(ctx, section, [field]);
    text
}

/// Several fields of one section, read at one moment.
pub(crate) fn info_fields<const N: usize>(
    ctx: Ctx,
    section: &CStr,
    fields: [&CStr; N],
) -> [Option<String>; N] {
    // SAFETY: the section and the fields are C strings. A field's text lives until the section is freed, which happens
    // after the text was copied.
    unsafe {
        let info = api!(RedisModule_GetServerInfo)(ctx, section.as_ptr());
        let texts = fields.map(|field| {
            let text = api!(RedisModule_ServerInfoGetFieldC)(info, field.as_ptr());
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        });
        api!(RedisModule_FreeServerInfo)(ctx, info);
        texts
    }
}

/// The value of a setting of the server. `None` if there is no setting of this name, or if `CONFIG` is renamed.
pub(crate) fn setting(ctx: Ctx, name: &CStr) -> Option<Vec<u8>> {
    let reply = CallReply::to(ctx, c"CONFIG", &[c"GET", name]);
    // The reply lists the name and the value.
    reply?.whole().at(1)?.text().map(<[u8]>::to_vec)
}
