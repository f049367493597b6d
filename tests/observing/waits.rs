//! `INFO leasehold` about waiting: every wait begins once and ends in one of four ways.

use super::{Figures, evict, let_run_out};
use crate::waiting::{LONG, can_be_unblocked, owners, waiters};
use redis::Value;
use testkit::{Client, Server, Waiter, eventually, int, start_pair};

const HELD: (&str, i64) = ("held", 1);

/// A server on which alice holds `k`, and its figures since.
fn held() -> (Server, Client, Figures) {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let figures = Figures::of(&server);
    (server, client, figures)
}

/// The same, and bob waits.
fn waited_for() -> (Server, Client, Waiter, Figures) {
    let (server, client, mut figures) = held();
    let bob = Waiter::of(&server, "k", "bob");
    figures.moved(&[("waits_started", 1), ("waiters", 1), ("waiters_most", 1)]);
    (server, client, bob, figures)
}

/// The figures of a hand-off to the only one who waits.
const HANDED_OFF: [(&str, i64); 4] =
    [("grants", 1), ("hand_offs", 1), ("waits_granted", 1), ("waiters", -1)];

fn until_nobody_waits(server: &Server) {
    eventually("nobody waits", || match waiters(server) {
        0 => Ok(()),
        left => Err(left),
    });
}

#[test]
fn a_wait_that_ends_with_a_release() {
    let (_server, mut client, mut bob, mut figures) = waited_for();
    assert!(client.release("k", "alice"));
    bob.fence();
    figures.moved(&[&HANDED_OFF[..], &[("releases", 1)]].concat());
    assert!(client.release("k", "bob"));
    figures.moved(&[("releases", 1), ("held", -1)]);
}

#[test]
fn a_wait_that_ends_with_the_lease() {
    let (_server, mut client, mut bob, mut figures) = waited_for();
    assert!(client.extend("k", "alice", 30));
    bob.fence();
    let ran_out = [("extends", 1), ("expiries_with_waiters", 1)];
    figures.moved(&[&HANDED_OFF[..], &ran_out].concat());
    assert!(!client.release("k", "alice"));
    figures.moved(&[("releases_refused", 1), ("releases_late", 1), ("log_len", 1)]);
}

#[test]
fn every_lease_that_runs_out_while_somebody_waits_is_counted() {
    let (server, mut client, mut figures) = held();
    for (holder, next) in [("alice", "bob"), ("bob", "carol"), ("carol", "dave")] {
        client.send(format!("LOCK.ACQUIRE k {next} 60000 BLOCK 0"));
        eventually("it waits", || match waiters(&server) {
            1 => Ok(()),
            waiters => Err(waiters),
        });
        assert_eq!(server.cmd(format!("LOCK.EXTEND k {holder} 20")), int(1));
        assert!(matches!(client.receive(), Value::Int(_)));
    }
    // Nobody waits for the end of the last.
    assert_eq!(client.cmd("LOCK.EXTEND k dave 20"), int(1));
    let_run_out(&mut client, "k");
    figures.moved(&[
        ("extends", 4),
        ("held", -1),
        ("grants", 3),
        ("hand_offs", 3),
        ("waits_started", 3),
        ("waits_granted", 3),
        ("waiters_most", 1),
        ("expiries_with_waiters", 3),
    ]);
}

#[test]
fn a_wait_that_ends_with_the_clients_patience() {
    let (server, _client, mut figures) = held();
    let mut bob = Waiter::sends(&server, "LOCK.ACQUIRE k bob 60000 BLOCK 100");
    assert_eq!(bob.reply(), Value::Nil);
    figures.moved(&[("waits_started", 1), ("waits_timed_out", 1), ("waiters_most", 1)]);
}

#[test]
fn a_wait_that_ends_with_the_clients_connection() {
    let (server, mut client, bob, mut figures) = waited_for();
    drop(bob);
    until_nobody_waits(&server);
    figures.moved(&[("waits_abandoned", 1), ("waiters", -1)]);
    let carol = Waiter::of(&server, "k", "carol");
    figures.moved(&[("waits_started", 1), ("waiters", 1)]);
    assert_eq!(client.cmd(format!("CLIENT KILL ID {}", carol.id)), int(1));
    figures.moved(&[("waits_abandoned", 1), ("waiters", -1)]);
    assert!(client.release("k", "alice"));
    figures.moved(&[("releases", 1), ("held", -1)]);
}

#[test]
fn a_wait_that_an_operator_ends() {
    let (server, mut client, mut bob, mut figures) = waited_for();
    let unblocked = can_be_unblocked();
    assert_eq!(client.cmd(format!("CLIENT UNBLOCK {}", bob.id)), int(i32::from(unblocked)));
    if !unblocked {
        return figures.moved(&[]);
    }
    assert_eq!(bob.reply(), Value::Nil);
    figures.moved(&[("waits_abandoned", 1), ("waiters", -1)]);
    let mut carol = Waiter::of(&server, "k", "carol");
    client.cmd(format!("CLIENT UNBLOCK {} ERROR", carol.id));
    assert!(matches!(carol.reply(), Value::ServerError(_)));
    figures.moved(&[("waits_started", 1), ("waits_abandoned", 1)]);
}

#[test]
fn a_wait_that_goes_on_in_a_newer_request_of_the_same_owner() {
    let (server, mut client, mut former, mut figures) = waited_for();
    let mut newer = Waiter::of(&server, "k", "bob");
    assert!(matches!(former.reply(), Value::ServerError(error) if error.code() == "REPLACED"));
    figures.moved(&[("waits_started", 1), ("waits_refused", 1)]);
    assert!(client.release("k", "alice"));
    newer.fence();
    figures.moved(&[&HANDED_OFF[..], &[("releases", 1)]].concat());
}

#[test]
fn waits_that_end_because_the_server_becomes_a_replica() {
    let (primary, other) = start_pair(Server::builder(), Server::builder().tcp());
    primary.client().grant("k", "alice", LONG);
    let mut bob = Waiter::of(&primary, "k", "bob");
    let mut figures = Figures::of(&primary);
    primary.cmd(format!("REPLICAOF 127.0.0.1 {}", other.port()));
    assert!(matches!(bob.client.try_receive(), Ok(Value::ServerError(_))));
    // Outside of a cluster the server itself ends their connections.
    figures.moved(&[("waits_abandoned", 1), ("waiters", -1), ("held", -1)]);
}

#[test]
fn requests_to_wait_for_which_there_is_no_room() {
    for limit in ["max-waiters 1", "max-waiters-per-lock 1"] {
        let server = Server::builder().module_args(limit).start();
        let mut client = server.client();
        client.grant("k", "alice", LONG);
        let _bob = Waiter::of(&server, "k", "bob");
        let mut figures = Figures::of(&server);
        for number in 0..3 {
            let full = client.cmd("LOCK.ACQUIRE k carol 60000 BLOCK 0");
            assert!(matches!(full, Value::ServerError(error) if error.code() == "QUEUEFULL"));
            // It is noted once a second.
            figures.moved(&[("queue_full", 1), ("log_len", 1)][..if number == 0 { 2 } else { 1 }]);
        }
        assert_eq!(client.acquire("k", "carol", LONG), None);
        figures.moved(&[("tries_refused", 1)]);
    }
}

#[test]
fn a_try_while_others_wait_is_refused_though_the_lock_is_free() {
    let (server, mut client, mut bob, mut figures) = waited_for();
    let mut carol = Waiter::of(&server, "k", "carol");
    let replies = client.pipeline(&["LOCK.RELEASE k alice", "LOCK.ACQUIRE k alice 60000"]);
    assert_eq!(replies, [int(1), Value::Nil]);
    bob.fence();
    let hand_off = [("grants", 1), ("hand_offs", 1), ("waits_granted", 1)];
    let rest = [("waits_started", 1), ("waiters_most", 1), ("releases", 1), ("tries_refused", 1)];
    figures.moved(&[&hand_off[..], &rest].concat());
    assert!(client.release("k", "bob"));
    carol.fence();
    figures.moved(&[&HANDED_OFF[..], &[("releases", 1)]].concat());
}

#[test]
fn a_wait_for_a_lock_that_becomes_ones_own_by_other_means_is_a_retry() {
    let (_server, mut client, mut bob, mut figures) = waited_for();
    // By other means than this module, so that no grant was made here.
    client.cmd("SET k bob");
    assert_eq!(bob.reply(), int(0));
    let ended = [("waits_granted", 1), ("waiters", -1), ("retries", 1)];
    figures.moved(&[&ended[..], &[("log_len", 1), ("held", -1)]].concat());
}

#[test]
fn a_grant_whose_waiter_was_killed_unheard_is_taken_back_and_is_no_release() {
    let (server, mut client, bob, mut figures) = waited_for();
    let kill = format!("CLIENT KILL ID {}", bob.id);
    let replies = client.pipeline(&["LOCK.RELEASE k alice", &kill]);
    assert_eq!(replies, [int(1), int(1)]);
    eventually("the lock is free", || client.info("k").map_or(Ok(()), Err));
    figures.moved(&[&HANDED_OFF[..], &[("releases", 1), ("held", -1)]].concat());
    // Neither was it deleted, nor was bob late.
    client.grant("k", "carol", LONG);
    assert!(!client.release("k", "bob"));
    figures.moved(&[("grants", 1), ("releases_refused", 1), HELD]);
    assert_eq!(server.cmd("LOCK.LOG -1"), Value::Array(Vec::new()));
}

#[test]
fn a_grant_that_is_taken_back_goes_on_to_the_next() {
    let (server, mut client, bob, mut figures) = waited_for();
    let mut carol = Waiter::of(&server, "k", "carol");
    client.pipeline(&["LOCK.RELEASE k alice", &format!("CLIENT KILL ID {}", bob.id)]);
    carol.fence();
    figures.moved(&[
        ("waits_started", 1),
        ("waiters_most", 1),
        ("releases", 1),
        ("grants", 2),
        ("hand_offs", 2),
        ("waits_granted", 2),
        ("waiters", -1),
    ]);
}

#[test]
fn a_lock_that_is_deleted_or_overwritten_while_somebody_waits() {
    let (server, mut client, mut bob, mut figures) = waited_for();
    client.cmd("DEL k");
    bob.fence();
    figures.moved(&[&HANDED_OFF[..], &[("log_len", 1)]].concat());
    let carol = Waiter::of(&server, "k", "carol");
    client.cmd("SET k stranger PX 60000");
    eventually("it is noticed", || if figures.get("log_len") == 2 { Ok(()) } else { Err(()) });
    figures.moved(&[("waits_started", 1), ("waiters", 1), ("log_len", 1), ("held", -1)]);
    carol.assert_waits(&server);
    assert!(!client.release("k", "bob"), "which has been told already");
    figures.moved(&[("releases_refused", 1)]);
}

#[test]
fn an_old_client_that_deletes_its_lock_while_somebody_waits_is_in_order() {
    let server = Server::start();
    let mut client = server.client();
    let mut figures = Figures::of(&server);
    client.cmd("SET k uuid NX PX 60000");
    let mut bob = Waiter::of(&server, "k", "bob");
    figures.moved(&[("waits_started", 1), ("waiters", 1), ("waiters_most", 1)]);
    client.cmd("DEL k");
    bob.fence();
    figures.moved(&[&HANDED_OFF[..], &[HELD]].concat());
    assert!(client.release("k", "bob"));
    client.cmd("SET k uuid NX PX 60000");
    let mut carol = Waiter::of(&server, "k", "carol");
    assert!(client.release("k", "uuid"));
    carol.fence();
    assert_eq!(figures.get("log_len"), 0);
    // One that does not end by its own doing is a lease that ran out like any.
    client.cmd("SET other uuid NX PX 40");
    Waiter::of(&server, "other", "bob").fence();
    assert_eq!((figures.get("expiries_with_waiters"), figures.get("log_len")), (1, 0));
}

#[test]
fn an_evicted_lock_that_is_put_back() {
    let server = Server::builder().config("maxmemory-policy", "volatile-lru").start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    let mut figures = Figures::of(&server);
    let times = evict(&mut client, &mut figures);
    // Noted once a second at most.
    let noted = figures.get("log_len").cast_signed();
    assert!((1..=times).contains(&noted), "{noted} of {times}");
    figures.moved(&[("evictions_restored", times), ("log_len", noted)]);
    assert!(client.release("k", "alice"));
    bob.fence();
    figures.moved(&[&HANDED_OFF[..], &[("releases", 1)]].concat());
}

#[test]
fn the_most_that_ever_waited_at_once_stays_while_the_number_of_waiters_falls() {
    let (server, mut client, bob, mut figures) = waited_for();
    client.cmd("SELECT 5");
    client.grant("elsewhere", "alice", LONG);
    let there = server.client();
    let mut crowd = vec![bob];
    let mut client_of_five = there;
    client_of_five.cmd("SELECT 5");
    let request = "LOCK.ACQUIRE elsewhere bob 60000 BLOCK 0";
    crowd.push(Waiter::sends_on(client_of_five, &server, request));
    crowd.push(Waiter::of(&server, "k", "carol"));
    let started = [("waits_started", 2), ("waiters", 2), ("waiters_most", 2)];
    figures.moved(&[&started[..], &[("grants", 1), HELD]].concat());
    drop(crowd);
    until_nobody_waits(&server);
    figures.moved(&[("waits_abandoned", 3), ("waiters", -3)]);
    let _dave = Waiter::of(&server, "k", "dave");
    figures.moved(&[("waits_started", 1), ("waiters", 1)]);
    assert_eq!(owners(&server, "k"), ["dave"]);
}

#[test]
fn a_request_that_is_not_let_to_wait_is_a_try() {
    let (server, mut client, mut figures) = held();
    let blocking = "LOCK.ACQUIRE k bob 60000 BLOCK 0";
    assert_eq!(client.transaction(&[blocking]), [Value::Nil]);
    figures.moved(&[("tries_refused", 1)]);
    let mut resp3 = server.client_resp3();
    assert_eq!(resp3.transaction(&[blocking]), [Value::Nil]);
    figures.moved(&[("tries_refused", 1)]);
    let script = "return redis.call('LOCK.ACQUIRE', KEYS[1], 'bob', 60000, 'BLOCK', 0)";
    assert_eq!(client.cmd(["EVAL", script, "1", "k"]), Value::Nil);
    figures.moved(&[("tries_refused", 1)]);
}
