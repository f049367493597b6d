//! `LOCK.RELEASE` by an owner in the queue.

use super::{LONG, asked, by_ticket, held, queue, queue_up, until_held_by};
use testkit::{Waiter, int};

#[test]
fn a_release_gives_up_the_place_and_says_that_nothing_was_held() {
    let (_server, mut client) = held();
    for owner in ["bob", "carol", "dave"] {
        queue_up(&mut client, owner);
    }
    assert!(!client.release("k", "carol"));
    assert_eq!(queue(&mut client), ["ticket bob", "ticket dave"]);
    assert!(!client.release("k", "bob"));
    assert_eq!(queue(&mut client), ["ticket dave"]);
    assert_eq!(client.counter("waits_abandoned"), 2);
    assert!(client.release("k", "alice"));
    until_held_by(&mut client, "dave");
    assert_eq!(client.counter("tickets"), 0);
}

#[test]
fn a_release_by_fence_is_of_a_former_grant_and_leaves_the_place() {
    let (_server, mut client) = held();
    queue_up(&mut client, "bob");
    assert_eq!(client.cmd("LOCK.RELEASE k bob 5"), int(0));
    assert_eq!(queue(&mut client), ["ticket bob"]);
}

#[test]
fn a_release_leaves_the_place_of_an_owner_that_waits_on_a_connection() {
    let (server, mut client) = held();
    let mut bob = Waiter::of(&server, "k", "bob");
    assert!(!client.release("k", "bob"));
    assert_eq!(queue(&mut client), ["block bob"]);
    assert!(client.release("k", "alice"));
    bob.fence();
}

#[test]
fn who_gave_up_its_place_and_asks_again_is_the_last() {
    let (_server, mut client) = held();
    queue_up(&mut client, "bob");
    queue_up(&mut client, "carol");
    assert!(!client.release("k", "bob"));
    queue_up(&mut client, "bob");
    assert_eq!(queue(&mut client), ["ticket carol", "ticket bob"]);
}

#[test]
fn a_release_of_the_only_place_leaves_nothing_behind() {
    let (_server, mut client) = held();
    queue_up(&mut client, "bob");
    assert!(!client.release("k", "bob"));
    assert_eq!(client.counter("tickets"), 0);
    assert!(client.release("k", "alice"));
    assert_eq!(client.info("k"), None);
}

/// Somebody wrote the lock by hand, and the owner in the queue has it: it is both in one transaction.
#[test]
fn a_release_of_an_owner_that_has_come_to_hold_the_lock_frees_it_and_gives_up_the_place() {
    let (_server, mut client) = held();
    let fence = client.check("k", "alice").unwrap() + 1;
    queue_up(&mut client, "bob");
    queue_up(&mut client, "carol");
    let written = format!("SET k {fence}:bob PX {LONG}");
    let replies = client.transaction(&[&written, "LOCK.RELEASE k bob", "LOCK.CHECK k carol"]);
    assert_eq!(replies[1], int(1));
    assert!(matches!(replies[2], redis::Value::Int(1..)), "{replies:?}");
    assert!(queue(&mut client).is_empty());
}

#[test]
fn a_release_in_the_packet_of_the_request_leaves_no_place() {
    let (_server, mut client) = held();
    let ask = by_ticket("bob", LONG);
    let replies = client.pipeline(&[&ask, "LOCK.RELEASE k bob", &ask, "LOCK.RELEASE k bob"]);
    assert_eq!(replies[1], int(0));
    assert!(queue(&mut client).is_empty());
    assert_eq!(asked(&mut client, &*ask), None);
}
