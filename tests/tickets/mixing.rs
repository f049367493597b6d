//! One queue for those who wait on a connection and those who wait by a ticket, alone or sharing.

use crate::waiting::play;
use testkit::Server;

const SESSIONS: &str = "
    # first come, first served, whichever way they wait
    LOCK.ACQUIRE k ta 60000 TICKET 60000 -> nil
    ba: LOCK.ACQUIRE k ba 60000 BLOCK 0 -> waits
    LOCK.ACQUIRE k tb 60000 TICKET 60000 -> nil
    LOCK.ACQUIRE k tc 60000 TICKET 60000 -> nil
    bb: LOCK.ACQUIRE k bb 60000 BLOCK 0 -> waits
    LOCK.WAITERS k -> ticket(ta) ba ticket(tb) ticket(tc) bb
    LOCK.RELEASE k alice; LOCK.ACQUIRE k ta 60000 TICKET 60000 -> 1; B
    LOCK.RELEASE k ta; LOCK.CHECK k ba -> 1; C
    ba: -> C
    LOCK.RELEASE k ba; LOCK.ACQUIRE k tb 60000 TICKET 60000 -> 1; D
    LOCK.RELEASE k tb; LOCK.ACQUIRE k tc 60000 TICKET 60000 -> 1; E
    LOCK.RELEASE k tc; LOCK.CHECK k bb -> 1; F
    bb: -> F
    LOCK.RELEASE k bb; LOCK.INFO k -> 1; nil

    # an owner with a ticket goes on waiting on a connection in its place, with the lease of that
    LOCK.ACQUIRE k bob 60000 TICKET 20000 -> nil
    LOCK.ACQUIRE k carol 60000 TICKET 60000 -> nil
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    LOCK.WAITERS k -> bob ticket(carol)
    INFO leasehold_waiters -> 1
    INFO leasehold_tickets -> 1
    LOCK.RELEASE k alice; LOCK.CHECK k bob -> 1; B
    bob: -> B
    PTTL k -> 30001..60000
    LOCK.RELEASE k bob; LOCK.CHECK k carol -> 1; C

    # an owner that waits on a connection goes on by a ticket, and the connection has no part in it
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    LOCK.ACQUIRE k carol 60000 TICKET 60000 -> nil
    LOCK.ACQUIRE k bob 60000 TICKET 20000 -> nil
    bob: -> -REPLACED
    LOCK.WAITERS k -> ticket(bob) ticket(carol)
    INFO leasehold_waiters -> 0
    INFO leasehold_tickets -> 2
    CLIENT KILL ID {bob} -> 1
    LOCK.RELEASE k alice; LOCK.CHECK k bob -> 1; B
    PTTL k -> 1..20000

    # patience that ends on a connection gives up the place that a ticket had taken
    LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
    LOCK.ACQUIRE k bob 60000 BLOCK 20 -> nil
    LOCK.WAITERS k -> (empty)

    # readers go in together, and a writer with a ticket holds back those who come later
    LOCK.ACQUIRE k ra 60000 SHARE 0 TICKET 60000 -> nil
    rb: LOCK.ACQUIRE k rb 60000 SHARE 0 BLOCK 0 -> waits
    LOCK.ACQUIRE k rc 60000 SHARE 0 TICKET 60000 -> nil
    LOCK.ACQUIRE k writer 60000 TICKET 60000 -> nil
    LOCK.ACQUIRE k rd 60000 SHARE 0 TICKET 60000 -> nil
    LOCK.RELEASE k alice; LOCK.HOLDERS k -> 1; ra rb rc
    rb: -> B
    LOCK.ACQUIRE k re 60000 SHARE 0 TICKET 60000 -> nil
    LOCK.WAITERS k -> ticket(writer) ticket(rd) ticket(re)
    LOCK.RELEASE k ra; LOCK.HOLDERS k -> 1; rb rc
    LOCK.RELEASE k rb; LOCK.HOLDERS k -> 1; rc
    LOCK.RELEASE k rc; LOCK.HOLDERS k -> 1; writer
    LOCK.RELEASE k writer; LOCK.HOLDERS k -> 1; rd re

    # a reader that would write is told nil and takes no place, or two would wait for each other
    LOCK.RELEASE k alice -> 1
    LOCK.ACQUIRE k ra 60000 SHARE 0 TICKET 60000 -> B
    LOCK.ACQUIRE k rb 60000 SHARE 0 TICKET 60000 -> C
    LOCK.ACQUIRE k ra 60000 TICKET 60000 -> nil
    LOCK.WAITERS k -> (empty)
    LOCK.HOLDERS k -> ra rb
";

#[test]
fn there_is_one_queue_for_both_ways_of_waiting() {
    play(Server::builder, SESSIONS);
}
