//! Granted, and gone before the reply: the lock does not stay with somebody who never heard that it has it.

use super::{Waiter, exact, granted_at, held_on, owners, play};
use crate::shared::Scene;
use testkit::{Server, aof, int};

/// The fences granted for `k`, in order, with their owners, as the append-only file has them.
fn grants(server: &Server) -> Vec<(u64, String)> {
    let grant = |line: String| {
        let (fence, owner) = line.strip_prefix("SET k ")?.split(' ').next()?.split_once(':')?;
        Some((fence.parse().unwrap(), owner.to_owned()))
    };
    aof::lines(server).into_iter().filter_map(grant).collect()
}

#[test]
fn a_waiter_killed_between_grant_and_reply_passes_the_lock_on_at_once() {
    let (server, mut client) = held_on(exact().aof());
    let bob = Waiter::of(&server, "k", "bob");
    let mut carol = Waiter::of(&server, "k", "carol");
    let dave = Waiter::of(&server, "k", "dave");
    let before = client.now();
    let kill = format!("CLIENT KILL ID {}", bob.id);
    assert_eq!(client.pipeline(&["LOCK.RELEASE k alice", &kill]), [int(1), int(1)]);
    let fence = carol.fence();
    // Long before bob's lease would have ended, and before the next regular look at the lock.
    let late = granted_at(fence) - before;
    assert!(late < 800, "{late} ms after the release");
    assert_eq!(client.check("k", "carol"), Some(fence));
    assert_eq!(owners(&server, "k"), ["dave"]);
    dave.assert_waits(&server);
    let grants = grants(&server);
    let owners: Vec<_> = grants.iter().map(|(_, owner)| owner.as_str()).collect();
    assert_eq!(owners, ["alice", "bob", "carol"], "bob was granted the lock for a moment");
    assert!(grants.is_sorted_by(|one, next| one.0 < next.0), "no fence twice: {grants:?}");
}

/// Whatever the server still has to do about the one that was killed is done by the end of brief patience.
const SESSIONS: &str = "
    # the only waiter is killed between grant and reply, and the lock is free
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    LOCK.RELEASE k alice; CLIENT KILL ID {bob} -> 1; 1
    LOCK.INFO k -> until nil
    LOCK.ACQUIRE k carol 60000 -> B

    # a later grant is not taken back with the unheard one
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    LOCK.RELEASE k alice; CLIENT KILL ID {bob}; DEL k; LOCK.ACQUIRE k bob 60000 -> 1; 1; 1; B
    carol: LOCK.ACQUIRE k carol 60000 BLOCK 100 -> nil
    LOCK.CHECK k bob -> B

    # a grant that its owner was told of while writes were paused is not taken back
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    MULTI; LOCK.RELEASE k alice; CLIENT KILL ID {bob}; CLIENT PAUSE 60000 WRITE; LOCK.ACQUIRE k bob 60000; EXEC; CLIENT UNPAUSE -> OK; QUEUED; QUEUED; QUEUED; QUEUED; 1 1 OK {B}; OK
    carol: LOCK.ACQUIRE k carol 60000 BLOCK 100 -> nil
    LOCK.CHECK k bob -> B

    # an owner that asks anew after an unheard grant that nobody else wanted is granted anew
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    LOCK.RELEASE k alice; CLIENT KILL ID {bob}; LOCK.ACQUIRE k bob 60000 -> 1; 1; B
    carol: LOCK.ACQUIRE k carol 60000 BLOCK 100 -> nil
    LOCK.CHECK k bob -> B
";

#[test]
fn only_the_grant_that_nobody_heard_of_is_taken_back() {
    play(Server::builder, SESSIONS);
}

#[test]
fn who_asks_before_or_after_the_end_of_the_connection_decides_whether_its_grant_is_taken_back() {
    for (ask, heard, not_heard) in [
        ("LOCK.ACQUIRE k bob 60000", "B", "nil"),
        ("LOCK.CHECK k bob", "B", "nil"),
        ("LOCK.EXTEND k bob 60000", "1", "0"),
    ] {
        let by_others = ask.replace("bob", "dave");
        let session = format!(
            "# its owner was told of it by {ask} before
            bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
            carol: LOCK.ACQUIRE k carol 60000 BLOCK 300 -> waits
            LOCK.RELEASE k alice; {ask}; CLIENT KILL ID {{bob}} -> 1; {heard}; 1
            carol: -> nil
            LOCK.RELEASE k bob -> 1

            # its owner comes with {ask} when the connection has ended
            bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
            carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
            LOCK.RELEASE k alice; CLIENT KILL ID {{bob}}; {ask}; LOCK.CHECK k bob -> 1; 1; {not_heard}; nil
            carol: -> B
            LOCK.CHECK k carol -> B

            # only others heard of it
            bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
            carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
            LOCK.RELEASE k alice; {by_others}; CLIENT KILL ID {{bob}} -> 1; {not_heard}; 1
            carol: -> B
            LOCK.CHECK k carol -> B"
        );
        play(Server::builder, &session);
    }
}

#[test]
fn replicas_and_the_file_see_the_grant_and_its_return() {
    Scene::play(
        "
        # which goes to the next
        LOCK.ACQUIRE k alice 60000 -> A
        bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
        carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
        LOCK.RELEASE k alice; CLIENT KILL ID {bob} -> 1; 1
        carol: -> B
        ",
    );
}
