//! Asking by a ticket: an answer at once, and a place that is kept as long as somebody asks for it.

use super::{LONG, asked, by_ticket, held, queue, queue_up, rows, until_held_by, until_no_tickets};
use std::thread::sleep;
use std::time::{Duration, Instant};
use testkit::waiter::id_of;
use testkit::{Server, eventually};

/// For a place that is renewed in time, and for one that is to end.
const BRIEF: Duration = Duration::from_millis(300);
const MILLIS: u64 = 300;

#[test]
fn a_free_lock_is_granted_at_once_with_the_full_ttl() {
    let server = Server::start();
    let mut client = server.client();
    let fence = asked(&mut client, "LOCK.ACQUIRE k bob 60000 TICKET 1").unwrap();
    let info = client.info("k").unwrap();
    assert_eq!((info.fence, info.waiters), (fence, 0));
    assert!(info.ttl > 30_000, "{info:?}");
    assert_eq!(asked(&mut client, by_ticket("bob", 1)), Some(fence), "asking again");
    assert_eq!(client.counter("tickets"), 0);
}

#[test]
fn a_place_is_kept_by_asking_again() {
    let (_server, mut client) = held();
    eventually("it asks in time", || {
        until_no_tickets(&mut client);
        let begun = Instant::now();
        let mut asked_at = begun;
        assert_eq!(asked(&mut client, by_ticket("bob", MILLIS)), None);
        queue_up(&mut client, "carol");
        while begun.elapsed() < 4 * BRIEF {
            let since = asked_at;
            asked_at = Instant::now();
            assert_eq!(asked(&mut client, by_ticket("bob", MILLIS)), None);
            if since.elapsed() >= BRIEF {
                client.release("k", "bob");
                client.release("k", "carol");
                return Err(since.elapsed());
            }
            sleep(Duration::from_millis(5));
        }
        assert_eq!(queue(&mut client), ["ticket bob", "ticket carol"]);
        let waited = rows(&mut client, "k")[0].waited.unsigned_abs();
        assert!(waited >= 3 * MILLIS, "it waits only for {waited} ms");
        Ok(())
    });
}

#[test]
fn a_place_that_nobody_asks_for_is_given_up() {
    const LASTS: u64 = 1_500;
    let (_server, mut client) = held();
    assert_eq!(asked(&mut client, by_ticket("bob", LASTS)), None);
    queue_up(&mut client, "carol");
    let [bob, carol] = &rows(&mut client, "k")[..] else { panic!("two wait") };
    assert!(bob.patience.unsigned_abs() <= LASTS, "{bob:?}");
    assert!((30_000..=60_000).contains(&carol.patience), "{carol:?}");
    eventually("it is given up", || match queue(&mut client) {
        queue if queue == ["ticket carol"] => Ok(()),
        queue => Err(queue),
    });
    assert!(client.release("k", "alice"));
    assert!(client.check("k", "carol").is_some());
    assert_eq!(client.counter("waits_abandoned"), 1);
}

#[test]
fn who_asks_again_after_its_place_was_given_up_is_the_last() {
    let (_server, mut client) = held();
    assert_eq!(asked(&mut client, by_ticket("bob", 1)), None);
    queue_up(&mut client, "carol");
    eventually("it is given up", || match queue(&mut client).len() {
        1 => Ok(()),
        other => Err(other),
    });
    queue_up(&mut client, "bob");
    assert_eq!(queue(&mut client), ["ticket carol", "ticket bob"]);
}

#[test]
fn a_place_that_was_given_up_a_moment_ago_is_not_granted() {
    let (server, mut client) = held();
    assert_eq!(asked(&mut client, by_ticket("bob", 5)), None);
    // The server has no time to notice before it executes the release.
    let replies = client.transaction(&["DEBUG SLEEP 0.05", "LOCK.RELEASE k alice", "EXISTS k"]);
    assert_eq!(replies[1..], [testkit::int(1), testkit::int(0)]);
    assert_eq!(server.client().counter("waits_abandoned"), 1);
}

#[test]
fn the_last_request_says_how_long_the_place_is_kept_and_for_which_connection() {
    let (server, mut client) = held();
    queue_up(&mut client, "bob");
    let own = id_of(&mut client);
    let row = &rows(&mut client, "k")[0];
    assert_eq!((&*row.kind, row.client), ("ticket", own));
    let mut other = server.client();
    assert_eq!(asked(&mut other, "LOCK.ACQUIRE k bob 60000 TICKET 50000"), None);
    let row = &rows(&mut client, "k")[0];
    assert_eq!(row.client, id_of(&mut other));
    assert!(row.patience <= 50_000, "{row:?}");
    // The connection that asked last is gone, and the place is not.
    drop(other);
    client.cmd("PING");
    assert!(client.release("k", "alice"));
    until_held_by(&mut client, "bob");
}

#[test]
fn the_last_request_says_how_long_the_lease_of_the_grant_is() {
    let (_server, mut client) = held();
    queue_up(&mut client, "bob");
    assert_eq!(asked(&mut client, format!("LOCK.ACQUIRE k bob 5000 TICKET {LONG}")), None);
    assert!(client.release("k", "alice"));
    let left = super::left(&mut client);
    assert!(left <= 5_000 + super::ROUNDING, "{left}");
}

#[test]
fn a_try_of_an_owner_in_the_queue_leaves_its_place_as_it_is() {
    let (_server, mut client) = held();
    queue_up(&mut client, "bob");
    queue_up(&mut client, "carol");
    assert_eq!(client.acquire("k", "bob", LONG), None);
    assert_eq!(queue(&mut client), ["ticket bob", "ticket carol"]);
    assert!(client.release("k", "alice"));
    until_held_by(&mut client, "bob");
}

#[test]
fn a_try_overtakes_no_ticket() {
    let (_server, mut client) = held();
    queue_up(&mut client, "bob");
    let replies = client.pipeline(&["LOCK.RELEASE k alice", "LOCK.ACQUIRE k carol 60000"]);
    assert_eq!(replies, [testkit::int(1), redis::Value::Nil]);
    until_held_by(&mut client, "bob");
}

#[test]
fn extend_and_check_are_for_who_holds_the_lock_and_leave_a_place_as_it_is() {
    let (_server, mut client) = held();
    queue_up(&mut client, "bob");
    assert!(!client.extend("k", "bob", LONG));
    assert_eq!(client.check("k", "bob"), None);
    assert_eq!(queue(&mut client), ["ticket bob"]);
    assert!(client.extend("k", "alice", LONG));
    assert!(client.release("k", "alice"));
    assert!(client.check("k", "bob").is_some());
    assert!(client.extend("k", "bob", LONG), "it claims the grant too");
    assert!(super::left(&mut client) > 30_000);
}
