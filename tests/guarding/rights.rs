//! The command behind the fence obeys the ACL of its sender.

use super::{guarded, held_on};
use redis::Value;
use testkit::{Client, Server, Session, error, int, is_older_than, lacks};

const NEEDS_ALL: &str = "NOPERM LOCK.GUARD needs a user with +@all on this server, which does not tell modules what a user may do";

fn worker(server: &Server, rules: &str) -> Client {
    server.user("worker", &format!("~the-lock ~mine* resetchannels &mine {rules}"))
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
    let call = "return redis.pcall('LOCK.GUARD', KEYS[1], 'alice', ARGV[1], ARGV[2], KEYS[2], 'v')";
    let may = "~l ~mine* resetchannels &mine +lock.guard +get +set +publish +multi +exec +eval";
    let text = "
        # commands, keys and channels, also in a transaction and in a script
        LOCK.ACQUIRE l alice 60000; ACL SETUSER worker reset on >secret MAY -> A; OK
        worker: AUTH worker secret; LOCK.GUARD l alice A SET mine v -> OK; OK
        worker: LOCK.GUARD l alice A GET mine; LOCK.GUARD l alice A PUBLISH mine message -> v; 0
        worker: LOCK.GUARD l alice A INCR mine; LOCK.GUARD l alice A DEL mine -> -NOPERM; -NOPERM
        worker: LOCK.GUARD l alice A SET theirs v; LOCK.GUARD l alice A GET theirs -> -NOPERM; -NOPERM
        worker: LOCK.GUARD l alice A PUBLISH theirs message -> -NOPERM
        worker: MULTI; LOCK.GUARD l alice A SET mine w; LOCK.GUARD l alice A DEL mine -> OK; QUEUED; QUEUED
        worker: EXEC -> …OK -NOPERM
        worker: EVAL \"CALL\" 2 l mine A SET; EVAL \"CALL\" 2 l mine A APPEND -> OK; …NOPERM
        MGET mine theirs -> v nil
        # the right to read the lock is enough to guard by it
        LOCK.ACQUIRE l alice 60000 -> A
        ACL SETUSER reader reset on >secret %R~l ~mine +lock.guard +lock.release +set -> OK
        reader: AUTH reader secret; LOCK.GUARD l alice A SET mine v -> OK; OK
        reader: LOCK.GUARD l alice A LOCK.RELEASE l alice; LOCK.GUARD l alice A SET l v -> -NOPERM; -NOPERM
        LOCK.CHECK l alice -> A
    ";
    Session::play(&Server::start(), &text.replace("CALL", call).replace("MAY", may));
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
