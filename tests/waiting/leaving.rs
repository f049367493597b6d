//! A waiter leaves: its connection ends, in whatever way, or an operator takes it away. Nobody else notices.

use super::play;
use super::{Waiter, can_be_unblocked, held, held_on, owners};
use testkit::{Server, becomes, error, int};

/// Alice holds `k`; `first` and `last` wait, and in between one whose connection `end` ends.
fn assert_only_it_leaves(end: impl FnOnce(&Server, Waiter)) {
    let (server, mut client) = held_on(Server::builder().clients_over_tcp());
    let mut first = Waiter::of(&server, "k", "first");
    let gone = Waiter::of(&server, "k", "gone");
    let mut last = Waiter::of(&server, "k", "last");
    assert_eq!(owners(&server, "k"), ["first", "gone", "last"]);
    end(&server, gone);
    becomes("it leaves the queue", ["first", "last"], || owners(&server, "k"));
    assert_eq!(client.info("k").unwrap().owner, b"alice");
    client.release("k", "alice");
    first.fence();
    client.release("k", "first");
    last.fence();
    becomes("the server forgets its client", Some("0".to_owned()), || {
        client.info_field("clients", "blocked_clients")
    });
}

#[test]
fn whose_connection_ends_leaves_however_it_ends() {
    assert_only_it_leaves(|_, gone| drop(gone));
    assert_only_it_leaves(|_, gone| gone.client.reset());
    assert_only_it_leaves(|_, mut gone| {
        gone.client.end_sending();
        // The server closes the other half.
        gone.client.assert_closed();
    });
    assert_only_it_leaves(|_, mut gone| {
        // The command behind the request goes with it.
        gone.client.send("LOCK.RELEASE k alice");
        drop(gone);
    });
    assert_only_it_leaves(|server, mut gone| {
        assert_eq!(server.cmd(format!("CLIENT KILL ID {}", gone.id)), int(1));
        assert_eq!(owners(server, "k"), ["first", "last"], "there and then");
        gone.client.assert_closed();
    });
}

#[test]
fn the_last_waiter_may_leave_and_who_is_killed_in_the_packet_of_the_release_is_passed_over() {
    play(
        Server::builder,
        "# killed before the release
        bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
        CLIENT KILL ID {bob}; LOCK.WAITERS k -> 1; (empty)
        dave: LOCK.ACQUIRE k dave 60000 BLOCK 0 -> waits
        carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
        CLIENT KILL ID {dave}; LOCK.RELEASE k alice -> 1; 1
        carol: -> B
        LOCK.CHECK k carol -> B",
    );
}

#[test]
fn client_unblock_ends_patience_where_that_is_safe_and_is_refused_elsewhere() {
    let sessions = if can_be_unblocked() {
        "# patience ends, also of an owner that was made up
        bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
        carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
        CLIENT UNBLOCK {bob}; LOCK.WAITERS k -> 1; carol
        bob: -> nil
        bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
        CLIENT UNBLOCK {bob} TIMEOUT -> 1
        bob: -> nil
        bob: LOCK.ACQUIRE k * 60000 BLOCK 0 -> waits
        CLIENT UNBLOCK {bob} -> 1
        bob: -> nil
        bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
        CLIENT UNBLOCK {bob} ERROR -> 1
        bob: -> -UNBLOCKED client unblocked via CLIENT UNBLOCK
        bob: LOCK.ACQUIRE k bob 60000 -> nil
        LOCK.RELEASE k alice -> 1
        carol: -> B
        INFO leasehold_waiters -> 0

        # it comes too late for a waiter that was granted the lock
        bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
        LOCK.RELEASE k alice; CLIENT UNBLOCK {bob} TIMEOUT -> 1; …
        bob: -> B
        bob: LOCK.RELEASE k bob -> 1"
    } else {
        "# it is refused, and the waiter has its turn
        bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
        carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
        CLIENT UNBLOCK {bob} -> 0
        CLIENT UNBLOCK {bob} TIMEOUT -> 0
        CLIENT UNBLOCK {bob} ERROR -> 0
        LOCK.WAITERS k -> bob carol
        LOCK.RELEASE k alice; CLIENT UNBLOCK {bob} TIMEOUT -> 1; …
        bob: -> B
        bob: LOCK.RELEASE k bob -> 1
        carol: -> C"
    };
    play(Server::builder, sessions);
}

#[test]
fn a_waiter_unblocked_with_an_error_between_grant_and_reply_does_not_keep_the_lock() {
    let (server, mut client) = held();
    let mut bob = Waiter::of(&server, "k", "bob");
    let mut carol = Waiter::of(&server, "k", "carol");
    // In one packet: his reply is not written yet.
    let unblock = format!("CLIENT UNBLOCK {} ERROR", bob.id);
    if client.pipeline(&["LOCK.RELEASE k alice", &unblock])[1] == int(1) {
        assert_eq!(bob.reply(), error("UNBLOCKED client unblocked via CLIENT UNBLOCK"));
        let fence = carol.fence();
        assert_eq!(client.check("k", "carol"), Some(fence));
        assert!(!bob.client.release("k", "bob"), "and the connection goes on");
    } else {
        let fence = bob.fence();
        assert_eq!(client.check("k", "bob"), Some(fence));
    }
}
