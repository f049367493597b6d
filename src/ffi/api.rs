//! The server's functions, by name.
//!
//! The crate's bindings are pointers that the server fills in at load, if it knows the names. [`api!`] is for
//! functions that every supported server has: [`missing`] lists them, and the module does not load if one is missing.
//! [`optional!`] is for functions that came later.

use redis_module::raw;
use std::ffi::c_int;

/// What the server passes to each callback, and gets back in most calls.
pub(crate) type Ctx = *mut raw::RedisModuleCtx;

/// A string of the server. Whose it is depends on where it comes from.
pub(crate) type RawString = *mut raw::RedisModuleString;

/// A function that the module cannot do without.
macro_rules! api {
    ($name:ident) => {{
        // SAFETY: the server fills in the pointer once, at the beginning of the load and on this thread, and no code of
        // ours reads it earlier. Reading it is a plain copy.
        #[allow(unused_unsafe, reason = "it may stand in an unsafe block and need not")]
        let function = unsafe { redis_module::raw::$name };
        match function {
            Some(function) => function,
            None => $crate::ffi::api::never_checked(stringify!($name)),
        }
    }};
}

/// A function that some supported servers lack.
macro_rules! optional {
    ($name:ident) => {{
        // SAFETY: as for `api!`.
        unsafe { redis_module::raw::$name }
    }};
}

pub(crate) use {api, optional};

/// The server's values for success and failure.
pub(crate) const fn status(ok: bool) -> c_int {
    let status = if ok { raw::REDISMODULE_OK } else { raw::REDISMODULE_ERR };
    #[expect(clippy::as_conversions, clippy::cast_possible_truncation, reason = "it is 0 or 1")]
    return status as c_int;
}

/// A flag, unsigned in the bindings, for functions that take it signed.
pub(crate) const fn flag(bits: u32) -> c_int {
    bits.cast_signed()
}

macro_rules! names_of_missing {
    ($($name:ident),* $(,)?) => {{
        let mut names = Vec::new();
        $(
            // SAFETY: as for `api!`.
            if unsafe { raw::$name }.is_none() {
                names.push(stringify!($name));
            }
        )*
        names
    }};
}

/// The functions used through [`api!`] that this server lacks.
pub(crate) fn missing() -> Vec<&'static str> {
    names_of_missing![
        RedisModule_AvoidReplicaTraffic,
        RedisModule_BlockClient,
        RedisModule_Call,
        RedisModule_CallReplyArrayElement,
        RedisModule_CallReplyInteger,
        RedisModule_CallReplyLength,
        RedisModule_CallReplyStringPtr,
        RedisModule_CallReplyType,
        RedisModule_CloseKey,
        RedisModule_CommandFilterArgGet,
        RedisModule_CommandFilterArgReplace,
        RedisModule_CreateCommand,
        RedisModule_CreateString,
        RedisModule_CreateTimer,
        RedisModule_DeleteKey,
        RedisModule_Free,
        RedisModule_FreeCallReply,
        RedisModule_FreeServerInfo,
        RedisModule_FreeString,
        RedisModule_FreeThreadSafeContext,
        RedisModule_GetAbsExpire,
        RedisModule_GetBlockedClientHandle,
        RedisModule_GetBlockedClientPrivateData,
        RedisModule_GetClientId,
        RedisModule_GetClientInfoById,
        RedisModule_GetClientUserNameById,
        RedisModule_GetCommandKeys,
        RedisModule_GetContextFlags,
        RedisModule_GetDetachedThreadSafeContext,
        RedisModule_GetKeyNameFromModuleKey,
        RedisModule_GetMyClusterID,
        RedisModule_GetSelectedDb,
        RedisModule_GetServerInfo,
        RedisModule_GetThreadSafeContext,
        RedisModule_InfoAddFieldULongLong,
        RedisModule_InfoAddSection,
        RedisModule_IsKeysPositionRequest,
        RedisModule_KeyAtPos,
        RedisModule_KeyType,
        RedisModule_Log,
        RedisModule_Milliseconds,
        RedisModule_NotifyKeyspaceEvent,
        RedisModule_OpenKey,
        RedisModule_RegisterCommandFilter,
        RedisModule_RegisterInfoFunc,
        RedisModule_Replicate,
        RedisModule_ReplicateVerbatim,
        RedisModule_ReplyWithArray,
        RedisModule_ReplyWithCallReply,
        RedisModule_ReplyWithError,
        RedisModule_ReplyWithLongLong,
        RedisModule_ReplyWithNull,
        RedisModule_ReplyWithSimpleString,
        RedisModule_ReplyWithStringBuffer,
        RedisModule_SelectDb,
        RedisModule_ServerInfoGetFieldC,
        RedisModule_SetAbsExpire,
        RedisModule_SetDisconnectCallback,
        RedisModule_SetModuleOptions,
        RedisModule_SignalModifiedKey,
        RedisModule_StopTimer,
        RedisModule_StringDMA,
        RedisModule_StringPtrLen,
        RedisModule_StringSet,
        RedisModule_StringTruncate,
        RedisModule_SubscribeToKeyspaceEvents,
        RedisModule_SubscribeToServerEvent,
        RedisModule_UnblockClient,
        RedisModule_UnregisterCommandFilter,
        RedisModule_ValueLength,
        RedisModule_WrongArity,
    ]
}

/// Called if `api!` is used for a function that is missing and that [`missing`] does not list. A test compares the
/// lists.
#[cold]
#[expect(clippy::panic, reason = "the guard turns it into an error reply")]
pub(crate) fn never_checked(name: &str) -> ! {
    panic!("{name} was never checked at load")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    #[test]
    fn every_function_used_is_checked_at_load() {
        let mut used = BTreeSet::new();
        for text in texts(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
            for call in text.split(concat!("api!", "(RedisModule_")).skip(1) {
                let name = call.split(')').next().unwrap();
                used.insert(format!("RedisModule_{name}"));
            }
        }
        let checked: BTreeSet<String> = super::missing().into_iter().map(str::to_owned).collect();
        assert_eq!(used, checked);
    }

    fn texts(folder: &Path) -> Vec<String> {
        let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let text = |path: &PathBuf| vec![fs::read_to_string(path).unwrap()];
        paths.flat_map(|path| if path.is_dir() { texts(&path) } else { text(&path) }).collect()
    }
}
