//! What does not free a lock: waiters wait on, and are granted it once it is free.

use super::play;
use super::{Waiter, exact, granted_at, held_on};
use testkit::{Server, deadline};

#[test]
fn whoever_comes_to_hold_the_key_keeps_the_lock_after_the_lease_of_its_former_holder() {
    for (keep, free) in [
        ("SET k stranger", "DEL k"),
        ("GETSET k stranger", "LOCK.RELEASE k stranger"),
        ("SET k stranger PX 60000", "LOCK.RELEASE k stranger"),
        ("SET k stranger PX 60000", "PEXPIRE k 1"),
        ("COPY source k REPLACE", "LOCK.RELEASE k another"),
        ("RENAME source k", "LOCK.RELEASE k another"),
        ("PERSIST k", "LOCK.RELEASE k alice"),
        ("GETEX k PERSIST", "DEL k"),
    ] {
        let session = format!(
            "# {keep}
            SET source another -> OK
            bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
            MULTI: LOCK.EXTEND k alice 200; {keep} -> 1; …
            220 ms pass
            bob: -> waits
            {free} -> 1
            bob: -> B
            LOCK.CHECK k bob -> B"
        );
        play(Server::builder, &session);
    }
}

const SESSIONS: &str = "
    # a key of another type is waited for, patience or not
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    carol: LOCK.ACQUIRE k carol 60000 BLOCK 300 -> waits
    RPUSH list x -> 1
    RENAME list k -> OK
    LOCK.ACQUIRE k dave 60000 -> -WRONGTYPE
    LOCK.ACQUIRE k dave 60000 BLOCK 0 -> -WRONGTYPE
    carol: -> nil
    bob: -> waits
    INFO leasehold_waiters -> 1
    LPOP k -> x
    bob: -> B
    LOCK.CHECK k bob -> B

    # what is refused hands nothing on
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    LOCK.RELEASE k carol -> 0
    LOCK.RELEASE k bob -> 0
    LOCK.RELEASE k alice 1 -> 0
    LOCK.EXTEND k bob 60000 -> 0
    LOCK.CHECK k bob -> nil
    LOCK.CHECK k alice -> A
    bob: -> waits

    # a hand-off is seen by those who watch the lock
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    PEXPIRE k 50 -> 1
    WATCH k -> OK
    bob: -> B
    MULTI: PING -> nil

    # a transaction that takes a lock away and puts it back hands nothing on
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    MULTI: RENAME k elsewhere; RENAME elsewhere k -> OK; OK
    MULTI: DEL k; SET k stranger -> 1; OK
    GET k -> stranger
    bob: -> waits
";

#[test]
fn what_frees_no_lock_lets_nobody_in() {
    play(Server::builder, SESSIONS);
}

#[test]
fn a_lease_made_longer_is_waited_for_to_its_new_end() {
    for longer in ["LOCK.EXTEND k alice 250", "LOCK.ACQUIRE k alice 250", "PEXPIRE k 250"] {
        let (server, mut client) = held_on(exact());
        let mut bob = Waiter::of(&server, "k", "bob");
        client.pipeline(&["LOCK.EXTEND k alice 100", longer]);
        let end = deadline(&mut client, b"k");
        let granted = granted_at(bob.fence());
        // Some servers may delete a key in the very millisecond of its deadline.
        assert!(granted >= end, "{longer}: granted at {granted}, before {end}");
        assert!(granted < end + 500, "{longer}: granted at {granted}, long after {end}");
    }
}

#[test]
fn looking_at_a_queue_and_trying_change_nothing_and_touch_no_watcher() {
    let (server, mut client) = held_on(Server::builder().aof());
    let _bob = Waiter::of(&server, "k", "bob");
    for command in [
        "LOCK.WAITERS k",
        "LOCK.INFO k",
        "LOCK.ACQUIRE k carol 60000",
        "LOCK.ACQUIRE k carol 60000 BLOCK 1",
        "LOCK.ACQUIRE k alice 1 BLOCK 1",
    ] {
        let mut watcher = server.client();
        watcher.cmd("WATCH k");
        testkit::unchanged(&server, || client.cmd(command));
        assert_eq!(watcher.transaction(&["LOCK.INFO k"]).len(), 1, "{command}");
    }
    assert_eq!(super::owners(&server, "k"), ["bob"]);
}
