//! What a request by a ticket is refused with, and how many there may be.

use super::{LONG, by_ticket, held, queue, queue_up};
use crate::waiting::play;
use redis::Value;
use testkit::{Server, error, is_older_than, lacks_settings};

#[test]
fn what_is_no_option_no_length_and_no_channel_is_refused() {
    play(
        Server::builder,
        "# and takes no place
        RPUSH list x -> 1
        LOCK.ACQUIRE k bob 1 TICKET 1 TICKET 1 -> -ERR unknown option…
        LOCK.ACQUIRE k bob 1 SHARE 100000 TICKET 1 -> -ERR SHARE must be an integer from 0 to 99999 (holders at a time)
        LOCK.ACQUIRE k bob 1 BLOCK 1 TICKET 1 -> -ERR BLOCK and TICKET cannot be combined
        LOCK.ACQUIRE k bob 1 NOTIFY grants -> -ERR NOTIFY needs TICKET
        LOCK.ACQUIRE k bob 1 TICKET 0 -> -ERR TICKET must be an integer from 1 to 86400000 (milliseconds, config leasehold.max-ttl)
        LOCK.ACQUIRE k bob 1 TICKET 86400001 -> -ERR TICKET must be an integer from 1 to 86400000…
        LOCK.ACQUIRE k bob 1 TICKET 1 NOTIFY \"\" -> -ERR channel must be 1 to 255 bytes long
        LOCK.ACQUIRE list bob 1 TICKET 1 -> -WRONGTYPE
        LOCK.WAITERS k -> (empty)
        LOCK.ACQUIRE k bob 1 share 1 ticket 86400000 -> nil
        LOCK.WAITERS k -> ticket(bob)",
    );
}

#[test]
fn notify_is_refused_where_the_server_does_not_tell_what_a_user_may_do() {
    let (_server, mut client) = held();
    let request = format!("{} NOTIFY {}", by_ticket("bob", LONG), "c".repeat(255));
    if is_older_than((7, 0)) {
        let text = "ERR NOTIFY is not possible on this server, which does not tell modules what a user may do";
        assert_eq!(client.cmd(&*request), error(text));
        assert!(queue(&mut client).is_empty());
    } else {
        assert_eq!(client.cmd(&*request), Value::Nil);
    }
    queue_up(&mut client, "bob");
}

#[test]
fn no_more_tickets_are_kept_than_the_limit_and_renewing_needs_no_room() {
    play(
        || Server::builder().module_args("max-tickets 2"),
        "# on a server
        LOCK.ACQUIRE l alice 60000 -> B
        LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
        LOCK.ACQUIRE l bob 60000 TICKET 60000 -> nil
        LOCK.ACQUIRE k carol 60000 TICKET 60000 -> -QUEUEFULL too many tickets (config leasehold.max-tickets)
        LOCK.ACQUIRE k * 60000 TICKET 60000 -> -QUEUEFULL too many tickets (config leasehold.max-tickets)
        LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
        LOCK.ACQUIRE k carol 60000 -> nil
        LOCK.ACQUIRE free carol 60000 TICKET 60000 -> C
        LOCK.ACQUIRE free carol 60000 TICKET 60000 -> C
        INFO leasehold_queue_full -> 2
        LOCK.RELEASE l bob -> 0
        LOCK.ACQUIRE k carol 60000 TICKET 60000 -> nil
        LOCK.RELEASE k alice -> 1
        LOCK.ACQUIRE l dave 60000 TICKET 60000 -> nil",
    );
    play(
        || Server::builder().module_args("max-tickets 0"),
        "# where none are kept
        LOCK.ACQUIRE k bob 60000 TICKET 60000 -> -QUEUEFULL too many tickets…
        LOCK.ACQUIRE k alice 60000 TICKET 60000 -> A
        LOCK.ACQUIRE free bob 60000 TICKET 60000 -> B",
    );
}

#[test]
fn those_who_wait_on_a_connection_and_those_with_tickets_have_limits_of_their_own() {
    play(
        || Server::builder().module_args("max-tickets 1 max-waiters 1"),
        "# to change from one way to the other takes room, and whoever is refused stays where it is
        LOCK.ACQUIRE k ticket 60000 TICKET 60000 -> nil
        block: LOCK.ACQUIRE k block 60000 BLOCK 0 -> waits
        LOCK.ACQUIRE k other 60000 TICKET 60000 -> -QUEUEFULL too many tickets…
        LOCK.ACQUIRE k other 60000 BLOCK 5 -> -QUEUEFULL too many waiters (config leasehold.max-waiters)
        LOCK.ACQUIRE k block 60000 TICKET 60000 -> -QUEUEFULL too many tickets…
        LOCK.ACQUIRE k ticket 60000 BLOCK 5 -> -QUEUEFULL too many waiters…
        LOCK.WAITERS k -> ticket(ticket) block
        block: -> waits
        LOCK.RELEASE k alice -> 1
        LOCK.ACQUIRE k block 60000 TICKET 60000 -> nil
        block: -> -REPLACED
        other: LOCK.ACQUIRE k other 60000 BLOCK 0 -> waits
        LOCK.WAITERS k -> ticket(block) other",
    );
    play(
        || Server::builder().module_args("max-waiters 0 max-waiters-per-lock 0"),
        "# the limits for waiters are not for tickets
        LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
        LOCK.ACQUIRE k carol 60000 TICKET 60000 -> nil
        INFO leasehold_tickets -> 2",
    );
}

#[test]
fn the_limits_can_be_changed_while_the_server_runs() {
    if lacks_settings() {
        return;
    }
    play(
        Server::builder,
        "# the number
        CONFIG GET leasehold.max-tickets -> leasehold.max-tickets \"100000\"
        LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
        LOCK.ACQUIRE k carol 60000 TICKET 60000 -> nil
        CONFIG SET leasehold.max-tickets 0 -> OK
        LOCK.ACQUIRE k dave 60000 TICKET 60000 -> -QUEUEFULL too many tickets…
        LOCK.ACQUIRE k carol 60000 TICKET 60000 -> nil
        LOCK.WAITERS k -> ticket(bob) ticket(carol)
        CONFIG SET leasehold.max-tickets -1 -> -ERR
        CONFIG SET leasehold.max-tickets 1000001 -> -ERR
        CONFIG SET leasehold.max-tickets 3 -> OK
        LOCK.ACQUIRE k dave 60000 TICKET 60000 -> nil

        # the length, which follows the longest ttl, and no grant has a longer lease by then
        CONFIG SET leasehold.max-ttl 60000 -> OK
        LOCK.ACQUIRE k bob 1 TICKET 60001 -> -ERR TICKET must be an integer from 1 to 60000 …
        LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
        CONFIG SET leasehold.max-ttl 1000 -> OK
        MULTI: LOCK.RELEASE k alice; LOCK.CHECK k bob; PTTL k -> 1; B; 1..2000",
    );
}

#[test]
fn a_server_that_is_out_of_memory_keeps_no_more_tickets_and_grants_those_that_it_keeps() {
    play(
        Server::builder,
        "# out of memory
        LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
        CONFIG SET maxmemory 1 -> OK
        LOCK.ACQUIRE k bob 60000 TICKET 60000 -> -OOM
        LOCK.ACQUIRE k carol 60000 TICKET 60000 -> -OOM
        LOCK.WAITERS k -> ticket(bob)
        LOCK.RELEASE k alice -> 1
        LOCK.CHECK k bob -> B",
    );
}
