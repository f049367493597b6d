//! What is told of tickets: `INFO`, `LOCK.LOG` and key events.

use crate::observing::play;

const OPENING: &str = "LOCK.ACQUIRE k alice 60000 -> A";

#[test]
fn every_ticket_is_a_wait_that_begins_once_and_ends_once_and_is_published_as_any() {
    play(
        "",
        OPENING,
        "
        # a grant, its claim, and places that are given up
        LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil | waits_started+1 tickets+1 | -
        LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil | - | -
        LOCK.RELEASE k alice -> 1 | releases+1 grants+1 hand_offs+1 waits_granted+1 tickets-1 | released handed-off
        LOCK.ACQUIRE k bob 60000 TICKET 60000 -> B | retries+1
        LOCK.ACQUIRE k carol 60000 TICKET 60000 -> nil
        LOCK.RELEASE k carol -> 0 | waits_started+1 waits_abandoned+1 releases_refused+1
        LOCK.ACQUIRE k dave 60000 TICKET 5 -> nil
        INFO leasehold_tickets -> until 0 | waits_started+1 waits_abandoned+1
        # the change from one way to the other, in which the wait goes on, and back, in which another begins
        LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil | waits_started+1 tickets+1
        bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits | tickets-1 waiters+1 waiters_most+1
        LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
        bob: -> -REPLACED | tickets+1 waiters-1 waits_started+1 waits_refused+1 | -
        # a grant that nobody claims is an expiry that somebody waited for
        LOCK.ACQUIRE k bob 30 TICKET 60000 -> nil
        LOCK.ACQUIRE k carol 60000 TICKET 60000 -> nil
        LOCK.RELEASE k alice -> 1
        LOCK.CHECK k carol -> until B | | released handed-off lost handed-off
        ",
    );
}

#[test]
fn the_log_tells_of_tickets_what_it_tells_of_those_who_wait() {
    play(
        "log-long-wait 20",
        OPENING,
        "
        # a long wait
        LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
        30 ms pass
        LOCK.RELEASE k alice -> 1
        LOCK.LOG -1; LOCK.TOP -> long-wait(bob); …key k db 0 waits 1
        ",
    );
}
