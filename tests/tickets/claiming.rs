//! The grant to a ticket: as long as the ticket, until its owner comes for it.

use super::{
    LONG, ROUNDING, asked, by_ticket, held, held_on, left, queue, queue_up, until_held_by,
};
use crate::waiting::granted_at;
use redis::Value;
use testkit::{Client, Server, Stopwatch, Waiter, eventually, int};

/// Alice lets go of `k`, and this is what is left of the next lease then.
#[track_caller]
fn left_after_release(client: &mut Client) -> u64 {
    let replies = client.transaction(&["LOCK.RELEASE k alice", "PTTL k"]);
    assert_eq!(replies[0], int(1));
    let Value::Int(left) = replies[1] else { panic!("{replies:?}") };
    left.try_into().expect("nobody was granted it")
}

#[test]
fn the_grant_lasts_no_longer_than_the_ticket_and_no_longer_than_the_ttl() {
    for (ttl, ticket, least, most) in
        [(60_000, 20_000, 15_000, 20_000), (20_000, 60_000, 15_000, 20_000)]
    {
        let (_server, mut client) = held();
        let request = format!("LOCK.ACQUIRE k bob {ttl} TICKET {ticket}");
        assert_eq!(asked(&mut client, request), None);
        let left = left_after_release(&mut client);
        assert!((least..=most + ROUNDING).contains(&left), "{left} of {ttl} and {ticket}");
    }
}

#[test]
fn any_request_of_the_owner_claims_the_grant_with_its_full_ttl() {
    for claim in ["", "BLOCK 0", "BLOCK 5", "TICKET 1", "TICKET 60000", "SHARE 1"] {
        let (server, mut client) = held();
        assert_eq!(asked(&mut client, by_ticket("bob", 20_000)), None);
        assert!(left_after_release(&mut client) <= 20_000 + ROUNDING);
        let fence = until_held_by(&mut client, "bob");
        let mut other = server.client();
        let request = format!("LOCK.ACQUIRE k bob {LONG} {claim}");
        assert_eq!(asked(&mut other, request.trim_end()), Some(fence), "{claim}");
        let left = left(&mut client);
        assert!(left > 30_000, "{left} are left after {claim}");
        assert!(queue(&mut client).is_empty(), "{claim}");
    }
}

#[test]
fn a_claim_with_a_shorter_ttl_shortens_nothing() {
    let (_server, mut client) = held();
    assert_eq!(asked(&mut client, by_ticket("bob", 20_000)), None);
    assert!(client.release("k", "alice"));
    assert!(asked(&mut client, "LOCK.ACQUIRE k bob 1 TICKET 1").is_some());
    let left = left(&mut client);
    assert!(left > 10_000, "{left}");
}

#[test]
fn a_grant_is_claimed_in_its_last_millisecond() {
    let (_server, mut client) = held();
    eventually("it is asked for in time", || {
        client.cmd("DEL k");
        client.grant("k", "alice", LONG);
        assert_eq!(asked(&mut client, "LOCK.ACQUIRE k bob 20 TICKET 60000"), None);
        assert!(client.release("k", "alice"));
        while matches!(client.cmd("PTTL k"), Value::Int(2..)) {}
        let claim = format!("LOCK.ACQUIRE k bob {LONG}");
        let replies = client.transaction(&["PTTL k", "LOCK.CHECK k bob", &claim, "PTTL k"]);
        match replies[..] {
            // Otherwise it ended before, or in between.
            [Value::Int(0..=1), Value::Int(fence), Value::Int(claimed), Value::Int(left)]
                if claimed == fence =>
            {
                assert!(left > 30_000, "{left}");
                Ok(())
            }
            _ => Err(replies),
        }
    });
}

#[test]
fn a_grant_that_nobody_claims_runs_out_and_the_next_is_served() {
    let (server, mut client) = held();
    assert_eq!(asked(&mut client, "LOCK.ACQUIRE k bob 60000 TICKET 100"), None);
    queue_up(&mut client, "carol");
    let replies = client.transaction(&["LOCK.RELEASE k alice", "LOCK.INFO k"]);
    let owner = testkit::field(&replies[1], "owner");
    // A machine that stood still has let the ticket end before.
    if owner == Some(&testkit::bulk("bob")) {
        let carol = until_held_by(&mut client, "carol");
        let Some(&Value::Int(bob)) = testkit::field(&replies[1], "fence") else { panic!() };
        assert!(carol > bob.unsigned_abs());
        assert_eq!(server.client().counter("expiries_with_waiters"), 1);
        assert!(!client.release("k", "bob"));
    }
    until_held_by(&mut client, "carol");
}

/// A grant that was not claimed is over for good: its owner asks anew, behind everybody.
#[test]
fn who_comes_too_late_to_claim_its_grant_queues_anew() {
    let (_server, mut client) = held();
    assert_eq!(asked(&mut client, "LOCK.ACQUIRE k bob 20 TICKET 60000"), None);
    queue_up(&mut client, "carol");
    queue_up(&mut client, "dave");
    assert!(client.release("k", "alice"));
    until_held_by(&mut client, "carol");
    queue_up(&mut client, "bob");
    assert_eq!(queue(&mut client), ["ticket dave", "ticket bob"]);
}

/// How much later than the sum of the leases in front of it one may be served, on a machine that does other things, too.
const SLACK_MILLIS: i64 = 500;

#[test]
fn each_dead_ticket_before_one_who_lives_costs_it_no_more_than_its_length() {
    const DEAD: i64 = 8;
    const LASTS: i64 = 50;
    let (server, mut client) = held_on(Server::builder().module_args("fence-margin 0"));
    for number in 0..DEAD {
        // They are all there still when the lock is released, and nobody comes for any grant.
        let request = format!("LOCK.ACQUIRE k dead{number} {LASTS} TICKET {LONG}");
        assert_eq!(asked(&mut client, request), None);
    }
    let mut live = Waiter::of(&server, "k", "live");
    let (released, watch) = (client.now(), Stopwatch::start());
    assert!(client.release("k", "alice"));
    let took = granted_at(live.fence()) - released;
    let most = DEAD * LASTS + SLACK_MILLIS + watch.stalled_millis();
    assert!(took >= DEAD * LASTS, "each has its time, and it took {took} ms");
    assert!(took <= most, "{took} ms, and at most {most} ms were expected");
}

#[test]
fn tickets_that_have_ended_before_the_release_cost_nothing() {
    let (server, mut client) = held();
    for number in 0..100 {
        let request = format!("LOCK.ACQUIRE k dead{number} {LONG} TICKET 1");
        assert_eq!(asked(&mut client, request), None);
    }
    let mut live = Waiter::of(&server, "k", "live");
    let sleep = client.transaction(&["DEBUG SLEEP 0.01", "LOCK.RELEASE k alice"]);
    assert_eq!(sleep[1], int(1));
    live.fence();
    assert_eq!(client.counter("hand_offs"), 1, "nobody else was granted it");
}

#[test]
fn the_owner_of_a_ticket_releases_the_grant_without_having_claimed_it() {
    let (_server, mut client) = held();
    queue_up(&mut client, "bob");
    queue_up(&mut client, "carol");
    assert!(client.release("k", "alice"));
    assert!(client.release("k", "bob"));
    until_held_by(&mut client, "carol");
    assert!(!client.release("k", "bob"));
}

#[test]
fn an_owner_whose_grant_was_deleted_by_hand_queues_anew() {
    let (_server, mut client) = held();
    queue_up(&mut client, "bob");
    queue_up(&mut client, "carol");
    assert!(client.release("k", "alice"));
    let replies = client.pipeline(&["DEL k", &by_ticket("bob", LONG)]);
    assert_eq!(replies, [int(1), Value::Nil], "carol comes first");
    until_held_by(&mut client, "carol");
    assert_eq!(queue(&mut client), ["ticket bob"]);
}
