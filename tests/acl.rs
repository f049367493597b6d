//! The ACL is the boundary: who may run which command on which locks.

use crate::waiting::play;
use redis::Value;
use std::io::Write;
use tempfile::NamedTempFile;
use testkit::{Client, Server, code, field, int, lacks, module, unchanged};

const LONG: u64 = 60_000;

/// Every command, in an order in which a holder can run them all.
const ALL: &str = "ACQUIRE EXTEND CHECK INFO WAITERS HELP RELEASE";
const CHANGES: &str = "ACQUIRE EXTEND RELEASE";
const READS: &str = "CHECK INFO WAITERS";
const HELP: &str = "HELP";
const READS_AND_HELP: &str = "CHECK INFO WAITERS HELP";
const ALL_BUT_WAITERS: &str = "ACQUIRE EXTEND CHECK INFO HELP RELEASE";

/// What grants all commands on a server of any version.
fn all_commands() -> String {
    if lacks((7, 4), "a category of our own") {
        let add = |name: &str| format!("+lock.{}", name.to_lowercase());
        ALL.split(' ').map(add).collect::<Vec<_>>().join(" ")
    } else {
        "+@lock".to_owned()
    }
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
            let reply = unchanged(server, || worker.cmd(&*request));
            assert_eq!(code(reply), "NOPERM", "{request} with {why:?}");
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
        let mut worker = server.user("worker", &format!("~* {rules}"));
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
        let mut worker = server.logged_in("worker");
        assert_may_run(&server, &mut worker, "mine", ALL, name);
        assert_may_run(&server, &mut worker, "theirs", HELP, name);
    }
    let mut rules = vec!["+@all"];
    if !lacks((7, 2), "categories of a module's commands") {
        rules.push("+@read +@write +@fast");
    }
    for rule in rules {
        let server = Server::builder().without_module().aof().start();
        let mut worker = server.user("worker", &format!("~mine* {rule}"));
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
const RIGHTS: [Row; 9] = [
    ("%RW~mine*", ALL, HELP),
    ("%R~mine* %W~mine*", ALL, HELP),
    ("%R~mine*", READS_AND_HELP, HELP),
    ("%W~mine*", HELP, HELP),
    ("%W~*", HELP, HELP),
    ("~mine* %R~*", ALL, READS_AND_HELP),
    ("%R~mine* %W~theirs*", READS_AND_HELP, HELP),
    // Each pattern has to give both rights by itself, unless it is the same pattern.
    ("%R~* %W~theirs*", READS_AND_HELP, READS_AND_HELP),
    ("(%R~mine* +@all) (%W~mine* +@all)", READS_AND_HELP, HELP),
];

#[test]
fn a_user_runs_on_a_lock_what_its_rights_to_the_key_allow() {
    let server = Server::builder().aof().start();
    let is_new = !lacks((7, 0), "selectors, and rights to read and to write in the ACL");
    for (keys, mine, theirs) in PATTERNS.iter().chain(RIGHTS.iter().filter(|_| is_new)) {
        let mut worker = server.user("worker", &format!("+@all {keys}"));
        assert_may_run(&server, &mut worker, "mine", mine, keys);
        assert_may_run(&server, &mut worker, "theirs", theirs, keys);
    }
}

const SESSIONS: &str = "
    # the rules are asked when the request comes, and not at the grant
    ACL SETUSER worker reset on nopass ~k +lock.acquire +lock.release +lock.check -> OK
    LOCK.ACQUIRE theirs alice 60000 -> B
    worker: AUTH worker x -> OK
    worker: LOCK.ACQUIRE theirs worker 60000 BLOCK 0 -> -NOPERM
    LOCK.WAITERS theirs -> (empty)
    worker: LOCK.ACQUIRE k worker 60000 BLOCK 0 -> waits
    ACL SETUSER worker -@all resetkeys -> OK
    LOCK.RELEASE k alice -> 1
    worker: -> C
    worker: LOCK.RELEASE k worker -> -NOPERM

    # a user that is deleted leaves the queue
    ACL SETUSER worker reset on nopass ~k +lock.acquire -> OK
    worker: AUTH worker x -> OK
    worker: LOCK.ACQUIRE k worker 60000 BLOCK 0 -> waits
    ACL DELUSER worker -> 1
    worker: -> closed
    LOCK.WAITERS k -> until (empty)
    LOCK.RELEASE k alice; LOCK.INFO k -> 1; nil
";

#[test]
fn a_user_is_asked_for_its_rights_once_and_may_be_deleted_while_it_waits() {
    play(Server::builder, SESSIONS);
}
