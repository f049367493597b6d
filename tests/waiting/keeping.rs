//! What does not free a lock: waiters wait on, and are granted it once it is free.

use super::{LONG, Waiter, exact, granted_at, owners, waiters};
use redis::Value;
use testkit::errors::WRONG_TYPE;
use testkit::{Client, Server, bulk, deadline, error, eventually, int};

/// Waits until the server's clock is well past `moment`, in Unix milliseconds.
fn let_pass(client: &mut Client, moment: i64) {
    eventually("time passes", || match client.now() {
        now if now > moment + 20 => Ok(()),
        now => Err(now),
    });
}

/// `keep` is done to the lock while bob waits; he must wait on after the lease that alice asked for.
/// Then `free` hands it to him.
fn assert_keeps_waiting(keep: &[&str], free: &str) {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("SET source another");
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    let replies = client.pipeline(&[&["LOCK.EXTEND k alice 200"], keep].concat());
    assert!(
        !replies.iter().any(|one| matches!(one, Value::ServerError(_))),
        "{keep:?}: {replies:?}"
    );
    let end = client.now() + 200;
    let_pass(&mut client, end);
    bob.assert_waits(&server);
    client.cmd(free);
    let fence = bob.fence();
    assert_eq!(client.check("k", "bob"), Some(fence), "{keep:?}");
}

#[test]
fn a_stranger_that_sets_the_key_has_the_lock() {
    assert_keeps_waiting(&["SET k stranger"], "DEL k");
    assert_keeps_waiting(&["GETSET k stranger"], "LOCK.RELEASE k stranger");
    assert_keeps_waiting(&["SET k stranger PX 60000"], "LOCK.RELEASE k stranger");
    assert_keeps_waiting(&["SET k stranger PX 60000"], "PEXPIRE k 1");
}

#[test]
fn a_lock_that_is_copied_over_is_held_by_the_copy() {
    assert_keeps_waiting(&["COPY source k REPLACE"], "LOCK.RELEASE k another");
    assert_keeps_waiting(&["RENAME source k"], "LOCK.RELEASE k another");
}

#[test]
fn a_lock_that_is_restored_over_is_held_by_what_was_restored() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("SET source another");
    let Value::BulkString(payload) = client.cmd("DUMP source") else { panic!("no payload") };
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    let restore: [&[u8]; 5] = [b"RESTORE", b"k", b"0", &payload, b"REPLACE"];
    assert_eq!(client.cmd(restore), Value::Okay);
    assert_eq!(client.info("k").unwrap().owner, b"another");
    bob.assert_waits(&server);
    assert!(client.release("k", "another"));
    bob.fence();
}

#[test]
fn a_lock_without_expiry_is_held_until_it_is_deleted() {
    assert_keeps_waiting(&["PERSIST k"], "LOCK.RELEASE k alice");
    assert_keeps_waiting(&["GETEX k PERSIST"], "DEL k");
}

#[test]
fn a_lease_made_longer_is_waited_for_to_its_new_end() {
    for longer in ["LOCK.EXTEND k alice 250", "LOCK.ACQUIRE k alice 250", "PEXPIRE k 250"] {
        let server = exact().start();
        let mut client = server.client();
        client.grant("k", "alice", LONG);
        let mut bob = Waiter::of(&server, "k", "bob");
        client.pipeline(&["LOCK.EXTEND k alice 100", longer]);
        let end = deadline(&mut client, b"k");
        let granted = granted_at(bob.fence());
        // Some servers may delete a key in the very millisecond of its deadline.
        assert!(granted >= end, "{longer}: granted at {granted}, before {end}");
        assert!(granted < end + 500, "{longer}: granted at {granted}, long after {end}");
    }
}

#[test]
fn a_key_of_another_type_is_waited_for() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("RPUSH list x");
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    client.cmd("RENAME list k");
    bob.assert_waits(&server);
    assert_eq!(waiters(&server), 1);
    for command in ["LOCK.ACQUIRE k carol 60000", "LOCK.ACQUIRE k carol 60000 BLOCK 0"] {
        assert_eq!(client.cmd(command), error(WRONG_TYPE));
    }
    assert_eq!(client.cmd("LPOP k"), bulk("x"), "which empties the list and deletes it");
    let fence = bob.fence();
    assert_eq!(client.check("k", "bob"), Some(fence));
}

#[test]
fn patience_ends_also_while_the_key_is_of_another_type() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("RPUSH list x");
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::sends(&server, "LOCK.ACQUIRE k bob 60000 BLOCK 1000");
    client.cmd("RENAME list k");
    assert_eq!(bob.reply(), Value::Nil);
    assert_eq!(client.cmd("LLEN k"), int(1));
}

#[test]
fn a_release_that_is_refused_hands_nothing_on() {
    let server = Server::start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", LONG);
    let bob = Waiter::of(&server, "k", "bob");
    assert!(!client.release("k", "carol"));
    assert!(!client.release("k", "bob"), "he only waits");
    assert_eq!(client.cmd("LOCK.RELEASE k alice 1"), int(0));
    assert!(!client.extend("k", "bob", LONG));
    assert_eq!(client.check("k", "bob"), None);
    assert_eq!(client.check("k", "alice"), Some(fence));
    bob.assert_waits(&server);
}

#[test]
fn looking_at_a_queue_and_trying_change_nothing_and_touch_no_watcher() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", LONG);
    let _bob = Waiter::of(&server, "k", "bob");
    for command in [
        "LOCK.WAITERS k",
        "LOCK.INFO k",
        "LOCK.ACQUIRE k carol 60000",
        "LOCK.ACQUIRE k carol 60000 BLOCK 1",
        "LOCK.ACQUIRE k alice 1 BLOCK 1",
    ] {
        let mut watcher = server.client();
        watcher.cmd("WATCH k");
        testkit::unchanged(&server, || client.cmd(command));
        assert_eq!(watcher.transaction(&["LOCK.CHECK k alice"]), [int(fence)], "{command}");
    }
    assert_eq!(owners(&server, "k"), ["bob"]);
}

#[test]
fn a_hand_off_is_seen_by_those_who_watch_the_lock() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    client.cmd("PEXPIRE k 50");
    let mut watcher = server.client();
    watcher.cmd("WATCH k");
    bob.fence();
    assert_eq!(watcher.pipeline(&["MULTI", "PING", "EXEC"])[2], Value::Nil);
}
