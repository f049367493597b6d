//! What replicas, files, subscribers and operators see of it.

use super::{binds, until_free, until_short};
use crate::observing::play;
use redis::Value;
use testkit::{Server, Snapshot, Waiter, aof, eventually, start_pair, wait_until_in_sync};

#[test]
fn replicas_and_files_see_the_same_as_the_primary() {
    let (mut primary, replica) = start_pair(Server::builder().aof(), Server::builder());
    let without = Server::builder().without_module().replica_of(&primary).start();
    let mut client = primary.client();
    let mut alice = primary.client();
    binds(&mut alice, "freed", "alice", 0);
    binds(&mut alice, "handed-on", "alice", 0);
    binds(&mut alice, "shortened", "alice", 20_000);
    alice.cmd("LOCK.ACQUIRE shared alice 60000 SHARE 0 EPHEMERAL 0");
    alice.cmd("LOCK.ACQUIRE shortened-share alice 90000 SHARE 0 EPHEMERAL 20000");
    for key in ["shared", "shortened-share"] {
        client.cmd(format!("LOCK.ACQUIRE {key} carol 60000 SHARE 0"));
    }
    let mut bob = Waiter::of(&primary, "handed-on", "bob");
    drop(alice);
    bob.fence();
    until_free(&mut client, "freed");
    until_short(&mut client, "shortened", 20_000);
    eventually("all have ended", || match client.counter("bindings_ended") {
        5 => Ok(()),
        other => Err(other),
    });
    let truth = Snapshot::of(&primary);
    for follower in [&replica, &without] {
        wait_until_in_sync(&primary, follower);
        assert_eq!(Snapshot::of(follower), truth);
    }
    assert_eq!(primary.cmd("DEBUG RELOAD"), Value::Okay);
    assert_eq!(Snapshot::of(&primary), truth);
    let lines = aof::lines(&primary).join("\n");
    assert!(!lines.contains("EPHEMERAL"), "{lines}");
    primary.kill();
    primary.start_again();
    assert_eq!(Snapshot::of(&primary), truth);
}

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
