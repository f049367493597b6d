//! What happens to the server while clients wait: shutdown, saving, reloading.

use super::play;
use super::{LONG, Waiter, owners, waiters};
use testkit::crowd::Crowd;
use testkit::{Server, Snapshot};

#[test]
fn a_server_with_1_000_waiters_stops_cleanly() {
    let mut server = Server::builder().aof().start();
    server.client().grant("k", "alice", LONG);
    let mut crowd = Crowd::of(&server, 1_000);
    for index in 0..crowd.size() {
        crowd.send(index, format!("LOCK.ACQUIRE k{} w{index} 60000 BLOCK 0", index % 7));
    }
    // The first of each of the seven others was granted its lock.
    server.client().wait_until_waiters(993);
    server.stop();
    let told = crowd.until_all_left();
    assert_eq!(told.len(), 7, "nobody else was told anything: {:?}", &told[..10.min(told.len())]);
    server.start_again();
    assert_eq!(waiters(&server), 0);
}

#[test]
fn the_data_is_saved_and_the_file_rewritten_while_clients_wait() {
    let mut server = Server::builder().aof().start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    let carol = Waiter::of(&server, "k", "carol");
    for command in ["BGSAVE", "BGREWRITEAOF"] {
        client.save_by(command);
        assert_eq!(owners(&server, "k"), ["bob", "carol"], "after {command}");
    }
    client.release("k", "alice");
    let fence = bob.fence();
    let live = Snapshot::of(&server);
    drop(carol);
    server.kill();
    server.start_again();
    assert_eq!(Snapshot::of(&server), live);
    assert_eq!(waiters(&server), 0, "nobody waits in a new process");
    assert_eq!(server.client().check("k", "bob"), Some(fence));
}

#[test]
fn clients_wait_on_while_the_server_reloads_and_are_granted_what_that_does_not_bring_back() {
    play(
        Server::builder,
        "# a reload
        bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
        DEBUG RELOAD -> OK
        LOCK.CHECK k alice -> A
        bob: -> waits
        DEL k -> 1
        bob: -> B

        # a reload of an older file
        SAVE -> OK
        LOCK.ACQUIRE later alice 60000 -> B
        bob: LOCK.ACQUIRE later bob 60000 BLOCK 0 -> waits
        DEBUG RELOAD NOSAVE -> OK
        bob: -> C
        LOCK.CHECK later bob -> C",
    );
}
