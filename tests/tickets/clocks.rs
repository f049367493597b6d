//! The clock of the server is set: how long a place is kept goes by another one, that nobody can set.

use super::{by_ticket, held_on, queue, queue_up, rows, until_held_by};
use testkit::{Clock, Server, becomes, clock::HOUR, int};

#[test]
fn a_place_is_kept_and_given_up_as_ever_although_the_clock_is_set_forward_or_back() {
    let mut clock = Clock::new();
    let (_server, mut client) = held_on(Server::builder().clock(&clock));
    assert_eq!(client.cmd("PERSIST k"), int(1));
    queue_up(&mut client, "bob");
    for set in [Clock::step_forward, Clock::step_back, Clock::step_back] {
        assert_eq!(client.fence(by_ticket("carol", 200)), None);
        set(&mut clock, HOUR);
        clock.wait_until_known(&mut client);
        let row = &rows(&mut client, "k")[0];
        assert!((1..=60_000).contains(&row.patience), "{row:?}");
        assert!((0..60_000).contains(&row.waited), "{row:?}");
        queue_up(&mut client, "bob");
        becomes("carol's is given up", ["ticket bob"], || queue(&mut client));
    }
    assert!(client.release("k", "alice"));
    until_held_by(&mut client, "bob");
}
