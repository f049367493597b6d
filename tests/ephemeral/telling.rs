//! What replicas, files, subscribers and operators see of it.

use super::{LONG, binds, until_free, until_short};
use redis::Value;
use testkit::{
    Server, Snapshot, Waiter, aof, bulk_text, eventually, field, start_pair, strings,
    wait_until_in_sync,
};

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
fn the_log_says_whose_connection_ended_and_what_was_left_of_its_lease() {
    let server = Server::start();
    let mut client = server.client();
    let mut alice = server.client();
    binds(&mut alice, "k", "alice", 0);
    drop(alice);
    until_free(&mut client, "k");
    let Value::Array(rows) = client.cmd("LOCK.LOG") else { panic!("no list") };
    let [row] = &rows[..] else { panic!("{rows:?}") };
    let text = |name| bulk_text(field(row, name).unwrap());
    assert_eq!(
        (text("event"), text("key"), text("owner")),
        ("disconnected".into(), "k".into(), "alice".into())
    );
    let Some(&Value::Int(left)) = field(row, "ms") else { panic!("{row:?}") };
    assert!((LONG.cast_signed() - 10_000..=LONG.cast_signed()).contains(&left), "{left}");
    // A late release is neither that nor a deletion.
    assert!(!client.release("k", "alice"));
    assert_eq!(client.cmd("LOCK.LOG").into_sequence().unwrap().len(), 1);
}

#[test]
fn subscribers_hear_of_a_release_and_of_a_lease_with_another_end() {
    let server = Server::builder().config("notify-keyspace-events", "KEA").start();
    if testkit::lacks((6, 2), "events") {
        return;
    }
    let mut subscriber = server.client();
    subscriber.cmd("PSUBSCRIBE __keyevent@0__:lock.*");
    let mut alice = server.client();
    binds(&mut alice, "freed", "alice", 0);
    binds(&mut alice, "shortened", "alice", 20_000);
    drop(alice);
    let heard: Vec<_> = (0..4)
        .map(|_| {
            let message = strings(&subscriber.receive());
            format!("{} {}", message[2].trim_start_matches("__keyevent@0__:"), message[3])
        })
        .collect();
    assert_eq!(heard[..2], ["lock.acquired freed", "lock.acquired shortened"]);
    assert_eq!(heard[2..], ["lock.released freed", "lock.extended shortened"]);
}
