//! `CLIENT PAUSE`: leases end, clients leave and grants fall due while nothing may be written. Nothing is
//! written, nothing crashes, and all of it is made good when the pause ends.

use super::play;
use super::{LONG, Waiter, exact, granted_at, held_on};
use redis::Value;
use testkit::{Server, lacks};

const SESSIONS: &str = "
    # patience ends in a pause, also when the lock has fallen free by then
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 300 -> waits
    carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
    LOCK.EXTEND k alice 50; CLIENT PAUSE 60000 WRITE -> 1; OK
    bob: -> nil
    LOCK.WAITERS k -> carol
    CLIENT UNPAUSE -> OK
    carol: -> B

    # who leaves in a pause is gone after it
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
    dave: LOCK.ACQUIRE k dave 60000 BLOCK 0 -> waits
    LOCK.EXTEND k alice 50; CLIENT PAUSE 60000 WRITE -> 1; OK
    110 ms pass
    CLIENT KILL ID {bob} -> 1
    dave: leaves
    LOCK.WAITERS k -> until carol
    CLIENT UNPAUSE -> OK
    carol: -> B

    # a grant that nobody heard of is taken back after the pause, and nobody is told of it in the pause
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
    LOCK.RELEASE k alice; CLIENT KILL ID {bob}; CLIENT PAUSE 60000 WRITE -> 1; 1; OK
    60 ms pass
    EXISTS k -> 1
    LOCK.CHECK k bob -> nil
    carol: -> waits
    CLIENT UNPAUSE -> OK
    carol: -> B
    LOCK.CHECK k carol -> B

    # a hand-off right before a pause is heard in it
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    LOCK.RELEASE k alice; CLIENT PAUSE 60000 WRITE -> 1; OK
    bob: -> B
    LOCK.CHECK k bob -> B

    # what frees a lock right before a pause hands it on after it at the latest
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    DEL k; CLIENT PAUSE 60000 WRITE -> 1; OK
    CLIENT UNPAUSE -> OK
    bob: -> B
    bob: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
    FLUSHALL; CLIENT PAUSE 60000 WRITE -> OK; OK
    CLIENT UNPAUSE -> OK
    bob: -> C
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    PEXPIRE k 1; CLIENT PAUSE 60000 WRITE -> 1; OK
    CLIENT UNPAUSE -> OK
    bob: -> D

    # a request made in a pause is not in the queue yet, and waits its turn after it
    first: LOCK.ACQUIRE k first 60000 BLOCK 0 -> waits
    CLIENT PAUSE 60000 WRITE -> OK
    second: LOCK.ACQUIRE k second 60000 BLOCK 0 -> waits
    LOCK.WAITERS k -> first
    CLIENT UNPAUSE -> OK
    LOCK.WAITERS k -> until first second
    LOCK.RELEASE k alice -> 1
    first: -> B
    LOCK.RELEASE k first -> 1
    second: -> C
";

#[test]
fn what_falls_due_in_a_pause_is_made_good_when_it_ends() {
    play(Server::builder, SESSIONS);
}

#[test]
fn a_lease_that_ended_in_a_pause_is_handed_on_at_once_when_an_operator_ends_that() {
    let (server, mut client) = held_on(exact());
    let mut bob = Waiter::of(&server, "k", "bob");
    client.pipeline(&["LOCK.EXTEND k alice 50", "CLIENT PAUSE 60000 WRITE"]);
    let paused = client.now();
    client.wait_until_past(paused + 110);
    bob.assert_waits(&server);
    assert_eq!(client.info("k"), None, "it is free, and nobody may take it");
    let before = client.now();
    assert_eq!(client.cmd("CLIENT UNPAUSE"), Value::Okay);
    let late = granted_at(bob.fence()) - before;
    assert!((0..500).contains(&late), "{late} ms after the pause");
}

#[test]
fn a_lease_that_ends_in_a_pause_is_handed_on_when_that_ends_by_itself() {
    let server = exact().start();
    let mut client = server.client();
    for kind in ["WRITE", "ALL"] {
        client.grant("k", "alice", LONG);
        let mut bob = Waiter::of(&server, "k", "bob");
        let (end, pause_end) = (client.now() + 50, client.now() + 300);
        client.pipeline(&["LOCK.EXTEND k alice 50", &format!("CLIENT PAUSE 300 {kind}")]);
        let granted = granted_at(bob.fence());
        assert!(granted > end && granted >= pause_end, "{granted} is in the pause to {pause_end}");
        assert!(granted < pause_end + 500, "{granted} is long after the pause to {pause_end}");
        client.release("k", "bob");
    }
}

/// Most servers do not show a command to the module again when they execute it after the pause; and where nobody waits, the
/// module does not listen to commands, so it has not heard of the deletion either.
#[test]
fn a_deletion_that_a_pause_held_back_is_noticed_soon_after_the_pause() {
    let server = exact().config("hz", "10").start();
    let mut client = server.client();
    for command in ["DEL k", "EVAL return{redis.call('DEL',KEYS[1])} 1 k"] {
        for waits_before in [true, false] {
            client.cmd(format!("SET k stranger PX {LONG}"));
            let bob = || Waiter::of(&server, "k", "bob");
            // It ends by itself, which the module may be the first to notice. It holds a waiter back, too, who comes first then.
            let (mut bob, _) = if waits_before {
                (bob(), client.cmd("CLIENT PAUSE 1300 WRITE"))
            } else {
                let paused = client.cmd("CLIENT PAUSE 500 WRITE");
                (bob(), paused)
            };
            client.cmd(command);
            let deleted = client.now();
            let late = granted_at(bob.fence()) - deleted;
            assert!(late < 200, "{command}: bob has the lock after {late} ms");
            client.release("k", "bob");
        }
    }
}

#[test]
fn a_lease_that_ends_while_too_few_replicas_are_in_sync_is_handed_on_when_they_are_again() {
    if lacks((7, 0), "a way for a module to ask whether writes are refused") {
        return;
    }
    let session = "# too few
        bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
        LOCK.EXTEND k alice 50; CONFIG SET min-replicas-to-write 1 -> 1; OK
        LOCK.ACQUIRE other carol 60000 -> -NOREPLICAS
        360 ms pass
        bob: -> waits
        LOCK.INFO k -> nil
        CONFIG SET min-replicas-to-write 0 -> OK
        bob: -> B";
    play(Server::builder, session);
}

#[test]
fn the_servers_routine_may_be_the_first_to_find_the_leases_that_ended_in_a_pause() {
    // It runs often enough to see the end of the pause before the module asks again.
    let server = Server::builder().config("hz", "500").start();
    let mut client = server.client();
    let locks: Vec<_> = (0..200).map(|number| format!("k{number}")).collect();
    for _ in 0..25 {
        for lock in &locks {
            client.grant(lock, "alice", LONG);
        }
        let mut waiters: Vec<_> =
            locks.iter().map(|lock| Waiter::of(&server, lock, "bob")).collect();
        let mut packet: Vec<_> = locks.iter().map(|lock| format!("PEXPIRE {lock} 10")).collect();
        packet.push("CLIENT PAUSE 60 WRITE".to_owned());
        client.pipeline(&packet.iter().map(String::as_str).collect::<Vec<_>>());
        for (waiter, lock) in waiters.iter_mut().zip(&locks) {
            waiter.fence();
            assert!(waiter.client.release(lock, "bob"));
        }
    }
}
