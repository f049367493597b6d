//! Where a command may not wait: in transactions, scripts, functions and calls from other modules a request
//! that would wait gets nil. Where a client cannot know that it may not wait, it gets an error.

use super::{LONG, Waiter, owners, waiters};
use redis::Value;
use testkit::{
    Client, Server, Snapshot, bulk, error, eventually, int, is_valkey_since, lacks, start_pair,
};

const WAIT: &str = "LOCK.ACQUIRE k bob 60000 BLOCK 0";

/// A server on which alice holds `k`.
fn held() -> Server {
    held_on(Server::start())
}

fn held_on(server: Server) -> Server {
    server.client().grant("k", "alice", LONG);
    server
}

#[test]
fn in_a_transaction_nil_stands_for_a_wait() {
    let server = held();
    let mut client = server.client();
    let replies =
        client.transaction(&["SET a 1", WAIT, "LOCK.ACQUIRE free bob 5 BLOCK 0", "GET a"]);
    assert_eq!(replies[..2], [Value::Okay, Value::Nil]);
    assert!(matches!(replies[2], Value::Int(1..)), "a free lock is granted");
    assert_eq!(replies[3], bulk("1"));
    assert_eq!(waiters(&server), 0);
    assert_eq!(client.transaction(&["LOCK.ACQUIRE k * 60000 BLOCK 0"]), [Value::Nil]);
}

#[test]
fn in_a_transaction_a_wait_is_not_refused_where_the_queue_is_full() {
    let server = held_on(Server::builder().module_args("max-waiters 0").start());
    assert_eq!(server.client().transaction(&[WAIT]), [Value::Nil]);
}

#[test]
fn in_a_script_false_stands_for_a_wait() {
    let server = held();
    let mut client = server.client();
    let script = "return { tostring(redis.call('LOCK.ACQUIRE', KEYS[1], 'bob', 60000, 'BLOCK', 0)),
        redis.call('LOCK.ACQUIRE', KEYS[2], 'bob', 60000, 'BLOCK', 0) > 0 }";
    let reply = client.cmd(["EVAL", script, "2", "k", "free"]);
    assert_eq!(reply, Value::Array(vec![bulk("false"), int(1)]));
    assert_eq!(waiters(&server), 0);
}

#[test]
fn a_script_that_frees_a_lock_hands_it_on_before_it_can_take_it_itself() {
    let server = held();
    let mut client = server.client();
    let mut bob = Waiter::of(&server, "k", "bob");
    let script = "redis.call('DEL', KEYS[1])
        local own = redis.call('LOCK.ACQUIRE', KEYS[1], 'carol', 60000, 'BLOCK', 0)
        return { tostring(own), redis.call('LOCK.CHECK', KEYS[1], 'bob') }";
    let reply = client.cmd(["EVAL", script, "1", "k"]);
    assert_eq!(reply, Value::Array(vec![bulk("false"), int(bob.fence())]));
}

#[test]
fn a_script_shows_the_queue() {
    let server = held();
    let _bob = Waiter::of(&server, "k", "bob");
    let script = "return redis.call('LOCK.WAITERS', KEYS[1])[1][2]";
    assert_eq!(server.cmd(["EVAL", script, "1", "k"]), bulk("bob"));
}

#[test]
fn in_a_function_nil_stands_for_a_wait() {
    if lacks((7, 0), "functions") {
        return;
    }
    let server = held();
    let mut client = server.client();
    let library = "#!lua name=locks
        redis.register_function('wait', function(keys)
            return redis.call('LOCK.ACQUIRE', keys[1], 'bob', 60000, 'BLOCK', 0) end)
        redis.register_function('free', function(keys)
            return redis.call('DEL', keys[1]) end)";
    assert_eq!(client.cmd(["FUNCTION", "LOAD", library]), bulk("locks"));
    assert_eq!(client.cmd("FCALL wait 1 k"), Value::Nil);
    assert!(matches!(client.cmd("FCALL wait 1 free"), Value::Int(1..)));
    let mut carol = Waiter::of(&server, "k", "carol");
    assert_eq!(client.cmd("FCALL free 1 k"), int(1));
    carol.fence();
}

#[test]
fn a_call_from_another_module_gets_nil_for_a_wait() {
    let server = held_on(Server::builder().with_caller().start());
    let mut client = server.client();
    assert_eq!(client.cmd(format!("CALLER.CALL {WAIT}")), Value::Nil);
    assert_eq!(client.cmd("CALLER.CALL LOCK.ACQUIRE k * 60000 BLOCK 0"), Value::Nil);
    let granted = client.cmd("CALLER.CALL LOCK.ACQUIRE free bob 60000 BLOCK 0");
    assert!(matches!(granted, Value::Int(1..)), "{granted:?}");
    let script = "return tostring(redis.call('CALLER.CALL', unpack(ARGV)))";
    let nested: Vec<_> = WAIT.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    let eval = [b"EVAL".to_vec(), script.as_bytes().to_vec(), b"0".to_vec()];
    assert_eq!(client.cmd([&eval[..], &nested].concat()), bulk("false"));
    assert_eq!(client.transaction(&[&format!("CALLER.CALL {WAIT}")]), [Value::Nil]);
    assert_eq!(waiters(&server), 0);
}

#[test]
fn a_lock_that_another_module_frees_is_handed_on() {
    let server = Server::builder().with_caller().start();
    let mut client = server.client();
    for free in ["CALLER.CALL LOCK.RELEASE k alice", "CALLER.CALL DEL k", "CALLER.CALL PEXPIRE k 1"]
    {
        client.grant("k", "alice", LONG);
        let mut bob = Waiter::of(&server, "k", "bob");
        assert_eq!(client.cmd(free), int(1));
        let fence = bob.fence();
        assert_eq!(client.check("k", "bob"), Some(fence), "{free}");
        client.release("k", "bob");
    }
}

#[test]
fn a_call_from_another_module_that_is_ready_to_be_promised_a_reply_waits() {
    // To go back on the promise is not tested: with a command of a module, whichever, it ends the server.
    if lacks((7, 2), "calls that may make their caller wait") {
        return;
    }
    let server = held_on(Server::builder().with_caller().start());
    let mut client = server.client();
    let promised = Value::SimpleString("PROMISED".to_owned());
    assert_eq!(client.cmd(format!("CALLER.BEGIN {WAIT}")), promised);
    assert_eq!(owners(&server, "k"), ["bob"]);
    assert_eq!(client.cmd("CALLER.OUTCOME"), Value::Nil, "not yet");
    client.release("k", "alice");
    let fence = eventually("the promise is kept", || match client.cmd("CALLER.OUTCOME") {
        Value::Int(fence) => Ok(fence),
        other => Err(other),
    });
    assert_eq!(client.check("k", "bob"), Some(fence.try_into().unwrap()));
    let brief = "CALLER.BEGIN LOCK.ACQUIRE k carol 60000 BLOCK 20";
    assert_eq!(client.cmd(brief), promised);
    eventually("patience ends", || match client.cmd("CALLER.OUTCOME") {
        Value::Int(-1) => Ok(()),
        other => Err(other),
    });
    assert_eq!(client.transaction(&[brief]), [Value::Nil], "but not in a transaction");
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
    let Value::Int(fence) = bob.cmd("LOCK.ACQUIRE free bob 60000 BLOCK 0") else {
        panic!("a free lock is granted")
    };
    assert_eq!(bob.cmd("LOCK.ACQUIRE free bob 60000 BLOCK 0"), int(fence), "and confirmed");
}

#[test]
fn on_a_replica_that_can_be_written_a_wait_is_refused() {
    let writable = Server::builder().config("replica-read-only", "no");
    let (primary, replica) = start_pair(Server::builder(), writable);
    let mut bob = replica.client();
    assert_wait_is_refused(
        &replica,
        &mut bob,
        "ERR BLOCK and TICKET are not possible on a replica, wait at its primary",
    );
    assert_eq!(bob.transaction(&[WAIT]), [Value::Nil], "in a transaction nobody waits anyway");
    drop(primary);
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
            assert_eq!(bob.transaction(&[WAIT]), [Value::Nil]);
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

#[test]
fn on_a_connection_of_resp2_with_a_subscription_the_server_refuses_any_command() {
    let server = held();
    let mut bob = server.client();
    bob.cmd("SUBSCRIBE news");
    let reply = bob.cmd(WAIT);
    let Value::ServerError(error) = &reply else { panic!("{reply:?}") };
    assert!(error.to_string().contains("Can't execute 'lock.acquire'"), "{error}");
    assert_eq!(waiters(&server), 0);
}

#[test]
fn what_else_a_connection_has_asked_for_does_not_keep_it_from_waiting() {
    let server = Server::start();
    let mut client = server.client();
    let mut asks = vec!["WATCH k", "CLIENT NO-EVICT on", "CLIENT SETNAME bob"];
    if !lacks((7, 2), "CLIENT NO-TOUCH") {
        asks.push("CLIENT NO-TOUCH on");
    }
    for ask in asks {
        client.grant("k", "alice", LONG);
        let mut bob = server.client();
        bob.cmd(ask);
        let mut bob = Waiter::sends_on(bob, &server, WAIT);
        client.release("k", "alice");
        let fence = bob.fence();
        assert_eq!(client.check("k", "bob"), Some(fence), "{ask}");
        client.release("k", "bob");
    }
}

#[test]
fn on_a_replica_a_wait_is_refused_and_the_queue_is_empty() {
    let (primary, replica) = start_pair(Server::builder(), Server::builder());
    primary.client().grant("k", "alice", LONG);
    let _bob = Waiter::of(&primary, "k", "bob");
    let mut client = replica.client();
    eventually("the lock arrives", || client.info("k").ok_or(()));
    assert_eq!(client.cmd(WAIT), error("READONLY You can't write against a read only replica."));
    assert_eq!(owners(&replica, "k").len(), 0, "those who wait are known to the primary");
    assert_eq!(client.info("k").unwrap().waiters, 0);
}
