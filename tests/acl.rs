//! The ACL is the boundary: who may run which command on which locks.

use crate::waiting::owners;
use redis::Value;
use std::io::Write;
use tempfile::NamedTempFile;
use testkit::{Client, Server, becomes, code, field, int, lacks, module, unchanged};

const LONG: u64 = 60_000;

/// Every command, in an order in which a holder can run them all.
const ALL: &str = "ACQUIRE EXTEND CHECK INFO WAITERS HELP RELEASE";
const CHANGES: &str = "ACQUIRE EXTEND RELEASE";
const READS: &str = "CHECK INFO WAITERS";
const HELP: &str = "HELP";
const READS_AND_HELP: &str = "CHECK INFO WAITERS HELP";
const ALL_BUT_ACQUIRE: &str = "EXTEND CHECK INFO WAITERS HELP RELEASE";
const ALL_BUT_HELP: &str = "ACQUIRE EXTEND CHECK INFO WAITERS RELEASE";
const ALL_BUT_WAITERS: &str = "ACQUIRE EXTEND CHECK INFO HELP RELEASE";
const NONE: &str = "";

/// What grants all commands on a server of any version.
fn all_commands() -> String {
    if lacks((7, 4), "a category of our own") {
        let add = |name: &str| format!("+lock.{}", name.to_lowercase());
        ALL.split(' ').map(add).collect::<Vec<_>>().join(" ")
    } else {
        "+@lock".to_owned()
    }
}

/// Gives the user `worker` these rules and no others; its connection.
fn log_in(server: &Server, rules: &str) -> Client {
    let reply = server.cmd(format!("ACL SETUSER worker reset on nopass {rules}").trim_end());
    assert_eq!(reply, Value::Okay, "{rules}");
    authenticated(server)
}

fn authenticated(server: &Server) -> Client {
    let mut client = server.client();
    assert_eq!(client.cmd("AUTH worker x"), Value::Okay);
    client
}

fn request(name: &str, key: &str) -> String {
    match name {
        "ACQUIRE" | "EXTEND" => format!("LOCK.{name} {key} worker {LONG}"),
        "CHECK" | "RELEASE" => format!("LOCK.{name} {key} worker"),
        "INFO" | "WAITERS" => format!("LOCK.{name} {key}"),
        _ => format!("LOCK.{name}"),
    }
}

/// The user runs these commands on this lock, which it holds, and no others: those change nothing.
#[track_caller]
fn assert_may_run(server: &Server, worker: &mut Client, key: &str, allowed: &str, why: &str) {
    let fence = server.client().grant(key, "worker", LONG);
    for name in ALL.split(' ') {
        let request = request(name, key);
        if !allowed.split(' ').any(|one| one == name) {
            assert_no_permission(server, worker, &request, why);
            continue;
        }
        let reply = worker.cmd(request);
        let right = match name {
            "ACQUIRE" | "CHECK" => reply == int(fence),
            "EXTEND" | "RELEASE" => reply == int(1),
            "INFO" => field(&reply, "fence") == Some(&int(fence)),
            "WAITERS" => reply == Value::Array(Vec::new()),
            _ => matches!(reply, Value::Array(_)),
        };
        assert!(right, "{name} {key} with {why:?}: {reply:?}");
    }
}

#[track_caller]
fn assert_no_permission(server: &Server, client: &mut Client, request: &str, why: &str) {
    let reply = unchanged(server, || client.cmd(request));
    assert_eq!(code(reply), "NOPERM", "{request} with {why:?}");
}

/// Before 7.2 no category covers a module's commands, and none can be taken away by one.
#[test]
fn rules_and_categories_allow_the_commands_that_they_name_and_no_others() {
    let server = Server::builder().aof().start();
    let cover = !lacks((7, 2), "categories of a module's commands");
    let has_own = !lacks((7, 4), "categories of a module's own");
    let mut rows = vec![
        ("", NONE),
        ("+@all", ALL),
        ("allcommands", ALL),
        ("+@all -@admin -@dangerous -@scripting", ALL),
        ("+@all -@keyspace -@string -@connection", ALL),
        ("+@keyspace +@string +@connection +@admin +@dangerous", NONE),
        ("+get +set +del +expire", NONE),
        ("+lock.acquire", "ACQUIRE"),
        ("-@all +lock.extend +LOCK.CHECK", "EXTEND CHECK"),
        ("+lock.acquire +lock.extend +lock.release", CHANGES),
        ("+@all -lock.help", ALL_BUT_HELP),
        ("+@all -@all +lock.help", HELP),
    ];
    for (rules, covered, not_covered) in [
        ("+@read", READS, NONE),
        ("+@write", CHANGES, NONE),
        ("+@read +@write", ALL_BUT_HELP, NONE),
        ("+@blocking", "ACQUIRE", NONE),
        ("+@fast", ALL_BUT_WAITERS, NONE),
        ("+@slow", "WAITERS", NONE),
        ("+@all -@write", READS_AND_HELP, ALL),
        ("+@all -@read", "ACQUIRE EXTEND HELP RELEASE", ALL),
        ("+@all -@blocking", ALL_BUT_ACQUIRE, ALL),
        ("+@all -@fast", "WAITERS", ALL),
        ("+@all -@slow", ALL_BUT_WAITERS, ALL),
    ] {
        rows.push((rules, if cover { covered } else { not_covered }));
    }
    if has_own {
        rows.extend([
            ("+@lock", ALL),
            ("+@lock -@write", READS_AND_HELP),
            ("+@lock -@blocking", ALL_BUT_ACQUIRE),
            ("+@lock -lock.help", ALL_BUT_HELP),
            ("+@all -@lock", NONE),
            ("+@all -@lock +lock.help", HELP),
        ]);
    }
    for (rules, allowed) in rows {
        let mut worker = log_in(&server, format!("~* {rules}").trim_end());
        assert_may_run(&server, &mut worker, "k", allowed, rules);
    }
    if has_own {
        let mut worker = log_in(&server, "~* +@lock");
        let fence = worker.grant("k", "worker", LONG);
        for request in
            ["GET k", "SET k v", "DEL k", "PEXPIRE k 1", "CONFIG GET leasehold.*", "INFO"]
        {
            assert_no_permission(&server, &mut worker, request, "+@lock");
        }
        assert_eq!(worker.check("k", "worker"), Some(fence));
        return;
    }
    for rule in ["+@lock", "-@lock"] {
        let reply = server.cmd(format!("ACL SETUSER worker {rule}"));
        let Value::ServerError(error) = &reply else { panic!("{rule}: {reply:?}") };
        let text = error.details().unwrap();
        assert!(text.contains("Unknown command or category name"), "{text}");
    }
}

#[test]
fn where_there_is_no_room_for_the_category_lock_the_others_are_kept() {
    if lacks((7, 4), "categories of a module's own") {
        return;
    }
    let server = Server::builder().with_caller_that("fill").aof().start();
    for name in ALL.split(' ').map(str::to_lowercase) {
        let line = format!("the server refused the ACL category lock for lock.{name}");
        assert!(server.log().contains(&line), "no {line:?} in:\n{}", server.log());
    }
    let reply = server.cmd("ACL SETUSER worker +@lock");
    assert!(matches!(reply, Value::ServerError(_)), "{reply:?}");
    for (rules, allowed) in
        [("+@read", READS), ("+@write", CHANGES), ("+@fast", ALL_BUT_WAITERS), ("+@all", ALL)]
    {
        let mut worker = log_in(&server, &format!("~* {rules}"));
        assert_may_run(&server, &mut worker, "k", allowed, rules);
    }
}

/// The file is read before the module is loaded, or after; rights granted before it is loaded cover its commands.
#[test]
fn users_of_a_file_and_of_a_server_without_the_module_have_their_rights() {
    let mut file = NamedTempFile::new().unwrap();
    writeln!(file, "user worker on nopass ~mine* {}", all_commands()).unwrap();
    let line = format!("worker on nopass ~mine* {}", all_commands());
    for (name, value) in [("user", &*line), ("aclfile", file.path().to_str().unwrap())] {
        let server = Server::builder().config(name, value).aof().start();
        let mut worker = authenticated(&server);
        assert_may_run(&server, &mut worker, "mine", ALL, name);
        assert_may_run(&server, &mut worker, "theirs", HELP, name);
    }
    let mut rules = vec!["+@all"];
    if !lacks((7, 2), "categories of a module's commands") {
        rules.push("+@read +@write +@fast");
    }
    for rule in rules {
        let server = Server::builder().without_module().aof().start();
        let mut worker = log_in(&server, &format!("~mine* {rule}"));
        let load = format!("MODULE LOAD {}", module::path().display());
        assert_eq!(server.cmd(load), Value::Okay);
        assert_may_run(&server, &mut worker, "mine", ALL, rule);
        assert_may_run(&server, &mut worker, "theirs", HELP, rule);
    }
}

/// The rights to keys, and which commands they allow on the lock `mine` and on the lock `theirs`.
type Row = (&'static str, &'static str, &'static str);

const PATTERNS: [Row; 5] = [
    ("~*", ALL, ALL),
    ("~mine*", ALL, HELP),
    ("~theirs*", HELP, ALL),
    ("~mine* ~theirs*", ALL, ALL),
    ("", HELP, HELP),
];

/// Who changes a lock learns something of it as well, so the right to write is not enough for anything.
const RIGHTS: [Row; 8] = [
    ("%RW~mine*", ALL, HELP),
    ("%R~mine* %W~mine*", ALL, HELP),
    ("%R~mine*", READS_AND_HELP, HELP),
    ("%W~mine*", HELP, HELP),
    ("%W~*", HELP, HELP),
    ("~mine* %R~*", ALL, READS_AND_HELP),
    ("%R~mine* %W~theirs*", READS_AND_HELP, HELP),
    // Each pattern has to give both rights by itself, unless it is the same pattern.
    ("%R~* %W~theirs*", READS_AND_HELP, READS_AND_HELP),
];

/// Each stands for itself.
const SELECTORS: [Row; 5] = [
    ("(~mine* +@all) (%R~* +lock.check +lock.info)", ALL, "CHECK INFO HELP"),
    ("~mine* +@all -@all (~theirs* +@all)", HELP, ALL),
    // Both rights to one key, but each for itself is not enough.
    ("(%R~mine* +@all) (%W~mine* +@all)", READS_AND_HELP, HELP),
    ("~mine* (+@all)", HELP, HELP),
    ("~* (~mine* +lock.check)", "CHECK", NONE),
];

#[test]
fn a_user_runs_on_a_lock_what_its_rights_to_the_key_allow() {
    let server = Server::builder().aof().start();
    let is_new = !lacks((7, 0), "selectors, and rights to read and to write in the ACL");
    let patterns = PATTERNS.iter().chain(RIGHTS.iter().filter(|_| is_new));
    let rows = patterns.map(|(keys, mine, theirs)| (format!("+@all {keys}"), *mine, *theirs));
    let selectors = SELECTORS.iter().filter(|_| is_new);
    let selectors = selectors.map(|(rules, mine, theirs)| ((*rules).to_owned(), *mine, *theirs));
    for (rules, mine, theirs) in rows.chain(selectors) {
        let mut worker = log_in(&server, rules.trim_end());
        for (key, allowed) in [("mine", mine), ("theirs", theirs)] {
            assert_may_run(&server, &mut worker, key, allowed, &rules);
            if !is_new {
                continue;
            }
            for name in ALL.split(' ') {
                let request = request(name, key);
                let reply = server.cmd(format!("ACL DRYRUN worker {request}"));
                let may = allowed.split(' ').any(|one| one == name);
                assert_eq!(reply == Value::Okay, may, "{request} with {rules:?}: {reply:?}");
            }
        }
    }
}

/// Alice holds the lock, and the user waits for it.
fn waiting(server: &Server) -> Client {
    server.client().grant("mine", "alice", LONG);
    let mut worker = log_in(server, &format!("~mine* {}", all_commands()));
    worker.send(format!("LOCK.ACQUIRE mine worker {LONG} BLOCK 0"));
    becomes("the user waits", ["worker"], || owners(server, "mine"));
    worker
}

#[test]
fn the_rules_are_asked_once_when_the_request_comes() {
    let server = Server::builder().aof().start();
    server.client().grant("theirs", "alice", LONG);
    let mut worker = log_in(&server, &format!("~mine* {}", all_commands()));
    let request = "LOCK.ACQUIRE theirs worker 60000 BLOCK 0";
    assert_no_permission(&server, &mut worker, request, "~mine*");
    assert_eq!(server.cmd("LOCK.WAITERS theirs"), Value::Array(Vec::new()));
    let mut worker = waiting(&server);
    assert_eq!(server.cmd("ACL SETUSER worker -@all resetkeys"), Value::Okay);
    assert!(server.client().release("mine", "alice"));
    assert!(matches!(worker.receive(), Value::Int(1..)));
    assert_no_permission(&server, &mut worker, "LOCK.RELEASE mine worker", "-@all");
}

#[test]
fn a_user_of_nothing_but_locks_is_handed_one_and_one_that_is_deleted_leaves_the_queue() {
    let server = Server::builder().aof().start();
    let mut worker = waiting(&server);
    assert!(server.client().release("mine", "alice"));
    let fence = worker.receive();
    assert!(matches!(fence, Value::Int(1..)), "{fence:?}");
    assert_eq!(worker.cmd("LOCK.CHECK mine worker"), fence);
    assert!(worker.release("mine", "worker"));
    let mut worker = waiting(&server);
    assert_eq!(server.cmd("ACL DELUSER worker"), int(1));
    assert!(worker.try_receive().is_err());
    becomes("the queue is empty", 0, || owners(&server, "mine").len());
    assert!(server.client().release("mine", "alice"));
    assert!(server.client().info("mine").is_none());
}
