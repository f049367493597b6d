//! The commands made known: name, flags, key, and what COMMAND DOCS says of them.

use super::entry::{self, Entry};
use super::ffi::api::{api, optional, status};
use super::ffi::log;
use super::{guarded_keys, held_reply, keys};
use leasehold_core::command::{
    ALSO, Access, Arg, ArgKind, Spec, acquire, check, extend, guard, help, holders, info,
    log as log_page, raise, release, top, waiters,
};
use redis_module::raw::{self, RedisModuleCtx};
use std::ffi::{CStr, CString, c_int, c_uint};
use std::ptr;

/// Every command: what is said of it, and what the server calls.
static COMMANDS: [(&Spec, Entry); 12] = [
    (&acquire::SPEC, entry::acquire),
    (&release::SPEC, entry::release),
    (&extend::SPEC, entry::extend),
    (&raise::SPEC, entry::raise),
    (&check::SPEC, entry::check),
    (&guard::SPEC, entry::guard),
    (&info::SPEC, entry::info),
    (&holders::SPEC, entry::holders),
    (&waiters::SPEC, entry::waiters),
    (&top::SPEC, entry::top),
    (&log_page::SPEC, entry::log),
    (&help::SPEC, entry::help),
];

/// Registers them all; the name of the one the server would not take.
pub(super) fn commands(ctx: *mut RedisModuleCtx) -> Result<(), String> {
    let own_category = add_own_category(ctx);
    guarded_keys::decide_whether_to_tell(ctx);
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

/// With the first flags that the server takes: it refuses a command for one unknown flag.
fn create(ctx: *mut RedisModuleCtx, spec: &Spec, entry: Entry) -> bool {
    // Redis 6.2 knows no other way to be told of keys that stand behind a word.
    let is_old = spec.also_from().is_some() && optional!(RedisModule_SetCommandInfo).is_none();
    if is_old || has_keys_of_another(spec) {
        return flags(spec.access)
            .iter()
            .any(|flags| create_with(ctx, spec, entry, &joined(flags, keys::ASKED_FOR_KEYS)));
    }
    flags(spec.access).iter().any(|flags| create_with(ctx, spec, entry, flags))
}

/// Whether the server is to ask which keys it has besides its own.
fn has_keys_of_another(spec: &Spec) -> bool {
    spec.access == Access::Guard && guarded_keys::are_told()
}

fn create_with(ctx: *mut RedisModuleCtx, spec: &Spec, entry: Entry, flags: &CStr) -> bool {
    let key = c_int::from(spec.access.has_key());
    // SAFETY: the strings are static; the entry has the signature the server calls.
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
        Access::Guard => &[c"write"],
    }
}

/// Tells the server what COMMAND INFO and COMMAND DOCS should say, where it can be told (7.0 on). The
/// commands work without it, so a refusal is no reason not to load.
fn describe(ctx: *mut RedisModuleCtx, spec: &Spec) {
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
        arity: spec.arity,
        key_specs: if spec.access.has_key() { keys.as_mut_ptr() } else { ptr::null_mut() },
        args,
    };
    // SAFETY: the command was registered just now; `info` is laid out as its version says, each list
    // ends with an empty entry, and the server copies all of it.
    let outcome =
        unsafe { set_command_info(get_command(ctx, spec.name.as_ptr()), &raw const info) };
    if outcome != status(true) {
        let name = spec.name.to_string_lossy();
        log::warning(ctx, &format!("the server refused the description of {name}"));
    }
}

/// The category of the ACL that is all of Leasehold's own, as `@list` is all of what is done to lists.
const OWN_CATEGORY: &CStr = c"lock";

/// Makes our own category known, where modules can have one (Redis 7.4 and Valkey 8.0 on). A category is
/// never forgotten, not when the module is unloaded either, so a refusal mostly says that it is there.
fn add_own_category(ctx: *mut RedisModuleCtx) -> Option<&'static CStr> {
    let add = optional!(RedisModule_AddACLCategory)?;
    // SAFETY: the context is the one the server loads the module with; the name is a C string.
    unsafe { add(ctx, OWN_CATEGORY.as_ptr()) };
    Some(OWN_CATEGORY)
}

/// Puts the command into the categories of the ACL, where a module's commands can be in any (7.2 on). The
/// server takes all of them or none, so without our own if it should have no room for that.
fn categorize(ctx: *mut RedisModuleCtx, spec: &Spec, own: Option<&CStr>) {
    let (Some(get_command), Some(set_categories)) =
        (optional!(RedisModule_GetCommand), optional!(RedisModule_SetCommandACLCategories))
    else {
        return;
    };
    let set = |names: &CStr| {
        // SAFETY: the command was registered just now; the server copies what it needs of the string.
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

/// Those of the server's own. Not `keyspace`, which is what works on keys of any type, and not `string`: to a
/// client a lock is a kind of its own, which is our own category.
const fn categories(access: Access) -> &'static CStr {
    match access {
        Access::None => c"fast",
        Access::Operator => c"admin slow dangerous",
        Access::Read => c"read fast",
        Access::List => c"read slow",
        Access::Insert => c"write fast blocking",
        Access::Update | Access::Delete => c"write fast",
        Access::Guard => c"write slow",
    }
}

/// Whether it is in our own category, which is granted together with a pattern of keys. What shows all keys
/// is not.
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

/// Lists of arguments, which point to those of arguments that have parts.
type Lists = Vec<Vec<raw::RedisModuleCommandArg>>;

/// The list of these, which stays where it is as long as it is kept; null for none.
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
        ArgKind::Key
        | ArgKind::Keys
        | ArgKind::Text
        | ArgKind::Texts
        | ArgKind::Integer
        | ArgKind::Word => &[],
    };
    let (type_, key_spec_index) = match arg.kind {
        ArgKind::Key => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY, 0),
        ArgKind::Keys => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY, 1),
        ArgKind::Text | ArgKind::Texts => {
            (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING, NO_KEY_SPEC)
        }
        ArgKind::Integer => {
            (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER, NO_KEY_SPEC)
        }
        ArgKind::Word => {
            (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN, NO_KEY_SPEC)
        }
        ArgKind::OneOf(_) => {
            (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF, NO_KEY_SPEC)
        }
        ArgKind::Block(_) => {
            (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK, NO_KEY_SPEC)
        }
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

/// Where they are, and what becomes of them, only [`keys`] can tell, which the server asks.
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

/// The one key, at position 1.
fn key_spec(access: Access) -> raw::RedisModuleCommandKeySpec {
    key_spec_at(
        key_rights(access),
        1,
        raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX,
        raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE,
    )
}

/// The names of other locks, behind a word and their number.
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

/// Every command that has a key also tells the client something of what it holds, hence ACCESS throughout.
fn key_rights(access: Access) -> u64 {
    let rights = match access {
        Access::None | Access::Operator => 0,
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
        for (spec, _) in COMMANDS.iter().filter(|(spec, _)| spec.access.has_key()) {
            assert!(is_for_users(spec.access), "{:?}", spec.name);
        }
    }
}
