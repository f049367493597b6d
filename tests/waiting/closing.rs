//! Granted to a client that the server is about to close: it drops the reply, so the lock must go on to the next one. But
//! a client that was sent its grant, and closes the connection itself, keeps the lock for its lease.

use super::{LONG, Waiter, exact, granted_at, held_on, id_of, wait_until_parked};
use redis::Value;
use std::io::Write;
use tempfile::NamedTempFile;
use testkit::{
    Client, Server, Stopwatch, becomes, bulk_text, eventually, int, is_older_than, is_valkey_since,
};

/// Long before the lease of whoever went unheard would have ended, and before the next regular look at the lock.
const SOON: i64 = 800;

/// Alice holds `k`, bob waits on this connection, carol behind him. The commands close bob's connection and
/// release the lock, in one packet, which is to be small: the server reads a large one in several turns.
fn passes_it_on(server: &Server, bob: Client, commands: &[&str]) {
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::sends_on(bob, server, "LOCK.ACQUIRE k bob 60000 BLOCK 0");
    let mut carol = Waiter::of(server, "k", "carol");
    let replies = client.pipeline(commands);
    assert!(replies.iter().all(|reply| !matches!(reply, Value::ServerError(_))), "{replies:?}");
    let (watch, after) = (Stopwatch::start(), client.now());
    let fence = carol.fence();
    let late = granted_at(fence) - after - watch.stalled_millis();
    assert!(late < SOON, "{commands:?}: carol has the lock after {late} ms");
    assert_eq!(client.check("k", "carol"), Some(fence));
    while let Ok(reply) = bob.client.try_receive() {
        assert!(!matches!(reply, Value::Int(_)), "bob heard of {reply:?}");
    }
    client.release("k", "carol");
}

const RELEASE: &str = "LOCK.RELEASE k alice";

#[test]
fn a_waiter_whose_user_is_deleted_as_it_is_granted_the_lock_passes_it_on_at_once() {
    let threads = exact().config("io-threads", "4").config("io-threads-do-reads", "yes");
    for server in [exact().start(), threads.start()] {
        for commands in [
            &["ACL DELUSER temp", RELEASE][..],
            &[RELEASE, "ACL DELUSER temp"],
            &["ACL DELUSER temp", "DEBUG SLEEP 1.2", RELEASE],
        ] {
            passes_it_on(&server, server.user("temp", "~* &* +@all"), commands);
        }
    }
}

#[test]
fn a_waiter_whose_user_is_deleted_in_another_way_passes_the_lock_on_at_once() {
    let server = exact().config("rename-command", "ACL USERS").start();
    assert_eq!(server.cmd("USERS SETUSER temp on nopass ~* &* +@all"), Value::Okay);
    let bob = server.logged_in("temp");
    passes_it_on(&server, bob, &["USERS DELUSER temp", RELEASE]);

    let mut file = NamedTempFile::new().unwrap();
    let users = "user default on nopass ~* &* +@all";
    writeln!(file, "{users}\nuser temp on nopass ~* &* +@all").unwrap();
    let server = exact().config("aclfile", file.path().to_str().unwrap()).start();
    let bob = server.logged_in("temp");
    std::fs::write(file.path(), users).unwrap();
    passes_it_on(&server, bob, &["ACL LOAD", RELEASE]);
}

#[test]
fn a_waiter_whose_subscription_is_over_its_limit_passes_the_lock_on_at_once() {
    if is_valkey_since((8, 1)) {
        return; // There nobody waits on such a connection.
    }
    let server = exact().config("client-output-buffer-limit", "pubsub 20000 0 0").start();
    let mut bob = server.client_resp3();
    bob.cmd("SUBSCRIBE news");
    let publish = "EVAL redis.call('PUBLISH','news',string.rep('x',40000)) 0";
    passes_it_on(&server, bob, &[publish, RELEASE]);
}

#[test]
fn a_waiter_whose_connection_ends_in_the_turn_of_its_grant_passes_the_lock_on_at_once() {
    let server = exact().start();
    let mut client = server.client();
    for round in 0..10 {
        let holder = format!("alice{round}");
        client.grant("k", &holder, LONG);
        let bob = Waiter::of(&server, "k", "bob");
        let mut carol = Waiter::of(&server, "k", "carol");
        // While the server sleeps, bob goes and the lock is released: it notices both in one turn.
        let mut sleeper = server.client();
        sleeper.send("DEBUG SLEEP 0.05");
        drop(bob);
        client.release("k", &holder);
        let (watch, before) = (Stopwatch::start(), client.now());
        let late = granted_at(carol.fence()) - before - watch.stalled_millis();
        assert!(late < SOON, "carol has the lock after {late} ms");
        client.release("k", "carol");
    }
}

/// A thread of the server's writes what bob asked for before, so the server closes him later.
#[test]
fn with_threads_that_write_a_waiter_that_is_killed_as_it_is_granted_the_lock_leaves_it_free() {
    if !is_valkey_since((9, 0)) {
        return; // Others wait for their threads, or hand them so little only together with more.
    }
    let server =
        exact().config("io-threads", "3").config("io-threads-always-active", "yes").start();
    let mut client = server.client();
    client.cmd(["SET", "large", &"x".repeat(150_000)]);
    for round in 0..100 {
        client.grant("k", "alice", LONG);
        let mut bob = server.client();
        let id = id_of(&mut bob);
        let mut sleeper = server.client();
        sleeper.cmd("PING");
        bob.send_all(&["GET large", &format!("LOCK.ACQUIRE k bob {LONG} BLOCK 0")]);
        // All that is sent meanwhile is executed in one turn.
        sleeper.send("DEBUG SLEEP 0.005");
        let replies = client.pipeline(&[&format!("CLIENT KILL ID {id}"), RELEASE]);
        assert_eq!(replies, [int(1), int(1)]);
        eventually("the lock is free", || client.info("k").map_or(Ok(()), |it| Err((round, it))));
    }
}

#[test]
fn a_client_that_closes_as_soon_as_it_has_read_its_grant_keeps_the_lock() {
    let threads = Server::builder().config("io-threads", "4").config("io-threads-do-reads", "yes");
    for server in [Server::start(), threads.start()] {
        let mut client = server.client();
        for round in 0..100 {
            client.grant("k", "alice", LONG);
            let mut bob = Waiter::of(&server, "k", "bob");
            let carol = Waiter::of(&server, "k", "carol");
            client.send(RELEASE);
            let fence = bob.fence();
            let id = bob.id;
            drop(bob);
            assert_eq!(client.receive(), int(1));
            becomes("bob's connection is closed", "", || {
                bulk_text(&client.cmd(format!("CLIENT LIST ID {id}")))
            });
            assert_eq!(client.check("k", "bob"), Some(fence), "round {round}");
            carol.assert_waits(&server);
            drop(carol);
            client.wait_until_waiters(0);
            client.release("k", "bob");
        }
    }
}

#[test]
fn a_client_that_closes_while_a_script_runs_in_the_turn_of_its_grant_keeps_the_lock() {
    // While a script takes long, the server writes replies and sees connections end.
    let (server, mut client) = held_on(Server::builder().config("lua-time-limit", "20"));
    client.grant("j", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    let carol = Waiter::of(&server, "k", "carol");
    // Dave's next command is executed in the turn in which he is granted his lock.
    let mut dave = server.client();
    let id = id_of(&mut dave);
    let script = "local begun = redis.call('TIME') repeat local now = redis.call('TIME') \
        until (now[1] - begun[1]) * 1000000 + now[2] - begun[2] > 400000 return 1";
    dave.send(format!("LOCK.ACQUIRE j dave {LONG} BLOCK 0"));
    dave.send(["EVAL", script, "0"]);
    wait_until_parked(&server, id);
    client.send_all(&[RELEASE, "LOCK.RELEASE j alice"]);
    let fence = bob.fence();
    drop(bob);
    assert!(matches!(dave.receive(), Value::Int(1..)));
    assert_eq!(dave.receive(), int(1));
    assert_eq!([client.receive(), client.receive()], [int(1), int(1)]);
    assert_eq!(client.check("k", "bob"), Some(fence));
    carol.assert_waits(&server);
}

/// Bob sends more behind his request: he is sent his grant, and then his connection ends in the same turn.
fn keeps_it(more: &[u8], replies_besides: usize) {
    let (server, mut client) = held_on(exact());
    let mut bob = server.client();
    let id = id_of(&mut bob);
    let request = format!("LOCK.ACQUIRE k bob {LONG} BLOCK 0\r\n");
    bob.send_bytes(&[request.as_bytes(), more].concat());
    wait_until_parked(&server, id);
    let carol = Waiter::of(&server, "k", "carol");
    assert!(client.release("k", "alice"));
    let Value::Int(fence) = bob.receive() else { panic!("bob was not sent the fence") };
    for _ in 0..replies_besides {
        let _ = bob.try_receive();
    }
    bob.assert_closed();
    assert_eq!(client.check("k", "bob"), Some(fence.cast_unsigned()), "{}", more.escape_ascii());
    carol.assert_waits(&server);
}

#[test]
fn a_client_that_quits_or_makes_a_mistake_right_behind_its_request_keeps_the_lock() {
    keeps_it(b"QUIT\r\n", 1);
    keeps_it(b"MULTI\r\nQUIT\r\n", 2);
    // Redis 8.0 and 8.2 do not close the connection before more comes in on it. From 8.4 on Redis
    // parses ahead, and finds the mistake before the grant.
    if is_valkey_since((0, 0)) || is_older_than((8, 0)) {
        keeps_it(b"*1\r\n$-5\r\n", 1);
        keeps_it(b"*1\r\n:x\r\n", 1);
    }
}
