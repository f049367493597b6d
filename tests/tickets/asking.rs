//! Asking by a ticket: an answer at once, and a place that is kept as long as somebody asks for it.

use super::{held, queue_up, rows, until_held_by};
use crate::waiting::play;
use testkit::Server;
use testkit::waiter::id_of;

const SESSIONS: &str = "
    # a free lock is granted at once with the full ttl
    LOCK.ACQUIRE free bob 60000 TICKET 1 -> B
    PTTL free -> 30001..60000
    LOCK.ACQUIRE free bob 60000 TICKET 1 -> B
    INFO leasehold_tickets -> 0

    # a place that nobody asks for is given up, and who asks for it after that is the last
    LOCK.ACQUIRE k bob 60000 TICKET 1500 -> nil
    LOCK.ACQUIRE k carol 60000 TICKET 60000 -> nil
    LOCK.WAITERS k -> ticket(bob) ticket(carol)
    LOCK.WAITERS k -> until ticket(carol)
    INFO leasehold_waits_abandoned -> 1
    LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
    LOCK.WAITERS k -> ticket(carol) ticket(bob)
    LOCK.RELEASE k alice; LOCK.CHECK k carol -> 1; B

    # a place that was given up before the server had time to notice is not granted
    LOCK.ACQUIRE k bob 60000 TICKET 5 -> nil
    MULTI: DEBUG SLEEP 0.05; LOCK.RELEASE k alice; EXISTS k -> OK; 1; 0
    INFO leasehold_waits_abandoned -> 1

    # the last request says how long the lease of the grant is
    LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
    LOCK.ACQUIRE k bob 5000 TICKET 60000 -> nil
    LOCK.RELEASE k alice -> 1
    PTTL k -> 1..5000

    # a try leaves the place of its owner as it is, and overtakes no ticket
    LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
    LOCK.ACQUIRE k carol 60000 TICKET 60000 -> nil
    LOCK.ACQUIRE k bob 60000 -> nil
    LOCK.WAITERS k -> ticket(bob) ticket(carol)
    LOCK.RELEASE k alice; LOCK.ACQUIRE k dave 60000; LOCK.CHECK k bob -> 1; nil; B

    # EXTEND and CHECK are for who holds the lock and leave a place as it is
    LOCK.ACQUIRE k bob 60000 TICKET 20000 -> nil
    LOCK.EXTEND k bob 60000 -> 0
    LOCK.CHECK k bob -> nil
    LOCK.WAITERS k -> ticket(bob)
    LOCK.EXTEND k alice 60000 -> 1
    LOCK.RELEASE k alice; LOCK.CHECK k bob -> 1; B
    LOCK.EXTEND k bob 60000 -> 1
    PTTL k -> 30001..60000
";

#[test]
fn a_place_is_kept_as_long_as_somebody_asks_for_it() {
    play(Server::builder, SESSIONS);
}

#[test]
fn the_last_request_says_how_long_the_place_is_kept_and_for_which_connection() {
    let (server, mut client) = held();
    queue_up(&mut client, "bob");
    let own = id_of(&mut client);
    let row = &rows(&mut client, "k")[0];
    assert_eq!((&*row.kind, row.client), ("ticket", own));
    assert!((30_000..=60_000).contains(&row.patience), "{row:?}");
    let mut other = server.client();
    assert_eq!(other.fence("LOCK.ACQUIRE k bob 60000 TICKET 20000"), None);
    let row = &rows(&mut client, "k")[0];
    assert_eq!(row.client, id_of(&mut other));
    assert!(row.patience <= 20_000, "{row:?}");
    // The connection that asked last is gone, and the place is not.
    drop(other);
    client.cmd("PING");
    assert!(client.release("k", "alice"));
    until_held_by(&mut client, "bob");
}
