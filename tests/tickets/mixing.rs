//! One queue for those who wait on a connection and those who wait by a ticket, alone or sharing.

use super::{LONG, asked, by_ticket, held, queue, queue_up, until_held_by};
use redis::Value;
use std::time::Duration;
use testkit::waiter::{is_parked, wait_until_parked};
use testkit::{Client, Server, Stopwatch, Waiter, error, eventually};

const REPLACED: &str = "REPLACED";

/// Sooner than the look at all contended locks each second.
const SOON: Duration = Duration::from_millis(200);

#[track_caller]
fn assert_replaced(former: &mut Waiter) {
    let Value::ServerError(told) = former.reply() else { panic!("it was not replaced") };
    assert_eq!(told.code(), REPLACED, "{told}");
}

#[test]
fn first_come_first_served_whichever_way_they_wait() {
    let (server, mut client) = held();
    queue_up(&mut client, "t1");
    let mut b1 = Waiter::of(&server, "k", "b1");
    queue_up(&mut client, "t2");
    queue_up(&mut client, "t3");
    let mut b2 = Waiter::of(&server, "k", "b2");
    let all = ["ticket t1", "block b1", "ticket t2", "ticket t3", "block b2"];
    assert_eq!(queue(&mut client), all);
    let mut last = client.check("k", "alice").unwrap();
    let mut holder = "alice";
    for next in ["t1", "b1", "t2", "t3", "b2"] {
        assert!(client.release("k", holder));
        let fence = client.check("k", next).unwrap_or_else(|| panic!("{next} does not hold it"));
        assert!(fence > last);
        match next {
            "b1" => assert_eq!(b1.fence(), fence),
            "b2" => assert_eq!(b2.fence(), fence),
            _ => assert_eq!(asked(&mut client, by_ticket(next, LONG)), Some(fence)),
        }
        (last, holder) = (fence, next);
    }
    assert!(client.release("k", "b2"));
    assert_eq!(client.info("k"), None);
}

#[test]
fn an_owner_with_a_ticket_goes_on_waiting_on_a_connection_in_its_place() {
    let (server, mut client) = held();
    queue_up(&mut client, "bob");
    queue_up(&mut client, "carol");
    let mut bob = Waiter::of(&server, "k", "bob");
    assert_eq!(queue(&mut client), ["block bob", "ticket carol"]);
    assert_eq!((client.counter("waiters"), client.counter("tickets")), (1, 1));
    assert!(client.release("k", "alice"));
    let fence = bob.fence();
    assert_eq!(client.check("k", "bob"), Some(fence));
    assert!(super::left(&mut client) > 30_000, "the lease is that of one who waits");
    assert!(client.release("k", "bob"));
    until_held_by(&mut client, "carol");
}

#[test]
fn an_owner_that_waits_on_a_connection_goes_on_by_a_ticket_in_its_place() {
    let (server, mut client) = held();
    let mut bob = Waiter::of(&server, "k", "bob");
    queue_up(&mut client, "carol");
    assert_eq!(asked(&mut client, by_ticket("bob", 20_000)), None);
    assert_replaced(&mut bob);
    assert_eq!(queue(&mut client), ["ticket bob", "ticket carol"]);
    assert_eq!((client.counter("waiters"), client.counter("tickets")), (0, 2));
    // Its former connection has nothing to do with the place any more.
    drop(bob);
    client.cmd("PING");
    assert!(client.release("k", "alice"));
    until_held_by(&mut client, "bob");
    assert!(super::left(&mut client) <= 20_000 + super::ROUNDING, "the lease is that of a ticket");
}

#[test]
fn an_owner_may_change_its_way_again_and_again_and_stays_where_it_is() {
    let (server, mut client) = held();
    queue_up(&mut client, "first");
    queue_up(&mut client, "bob");
    queue_up(&mut client, "last");
    for _ in 0..50 {
        let mut bob = Waiter::of(&server, "k", "bob");
        queue_up(&mut client, "bob");
        assert_replaced(&mut bob);
        // Also on one connection.
        let mut bob = bob.client;
        bob.send(format!("LOCK.ACQUIRE k bob {LONG} BLOCK 0"));
        eventually("it waits", || match &queue(&mut client)[1][..] {
            "block bob" => Ok(()),
            other => Err(other.to_owned()),
        });
        queue_up(&mut client, "bob");
        let Value::ServerError(told) = bob.receive() else { panic!("it was not replaced") };
        assert_eq!(told.code(), REPLACED);
    }
    assert_eq!(queue(&mut client), ["ticket first", "ticket bob", "ticket last"]);
    assert_eq!((client.counter("waiters"), client.counter("tickets")), (0, 3));
    for (holder, next) in [("alice", "first"), ("first", "bob"), ("bob", "last")] {
        assert!(client.release("k", holder));
        assert!(client.check("k", next).is_some(), "{next}");
    }
}

#[test]
fn patience_that_ended_on_a_connection_gives_up_the_place_that_a_ticket_had_taken() {
    let (_server, mut client) = held();
    queue_up(&mut client, "bob");
    assert_eq!(client.cmd("LOCK.ACQUIRE k bob 60000 BLOCK 20"), Value::Nil);
    assert!(queue(&mut client).is_empty());
}

#[test]
fn a_connection_that_ends_takes_no_place_with_it_that_a_ticket_keeps() {
    let (server, mut client) = held();
    let bob = Waiter::of(&server, "k", "bob");
    queue_up(&mut client, "bob");
    queue_up(&mut client, "carol");
    let mut other = server.client();
    let gone = format!("CLIENT KILL ID {}", bob.id);
    other.cmd(gone);
    eventually("it is gone", || if is_parked(&mut other, bob.id) { Err(()) } else { Ok(()) });
    assert_eq!(queue(&mut client), ["ticket bob", "ticket carol"]);
}

/// Asks to share `k` by a ticket.
#[track_caller]
fn shares(client: &mut Client, owner: &str, share: u32) -> Option<u64> {
    let request = format!("LOCK.ACQUIRE k {owner} {LONG} SHARE {share} TICKET {LONG}");
    asked(client, request)
}

/// Who holds `k`, oldest first.
fn holders(client: &mut Client) -> Vec<String> {
    let holds = crate::shared::holds(client, "k").into_iter();
    holds.map(|hold| String::from_utf8(hold.owner).unwrap()).collect()
}

#[test]
fn readers_by_ticket_go_in_together_and_a_writers_ticket_holds_back_those_who_come_later() {
    let (server, mut client) = held();
    assert_eq!(shares(&mut client, "r1", 0), None);
    let mut r2 = Waiter::sends(&server, "LOCK.ACQUIRE k r2 60000 SHARE 0 BLOCK 0");
    assert_eq!(shares(&mut client, "r3", 0), None);
    queue_up(&mut client, "writer");
    assert_eq!(shares(&mut client, "r4", 0), None);
    assert!(client.release("k", "alice"));
    assert_eq!(holders(&mut client), ["r1", "r2", "r3"]);
    r2.fence();
    assert_eq!(shares(&mut client, "r5", 0), None, "the writer comes first");
    assert_eq!(queue(&mut client), ["ticket writer", "ticket r4", "ticket r5"]);
    for reader in ["r1", "r2", "r3"] {
        assert_eq!(
            holders(&mut client).len(),
            3 - usize::from(reader > "r1") - usize::from(reader > "r2")
        );
        assert!(client.release("k", reader));
    }
    assert_eq!(holders(&mut client), ["writer"]);
    assert!(client.release("k", "writer"));
    assert_eq!(holders(&mut client), ["r4", "r5"]);
}

#[test]
fn those_behind_a_writers_ticket_that_ends_are_let_in_at_once() {
    let server = Server::start();
    let mut client = server.client();
    assert!(shares(&mut client, "r1", 0).is_some());
    assert_eq!(asked(&mut client, by_ticket("writer", 30)), None);
    let mut behind = Waiter::sends(&server, "LOCK.ACQUIRE k r2 60000 SHARE 0 BLOCK 0");
    // The writer may have gone before this one comes.
    let _fence_or_nil = shares(&mut client, "r3", 0);
    behind.fence();
    eventually("all read", || match holders(&mut client) {
        holders if holders == ["r1", "r2", "r3"] => Ok(()),
        holders => Err(holders),
    });
}

#[test]
fn a_writers_ticket_that_is_given_up_or_becomes_a_readers_lets_in_those_behind_it() {
    for change in ["LOCK.RELEASE k writer", "LOCK.ACQUIRE k writer 60000 SHARE 0 TICKET 60000"] {
        let server = Server::start();
        let mut client = server.client();
        assert!(shares(&mut client, "r1", 0).is_some());
        queue_up(&mut client, "writer");
        let mut behind = Waiter::sends(&server, "LOCK.ACQUIRE k r2 60000 SHARE 0 BLOCK 0");
        client.cmd(change);
        let left = Stopwatch::start();
        behind.fence();
        assert!(left.elapsed() < SOON, "{change}: after {:?}", left.elapsed());
        assert!(holders(&mut client).starts_with(&["r1".to_owned()]), "{change}");
    }
}

#[test]
fn a_reader_that_would_write_is_told_nil_and_takes_no_place() {
    let server = Server::start();
    let mut client = server.client();
    for reader in ["r1", "r2"] {
        assert!(shares(&mut client, reader, 0).is_some());
    }
    assert_eq!(asked(&mut client, by_ticket("r1", LONG)), None);
    assert!(queue(&mut client).is_empty(), "two of them would wait for each other");
    assert_eq!(holders(&mut client), ["r1", "r2"]);
}

#[test]
fn an_owner_that_blocks_twice_and_has_a_ticket_in_between_is_told_once_for_each() {
    let (server, mut client) = held();
    let mut first = Waiter::of(&server, "k", "bob");
    queue_up(&mut client, "bob");
    assert_replaced(&mut first);
    let mut second = server.client();
    let id = testkit::waiter::id_of(&mut second);
    second.send(format!("LOCK.ACQUIRE k bob {LONG} BLOCK 0"));
    wait_until_parked(&server, id);
    assert!(client.release("k", "alice"));
    assert!(matches!(second.receive(), Value::Int(1..)));
    assert_ne!(first.client.cmd("PING"), error("REPLACED"), "nothing else was sent to it");
}
