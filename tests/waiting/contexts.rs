//! Where a command may not wait: in transactions, scripts, functions and calls from other modules a request
//! that would wait gets nil. Where a client cannot know that it may not wait, it gets an error.

use super::play;
use super::{LONG, Waiter, owners, waiters};
use redis::Value;
use testkit::{
    Client, Server, Snapshot, code, error, eventually, is_valkey_since, lacks, start_pair,
};

const WAIT: &str = "LOCK.ACQUIRE k bob 60000 BLOCK 0";

const SESSIONS: &str = r#"
    # in a transaction nil stands for a wait, also for an owner that is made up
    MULTI: LOCK.ACQUIRE k bob 60000 BLOCK 0; LOCK.ACQUIRE free bob 5000 BLOCK 0 -> nil; B
    MULTI: LOCK.ACQUIRE k * 60000 BLOCK 0 -> nil
    INFO leasehold_waiters -> 0

    # in a script false stands for a wait
    EVAL "return tostring(redis.call('LOCK.ACQUIRE', KEYS[1], 'bob', 60000, 'BLOCK', 0))" 1 k -> false
    EVAL "return redis.call('LOCK.ACQUIRE', KEYS[1], 'bob', 60000, 'BLOCK', 0)" 1 free -> B
    INFO leasehold_waiters -> 0

    # a script that frees a lock hands it on before it can take it itself
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    EVAL "return redis.call('LOCK.WAITERS', KEYS[1])[1][2]" 1 k -> bob
    EVAL "redis.call('DEL', KEYS[1]) return redis.call('LOCK.ACQUIRE', KEYS[1], 'carol', 60000, 'BLOCK', 0)" 1 k -> nil
    bob: -> B
    LOCK.CHECK k bob -> B

    # what else a connection has asked for does not keep it from waiting
    bob: WATCH k; CLIENT SETNAME bob -> OK; OK
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    LOCK.RELEASE k alice -> 1
    bob: -> B
    LOCK.CHECK k bob -> B

    # on a connection of RESP2 with a subscription the server refuses any command
    bob: SUBSCRIBE news -> subscribe news 1
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> -ERR Can't execute 'lock.acquire'…
    INFO leasehold_waiters -> 0
"#;

#[test]
fn in_transactions_and_scripts_nobody_waits() {
    play(Server::builder, SESSIONS);
}

const OF_FUNCTIONS: &str = r##"
    # in a function nil stands for a wait, and what it frees is handed on
    FUNCTION LOAD "#!lua name=f\n redis.register_function('f', function(_, words) return redis.call(unpack(words)) end)" -> f
    FCALL f 1 k LOCK.ACQUIRE k bob 60000 BLOCK 0 -> nil
    FCALL f 1 free LOCK.ACQUIRE free bob 60000 BLOCK 0 -> B
    carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
    FCALL f 1 k DEL k -> 1
    carol: -> C

    # a connection that is not evicted waits like any other
    bob: CLIENT NO-EVICT on -> OK
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    LOCK.RELEASE k alice -> 1
    bob: -> B
"##;

#[test]
fn in_functions_nobody_waits() {
    if !lacks((7, 0), "functions") {
        play(Server::builder, OF_FUNCTIONS);
    }
}

const OF_ANOTHER_MODULE: &str = r#"
    # a call from another module gets nil for a wait
    CALLER.CALL LOCK.ACQUIRE k bob 60000 BLOCK 0 -> nil
    CALLER.CALL LOCK.ACQUIRE k * 60000 BLOCK 0 -> nil
    CALLER.CALL LOCK.ACQUIRE free bob 60000 BLOCK 0 -> B
    EVAL "return tostring(redis.call('CALLER.CALL', unpack(ARGV)))" 0 LOCK.ACQUIRE k bob 60000 BLOCK 0 -> false
    MULTI: CALLER.CALL LOCK.ACQUIRE k bob 60000 BLOCK 0 -> nil
    INFO leasehold_waiters -> 0

    # a lock that another module frees is handed on
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    CALLER.CALL LOCK.RELEASE k alice -> 1
    bob: -> B
    bob: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
    CALLER.CALL DEL k -> 1
    bob: -> C
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    CALLER.CALL PEXPIRE k 1 -> 1
    bob: -> D
    LOCK.CHECK k bob -> D
"#;

#[test]
fn another_module_does_not_wait_and_may_free_a_lock_that_others_wait_for() {
    play(|| Server::builder().with_caller(), OF_ANOTHER_MODULE);
}

#[test]
fn a_call_from_another_module_that_is_ready_to_be_promised_a_reply_waits() {
    // To go back on the promise is not tested: with a command of a module, whichever, it ends the server.
    if lacks((7, 2), "calls that may make their caller wait") {
        return;
    }
    let session = "# a promise is kept when the lock is free and when patience ends
        CALLER.BEGIN LOCK.ACQUIRE k bob 60000 BLOCK 0 -> PROMISED
        LOCK.WAITERS k -> bob
        CALLER.OUTCOME -> nil
        LOCK.RELEASE k alice -> 1
        CALLER.OUTCOME -> until B
        LOCK.CHECK k bob -> B
        CALLER.BEGIN LOCK.ACQUIRE k carol 60000 BLOCK 20 -> PROMISED
        CALLER.OUTCOME -> until -1
        MULTI: CALLER.BEGIN LOCK.ACQUIRE k carol 60000 BLOCK 20 -> nil";
    play(|| Server::builder().with_caller(), session);
}

/// Bob's wait for the lock that alice holds is refused on this connection. Nothing changes, and he gets what he need
/// not wait for.
fn assert_wait_is_refused(server: &Server, bob: &mut Client, expected: &str) {
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let refused = client.counter("tries_refused");
    let before = Snapshot::of(server);
    assert_eq!(bob.cmd(WAIT), error(expected));
    assert_eq!(bob.cmd("LOCK.ACQUIRE k * 60000 BLOCK 10"), error(expected));
    assert_eq!(Snapshot::of(server), before);
    assert_eq!(waiters(server), 0);
    assert_eq!(client.counter("tries_refused"), refused + 2);
    assert_eq!(bob.cmd("LOCK.ACQUIRE k bob 60000"), Value::Nil, "without BLOCK it is no error");
    let fence = bob.fence("LOCK.ACQUIRE free bob 60000 BLOCK 0");
    assert!(fence.is_some(), "a free lock is granted");
    assert_eq!(bob.fence("LOCK.ACQUIRE free bob 60000 BLOCK 0"), fence, "and confirmed");
    assert_eq!(bob.transaction(&[WAIT]), [Value::Nil], "in a transaction nobody waits anyway");
}

#[test]
fn on_a_replica_a_wait_is_refused_and_the_queue_is_empty() {
    let (primary, replica) = start_pair(Server::builder(), Server::builder());
    primary.client().grant("k", "alice", LONG);
    let _bob = Waiter::of(&primary, "k", "bob");
    let mut client = replica.client();
    eventually("the lock arrives", || client.info("k").ok_or(()));
    assert_eq!(code(client.cmd(WAIT)), "READONLY");
    assert_eq!(owners(&replica, "k").len(), 0, "those who wait are known to the primary");
    assert_eq!(client.info("k").unwrap().waiters, 0);
    client.cmd("CONFIG SET replica-read-only no");
    let text = "ERR BLOCK and TICKET are not possible on a replica, wait at its primary";
    assert_wait_is_refused(&replica, &mut client, text);
}

#[test]
fn on_a_connection_with_a_subscription_valkey_since_8_1_refuses_a_wait_and_others_do_not() {
    let server = Server::start();
    for subscribe in ["SUBSCRIBE news", "PSUBSCRIBE n*"] {
        let mut bob = server.client_resp3();
        bob.cmd(subscribe);
        if is_valkey_since((8, 1)) {
            assert_wait_is_refused(
                &server,
                &mut bob,
                "ERR BLOCK is not possible on a connection with a subscription on this server",
            );
            // The subscription goes on, and ends.
            let unsubscribe = subscribe.split(' ').next().unwrap().replace("SUB", "UNSUB");
            bob.cmd(unsubscribe);
        } else {
            server.client().grant("k", "alice", LONG);
        }
        let mut bob = Waiter::sends_on(bob, &server, WAIT);
        server.client().release("k", "alice");
        bob.fence();
        server.client().release("k", "bob");
        server.client().release("free", "bob");
    }
}
