//! The grant to a ticket: as long as the ticket, until its owner comes for it.

use crate::waiting::play;
use testkit::Server;

const SESSIONS: &str = "
    # the grant lasts no longer than the ticket
    LOCK.ACQUIRE k bob 60000 TICKET 20000 -> nil
    LOCK.RELEASE k alice -> 1
    PTTL k -> 15000..20000

    # the grant lasts no longer than the ttl
    LOCK.ACQUIRE k bob 20000 TICKET 60000 -> nil
    LOCK.RELEASE k alice -> 1
    PTTL k -> 15000..20000

    # a claim with a shorter ttl shortens nothing
    LOCK.ACQUIRE k bob 60000 TICKET 20000 -> nil
    LOCK.RELEASE k alice -> 1
    LOCK.ACQUIRE k bob 1 TICKET 1 -> B
    PTTL k -> 10001..20000

    # a grant that nobody claims runs out, the next is served, and who comes too late queues anew
    LOCK.ACQUIRE k bob 100 TICKET 60000 -> nil
    LOCK.ACQUIRE k carol 60000 TICKET 60000 -> nil
    LOCK.ACQUIRE k dave 60000 TICKET 60000 -> nil
    MULTI: LOCK.RELEASE k alice; LOCK.CHECK k bob -> 1; B
    LOCK.CHECK k carol -> until C
    INFO leasehold_expiries_with_waiters -> 1
    LOCK.RELEASE k bob -> 0
    LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
    LOCK.WAITERS k -> ticket(dave) ticket(bob)

    # the owner of a ticket releases the grant without having claimed it
    LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
    LOCK.ACQUIRE k carol 60000 TICKET 60000 -> nil
    LOCK.RELEASE k alice -> 1
    LOCK.RELEASE k bob -> 1
    LOCK.CHECK k carol -> B
    LOCK.RELEASE k bob -> 0

    # an owner whose grant was deleted by hand queues anew
    LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
    LOCK.ACQUIRE k carol 60000 TICKET 60000 -> nil
    LOCK.RELEASE k alice -> 1
    DEL k; LOCK.ACQUIRE k bob 60000 TICKET 60000 -> 1; nil
    LOCK.CHECK k carol -> B
    LOCK.WAITERS k -> ticket(bob)
";

#[test]
fn a_grant_lasts_until_its_owner_comes_for_it_or_its_time_is_over() {
    play(Server::builder, SESSIONS);
}

#[test]
fn any_request_of_the_owner_claims_the_grant_with_its_full_ttl() {
    for claim in ["", " BLOCK 0", " BLOCK 5", " TICKET 1", " TICKET 60000", " SHARE 1"] {
        let session = format!(
            "# claimed by{claim}
            LOCK.ACQUIRE k bob 60000 TICKET 20000 -> nil
            LOCK.RELEASE k alice; LOCK.CHECK k bob -> 1; B
            PTTL k -> 10001..20000
            other: LOCK.ACQUIRE k bob 60000{claim} -> B
            PTTL k -> 30001..60000
            LOCK.WAITERS k -> (empty)"
        );
        play(Server::builder, &session);
    }
}
