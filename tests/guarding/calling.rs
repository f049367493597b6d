//! In transactions, in scripts, in calls of other modules, and for commands of our own.

use super::{LONG, NOT_HOLDER, guarded, held, held_on};
use redis::Value;
use testkit::{Server, bulk, error, int, is_older_than, lacks, unchanged};

const FOR_NOBODY: &str =
    "NOPERM LOCK.GUARD needs a user, and a call of another module may have none";

#[test]
fn in_a_transaction_it_is_refused_or_run_when_the_transaction_is_executed() {
    let (_server, mut client, fence) = held();
    let [set, late] = [guarded(fence, "SET k v"), guarded(fence, "SET k late")];
    let replies = client.transaction(&[&set, "LOCK.RELEASE the-lock alice", &late, "GET k"]);
    assert_eq!(replies, [Value::Okay, int(1), error(NOT_HOLDER), bulk("v")]);
}

#[test]
fn a_transaction_of_a_client_that_watches_a_key_fails_if_the_command_changed_it() {
    let (server, mut client, fence) = held();
    let mut watcher = server.client();
    watcher.cmd("WATCH k");
    client.cmd(guarded(fence, "SET k v"));
    assert_eq!(watcher.pipeline(&["MULTI", "PING", "EXEC"])[2], Value::Nil);
    watcher.cmd("WATCH k the-lock");
    client.cmd(guarded(fence, "GET k"));
    assert!(matches!(watcher.pipeline(&["MULTI", "PING", "EXEC"])[2], Value::Array(_)));
}

#[test]
fn a_script_may_call_it_with_keys_that_it_declares() {
    let (_server, mut client, fence) = held();
    let script = "return redis.call('LOCK.GUARD', KEYS[1], 'alice', ARGV[1], 'SET', KEYS[2], 'v')";
    let fence_word = fence.to_string();
    let run = ["EVAL", script, "2", "the-lock", "k", &fence_word];
    assert_eq!(client.cmd(run), Value::Okay);
    assert_eq!(client.cmd("GET k"), bulk("v"));
    client.release("the-lock", "alice");
    let Value::ServerError(refusal) = client.cmd(run) else { panic!("it was run") };
    assert!(refusal.to_string().contains("NOTHOLDER") || refusal.to_string().contains("not hold"));
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

#[test]
fn a_holder_may_release_its_lock_behind_its_own_fence() {
    let (_server, mut client, fence) = held();
    assert_eq!(client.cmd(guarded(fence, "LOCK.RELEASE the-lock alice")), int(1));
    assert_eq!(client.info("the-lock"), None);
    assert_eq!(client.cmd(guarded(fence, "LOCK.RELEASE the-lock alice")), error(NOT_HOLDER));
}

#[test]
fn a_holder_may_extend_its_lock_behind_its_own_fence() {
    let (_server, mut client, fence) = held();
    assert_eq!(client.cmd(guarded(fence, "LOCK.EXTEND the-lock alice 90000")), int(1));
    let Value::Int(left) = client.cmd("PTTL the-lock") else { panic!("no PTTL") };
    assert!(left > LONG.cast_signed());
    assert_eq!(client.cmd(guarded(fence, "GET nothing")), Value::Nil, "the fence is the same");
}

#[test]
fn a_command_may_write_over_the_key_of_the_lock() {
    let (_server, mut client, fence) = held();
    assert_eq!(client.cmd(guarded(fence, "SET the-lock bob PX 60000")), Value::Okay);
    assert_eq!(client.cmd(guarded(fence, "GET k")), error(NOT_HOLDER));
    assert_eq!(client.acquire("the-lock", "alice", LONG), None, "it is bob's, as a foreign lock");
}

#[test]
fn a_command_may_take_another_lock() {
    let (_server, mut client, fence) = held();
    let other = super::number(&client.cmd(guarded(fence, "LOCK.ACQUIRE other alice 60000")));
    assert!(other > fence);
    assert_eq!(client.check("other", "alice"), Some(other));
}
