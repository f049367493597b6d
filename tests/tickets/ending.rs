//! What happens to the data, to the module and to the server while tickets are kept.

use super::{
    LONG, Row, asked, by_ticket, held, held_on, left, queue, queue_of, queue_up, rows,
    until_held_by,
};
use crate::waiting::short_of_memory::evict;
use redis::Value;
use testkit::{Server, Snapshot, eventually, start_pair, wait_until_in_sync};

#[test]
fn a_flush_hands_every_lock_to_the_first_of_its_tickets() {
    for flush in ["FLUSHALL", "FLUSHDB", "FLUSHALL ASYNC"] {
        let (_server, mut client) = held();
        let before = client.check("k", "alice").unwrap();
        queue_up(&mut client, "bob");
        queue_up(&mut client, "carol");
        client.cmd(flush);
        assert!(until_held_by(&mut client, "bob") > before, "{flush}");
        assert_eq!(queue(&mut client), ["ticket carol"], "{flush}");
    }
}

#[test]
fn a_ticket_is_for_the_lock_of_its_database_whatever_is_swapped() {
    let (_server, mut client) = held();
    queue_up(&mut client, "bob");
    assert_eq!(client.cmd("SWAPDB 0 1"), Value::Okay);
    let fence = until_held_by(&mut client, "bob");
    assert_eq!(client.cmd("SELECT 1"), Value::Okay);
    assert!(client.check("k", "alice").unwrap() < fence, "hers went there");
    assert!(queue(&mut client).is_empty());
}

#[test]
fn a_lock_that_is_renamed_leaves_its_tickets_behind() {
    let (_server, mut client) = held();
    queue_up(&mut client, "bob");
    assert_eq!(client.cmd("RENAME k l"), Value::Okay);
    until_held_by(&mut client, "bob");
    assert!(client.check("l", "alice").is_some());
    // One that comes under the name is held by whoever it names.
    queue_up(&mut client, "carol");
    assert_eq!(client.cmd("RENAME l k"), Value::Okay);
    assert!(client.check("k", "alice").is_some());
    assert_eq!(queue(&mut client), ["ticket carol"]);
}

#[test]
fn a_lock_that_is_evicted_is_put_back_and_no_ticket_is_granted() {
    let (_server, mut client) =
        held_on(Server::builder().config("maxmemory-policy", "volatile-lru"));
    let fence = client.check("k", "alice").unwrap();
    queue_up(&mut client, "bob");
    evict(&mut client);
    eventually("the lock is put back", || client.info("k").ok_or(()));
    assert_eq!(client.check("k", "alice"), Some(fence));
    assert_eq!(queue(&mut client), ["ticket bob"]);
    assert_ne!(client.counter("evictions_restored"), 0);
}

#[test]
fn a_grant_that_is_evicted_before_it_is_claimed_is_put_back() {
    let (_server, mut client) =
        held_on(Server::builder().config("maxmemory-policy", "volatile-lru"));
    queue_up(&mut client, "bob");
    queue_up(&mut client, "carol");
    assert!(client.release("k", "alice"));
    let fence = client.check("k", "bob").unwrap();
    evict(&mut client);
    eventually("the lock is put back", || client.info("k").ok_or(()));
    assert_eq!(asked(&mut client, by_ticket("bob", LONG)), Some(fence));
}

#[test]
fn a_key_that_comes_to_hold_a_list_keeps_its_tickets_waiting_and_refuses_those_who_ask() {
    let (_server, mut client) = held();
    queue_up(&mut client, "bob");
    client.transaction(&["DEL k", "RPUSH k x"]);
    let Value::ServerError(told) = client.cmd(by_ticket("bob", LONG)) else { panic!("no error") };
    assert_eq!(told.code(), "WRONGTYPE");
    assert_eq!(client.counter("tickets"), 1);
    client.cmd("DEL k");
    until_held_by(&mut client, "bob");
}

#[test]
fn a_lock_that_an_older_client_holds_is_waited_for_by_ticket() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("SET k some-older-client NX PX 60000");
    queue_up(&mut client, "bob");
    client.cmd("DEL k");
    until_held_by(&mut client, "bob");
    assert_eq!(client.cmd("SET k some-older-client NX PX 60000"), Value::Nil);
}

#[test]
fn a_server_that_starts_again_knows_the_grants_and_no_tickets() {
    let mut server = Server::builder().aof().start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    client.grant("l", "alice", LONG);
    for key in ["k", "l"] {
        for owner in ["bob", "carol"] {
            let request = format!("LOCK.ACQUIRE {key} {owner} {LONG} TICKET {LONG}");
            assert_eq!(asked(&mut client, request), None);
        }
    }
    assert!(client.release("k", "alice"));
    let fence = client.check("k", "bob").unwrap();
    let live = Snapshot::of(&server);
    server.kill();
    server.start_again();
    assert_eq!(Snapshot::of(&server), live);
    let mut client = server.client();
    assert_eq!(client.counter("tickets"), 0);
    assert_eq!(asked(&mut client, by_ticket("bob", LONG)), Some(fence), "unclaimed, and its own");
    assert!(left(&mut client) > 30_000);
    queue_up(&mut client, "carol");
    assert!(queue_of(&mut client, "l").is_empty());
}

#[test]
fn the_file_that_a_server_saves_has_no_tickets() {
    let (server, mut client) = held();
    queue_up(&mut client, "bob");
    let before = Snapshot::of(&server);
    assert_eq!(client.cmd("DEBUG RELOAD"), Value::Okay);
    assert_eq!(Snapshot::of(&server), before);
    assert_eq!(queue(&mut client), ["ticket bob"], "and the process still knows them");
    assert!(client.release("k", "alice"));
    until_held_by(&mut client, "bob");
}

#[test]
fn replicas_with_and_without_the_module_have_the_grants_of_tickets() {
    let setup = Server::builder().aof().module_args("fence-margin 0");
    let (primary, replica) = start_pair(setup, Server::builder());
    let without = Server::builder().without_module().replica_of(&primary).start();
    let mut client = primary.client();
    client.grant("k", "alice", LONG);
    let agree = |what: &str| {
        for server in [&replica, &without] {
            wait_until_in_sync(&primary, server);
            assert_eq!(Snapshot::of(server), Snapshot::of(&primary), "{what}");
        }
    };
    queue_up(&mut client, "bob");
    queue_up(&mut client, "carol");
    agree("queued");
    assert!(client.release("k", "alice"));
    agree("granted");
    assert!(asked(&mut client, by_ticket("bob", LONG)).is_some());
    agree("claimed");
    let replies = client.transaction(&["LOCK.RELEASE k bob", &by_ticket("carol", LONG)]);
    assert!(matches!(replies[1], Value::Int(1..)));
    agree("granted in a transaction");
    assert!(client.release("k", "carol"));
    agree("released");
}

/// What a command of a queue costs replicas: nothing.
#[test]
fn asking_again_and_giving_up_are_not_replicated() {
    let (server, mut client) = held_on(Server::builder().aof());
    testkit::unchanged(&server, || {
        for _ in 0..3 {
            queue_up(&mut client, "bob");
        }
        assert_eq!(asked(&mut client, by_ticket("carol", 1)), None);
        assert!(!client.release("k", "bob"));
        eventually("the other ticket has ended", || match rows(&mut client, "k") {
            rows if rows.is_empty() => Ok(()),
            rows => Err(rows.into_iter().map(|Row { owner, .. }| owner).collect::<Vec<_>>()),
        });
    });
}
