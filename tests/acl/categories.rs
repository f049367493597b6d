//! Commands and categories of commands. Before 7.2 no category covers a module's commands, and none can be
//! taken away by one.

use super::{
    ALL, ALL_BUT_ACQUIRE, CHANGES, HELP, NONE, READS, READS_AND_HELP, assert_may_run, log_in,
};
use redis::Value;
use testkit::{Server, lacks};

type Commands = &'static [&'static str];

const ALL_BUT_READS: [&str; 4] = ["LOCK.ACQUIRE", "LOCK.EXTEND", "LOCK.HELP", "LOCK.RELEASE"];
const ALL_BUT_WAITERS: [&str; 6] =
    ["LOCK.ACQUIRE", "LOCK.EXTEND", "LOCK.CHECK", "LOCK.INFO", "LOCK.RELEASE", "LOCK.HELP"];
const ALL_BUT_HELP: [&str; 6] =
    ["LOCK.ACQUIRE", "LOCK.EXTEND", "LOCK.CHECK", "LOCK.INFO", "LOCK.WAITERS", "LOCK.RELEASE"];

#[test]
fn the_same_rules_allow_the_same_commands_on_every_server() {
    let server = Server::builder().aof().start();
    let rows: [(&str, Commands); 12] = [
        ("", &NONE),
        ("+@all", &ALL),
        ("allcommands", &ALL),
        ("+@all -@admin -@dangerous -@scripting", &ALL),
        ("+@all -@keyspace -@string -@connection", &ALL),
        ("+@keyspace +@string +@connection +@admin +@dangerous", &NONE),
        ("+get +set +del +expire", &NONE),
        ("+lock.acquire", &["LOCK.ACQUIRE"]),
        ("-@all +lock.extend +LOCK.CHECK", &["LOCK.EXTEND", "LOCK.CHECK"]),
        ("+lock.acquire +lock.extend +lock.release", &CHANGES),
        ("+@all -lock.help", &ALL_BUT_HELP),
        ("+@all -@all +lock.help", &HELP),
    ];
    for (rules, allowed) in rows {
        let mut worker = log_in(&server, format!("~* {rules}").trim_end());
        assert_may_run(&server, &mut worker, "k", allowed, rules);
    }
}

#[test]
fn categories_cover_the_commands_where_they_cover_those_of_modules() {
    let server = Server::builder().aof().start();
    let cover = !lacks((7, 2), "categories of a module's commands");
    let rows: [(&str, Commands, Commands); 11] = [
        ("+@read", &READS, &NONE),
        ("+@write", &CHANGES, &NONE),
        ("+@read +@write", &ALL_BUT_HELP, &NONE),
        ("+@blocking", &["LOCK.ACQUIRE"], &NONE),
        ("+@fast", &ALL_BUT_WAITERS, &NONE),
        ("+@slow", &["LOCK.WAITERS"], &NONE),
        ("+@all -@write", &READS_AND_HELP, &ALL),
        ("+@all -@read", &ALL_BUT_READS, &ALL),
        ("+@all -@blocking", &ALL_BUT_ACQUIRE, &ALL),
        ("+@all -@fast", &["LOCK.WAITERS"], &ALL),
        ("+@all -@slow", &ALL_BUT_WAITERS, &ALL),
    ];
    for (rules, covered, not_covered) in rows {
        let mut worker = log_in(&server, &format!("~* {rules}"));
        let allowed = if cover { covered } else { not_covered };
        assert_may_run(&server, &mut worker, "k", allowed, rules);
    }
}

#[test]
fn the_category_lock_is_all_the_commands() {
    let server = Server::builder().aof().start();
    if lacks((7, 4), "categories of a module's own") {
        for rule in ["+@lock", "-@lock"] {
            let reply = server.cmd(format!("ACL SETUSER worker {rule}"));
            let Value::ServerError(error) = &reply else { panic!("{rule}: {reply:?}") };
            let text = error.details().unwrap();
            assert!(text.contains("Unknown command or category name"), "{text}");
        }
        return;
    }
    let rows: [(&str, Commands); 6] = [
        ("+@lock", &ALL),
        ("+@lock -@write", &READS_AND_HELP),
        ("+@lock -@blocking", &ALL_BUT_ACQUIRE),
        ("+@lock -lock.help", &ALL_BUT_HELP),
        ("+@all -@lock", &NONE),
        ("+@all -@lock +lock.help", &HELP),
    ];
    for (rules, allowed) in rows {
        let mut worker = log_in(&server, &format!("~* {rules}"));
        assert_may_run(&server, &mut worker, "k", allowed, rules);
    }
}

#[test]
fn the_category_lock_is_nothing_else() {
    if lacks((7, 4), "categories of a module's own") {
        return;
    }
    let server = Server::builder().aof().start();
    let mut worker = log_in(&server, "~* +@lock");
    let fence = worker.grant("k", "worker", super::LONG);
    for request in ["GET k", "SET k v", "DEL k", "PEXPIRE k 1", "CONFIG GET leasehold.*", "INFO"] {
        super::assert_no_permission(&server, &mut worker, request, "+@lock");
    }
    assert_eq!(worker.check("k", "worker"), Some(fence));
}

#[test]
fn where_there_is_no_room_for_the_category_lock_the_others_are_kept() {
    if lacks((7, 4), "categories of a module's own") {
        return;
    }
    let server = Server::builder().with_caller_that("fill").aof().start();
    for name in ALL.map(str::to_lowercase) {
        let line = format!("the server refused the ACL category lock for {name}");
        assert!(server.log().contains(&line), "no {line:?} in:\n{}", server.log());
    }
    let reply = server.cmd("ACL SETUSER worker +@lock");
    assert!(matches!(reply, Value::ServerError(_)), "{reply:?}");
    let rows: [(&str, Commands); 4] =
        [("+@read", &READS), ("+@write", &CHANGES), ("+@fast", &ALL_BUT_WAITERS), ("+@all", &ALL)];
    for (rules, allowed) in rows {
        let mut worker = log_in(&server, &format!("~* {rules}"));
        assert_may_run(&server, &mut worker, "k", allowed, rules);
    }
}
