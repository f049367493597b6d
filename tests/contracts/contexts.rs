//! The commands in pipelines, transactions and scripts.

use super::{LONG, play};
use redis::Value;
use testkit::errors::SCRIPT_REPEATED;
use testkit::{Server, unchanged};

#[test]
fn transactions_and_scripts_get_each_reply_and_are_replicated_by_their_effects() {
    play(
        "
        # a transaction
        MULTI -> OK
        LOCK.ACQUIRE k alice 60000 -> QUEUED
        LOCK.ACQUIRE k bob 60000 -> QUEUED
        LOCK.ACQUIRE k alice 0 -> QUEUED
        LOCK.CHECK k alice -> QUEUED
        EXEC -> {A} nil -ERR ttl must be a positive integer (milliseconds) {A} | SET k {A}:alice PXAT +60000
        MULTI -> OK
        LOCK.EXTEND k alice 90000 -> QUEUED
        LOCK.RELEASE k alice -> QUEUED
        LOCK.INFO k -> QUEUED
        LOCK.ACQUIRE k bob 60000 -> QUEUED
        EXEC -> 1 1 nil {B} | SET k {A}:alice PXAT +90000 ; DEL k ; SET k {B}:bob PXAT +60000
        # scripts
        EVAL return(redis.call('LOCK.ACQUIRE',KEYS[1],ARGV[1],60000)) 1 k alice -> A | SET k {A}:alice PXAT +60000
        EVAL return(tostring(redis.call('LOCK.ACQUIRE',KEYS[1],'bob',9))) 1 k -> false
        EVAL return{redis.call('LOCK.INFO',KEYS[1])[4]} 1 k -> [{A}]
        EVAL return(redis.pcall('LOCK.CHECK',KEYS[1],'')['err']) 1 k -> OWNER_LENGTH
        EVAL return(redis.call('LOCK.EXTEND',KEYS[1],'alice',90000)) 1 k -> 1 | SET k {A}:alice PXAT +90000
        EVAL return(redis.call('LOCK.CHECK',KEYS[1],ARGV[1])and(redis.call('INCR','n'))) 1 k bob -> nil
        EVAL return(redis.call('LOCK.CHECK',KEYS[1],ARGV[1])and(redis.call('INCR','n'))) 1 k alice -> 1 | INCR n
        EVAL return(redis.call('LOCK.RELEASE',KEYS[1],'bob')) 1 k -> 0
        EVAL return(redis.call('LOCK.RELEASE',KEYS[1],'alice')) 1 k -> 1 | DEL k
        ",
    );
}

#[test]
fn no_lock_changes_in_a_script_that_replicas_would_repeat() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let set = |value: &str| server.cmd(format!("CONFIG SET lua-replicate-commands {value}"));
    if set("no") != Value::Okay {
        return; // a server whose scripts are never repeated
    }
    client.grant("held", "alice", LONG);
    let script = |call: &str| format!("EVAL return(redis.call({call})) 0");
    for call in [
        "'LOCK.ACQUIRE','k','alice',60000",
        "'LOCK.RELEASE','held','alice'",
        "'LOCK.EXTEND','held','alice',90000",
    ] {
        let reply = unchanged(&server, || client.cmd(script(call)));
        let Value::ServerError(error) = &reply else { panic!("{call}: {reply:?}") };
        assert!(format!("{error:?}").contains(SCRIPT_REPEATED), "{call}: {error:?}");
    }
    assert!(matches!(client.cmd(script("'LOCK.CHECK','held','alice'")), Value::Int(1..)));
    assert!(client.release("held", "alice"), "elsewhere all is as ever");
    set("yes");
    assert!(matches!(client.cmd(script("'LOCK.ACQUIRE','k','alice',60000")), Value::Int(1..)));
}
