//! Who is let in beside whom, in which order, and what holders get that ask again.

use super::Scene;

/// What all orders of these come to is found in the simulation.
#[test]
fn who_tolerates_others_shares_the_lock_with_them_and_who_does_not_waits_for_all() {
    Scene::play(
        "
        # readers pass together, a writer waits for all, and later readers wait behind it
        LOCK.ACQUIRE k r1 60000 SHARE 0; LOCK.ACQUIRE k r2 60000 SHARE 0 -> A; B
        w: LOCK.ACQUIRE k w 60000 BLOCK 0 -> waits
        r3: LOCK.ACQUIRE k r3 60000 SHARE 0 BLOCK 0 -> waits
        r4: LOCK.ACQUIRE k r4 60000 SHARE 0 BLOCK 0 -> waits
        LOCK.ACQUIRE k r5 60000 SHARE 0 -> nil
        LOCK.RELEASE k r1 -> 1
        w: -> waits
        LOCK.RELEASE k r2 -> 1
        w: -> W
        LOCK.HOLDERS k -> w
        r3: -> waits
        LOCK.RELEASE k w -> 1
        r3: -> C
        r4: -> D
        LOCK.HOLDERS k -> r3 r4
        # mixed shares take the smaller
        LOCK.ACQUIRE k a 60000 SHARE 5; LOCK.ACQUIRE k b 60000 SHARE 5 -> A; B
        LOCK.ACQUIRE k c 60000 SHARE 3; LOCK.ACQUIRE k d 60000 SHARE 5 -> C; nil
        LOCK.INFO k -> …holders 3 share 3
        LOCK.RELEASE k c; LOCK.ACQUIRE k d 60000 SHARE 2 -> 1; nil
        LOCK.ACQUIRE k d 60000 SHARE 5 -> D
        # a reader that is alone becomes a writer before those who wait
        LOCK.ACQUIRE k r 60000 SHARE 0 -> A
        w: LOCK.ACQUIRE k w 60000 BLOCK 0 -> waits
        LOCK.ACQUIRE k r 60000 -> B
        LOCK.CHECK k r; LOCK.RELEASE k r A -> B; 0
        w: -> waits
        LOCK.RELEASE k r -> 1
        w: -> W
        # two readers that want to write have nil at once and keep what they have
        LOCK.ACQUIRE k r1 60000 SHARE 0; LOCK.ACQUIRE k r2 60000 SHARE 0 -> A; B
        LOCK.ACQUIRE k r1 60000 BLOCK 0; LOCK.ACQUIRE k r2 60000 BLOCK 0 -> nil; nil
        LOCK.CHECK k r1; LOCK.CHECK k r2; LOCK.INFO k -> A; B; …waiters 0
        LOCK.RELEASE k r2; LOCK.ACQUIRE k r1 60000 -> 1; C
        LOCK.HOLDERS k; LOCK.ACQUIRE k r2 60000 SHARE 0 -> r1; nil
        # a writer that becomes a reader lets the readers in that wait
        LOCK.ACQUIRE k w 60000 -> A
        r1: LOCK.ACQUIRE k r1 60000 SHARE 0 BLOCK 0 -> waits
        r2: LOCK.ACQUIRE k r2 60000 SHARE 0 BLOCK 0 -> waits
        LOCK.ACQUIRE k w 60000 SHARE 0 -> A
        r1: -> B
        r2: -> C
        LOCK.HOLDERS k -> w r1 r2
        # each request is about the owner's own hold
        LOCK.ACQUIRE k r1 60000 SHARE 0; LOCK.ACQUIRE k r2 60000 SHARE 0 -> A; B
        LOCK.RELEASE k r3; LOCK.EXTEND k r3 60000; LOCK.RELEASE k r1 B -> 0; 0; 0
        LOCK.RAISE k r2 B+1000000 -> C
        LOCK.CHECK k r1; LOCK.CHECK k r2; LOCK.ACQUIRE k r3 60000 SHARE 0 -> A; C; D
        LOCK.RELEASE k r1 A; LOCK.CHECK k r1 -> 1; nil
        # who waits and asks again to tolerate more is let in in its place at once
        LOCK.ACQUIRE k r1 60000 SHARE 0 -> A
        w: LOCK.ACQUIRE k w 60000 BLOCK 0 -> waits
        r2: LOCK.ACQUIRE k r2 60000 SHARE 0 BLOCK 0 -> waits
        newer: LOCK.ACQUIRE k w 60000 SHARE 0 BLOCK 0 -> B
        r2: -> C
        w: -> -REPLACED
        LOCK.HOLDERS k -> r1 w r2
        # a grant that nobody heard of ends that hold only
        LOCK.ACQUIRE k stays 60000 SHARE 2; LOCK.ACQUIRE k leaves 60000 SHARE 2 -> A; B
        unheard: LOCK.ACQUIRE k unheard 60000 SHARE 2 BLOCK 0 -> waits
        next: LOCK.ACQUIRE k next 60000 SHARE 2 BLOCK 0 -> waits
        LOCK.RELEASE k leaves; CLIENT KILL ID {unheard} -> 1; 1
        next: -> C
        LOCK.HOLDERS k -> stays next
        ",
    );
}
