//! In transactions, in scripts, in calls of other modules, and for commands of our own.

use super::{NOT_HOLDER, guarded, held_on};
use redis::Value;
use testkit::{Server, Session, bulk, error, is_older_than, lacks, unchanged};

const FOR_NOBODY: &str =
    "NOPERM LOCK.GUARD needs a user, and a call of another module may have none";

#[test]
fn it_is_refused_or_run_when_a_transaction_or_a_script_comes_to_it() {
    let script = "return redis.call('LOCK.GUARD', KEYS[1], 'alice', ARGV[1], 'SET', KEYS[2], 'v')";
    let text = "
        # in a transaction, when it is executed
        LOCK.ACQUIRE l alice 60000 -> A
        MULTI; LOCK.GUARD l alice A SET k v; LOCK.RELEASE l alice -> OK; QUEUED; QUEUED
        LOCK.GUARD l alice A SET k late; GET k; EXEC -> QUEUED; QUEUED; OK 1 -NOT_HOLDER v
        # one of a client that watches a key fails if the command changed it
        LOCK.ACQUIRE l alice 60000; WATCH k -> A; OK
        other: LOCK.GUARD l alice A SET k v -> OK
        MULTI; PING; EXEC; WATCH k l -> OK; QUEUED; nil; OK
        other: LOCK.GUARD l alice A GET k -> v
        MULTI; PING; EXEC -> OK; QUEUED; PONG
        # in a script with keys that it declares
        LOCK.ACQUIRE l alice 60000 -> A
        EVAL \"SCRIPT\" 2 l k A; GET k; LOCK.RELEASE l alice -> OK; v; 1
        EVAL \"SCRIPT\" 2 l k A -> …not hold
        # a holder may release its lock behind its own fence
        LOCK.ACQUIRE l alice 60000 -> A
        LOCK.GUARD l alice A LOCK.RELEASE l alice; LOCK.INFO l -> 1; nil
        LOCK.GUARD l alice A LOCK.RELEASE l alice -> -NOTHOLDER
        # it may extend it
        LOCK.ACQUIRE l alice 60000 -> A
        LOCK.GUARD l alice A LOCK.EXTEND l alice 90000; LOCK.GUARD l alice A GET nothing -> 1; nil
        LOCK.ACQUIRE l alice 80000 -> A
        # a command may write over the key of the lock
        LOCK.ACQUIRE l alice 60000 -> A
        LOCK.GUARD l alice A SET l bob PX 60000; LOCK.GUARD l alice A GET k -> OK; -NOTHOLDER
        LOCK.ACQUIRE l alice 60000; LOCK.ACQUIRE l bob 60000 -> nil; 0
        # and take another lock
        LOCK.ACQUIRE l alice 60000 -> A
        LOCK.GUARD l alice A LOCK.ACQUIRE other alice 60000; LOCK.CHECK other alice -> B; B
    ";
    let text = text.replace("SCRIPT", script).replace("NOT_HOLDER", NOT_HOLDER);
    Session::play(&Server::start(), &text);
}

#[test]
fn a_script_that_replicas_repeat_may_not() {
    if !is_older_than((7, 0)) {
        return;
    }
    let setup = Server::builder().aof().config("lua-replicate-commands", "no");
    let (server, mut client, fence) = held_on(setup.start());
    let script =
        "return redis.pcall('LOCK.GUARD', KEYS[1], 'alice', ARGV[1], 'SET', KEYS[2], 'v')['err']";
    let fence = fence.to_string();
    let reply = unchanged(&server, || client.cmd(["EVAL", script, "2", "the-lock", "k", &fence]));
    assert!(format!("{reply:?}").contains("replicas repeat"), "{reply:?}");
}

#[test]
fn another_module_that_calls_it_for_nobody_is_refused() {
    if lacks((7, 0), "calls of other modules in which a command is guarded") {
        return;
    }
    let (server, mut client, fence) = held_on(Server::builder().with_caller().aof().start());
    let request = guarded(fence, "SET k v");
    let reply = unchanged(&server, || client.cmd(format!("caller.call {request}")));
    assert_eq!(reply, error(FOR_NOBODY));
    let script = "return redis.pcall('CALLER.CALL', unpack(ARGV))['err']";
    let words = request.split(' ').map(|word| word.as_bytes().to_vec());
    let eval = ["EVAL", script, "0"].map(|word| word.as_bytes().to_vec());
    let reply = client.cmd(eval.into_iter().chain(words).collect::<Vec<_>>());
    assert_eq!(reply, bulk(FOR_NOBODY), "in a script either");
    assert_eq!(client.cmd(&*request), Value::Okay, "the client itself may send it");
    client.release("the-lock", "alice");
    assert_eq!(client.cmd(format!("caller.call {request}")), error(NOT_HOLDER));
}
