//! `LOCK.RELEASE` by an owner in the queue.

use crate::waiting::play;
use testkit::Server;

const SESSIONS: &str = "
    # a release gives up the place and says that nothing was held
    LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
    LOCK.ACQUIRE k carol 60000 TICKET 60000 -> nil
    LOCK.ACQUIRE k dave 60000 TICKET 60000 -> nil
    LOCK.RELEASE k carol -> 0
    LOCK.WAITERS k -> ticket(bob) ticket(dave)
    LOCK.RELEASE k bob -> 0
    LOCK.WAITERS k -> ticket(dave)
    INFO leasehold_waits_abandoned -> 2
    LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
    LOCK.WAITERS k -> ticket(dave) ticket(bob)
    LOCK.RELEASE k alice -> 1
    LOCK.CHECK k dave -> B
    INFO leasehold_tickets -> 1

    # a release by fence is of a former grant and leaves the place
    LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
    LOCK.RELEASE k bob 5 -> 0
    LOCK.WAITERS k -> ticket(bob)

    # a release leaves the place of an owner that waits on a connection
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    LOCK.RELEASE k bob -> 0
    LOCK.WAITERS k -> bob
    LOCK.RELEASE k alice -> 1
    bob: -> B

    # a release in the packet of the request leaves no place
    LOCK.ACQUIRE k bob 60000 TICKET 60000; LOCK.RELEASE k bob -> nil; 0
    LOCK.WAITERS k -> (empty)
";

#[test]
fn a_release_by_an_owner_in_the_queue_gives_up_its_place() {
    play(Server::builder, SESSIONS);
}
