//! What replicas, files, subscribers and operators see of it.

use crate::observing::play;
use crate::shared::Scene;

#[test]
fn the_log_and_subscribers_hear_of_a_release_or_of_a_lease_with_another_end() {
    play(
        "",
        "",
        "
        # with a grace, and without
        alice: LOCK.ACQUIRE k alice 60000 EPHEMERAL 20000 -> A
        alice: LOCK.ACQUIRE freed alice 60000 EPHEMERAL 0 -> B
        alice: leaves
        INFO leasehold_bindings_ended -> until 2 | | acquired acquired(freed) extended released(freed)
        LOCK.LOG -1; LOCK.CHECK k alice -> disconnected(alice); A
        LOCK.RELEASE freed alice; LOCK.LOG -1 -> 0; disconnected(alice)
        ",
    );
}

#[test]
fn replicas_and_files_see_the_same_as_the_primary() {
    Scene::play(
        "
        # freed, handed on and shortened
        alice: LOCK.ACQUIRE freed alice 60000 EPHEMERAL 0; LOCK.ACQUIRE k alice 60000 EPHEMERAL 0 -> A; B
        alice: LOCK.ACQUIRE shortened alice 60000 EPHEMERAL 20000 -> C
        bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
        alice: leaves
        bob: -> D
        EXISTS freed -> until 0
        PTTL shortened -> until 1..20000
        # one of several holders
        alice: LOCK.ACQUIRE k alice 60000 SHARE 0 EPHEMERAL 0; LOCK.ACQUIRE j alice 90000 SHARE 0 EPHEMERAL 20000 -> A; B
        LOCK.ACQUIRE k carol 60000 SHARE 0; LOCK.ACQUIRE j carol 60000 SHARE 0 -> C; D
        alice: leaves
        INFO leasehold_bindings -> until 0
        LOCK.HOLDERS k; LOCK.HOLDERS j -> carol; alice carol
        ",
    );
}
