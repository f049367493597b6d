//! How many may hold a lock at most, and what requests are refused with.

use super::{LONG, Scene, holders, share, waits};
use testkit::{Server, Session, lacks_settings};

#[test]
fn a_thousand_hold_a_lock_and_no_more() {
    let scene = Scene::start();
    let mut client = scene.client();
    for number in 0..1_000 {
        assert!(share(&mut client, &format!("reader-{number}"), LONG, 0).is_some());
    }
    assert_eq!(share(&mut client, "one-more", LONG, 0), None);
    assert_eq!(share(&mut client, "one-more", LONG, 99_999), None);
    assert_eq!(client.info("k").unwrap().holders, 1_000);
    assert_eq!(client.cmd("LOCK.HOLDERS k").into_sequence().unwrap().len(), 100);
    let mut waiter = waits(&scene.primary, "one-more", 0);
    assert!(client.release("k", "reader-500"));
    waiter.fence();
    for number in (0..1_000).filter(|number| *number != 500) {
        assert!(client.release("k", format!("reader-{number}")));
    }
    assert_eq!(holders(&mut client), ["one-more"]);
    scene.agree();
}

#[test]
fn a_limit_that_is_lowered_takes_the_lock_from_nobody_and_one_that_is_raised_lets_in_who_waits() {
    if lacks_settings() {
        return;
    }
    Scene::play(
        "
        # from 1000 to 3 to 5
        LOCK.ACQUIRE k r1 60000 SHARE 0; LOCK.ACQUIRE k r2 60000 SHARE 0 -> A; B
        LOCK.ACQUIRE k r3 60000 SHARE 0; LOCK.ACQUIRE k r4 60000 SHARE 0 -> C; D
        LOCK.ACQUIRE k r5 60000 SHARE 0; CONFIG SET leasehold.max-holders 3 -> E; OK
        LOCK.ACQUIRE k r1 60000 SHARE 0; LOCK.ACQUIRE k r5 60000 SHARE 0 -> A; E
        LOCK.EXTEND k r1 60000; LOCK.ACQUIRE k r1 60000 SHARE 5 -> 1; nil
        w1: LOCK.ACQUIRE k w1 60000 SHARE 0 BLOCK 0 -> waits
        w2: LOCK.ACQUIRE k w2 60000 SHARE 0 BLOCK 0 -> waits
        w3: LOCK.ACQUIRE k w3 60000 SHARE 0 BLOCK 0 -> waits
        LOCK.RELEASE k r1; LOCK.RELEASE k r2; LOCK.WAITERS k -> 1; 1; w1 w2 w3
        LOCK.RELEASE k r3 -> 1
        w1: -> F
        LOCK.HOLDERS k; CONFIG SET leasehold.max-holders 5 -> r4 r5 w1; OK
        w2: -> G
        w3: -> H
        LOCK.HOLDERS k -> r4 r5 w1 w2 w3
        ",
    );
}

/// Those who hold the lock are answered, and so is who may not be let in at all; only who would have to wait is refused.
#[test]
fn a_full_queue_and_a_limit_of_holders_refuse_only_who_would_have_to_wait_for_others_to_leave() {
    let full = "-QUEUEFULL too many waiters for this lock (config leasehold.max-waiters-per-lock)";
    let text = "
        # the queue is full
        LOCK.ACQUIRE k r1 60000 SHARE 0; LOCK.ACQUIRE k r2 60000 SHARE 0 -> A; B
        w: LOCK.ACQUIRE k w 60000 BLOCK 0 -> waits
        LOCK.ACQUIRE k r3 60000 SHARE 0 BLOCK 0 -> FULL
        LOCK.ACQUIRE k r3 60000 SHARE 0; LOCK.ACQUIRE k r1 60000 BLOCK 0 -> nil; nil
        LOCK.ACQUIRE k r1 60000 SHARE 0; LOCK.RELEASE k r1; LOCK.RELEASE k r2 -> A; 1; 1
        w: -> W
    ";
    let server = Server::builder().module_args("max-waiters-per-lock 1").start();
    Session::play(&server, &text.replace("FULL", full));
    Session::play(
        &Server::builder().module_args("max-holders 1").start(),
        "
        # so many hold it already
        LOCK.ACQUIRE k r1 60000 SHARE 0; LOCK.ACQUIRE k r2 60000 SHARE 0 -> A; nil
        r2: LOCK.ACQUIRE k r2 60000 SHARE 5 BLOCK 0 -> waits
        LOCK.ACQUIRE k r1 60000 SHARE 0; LOCK.RELEASE k r1 -> A; 1
        r2: -> B
        ",
    );
}

#[test]
fn a_server_that_is_out_of_memory_lets_nobody_in_beside_others_but_who_waited_already() {
    Scene::play(
        "
        # while there is no memory
        LOCK.ACQUIRE k r1 60000 SHARE 2; LOCK.ACQUIRE k r2 60000 SHARE 2 -> A; B
        r3: LOCK.ACQUIRE k r3 60000 SHARE 2 BLOCK 0 -> waits
        CONFIG SET maxmemory 1 -> OK
        LOCK.ACQUIRE k r4 60000 SHARE 2; LOCK.ACQUIRE k r1 60000 SHARE 2 -> -OOM; -OOM
        LOCK.EXTEND k r1 120000; LOCK.RELEASE k r2 -> 1; 1
        r3: -> C
        LOCK.CHECK k r1; LOCK.HOLDERS k; LOCK.RELEASE k r1; LOCK.RELEASE k r3 -> A; r1 r3; 1; 1
        CONFIG SET maxmemory 0 -> OK
        ",
    );
}
