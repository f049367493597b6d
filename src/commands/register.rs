//! Registers the commands: name, flags, keys, and what COMMAND DOCS says.

use super::entry::{COMMANDS, Entry};
use super::{getkeys, held_reply};
use crate::ffi::{Ctx, api, log, optional, status};
use leasehold_core::command::{ALSO, Access, Arg, ArgKind, Spec};
use redis_module::raw;
use std::ffi::{CStr, CString, c_int, c_uint};
use std::ptr;

/// Registers all commands. The error is the name of the command that the server refused.
pub(crate) fn commands(ctx: Ctx) -> Result<(), String> {
    let own_category = add_own_category(ctx);
    getkeys::decide_whether_to_tell(ctx);
    held_reply::decide_whether_possible(ctx);
    COMMANDS.iter().try_for_each(|&(spec, entry)| {
        create(ctx, spec, entry)
            .then(|| {
                describe(ctx, spec);
                categorize(ctx, spec, own_category);
            })
            .ok_or_else(|| spec.name.to_string_lossy().to_uppercase())
    })
}

/// Registers with the first flags that the server takes: it refuses a command for one unknown flag.
fn create(ctx: Ctx, spec: &Spec, entry: Entry) -> bool {
    // Redis 6.2 cannot declare keys that follow a word, so it must ask for them.
    let is_old = spec.also_from().is_some() && optional!(RedisModule_SetCommandInfo).is_none();
    let is_asked = is_old || has_keys_of_another(spec);
    flags(spec.access).iter().any(|&flags| {
        let asked = is_asked.then(|| joined(flags, getkeys::ASKED_FOR_KEYS));
        create_with(ctx, spec, entry, asked.as_deref().unwrap_or(flags))
    })
}

/// Whether the server must ask which keys the command has besides its lock.
fn has_keys_of_another(spec: &Spec) -> bool {
    spec.access == Access::Guard && getkeys::are_told()
}

fn create_with(ctx: Ctx, spec: &Spec, entry: Entry, flags: &CStr) -> bool {
    let key = c_int::from(spec.has_key());
    // SAFETY: the strings are static, and the entry has the signature that the server calls.
    let outcome = unsafe {
        api!(RedisModule_CreateCommand)(
            ctx,
            spec.name.as_ptr(),
            Some(entry),
            flags.as_ptr(),
            key,
            key,
            key,
        )
    };
    outcome == status(true)
}

const fn flags(access: Access) -> &'static [&'static CStr] {
    match access {
        Access::None => &[c"fast allow-loading allow-stale"],
        Access::Operator => &[c"admin allow-loading allow-stale"],
        Access::Read => &[c"readonly fast"],
        Access::List => &[c"readonly"],
        // Redis 6.2 does not know "blocking".
        Access::Insert => &[c"write deny-oom fast blocking", c"write deny-oom fast"],
        Access::Update | Access::Delete => &[c"write fast"],
        Access::Guard | Access::Owner => &[c"write"],
    }
}

/// Sets what COMMAND INFO and COMMAND DOCS say, on servers that support it (7.0 on). The commands work without it, so
/// the module loads even if the server refuses.
fn describe(ctx: Ctx, spec: &Spec) {
    let (Some(get_command), Some(set_command_info)) =
        (optional!(RedisModule_GetCommand), optional!(RedisModule_SetCommandInfo))
    else {
        return;
    };
    let mut history: Vec<_> = spec.history.iter().map(change).chain([NO_MORE_CHANGES]).collect();
    let mut kept = Vec::new();
    let args = arguments(spec.args, &mut kept);
    let also = spec.also_from().map(|from| keys_behind_also(spec.access, from));
    let others = has_keys_of_another(spec).then(keys_of_another_command);
    let others = also.or(others).unwrap_or(NO_MORE_KEYS);
    let mut keys = [key_spec(spec.access), others, NO_MORE_KEYS];
    let info = raw::RedisModuleCommandInfo {
        version: &raw const INFO_VERSION,
        summary: spec.summary.as_ptr(),
        complexity: spec.complexity.as_ptr(),
        since: spec.since.as_ptr(),
        history: if spec.history.is_empty() { ptr::null_mut() } else { history.as_mut_ptr() },
        tips: spec.tips.map_or(ptr::null(), CStr::as_ptr),
        arity: spec.arity(),
        key_specs: if spec.has_key() { keys.as_mut_ptr() } else { ptr::null_mut() },
        args,
    };
    // SAFETY: the command was registered just now. `info` has the layout of its version, each list ends with an empty
    // entry, and the server copies all of it.
    let outcome =
        unsafe { set_command_info(get_command(ctx, spec.name.as_ptr()), &raw const info) };
    if outcome != status(true) {
        let name = spec.name.to_string_lossy();
        log::warning(ctx, &format!("the server refused the description of {name}"));
    }
}

/// Leasehold's own ACL category, like `@list` for commands on lists.
const OWN_CATEGORY: &CStr = c"lock";

/// Adds our category, where modules can have categories (Redis 7.4 and Valkey 8.0 on). The server never forgets a
/// category, not even at an unload, so a refusal usually means that the category exists.
fn add_own_category(ctx: Ctx) -> Option<&'static CStr> {
    let add = optional!(RedisModule_AddACLCategory)?;
    // SAFETY: the context is the one that the server loads the module with, and the name is a C string.
    unsafe { add(ctx, OWN_CATEGORY.as_ptr()) };
    Some(OWN_CATEGORY)
}

/// Puts the command into ACL categories, where module commands can have them (7.2 on). The server takes all categories
/// or none, so if it has no room for ours, the command gets only the server's.
fn categorize(ctx: Ctx, spec: &Spec, own: Option<&CStr>) {
    let (Some(get_command), Some(set_categories)) =
        (optional!(RedisModule_GetCommand), optional!(RedisModule_SetCommandACLCategories))
    else {
        return;
    };
    let set = |names: &CStr| {
        // SAFETY: the command was registered just now, and the server copies what it needs of the string.
        let outcome =
            unsafe { set_categories(get_command(ctx, spec.name.as_ptr()), names.as_ptr()) };
        outcome == status(true)
    };
    let server_categories = categories(spec.access);
    let with_own =
        own.filter(|_| is_for_users(spec.access)).map(|own| joined(server_categories, own));
    if with_own.as_deref().is_some_and(set) {
        return;
    }
    let name = spec.name.to_string_lossy();
    if with_own.is_some() {
        log::warning(ctx, &format!("the server refused the ACL category lock for {name}"));
    }
    if !set(server_categories) {
        log::warning(ctx, &format!("the server refused the ACL categories of {name}"));
    }
}

/// The server's own categories. Not `keyspace`, for commands on keys of any type, and not `string`: to a client a lock
/// is a type of its own, which has our category.
const fn categories(access: Access) -> &'static CStr {
    match access {
        Access::None => c"fast",
        Access::Operator => c"admin slow dangerous",
        Access::Read => c"read fast",
        Access::List => c"read slow",
        Access::Insert => c"write fast blocking",
        Access::Update | Access::Delete => c"write fast",
        Access::Guard => c"write slow",
        Access::Owner => c"write slow dangerous",
    }
}

/// Whether the command is in our category, which is granted together with a key pattern. Commands that show all keys
/// are not.
const fn is_for_users(access: Access) -> bool {
    !matches!(access, Access::Operator)
}

fn joined(categories: &CStr, own: &CStr) -> CString {
    let both = [categories.to_bytes(), own.to_bytes()].join(&b' ');
    CString::new(both).unwrap_or_default()
}

static INFO_VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
};

const NO_MORE_CHANGES: raw::RedisModuleCommandHistoryEntry =
    raw::RedisModuleCommandHistoryEntry { since: ptr::null(), changes: ptr::null() };

fn change(
    &(since, changes): &(&'static CStr, &'static CStr),
) -> raw::RedisModuleCommandHistoryEntry {
    raw::RedisModuleCommandHistoryEntry { since: since.as_ptr(), changes: changes.as_ptr() }
}

const NO_MORE_ARGS: raw::RedisModuleCommandArg = raw::RedisModuleCommandArg {
    name: ptr::null(),
    type_: raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
    key_spec_index: NO_KEY_SPEC,
    token: ptr::null(),
    summary: ptr::null(),
    since: ptr::null(),
    flags: 0,
    deprecated_since: ptr::null(),
    subargs: ptr::null_mut(),
    display_text: ptr::null(),
};

const NO_KEY_SPEC: c_int = -1;

/// Lists of arguments. Arguments with parts point to other lists.
type Lists = Vec<Vec<raw::RedisModuleCommandArg>>;

/// A null pointer for no arguments, else a pointer to their list, which `kept` keeps at a fixed address.
fn arguments(args: &[Arg], kept: &mut Lists) -> *mut raw::RedisModuleCommandArg {
    if args.is_empty() {
        return ptr::null_mut();
    }
    let mut list: Vec<_> = args.iter().map(|arg| argument(arg, kept)).collect();
    list.push(NO_MORE_ARGS);
    let start = list.as_mut_ptr();
    kept.push(list);
    start
}

fn argument(arg: &Arg, kept: &mut Lists) -> raw::RedisModuleCommandArg {
    let parts = match arg.kind {
        ArgKind::OneOf(parts) | ArgKind::Block(parts) => parts,
        _ => &[],
    };
    let key_spec_index = match arg.kind {
        ArgKind::Key => 0,
        ArgKind::Keys => 1,
        _ => NO_KEY_SPEC,
    };
    let type_ = match arg.kind {
        ArgKind::Key | ArgKind::Keys => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
        ArgKind::Text | ArgKind::Texts => {
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING
        }
        ArgKind::Integer => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
        ArgKind::Word => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
        ArgKind::OneOf(_) => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
        ArgKind::Block(_) => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK,
    };
    let optional = if arg.optional { raw::REDISMODULE_CMD_ARG_OPTIONAL } else { 0 };
    let is_several = matches!(arg.kind, ArgKind::Keys | ArgKind::Texts);
    let multiple = if is_several { raw::REDISMODULE_CMD_ARG_MULTIPLE } else { 0 };
    raw::RedisModuleCommandArg {
        name: arg.name.as_ptr(),
        type_,
        key_spec_index,
        token: arg.keyword.map_or(ptr::null(), CStr::as_ptr),
        flags: (optional | multiple).cast_signed(),
        subargs: arguments(parts, kept),
        ..NO_MORE_ARGS
    }
}

const NO_MORE_KEYS: raw::RedisModuleCommandKeySpec = key_spec_at(
    0,
    0,
    raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INVALID,
    raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_OMITTED,
);

/// Only [`getkeys`] knows where these keys are and how they are used, so the server asks it.
fn keys_of_another_command() -> raw::RedisModuleCommandKeySpec {
    let anything = raw::REDISMODULE_CMD_KEY_RW
        | raw::REDISMODULE_CMD_KEY_ACCESS
        | raw::REDISMODULE_CMD_KEY_UPDATE
        | raw::REDISMODULE_CMD_KEY_VARIABLE_FLAGS;
    key_spec_at(
        u64::from(anything),
        0,
        raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_UNKNOWN,
        raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_UNKNOWN,
    )
}

/// The lock's key, at position 1.
fn key_spec(access: Access) -> raw::RedisModuleCommandKeySpec {
    key_spec_at(
        key_rights(access),
        1,
        raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX,
        raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE,
    )
}

/// The names of other locks, after a word and their number.
fn keys_behind_also(access: Access, from: usize) -> raw::RedisModuleCommandKeySpec {
    raw::RedisModuleCommandKeySpec {
        bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
            keyword: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_2 {
                keyword: ALSO.as_ptr(),
                startfrom: c_int::try_from(from).unwrap_or(c_int::MAX),
            },
        },
        fk: raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
            keynum: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_2 {
                keynumidx: 0,
                firstkey: 1,
                keystep: 1,
            },
        },
        ..key_spec_at(
            key_rights(access),
            0,
            raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_KEYWORD,
            raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM,
        )
    }
}

/// Every command with a key also tells the client something about the key's value, so all have ACCESS.
fn key_rights(access: Access) -> u64 {
    let rights = match access {
        Access::None | Access::Operator | Access::Owner => 0,
        Access::Read | Access::List | Access::Guard => raw::REDISMODULE_CMD_KEY_RO,
        Access::Insert => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_INSERT,
        Access::Update => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_UPDATE,
        Access::Delete => raw::REDISMODULE_CMD_KEY_RM | raw::REDISMODULE_CMD_KEY_DELETE,
    };
    u64::from(rights | raw::REDISMODULE_CMD_KEY_ACCESS)
}

const fn key_spec_at(
    flags: u64,
    pos: c_int,
    begin_search_type: c_uint,
    find_keys_type: c_uint,
) -> raw::RedisModuleCommandKeySpec {
    raw::RedisModuleCommandKeySpec {
        notes: ptr::null(),
        flags,
        begin_search_type,
        bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
            index: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos },
        },
        find_keys_type,
        fk: raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
            range: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
                lastkey: 0,
                keystep: 1,
                limit: 0,
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_registered_is_what_help_lists() {
        let registered = COMMANDS.map(|(spec, _)| spec.name);
        assert_eq!(registered, leasehold_core::command::ALL.map(|spec| spec.name));
    }

    #[test]
    fn what_shows_every_lock_is_not_for_those_who_may_use_some() {
        assert_eq!(flags(Access::Operator), [c"admin allow-loading allow-stale"]);
        assert_eq!(categories(Access::Operator), c"admin slow dangerous");
        assert!(!is_for_users(Access::Operator));
        for (spec, _) in COMMANDS.iter().filter(|(spec, _)| spec.has_key()) {
            assert!(is_for_users(spec.access), "{:?}", spec.name);
        }
    }
}
