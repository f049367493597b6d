//! A place in the queue of each lock: granted when it is first in all, and all can be had. What all orders of these
//! come to is found in the simulation.

use super::{LONG, holds_all, waits};
use testkit::{Server, Session, eventually};

#[test]
fn who_waits_is_granted_all_when_it_is_first_in_every_queue_and_the_last_of_them_is_free() {
    Session::play(
        &Server::start(),
        "
        # when the last of them is free
        LOCK.ACQUIRE c alice 60000 ALSO 2 b a -> A
        bob: LOCK.ACQUIRE a bob 60000 ALSO 2 b c BLOCK 0 -> waits
        LOCK.WAITERS a; LOCK.WAITERS b; LOCK.WAITERS c -> bob; bob; bob
        LOCK.RELEASE c alice; LOCK.RELEASE b alice -> 1; 1
        bob: -> waits
        LOCK.CHECK c bob; LOCK.CHECK b bob; LOCK.RELEASE a alice -> nil; nil; 1
        bob: -> B
        LOCK.CHECK a bob; LOCK.CHECK b bob; LOCK.CHECK c bob -> B; B; B
        LOCK.WAITERS a; LOCK.WAITERS b; LOCK.WAITERS c -> (empty); (empty); (empty)
        # sets that overlap in a ring are granted in the order in which they were asked for
        LOCK.ACQUIRE a alice 60000 ALSO 2 b c -> A
        r0: LOCK.ACQUIRE a r0 60000 ALSO 1 b BLOCK 0 -> waits
        r1: LOCK.ACQUIRE b r1 60000 ALSO 1 c BLOCK 0 -> waits
        r2: LOCK.ACQUIRE c r2 60000 ALSO 1 a BLOCK 0 -> waits
        LOCK.RELEASE a alice ALSO 2 b c -> 3
        r0: -> B
        LOCK.RELEASE a r0 ALSO 1 b -> 2
        r1: -> C
        LOCK.RELEASE b r1 ALSO 1 c -> 2
        r2: -> D
        # when it leaves, those behind it in every queue have their turn
        LOCK.ACQUIRE b alice 60000 -> A
        bob: LOCK.ACQUIRE a bob 60000 ALSO 2 b c BLOCK 0 -> waits
        r0: LOCK.ACQUIRE a r0 60000 BLOCK 0 -> waits
        r1: LOCK.ACQUIRE c r1 60000 BLOCK 0 -> waits
        bob: leaves
        r0: -> B
        r1: -> C
        LOCK.WAITERS a; LOCK.WAITERS b; LOCK.WAITERS c -> (empty); (empty); (empty)
        # patience ends in all queues at once
        LOCK.ACQUIRE b alice 60000 -> A
        LOCK.ACQUIRE a bob 60000 ALSO 1 b BLOCK 30; LOCK.WAITERS a; LOCK.WAITERS b -> nil; (empty); (empty)
        LOCK.ACQUIRE a carol 60000 -> B
        # one that is no lock is waited for until it is gone
        LOCK.ACQUIRE b alice 60000 -> A
        bob: LOCK.ACQUIRE a bob 60000 ALSO 1 b BLOCK 0 -> waits
        MULTI; DEL b; RPUSH b x; EXEC -> OK; QUEUED; QUEUED; 1 1
        bob: -> waits
        DEL b -> 1
        bob: -> B
        # who asks again for the same locks in another order keeps its places
        LOCK.ACQUIRE a alice 60000 ALSO 1 b -> A
        bob: LOCK.ACQUIRE a bob 60000 ALSO 1 b BLOCK 0 -> waits
        carol: LOCK.ACQUIRE a carol 60000 ALSO 1 b BLOCK 0 -> waits
        newer: LOCK.ACQUIRE b bob 60000 ALSO 1 a BLOCK 0 -> waits
        bob: -> -REPLACED
        LOCK.WAITERS a; LOCK.WAITERS b -> bob carol; bob carol
        LOCK.RELEASE a alice ALSO 1 b -> 2
        newer: -> B
        LOCK.RELEASE a bob ALSO 1 b -> 2
        carol: -> C
        ",
    );
}

/// Who waits for others, too, leaves a lock free meanwhile, and clients that do not queue may take it. Nothing tells of
/// that, since a `SET … NX` frees no lock.
#[test]
fn a_lock_that_an_older_client_took_in_between_is_had_with_the_others_when_its_lease_ends() {
    const LEASE: i64 = 200;
    let server = Server::builder().module_args("fence-margin 0").start();
    let mut client = server.client();
    client.grant("b", "alice", LONG);
    let mut bob = waits(&server, "bob", &["a", "b"]);
    // From then on the lock a is looked at once a second.
    let begun = client.now();
    eventually("bob has waited for more than a second", || match client.now() - begun {
        1_100.. => Ok(()),
        waited => Err(waited),
    });
    client.cmd(format!("SET a older NX PX {LEASE}"));
    let end = client.now() + LEASE;
    assert!(client.release("b", "alice"));
    let fence = bob.fence();
    let late = i64::try_from(fence / 1_000).unwrap() - end;
    assert!(late < 300, "granted {late} ms after the end of the lease");
    holds_all(&mut client, "bob", &["a", "b"], fence);
}
