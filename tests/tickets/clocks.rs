//! The clock of the server is set: how long a place is kept goes by another one, that nobody can set.

use super::{LONG, asked, by_ticket, held_on, queue, queue_up, rows, until_held_by};
use redis::Value;
use std::time::Duration;
use testkit::{Client, Clock, Server, clock::HOUR, eventually, int};

/// Alice holds `k` without end.
fn held_for_ever() -> (Server, Client, Clock) {
    let clock = Clock::new();
    let (server, mut client) = held_on(Server::builder().clock(&clock));
    assert_eq!(client.cmd("PERSIST k"), int(1));
    (server, client, clock)
}

#[test]
fn a_place_is_kept_although_the_clock_is_set_forward_or_back() {
    let (_server, mut client, mut clock) = held_for_ever();
    queue_up(&mut client, "bob");
    for set in [Clock::step_forward, Clock::step_back, Clock::step_back] {
        set(&mut clock, HOUR);
        clock.wait_until_known(&mut client);
        let row = &rows(&mut client, "k")[0];
        assert!((1..=60_000).contains(&row.patience), "{row:?}");
        assert!((0..60_000).contains(&row.waited), "{row:?}");
        queue_up(&mut client, "bob");
    }
    assert!(client.release("k", "alice"));
    until_held_by(&mut client, "bob");
}

#[test]
fn a_place_that_nobody_asks_for_is_given_up_although_the_clock_is_set_back() {
    let (_server, mut client, mut clock) = held_for_ever();
    for set in [Clock::step_back, Clock::step_forward] {
        assert_eq!(asked(&mut client, by_ticket("bob", 200)), None);
        set(&mut clock, HOUR);
        eventually("it is given up", || match queue(&mut client) {
            queue if queue.is_empty() => Ok(()),
            queue => Err(queue),
        });
    }
}

#[test]
fn a_place_is_renewed_for_its_full_length_while_the_clock_is_set_back_and_forth() {
    let (_server, mut client, mut clock) = held_for_ever();
    queue_up(&mut client, "bob");
    for step in 0..200 {
        let by = Duration::from_secs(7 * (step % 13));
        if step % 2 == 0 {
            clock.step_forward(by)
        } else {
            clock.step_back(by)
        }
        let lasts = 30_000 + step;
        assert_eq!(asked(&mut client, by_ticket("bob", lasts)), None);
        let patience = rows(&mut client, "k")[0].patience.unsigned_abs();
        assert!((10_000..=lasts).contains(&patience), "{patience} of {lasts}");
    }
    clock.wait_until_known(&mut client);
    assert!(client.release("k", "alice"));
    until_held_by(&mut client, "bob");
}

#[test]
fn the_lease_of_a_grant_ends_by_the_clock_as_every_lease_does() {
    let (_server, mut client, mut clock) = held_for_ever();
    queue_up(&mut client, "bob");
    queue_up(&mut client, "carol");
    assert!(client.release("k", "alice"));
    until_held_by(&mut client, "bob");
    clock.step_forward(Duration::from_millis(LONG));
    until_held_by(&mut client, "carol");
    assert!(matches!(client.cmd(by_ticket("carol", LONG)), Value::Int(1..)));
}

#[test]
fn a_claim_lengthens_the_lease_also_after_the_clock_was_set_back() {
    let (_server, mut client, mut clock) = held_for_ever();
    assert_eq!(asked(&mut client, by_ticket("bob", 20_000)), None);
    assert!(client.release("k", "alice"));
    let fence = until_held_by(&mut client, "bob");
    clock.step_back(HOUR);
    clock.wait_until_known(&mut client);
    assert_eq!(asked(&mut client, by_ticket("bob", 20_000)), Some(fence));
    let left = super::left(&mut client);
    assert!(left > 3_000_000, "the lease was not shortened, and {left} ms are left");
}
