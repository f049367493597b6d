//! The command behind the fence obeys the ACL of its sender.

use super::{guarded, held, held_on};
use redis::Value;
use testkit::{Client, Server, bulk, error, int, is_older_than, lacks};

const NEEDS_ALL: &str = "NOPERM LOCK.GUARD needs a user with +@all on this server, which does not tell modules what a user may do";

fn worker(server: &Server, rules: &str) -> Client {
    let channels = if is_older_than((6, 2)) { "" } else { "resetchannels &mine" };
    let rules = format!("ACL SETUSER worker reset on >secret ~the-lock ~mine* {channels} {rules}");
    assert_eq!(server.cmd(rules), Value::Okay);
    let mut client = server.client();
    assert_eq!(client.cmd("AUTH worker secret"), Value::Okay);
    client
}

#[track_caller]
fn assert_denied(reply: &Value) {
    let Value::ServerError(refusal) = reply else { panic!("{reply:?}") };
    assert_eq!(refusal.code(), "NOPERM", "{refusal}");
}

#[test]
fn a_user_runs_what_it_may_run_bare() {
    if lacks((7, 0), "what a user may do") {
        return;
    }
    let (server, mut owner, fence) = held();
    let mut client = worker(&server, "+lock.guard +get +set +publish +multi +exec +eval");
    let mut run = |command: &str| client.cmd(guarded(fence, command));
    assert_eq!(run("SET mine v"), Value::Okay);
    assert_eq!(run("GET mine"), bulk("v"));
    assert_eq!(run("PUBLISH mine message"), int(0));
    for denied in ["INCR mine", "DEL mine", "SET theirs v", "GET theirs", "PUBLISH theirs message"]
    {
        assert_denied(&run(denied));
    }
    let replies = client.transaction(&[&guarded(fence, "SET mine w"), &guarded(fence, "DEL mine")]);
    assert_eq!(replies[0], Value::Okay);
    assert_denied(&replies[1]);
    assert_eq!(owner.cmd("MGET mine theirs"), Value::Array(vec![bulk("w"), Value::Nil]));
}

#[test]
fn the_right_to_read_the_lock_is_enough_to_guard_by_it() {
    if lacks((7, 0), "rights to read and to write in the ACL") {
        return;
    }
    let (server, mut owner, fence) = held();
    let rules =
        "ACL SETUSER reader reset on >secret %R~the-lock ~mine +lock.guard +lock.release +set";
    assert_eq!(server.cmd(rules), Value::Okay);
    let mut client = server.client();
    assert_eq!(client.cmd("AUTH reader secret"), Value::Okay);
    assert_eq!(client.cmd(guarded(fence, "SET mine v")), Value::Okay);
    for command in ["LOCK.RELEASE the-lock alice", "SET the-lock v"] {
        assert_denied(&client.cmd(guarded(fence, command)));
    }
    assert_eq!(owner.check("the-lock", "alice"), Some(fence));
}

#[test]
fn in_a_script_it_obeys_the_acl_of_who_runs_the_script() {
    if lacks((7, 0), "what a user may do") {
        return;
    }
    let (server, mut owner, fence) = held();
    let mut client = worker(&server, "+lock.guard +set +eval");
    let fence = fence.to_string();
    for (command, may) in [("SET", true), ("APPEND", false)] {
        let script = format!(
            "return redis.pcall('LOCK.GUARD', KEYS[1], 'alice', ARGV[1], '{command}', KEYS[2], 'v')"
        );
        let reply = client.cmd(["EVAL", &*script, "2", "the-lock", "mine", &fence]);
        assert_eq!(reply == Value::Okay, may, "{reply:?}");
    }
    assert_eq!(owner.cmd("GET mine"), bulk("v"));
}

#[test]
fn the_right_to_guard_is_no_right_to_anything_else() {
    let (server, mut owner, fence) = held();
    let mut client = worker(&server, "+lock.guard");
    for command in
        ["SET mine v", "GET mine", "PUBLISH mine m", "LOCK.RELEASE the-lock alice", "FLUSHALL"]
    {
        assert_denied(&client.cmd(guarded(fence, command)));
    }
    let mut other = worker(&server, "+@all -lock.guard");
    assert_denied(&other.cmd(guarded(fence, "GET mine")));
    assert_eq!(owner.cmd("GET mine"), Value::Nil);
    assert!(owner.info("the-lock").is_some());
}

#[test]
fn a_refusal_is_in_the_servers_log_of_refusals() {
    if lacks((7, 0), "what a user may do") {
        return;
    }
    let (server, mut owner, fence) = held();
    let mut client = worker(&server, "+lock.guard");
    client.cmd(guarded(fence, "SET mine v"));
    let log = format!("{:?}", owner.cmd("ACL LOG 1"));
    assert!(log.contains("worker"), "{log}");
}

#[test]
fn on_redis_6_2_only_who_may_run_every_command_is_guarded() {
    if !is_older_than((7, 0)) {
        return;
    }
    let (server, mut owner, fence) = held_on(Server::start());
    let mut some = worker(&server, "+lock.guard +set +get");
    assert_eq!(some.cmd(guarded(fence, "SET mine v")), error(NEEDS_ALL));
    // A script does not say who runs it: it may be this user.
    let script = "return redis.pcall('LOCK.GUARD', KEYS[1], 'alice', ARGV[1], 'SET', KEYS[2], 'v')";
    let fence_word = fence.to_string();
    let run = ["EVAL", script, "2", "the-lock", "mine", &fence_word];
    assert!(matches!(owner.cmd(run), Value::ServerError(_)));
    let mut all = worker(&server, "+@all");
    assert_eq!(all.cmd(guarded(fence, "SET mine v")), Value::Okay);
    assert_denied(&all.cmd(guarded(fence, "SET theirs v")));
    assert_eq!(all.cmd(guarded(fence, "PUBLISH mine message")), error(NEEDS_ALL));
    assert_eq!(owner.cmd(guarded(fence, "PUBLISH theirs message")), int(0));
    assert_eq!(owner.cmd(guarded(fence, "SET theirs v")), Value::Okay);
    owner.cmd("ACL SETUSER worker reset off");
    assert_eq!(owner.cmd(run), Value::Okay, "the other one cannot log in");
}
