//! What the server tells about the commands: flags, keys, rights, documentation.

mod keys;

use keys::{assert_are_behind_also, assert_are_to_be_asked_for};
use redis::Value;
use testkit::{Client, Server, field, int, items, lacks, strings};

struct Expected {
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    /// In which categories of the ACL it is, where a module's commands are in any.
    categories: &'static [&'static str],
    tips: &'static [&'static str],
    /// Of the one key, as COMMAND GETKEYSANDFLAGS tells them; empty for a command without a key.
    rights: &'static [&'static str],
    /// `[KEYWORD name: type]`, in brackets if it may be left out; a key with its key specification.
    args: &'static [&'static str],
    /// What a person may type, as put together from the arguments.
    usage: &'static str,
    example: &'static str,
}

const COMMANDS: [Expected; 12] = [
    Expected {
        name: "lock.acquire",
        arity: -4,
        flags: &["write", "denyoom", "fast", "blocking", "movablekeys"],
        categories: &["@write", "@fast", "@blocking", "@lock"],
        tips: &["nondeterministic_output"],
        rights: &["RW", "access", "insert"],
        args: &[
            "key: key 0",
            "owner: string",
            "ttl: integer",
            "[SHARE holders: integer]",
            "[wait: oneof]",
            "[EPHEMERAL grace: integer]",
            "[also: block]",
        ],
        usage: "LOCK.ACQUIRE key owner ttl [SHARE holders] \
            [BLOCK milliseconds|TICKET milliseconds [NOTIFY channel]] [EPHEMERAL grace] \
            [ALSO numkeys key [key ...]]",
        example: "LOCK.ACQUIRE the-key alice 5000",
    },
    Expected {
        name: "lock.release",
        arity: -3,
        flags: &["write", "fast", "movablekeys"],
        categories: &["@write", "@fast", "@lock"],
        tips: &[],
        rights: &["RM", "access", "delete"],
        args: &["key: key 0", "owner: string", "[fence: integer]", "[also: block]"],
        usage: "LOCK.RELEASE key owner [fence] [ALSO numkeys key [key ...]]",
        example: "LOCK.RELEASE the-key alice 7",
    },
    Expected {
        name: "lock.extend",
        arity: -4,
        flags: &["write", "fast", "movablekeys"],
        categories: &["@write", "@fast", "@lock"],
        tips: &[],
        rights: &["RW", "access", "update"],
        args: &["key: key 0", "owner: string", "ttl: integer", "[fence: integer]", "[also: block]"],
        usage: "LOCK.EXTEND key owner ttl [fence] [ALSO numkeys key [key ...]]",
        example: "LOCK.EXTEND the-key alice 5000",
    },
    Expected {
        name: "lock.raise",
        arity: 4,
        flags: &["write", "fast"],
        categories: &["@write", "@fast", "@lock"],
        tips: &[],
        rights: &["RW", "access", "update"],
        args: &["key: key 0", "owner: string", "fence: integer"],
        usage: "LOCK.RAISE key owner fence",
        example: "LOCK.RAISE the-key alice 7",
    },
    Expected {
        name: "lock.check",
        arity: -3,
        flags: &["readonly", "fast"],
        categories: &["@read", "@fast", "@lock"],
        tips: &[],
        rights: &["RO", "access"],
        args: &["key: key 0", "owner: string", "[fence: integer]"],
        usage: "LOCK.CHECK key owner [fence]",
        example: "LOCK.CHECK the-key alice",
    },
    Expected {
        name: "lock.guard",
        arity: -5,
        flags: &["write", "movablekeys"],
        categories: &["@write", "@slow", "@lock"],
        tips: &[],
        rights: &["RO", "access"],
        args: &[
            "key: key 0",
            "owner: string",
            "fence: integer",
            "command: string",
            "[arg: string [arg: string ...]]",
        ],
        usage: "LOCK.GUARD key owner fence command [arg [arg ...]]",
        example: "LOCK.GUARD the-key alice 7 DBSIZE",
    },
    Expected {
        name: "lock.info",
        arity: 2,
        flags: &["readonly", "fast"],
        categories: &["@read", "@fast", "@lock"],
        tips: &["nondeterministic_output"],
        rights: &["RO", "access"],
        args: &["key: key 0"],
        usage: "LOCK.INFO key",
        example: "LOCK.INFO the-key",
    },
    Expected {
        name: "lock.holders",
        arity: -2,
        flags: &["readonly"],
        categories: &["@read", "@slow", "@lock"],
        tips: &["nondeterministic_output"],
        rights: &["RO", "access"],
        args: &["key: key 0", "[COUNT count: integer]"],
        usage: "LOCK.HOLDERS key [COUNT count]",
        example: "LOCK.HOLDERS the-key",
    },
    Expected {
        name: "lock.waiters",
        arity: -2,
        flags: &["readonly"],
        categories: &["@read", "@slow", "@lock"],
        tips: &["nondeterministic_output"],
        rights: &["RO", "access"],
        args: &["key: key 0", "[COUNT count: integer]"],
        usage: "LOCK.WAITERS key [COUNT count]",
        example: "LOCK.WAITERS the-key",
    },
    Expected {
        name: "lock.top",
        arity: -1,
        flags: &["admin", "loading", "stale"],
        categories: &["@admin", "@slow", "@dangerous"],
        tips: &["request_policy:all_nodes", "nondeterministic_output"],
        rights: &[],
        args: &["[listing: oneof]"],
        usage: "LOCK.TOP [count|RESET]",
        example: "LOCK.TOP 5",
    },
    Expected {
        name: "lock.log",
        arity: -1,
        flags: &["admin", "loading", "stale"],
        categories: &["@admin", "@slow", "@dangerous"],
        tips: &["request_policy:all_nodes", "nondeterministic_output"],
        rights: &[],
        args: &["[listing: oneof]"],
        usage: "LOCK.LOG [count|RESET]",
        example: "LOCK.LOG 5",
    },
    Expected {
        name: "lock.help",
        arity: 1,
        flags: &["loading", "stale", "fast"],
        categories: &["@fast", "@lock"],
        tips: &[],
        rights: &[],
        args: &[],
        usage: "LOCK.HELP",
        example: "LOCK.HELP",
    },
];

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
    match field(map, name) {
        Some(Value::BulkString(bytes)) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Some(Value::SimpleString(text)) => Some(text.clone()),
        None => None,
        other => panic!("{name} is {other:?}"),
    }
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
fn assert_same(mut live: Vec<String>, expected: &[&str], of: &str) {
    let mut expected = expected.to_vec();
    live.sort_unstable();
    expected.sort_unstable();
    assert_eq!(live, expected, "{of}");
}

#[test]
fn the_flags_say_what_a_command_does_and_when_it_may_run() {
    let server = Server::start();
    let mut client = server.client();
    let knows_blocking = !lacks((7, 0), "the flag of commands that block");
    for command in &COMMANDS {
        let parts = command_info(&mut client, command.name);
        let mut flags = strings(&parts[FLAGS]);
        // That it belongs to a module goes without saying.
        flags.retain(|flag| flag != "module");
        let mut expected = command.flags.to_vec();
        expected.retain(|flag| *flag != "blocking" || knows_blocking);
        assert_same(flags, &expected, command.name);
    }
}

#[test]
fn the_categories_of_the_acl_are_those_of_what_a_command_does_and_one_of_our_own() {
    let server = Server::start();
    let mut client = server.client();
    let has_any = !lacks((7, 2), "categories of a module's commands");
    let has_own = !lacks((7, 4), "categories of a module's own");
    for command in &COMMANDS {
        let parts = command_info(&mut client, command.name);
        let mut expected = command.categories.to_vec();
        expected.retain(|category| has_any && (*category != "@lock" || has_own));
        assert_same(strings(&parts[CATEGORIES]), &expected, command.name);
    }
}

#[test]
fn the_commands_can_be_listed_by_module_and_by_category() {
    if lacks((7, 0), "COMMAND LIST") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    let all = COMMANDS.map(|command| command.name);
    let listed = strings(&client.cmd("COMMAND LIST FILTERBY MODULE leasehold"));
    assert_same(listed, &all, "by module");
    if !lacks((7, 4), "categories of a module's own") {
        let listed = strings(&client.cmd("COMMAND LIST FILTERBY ACLCAT lock"));
        let own: Vec<_> = COMMANDS
            .iter()
            .filter(|command| command.categories.contains(&"@lock"))
            .map(|command| command.name)
            .collect();
        assert_same(listed, &own, "by category");
        assert!(strings(&client.cmd("ACL CAT")).contains(&"lock".to_owned()));
    }
}

#[test]
fn what_the_same_request_may_answer_differently_says_so() {
    if lacks((7, 0), "tips") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    for command in &COMMANDS {
        let parts = command_info(&mut client, command.name);
        assert_same(strings(&parts[TIPS]), command.tips, command.name);
    }
}

#[test]
fn every_command_with_a_key_has_it_first() {
    let server = Server::start();
    let mut client = server.client();
    for command in &COMMANDS {
        let parts = command_info(&mut client, command.name);
        let key = i64::from(!command.rights.is_empty());
        assert_eq!(parts[FIRST_KEY_TO_STEP], [int(key), int(key), int(key)], "{}", command.name);
        let reply = client.cmd(format!("COMMAND GETKEYS {}", command.example));
        if command.rights.is_empty() {
            assert!(matches!(reply, Value::ServerError(_)), "{}: {reply:?}", command.name);
        } else {
            assert_eq!(strings(&reply), ["the-key"], "{}", command.name);
        }
    }
}

#[test]
fn the_server_knows_how_many_words_a_command_takes() {
    if lacks((7, 0), "the arity of a module's command") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    for command in &COMMANDS {
        let parts = command_info(&mut client, command.name);
        assert_eq!(parts[ARITY], int(command.arity), "{}", command.name);
    }
}

#[test]
fn a_command_short_of_words_spoils_its_transaction_when_it_is_queued() {
    if lacks((7, 0), "the arity of a module's command") {
        return;
    }
    let server = Server::start();
    let replies = server.client().pipeline(&["MULTI", "LOCK.ACQUIRE k alice", "EXEC"]);
    let Value::ServerError(error) = &replies[2] else { panic!("{replies:?}") };
    assert_eq!(error.code(), "EXECABORT");
}

#[test]
fn the_key_specifications_say_where_the_key_is_and_what_becomes_of_it() {
    if lacks((7, 0), "key specifications") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    for command in &COMMANDS {
        let parts = command_info(&mut client, command.name);
        let Value::Array(specs) = &parts[KEY_SPECS] else { panic!("{parts:?}") };
        if command.rights.is_empty() {
            assert_eq!(specs[..], [], "{}", command.name);
            continue;
        }
        let [spec, others @ ..] = &specs[..] else { panic!("{}: {specs:?}", command.name) };
        let flags = |spec| strings(field(spec, "flags").unwrap());
        assert_same(flags(spec), command.rights, command.name);
        let takes_several = command.flags.contains(&"movablekeys");
        assert_eq!(others.len(), usize::from(takes_several), "{}", command.name);
        match others {
            [other] if command.name == "lock.guard" => assert_are_to_be_asked_for(other),
            [other] => {
                assert_same(flags(other), command.rights, command.name);
                let from = usize::try_from(command.arity.abs()).unwrap();
                assert_are_behind_also(other, from);
            }
            _ => {}
        }

        let begin = field(spec, "begin_search").unwrap();
        assert_eq!(text_field(begin, "type").as_deref(), Some("index"), "{}", command.name);
        let index = field(begin, "spec").unwrap();
        assert_eq!(field(index, "index"), Some(&int(1)), "{}", command.name);

        let find = field(spec, "find_keys").unwrap();
        assert_eq!(text_field(find, "type").as_deref(), Some("range"), "{}", command.name);
        let range = field(find, "spec").unwrap();
        for (name, number) in [("lastkey", 0), ("keystep", 1), ("limit", 0)] {
            assert_eq!(field(range, name), Some(&int(number)), "{name} of {}", command.name);
        }
    }
}

#[test]
fn the_key_of_a_request_is_told_with_what_becomes_of_it() {
    if lacks((7, 0), "COMMAND GETKEYSANDFLAGS") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    for command in COMMANDS.iter().filter(|command| !command.rights.is_empty()) {
        let reply = client.cmd(format!("COMMAND GETKEYSANDFLAGS {}", command.example));
        let Value::Array(keys) = &reply else { panic!("{reply:?}") };
        let [Value::Array(key)] = &keys[..] else { panic!("{reply:?}") };
        assert_eq!(strings(&Value::Array(vec![key[0].clone()])), ["the-key"]);
        assert_same(strings(&key[1]), command.rights, command.name);
    }
}

#[test]
fn every_command_is_documented() {
    if lacks((7, 0), "COMMAND DOCS") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    for command in &COMMANDS {
        let docs = command_docs(&mut client, command.name);
        for name in ["summary", "since", "complexity"] {
            let text = text_field(&docs, name);
            assert!(text.is_some_and(|text| !text.is_empty()), "no {name} of {}", command.name);
        }
        assert_eq!(text_field(&docs, "module").as_deref(), Some("leasehold"), "{}", command.name);
        // A test of the pages looks at the words.
        let since = text_field(&docs, "since");
        let changes = field(&docs, "history").map_or(&[][..], items);
        assert!(
            changes.iter().all(|change| strings(change).first() > since.as_ref()),
            "{changes:?}"
        );
    }
    assert!(!server.log().contains("refused"), "{}", server.log());
}

#[test]
fn every_argument_is_documented_with_its_type_its_keyword_and_whether_it_is_needed() {
    if lacks((7, 0), "COMMAND DOCS") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    let shown = |arg: &Value| {
        let [name, kind] = ["name", "type"].map(|name| text_field(arg, name).unwrap());
        let spec = match field(arg, "key_spec_index") {
            Some(Value::Int(index)) => format!(" {index}"),
            None => String::new(),
            other => panic!("{other:?}"),
        };
        typed(arg, &format!("{name}: {kind}{spec}"))
    };
    for command in &COMMANDS {
        let args = arguments(&command_docs(&mut client, command.name));
        let args: Vec<_> = args.iter().map(shown).collect();
        assert_eq!(args, command.args, "{}", command.name);
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

#[test]
fn the_arguments_make_up_the_usage_that_clients_show() {
    if lacks((7, 0), "COMMAND DOCS") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    for command in &COMMANDS {
        let mut usage = command.name.to_uppercase();
        for arg in arguments(&command_docs(&mut client, command.name)) {
            usage.push_str(&format!(" {}", shown(&arg)));
        }
        assert_eq!(usage, command.usage);
    }
}

#[test]
fn redis_cli_hints_at_the_arguments() {
    if lacks((7, 0), "COMMAND DOCS") {
        return;
    }
    let server = Server::start();
    let Some(mut prompt) = server.prompt() else { return };
    for command in COMMANDS.iter().filter(|command| !command.args.is_empty()) {
        // Newer ones wait for the space.
        prompt.types(&format!("{} ", command.name.to_uppercase()));
        prompt.shows(command.usage);
        prompt.clears();
    }
}
