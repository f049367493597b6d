//! What happens to the data, to the module and to the server while tickets are kept.

use super::{LONG, by_ticket, held_on, left, queue_of, queue_up, until_no_tickets};
use crate::shared::Scene;
use crate::waiting::play;
use testkit::{Server, Snapshot};

const SESSIONS: &str = "
    # a lock whose database is flushed is handed to the first of its tickets
    LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
    LOCK.ACQUIRE k carol 60000 TICKET 60000 -> nil
    FLUSHALL -> OK
    LOCK.CHECK k bob -> until B
    LOCK.WAITERS k -> ticket(carol)
    FLUSHDB -> OK
    LOCK.CHECK k carol -> until C

    # a ticket is for the lock of its database, whatever is swapped
    LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
    SWAPDB 0 1 -> OK
    LOCK.CHECK k bob -> until B
    SELECT 1 -> OK
    LOCK.CHECK k alice -> A
    LOCK.WAITERS k -> (empty)

    # a lock that is renamed leaves its tickets behind, and one that takes its name is held
    LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
    RENAME k l -> OK
    LOCK.CHECK k bob -> until B
    LOCK.CHECK l alice -> A
    LOCK.ACQUIRE k carol 60000 TICKET 60000 -> nil
    RENAME l k -> OK
    LOCK.CHECK k alice -> A
    LOCK.WAITERS k -> ticket(carol)

    # a key that comes to hold a list keeps its tickets waiting and refuses those who ask
    LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
    MULTI: DEL k; RPUSH k x -> 1; 1
    LOCK.ACQUIRE k bob 60000 TICKET 60000 -> -WRONGTYPE
    INFO leasehold_tickets -> 1
    DEL k -> 1
    LOCK.CHECK k bob -> until B

    # a lock that an older client holds is waited for
    SET old some-older-client NX PX 60000 -> OK
    LOCK.ACQUIRE old bob 60000 TICKET 60000 -> nil
    DEL old -> 1
    LOCK.CHECK old bob -> until B
    SET old some-older-client NX PX 60000 -> nil

    # a server that reloads its data has tickets still
    LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
    DEBUG RELOAD -> OK
    LOCK.CHECK k alice -> A
    LOCK.WAITERS k -> ticket(bob)
    LOCK.RELEASE k alice -> 1
    LOCK.CHECK k bob -> until B
";

#[test]
fn tickets_stay_with_the_name_of_their_lock_whatever_becomes_of_its_key() {
    play(Server::builder, SESSIONS);
}

#[test]
fn a_server_that_starts_again_knows_the_grants_and_no_tickets() {
    let (mut server, mut client) = held_on(Server::builder().aof());
    queue_up(&mut client, "bob");
    queue_up(&mut client, "carol");
    assert!(client.release("k", "alice"));
    let fence = client.check("k", "bob").unwrap();
    let live = Snapshot::of(&server);
    server.kill();
    server.start_again();
    assert_eq!(Snapshot::of(&server), live);
    let mut client = server.client();
    assert_eq!(client.counter("tickets"), 0);
    assert_eq!(client.fence(by_ticket("bob", LONG)), Some(fence), "unclaimed, and its own");
    assert!(left(&mut client) > 30_000);
    assert!(queue_of(&mut client, "k").is_empty());
    queue_up(&mut client, "carol");
}

/// What a command of a queue costs replicas: nothing.
#[test]
fn asking_again_and_giving_up_are_not_replicated() {
    let (server, mut client) = held_on(Server::builder().aof());
    testkit::unchanged(&server, || {
        for _ in 0..3 {
            queue_up(&mut client, "bob");
        }
        assert_eq!(client.fence(by_ticket("carol", 1)), None);
        assert!(!client.release("k", "bob"));
        until_no_tickets(&mut client);
    });
}

#[test]
fn replicas_with_and_without_the_module_have_the_grants_of_tickets() {
    Scene::play(
        "
        # claimed, and granted in a transaction
        LOCK.ACQUIRE k alice 60000; LOCK.ACQUIRE k bob 60000 TICKET 60000 -> A; nil
        LOCK.ACQUIRE k carol 60000 TICKET 60000; LOCK.RELEASE k alice -> nil; 1
        LOCK.ACQUIRE k bob 60000 TICKET 60000 -> B
        MULTI: LOCK.RELEASE k bob; LOCK.ACQUIRE k carol 60000 TICKET 60000 -> 1; C
        # not claimed
        LOCK.ACQUIRE k alice 60000; LOCK.ACQUIRE k bob 60000 TICKET 60000; LOCK.RELEASE k alice -> A; nil; 1
        # queued
        LOCK.ACQUIRE k alice 60000; LOCK.ACQUIRE k bob 60000 TICKET 60000 -> A; nil
        ",
    );
}
