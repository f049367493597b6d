//! Granted, and gone before the reply: the lock does not stay with somebody who never heard that it has it.

use super::play;
use super::{LONG, Waiter, exact, granted_at, held_on, owners};
use testkit::{Server, Snapshot, aof, int, start_pair, wait_until_in_sync};

/// Releases `k` and kills those waiters, in one packet: each is granted the lock, or stands in line for
/// it, and is gone before anything is written to it.
fn release_and_kill(server: &Server, owner: &str, waiters: &[&Waiter]) {
    let mut commands = vec![format!("LOCK.RELEASE k {owner}")];
    commands.extend(waiters.iter().map(|waiter| format!("CLIENT KILL ID {}", waiter.id)));
    let commands: Vec<_> = commands.iter().map(String::as_str).collect();
    let replies = server.client().pipeline(&commands);
    assert!(replies.iter().all(|reply| *reply == int(1)), "{replies:?}");
}

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
    release_and_kill(&server, "alice", &[&bob]);
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

#[test]
fn replicas_and_the_file_see_the_grant_and_its_return() {
    let (mut primary, replica) = start_pair(Server::builder().aof(), Server::builder());
    let mut client = primary.client();
    client.grant("k", "alice", LONG);
    let bob = Waiter::of(&primary, "k", "bob");
    let mut carol = Waiter::of(&primary, "k", "carol");
    release_and_kill(&primary, "alice", &[&bob]);
    carol.fence();
    let lines: Vec<_> = aof::lines(&primary)
        .into_iter()
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(lines, ["SET", "DEL", "SET", "DEL", "SET"]);
    wait_until_in_sync(&primary, &replica);
    let live = Snapshot::of(&primary);
    assert_eq!(live.size(), 1);
    assert_eq!(Snapshot::of(&replica), live);
    primary.kill();
    primary.start_again();
    assert_eq!(Snapshot::of(&primary), live);
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
