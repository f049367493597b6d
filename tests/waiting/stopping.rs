//! What happens to the server while clients wait: shutdown, reloading.

use super::play;
use super::{LONG, waiters};
use testkit::Server;
use testkit::crowd::Crowd;

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
