//! What the server tells about the commands: flags, keys, rights, documentation.

use redis::Value;
use testkit::{Client, Server, bulk, bulk_text, code, field, int, items, lacks, strings};

/// Of each command: what a person may type, as put together from its arguments; an example; its arity, flags, categories
/// where a module's commands are in any, flags of the one key, and tips, each in any order; and its arguments,
/// `[KEYWORD name: type]`, in brackets if they may be left out, a key with its key specification.
const COMMANDS: &str = "
LOCK.ACQUIRE key owner ttl [SHARE holders] [BLOCK milliseconds|TICKET milliseconds [NOTIFY channel]] \
    [EPHEMERAL grace] [ALSO numkeys key [key ...]]
LOCK.ACQUIRE the-key alice 5000
-4; write denyoom fast blocking movablekeys; @write @fast @blocking @lock; RW access insert; nondeterministic_output
key: key 0, owner: string, ttl: integer, [SHARE holders: integer], [wait: oneof]
[EPHEMERAL grace: integer], [also: block]

LOCK.RELEASE key owner [fence] [ALSO numkeys key [key ...]]
LOCK.RELEASE the-key alice 7
-3; write fast movablekeys; @write @fast @lock; RM access delete;
key: key 0, owner: string, [fence: integer], [also: block]

LOCK.EXTEND key owner ttl [fence] [ALSO numkeys key [key ...]]
LOCK.EXTEND the-key alice 5000
-4; write fast movablekeys; @write @fast @lock; RW access update;
key: key 0, owner: string, ttl: integer, [fence: integer], [also: block]

LOCK.RAISE key owner fence
LOCK.RAISE the-key alice 7
4; write fast; @write @fast @lock; RW access update;
key: key 0, owner: string, fence: integer

LOCK.CHECK key owner [fence]
LOCK.CHECK the-key alice
-3; readonly fast; @read @fast @lock; RO access;
key: key 0, owner: string, [fence: integer]

LOCK.GUARD key owner fence command [arg [arg ...]]
LOCK.GUARD the-key alice 7 DBSIZE
-5; write movablekeys; @write @slow @lock; RO access;
key: key 0, owner: string, fence: integer, command: string, [arg: string [arg: string ...]]

LOCK.INFO key
LOCK.INFO the-key
2; readonly fast; @read @fast @lock; RO access; nondeterministic_output
key: key 0

LOCK.HOLDERS key [COUNT count]
LOCK.HOLDERS the-key
-2; readonly; @read @slow @lock; RO access; nondeterministic_output
key: key 0, [COUNT count: integer]

LOCK.WAITERS key [COUNT count]
LOCK.WAITERS the-key
-2; readonly; @read @slow @lock; RO access; nondeterministic_output
key: key 0, [COUNT count: integer]

LOCK.TOP [count|RESET]
LOCK.TOP 5
-1; admin loading stale; @admin @slow @dangerous; ; request_policy:all_nodes nondeterministic_output
[listing: oneof]

LOCK.LOG [count|RESET]
LOCK.LOG 5
-1; admin loading stale; @admin @slow @dangerous; ; request_policy:all_nodes nondeterministic_output
[listing: oneof]

LOCK.DROP owner [CURSOR cursor] [COUNT count]
LOCK.DROP alice
-2; write; @write @dangerous @slow @lock; ; request_policy:special response_policy:special nondeterministic_output
owner: string, [CURSOR cursor: integer], [COUNT count: integer]

LOCK.HELP
LOCK.HELP
1; loading stale fast; @fast @lock; ;
";

struct Expected {
    name: String,
    arity: i64,
    flags: &'static str,
    categories: &'static str,
    rights: &'static str,
    tips: &'static str,
    args: Vec<&'static str>,
    usage: &'static str,
    example: &'static str,
}

fn commands() -> impl Iterator<Item = Expected> {
    COMMANDS.trim().split("\n\n").map(|told| {
        let mut lines = told.lines();
        let [usage, example, kinds] = [(); 3].map(|()| lines.next().unwrap());
        let kinds: Vec<_> = kinds.split(';').map(str::trim).collect();
        let [arity, flags, categories, rights, tips] = kinds[..] else { panic!("{told}") };
        let name = usage.split(' ').next().unwrap().to_lowercase();
        let arity = arity.parse().unwrap();
        let args = lines.flat_map(|line| line.split(", ")).collect();
        Expected { name, arity, flags, categories, rights, tips, args, usage, example }
    })
}

/// The parts of what COMMAND INFO says of one command.
const ARITY: usize = 1;
const FLAGS: usize = 2;
const FIRST_KEY_TO_STEP: std::ops::Range<usize> = 3..6;
const CATEGORIES: usize = 6;
const TIPS: usize = 7;
const KEY_SPECS: usize = 8;

fn command_info(client: &mut Client, name: &str) -> Vec<Value> {
    let reply = client.cmd(["COMMAND", "INFO", name]);
    let Value::Array(mut commands) = reply else { panic!("{reply:?}") };
    match commands.remove(0) {
        Value::Array(parts) => parts,
        other => panic!("{name}: {other:?}"),
    }
}

fn command_docs(client: &mut Client, name: &str) -> Value {
    let reply = client.cmd(["COMMAND", "DOCS", name]);
    field(&reply, name).unwrap_or_else(|| panic!("no docs of {name}: {reply:?}")).clone()
}

fn arguments(docs: &Value) -> Vec<Value> {
    match field(docs, "arguments") {
        Some(Value::Array(args)) => args.clone(),
        None => Vec::new(),
        other => panic!("{other:?}"),
    }
}

fn text_field(map: &Value, name: &str) -> Option<String> {
    field(map, name).map(bulk_text)
}

/// An argument as clients type it: `[BLOCK milliseconds]`. `name` may say more than its name.
fn typed(arg: &Value, name: &str) -> String {
    let keyword = text_field(arg, "token").map(|keyword| keyword + " ").unwrap_or_default();
    let flags = field(arg, "flags").map(strings).unwrap_or_default();
    match flags.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => format!("{keyword}{name}"),
        ["optional"] => format!("[{keyword}{name}]"),
        ["multiple"] => format!("{keyword}{name} [{name} ...]"),
        ["multiple", "optional"] | ["optional", "multiple"] => {
            format!("[{keyword}{name} [{name} ...]]")
        }
        _ => panic!("{flags:?} of {name}"),
    }
}

#[track_caller]
fn assert_same(mut live: Vec<String>, expected: &str, of: &str) {
    let mut expected: Vec<_> = expected.split_whitespace().collect();
    live.sort_unstable();
    expected.sort_unstable();
    assert_eq!(live, expected, "{of}");
}

/// Without those that are not so.
fn only(words: &str, is_so: impl Fn(&str) -> bool) -> String {
    words.split(' ').filter(|word| is_so(word)).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_server_knows_flags_categories_keys_arity_and_tips_of_each_command() {
    let server = Server::start();
    let mut client = server.client();
    let is_new = !lacks((7, 0), "arity, tips and the flag of commands that block");
    let has_any = !lacks((7, 2), "categories of a module's commands");
    let has_own = !lacks((7, 4), "categories of a module's own");
    for command in commands() {
        let Expected { arity, flags, categories, tips, rights, example, .. } = command;
        let name = &command.name;
        let parts = command_info(&mut client, name);
        let mut live = strings(&parts[FLAGS]);
        // That it belongs to a module goes without saying.
        live.retain(|flag| flag != "module");
        assert_same(live, &only(flags, |flag| flag != "blocking" || is_new), name);
        let categories = only(categories, |one| has_any && (one != "@lock" || has_own));
        assert_same(strings(&parts[CATEGORIES]), &categories, name);
        let key = i64::from(!rights.is_empty());
        assert_eq!(parts[FIRST_KEY_TO_STEP], [int(key), int(key), int(key)], "{name}");
        let reply = client.cmd(format!("COMMAND GETKEYS {example}"));
        if rights.is_empty() {
            assert!(matches!(reply, Value::ServerError(_)), "{name}: {reply:?}");
        } else {
            assert_eq!(strings(&reply), ["the-key"], "{name}");
        }
        if is_new {
            assert_eq!(parts[ARITY], int(arity), "{name}");
            assert_same(strings(&parts[TIPS]), tips, name);
            assert_tells_where_keys_are(&command, &parts[KEY_SPECS]);
        }
    }
    assert!(!server.log().contains("refused"), "{}", server.log());
}

#[track_caller]
fn assert_tells_where_keys_are(command: &Expected, specs: &Value) {
    let name = &command.name;
    let Value::Array(specs) = specs else { panic!("{name}: {specs:?}") };
    if command.rights.is_empty() {
        return assert_eq!(specs[..], [], "{name}");
    }
    let [spec, others @ ..] = &specs[..] else { panic!("{name}: {specs:?}") };
    let flags = |spec| strings(field(spec, "flags").unwrap());
    assert_same(flags(spec), command.rights, name);
    assert_part(spec, "begin_search", "index", &[("index", 1)]);
    assert_part(spec, "find_keys", "range", &[("lastkey", 0), ("keystep", 1), ("limit", 0)]);
    let takes_several = command.flags.contains("movablekeys");
    assert_eq!(others.len(), usize::from(takes_several), "{name}");
    let Some(other) = others.first() else { return };
    if name == "lock.guard" {
        // Where the keys of another command are, and what becomes of them, only that command says.
        assert_same(flags(other), "RW access update variable_flags", name);
        assert_part(other, "begin_search", "unknown", &[]);
        assert_part(other, "find_keys", "unknown", &[]);
    } else {
        // The other keys stand behind `ALSO`, which is looked for from this word on, and behind their number.
        assert_same(flags(other), command.rights, name);
        assert_part(other, "begin_search", "keyword", &[("startfrom", command.arity.abs())]);
        let keyword = field(field(other, "begin_search").unwrap(), "spec").unwrap();
        assert_eq!(text_field(keyword, "keyword").as_deref(), Some("ALSO"), "{name}");
        assert_part(
            other,
            "find_keys",
            "keynum",
            &[("keynumidx", 0), ("firstkey", 1), ("keystep", 1)],
        );
    }
}

#[track_caller]
fn assert_part(spec: &Value, part: &str, kind: &str, numbers: &[(&str, i64)]) {
    let part = field(spec, part).unwrap();
    assert_eq!(text_field(part, "type").as_deref(), Some(kind), "{spec:?}");
    for (name, number) in numbers {
        assert_eq!(
            field(field(part, "spec").unwrap(), name),
            Some(&int(*number)),
            "{name} of {spec:?}"
        );
    }
}

#[test]
fn the_commands_can_be_listed_by_module_and_by_category_and_the_key_of_a_request_is_told() {
    if lacks((7, 0), "COMMAND LIST, GETKEYSANDFLAGS, and the arity of a module's command") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    let names = |is_listed: fn(&Expected) -> bool| {
        commands().filter(is_listed).map(|command| command.name).collect::<Vec<_>>().join(" ")
    };
    let listed = strings(&client.cmd("COMMAND LIST FILTERBY MODULE leasehold"));
    assert_same(listed, &names(|_| true), "by module");
    if !lacks((7, 4), "categories of a module's own") {
        let listed = strings(&client.cmd("COMMAND LIST FILTERBY ACLCAT lock"));
        assert_same(listed, &names(|command| command.categories.contains("@lock")), "by category");
        assert!(strings(&client.cmd("ACL CAT")).contains(&"lock".to_owned()));
    }
    for command in commands().filter(|command| !command.rights.is_empty()) {
        let reply = client.cmd(format!("COMMAND GETKEYSANDFLAGS {}", command.example));
        let Value::Array(keys) = &reply else { panic!("{reply:?}") };
        let [Value::Array(key)] = &keys[..] else { panic!("{reply:?}") };
        assert_eq!(key[0], bulk("the-key"));
        assert_same(strings(&key[1]), command.rights, &command.name);
    }
    let replies = client.pipeline(&["MULTI", "LOCK.ACQUIRE k alice", "EXEC"]);
    assert_eq!(code(replies[2].clone()), "EXECABORT", "it is short of words");
}

#[test]
fn every_command_is_documented_with_its_arguments_and_the_usage_that_they_make_up() {
    if lacks((7, 0), "COMMAND DOCS") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    let with_type = |arg: &Value| {
        let [name, kind] = ["name", "type"].map(|name| text_field(arg, name).unwrap());
        let spec = match field(arg, "key_spec_index") {
            Some(Value::Int(index)) => format!(" {index}"),
            None => String::new(),
            other => panic!("{other:?}"),
        };
        typed(arg, &format!("{name}: {kind}{spec}"))
    };
    for command in commands() {
        let docs = command_docs(&mut client, &command.name);
        for name in ["summary", "since", "complexity"] {
            let text = text_field(&docs, name);
            assert!(text.is_some_and(|text| !text.is_empty()), "no {name} of {}", command.name);
        }
        assert_eq!(text_field(&docs, "module").as_deref(), Some("leasehold"), "{}", command.name);
        // A test of the pages looks at the words.
        let since = text_field(&docs, "since");
        let changes = field(&docs, "history").map_or(&[][..], items);
        let are_later = changes.iter().all(|change| strings(change).first() > since.as_ref());
        assert!(are_later, "{changes:?}");
        let args = arguments(&docs);
        let typed: Vec<_> = args.iter().map(with_type).collect();
        assert_eq!(typed, command.args, "{}", command.name);
        let usage =
            args.iter().map(shown).fold(command.name.to_uppercase(), |all, arg| all + " " + &arg);
        assert_eq!(usage, command.usage);
    }
}

/// An argument as clients show it, from its parts.
fn shown(arg: &Value) -> String {
    let kind = text_field(arg, "type").unwrap();
    let choices = arguments(arg);
    let name = match &*kind {
        "oneof" => choices.iter().map(shown).collect::<Vec<_>>().join("|"),
        "block" => choices.iter().map(shown).collect::<Vec<_>>().join(" "),
        // Just its keyword.
        kind if kind.starts_with("pure") => String::new(),
        // Redis 7.0 has no text for display beside the name.
        _ => text_field(arg, "display_text").or_else(|| text_field(arg, "name")).unwrap(),
    };
    typed(arg, &name).trim_end().to_owned()
}
