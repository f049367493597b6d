//! Granted, and gone before the reply: the lock does not stay with somebody who never heard that it has it.

use super::{LONG, Waiter, exact, granted_at, owners};
use redis::Value;
use testkit::{Server, Snapshot, aof, eventually, int, start_pair, wait_until_in_sync};

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
    let server = exact().aof().start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
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
fn a_lock_whose_only_waiter_is_killed_between_grant_and_reply_is_free() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let bob = Waiter::of(&server, "k", "bob");
    release_and_kill(&server, "alice", &[&bob]);
    eventually("the lock is free", || client.info("k").map_or(Ok(()), Err));
    assert!(client.acquire("k", "carol", LONG).is_some());
}

#[test]
fn each_of_many_that_are_killed_in_one_packet_is_passed_over() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let names: Vec<_> = (0..20).map(|number| format!("w{number}")).collect();
    let mut queued: Vec<_> = names.iter().map(|name| Waiter::of(&server, "k", name)).collect();
    let mut last = queued.pop().unwrap();
    release_and_kill(&server, "alice", &queued.iter().collect::<Vec<_>>());
    let fence = last.fence();
    assert_eq!(client.check("k", "w19"), Some(fence));
    assert!(grants(&server).is_sorted_by(|one, next| one.0 < next.0));
}

#[test]
fn one_after_another_that_is_killed_between_grant_and_reply_is_passed_over() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut holder = "alice".to_owned();
    for round in 0..20 {
        let gone = Waiter::of(&server, "k", "gone");
        let name = format!("w{round}");
        let mut next = Waiter::of(&server, "k", &name);
        release_and_kill(&server, &holder, &[&gone]);
        let fence = next.fence();
        assert_eq!(client.check("k", &name), Some(fence));
        holder = name;
    }
    assert!(grants(&server).is_sorted_by(|one, next| one.0 < next.0));
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

#[test]
fn a_later_grant_is_not_taken_back_with_the_unheard_one() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let bob = Waiter::of(&server, "k", "bob");
    // Bob's grant is gone before it can be taken back, and somebody has the lock by a grant of his own.
    let kill = format!("CLIENT KILL ID {}", bob.id);
    let again = ["LOCK.RELEASE k alice", &kill, "DEL k", "LOCK.ACQUIRE k bob 60000"];
    let replies = client.pipeline(&again);
    let Value::Int(fence) = replies[3] else { panic!("{replies:?}") };
    // Whatever the server still had to do about the one that was killed is done by now.
    let mut carol = Waiter::sends(&server, "LOCK.ACQUIRE k carol 60000 BLOCK 100");
    assert_eq!(carol.reply(), Value::Nil);
    assert_eq!(client.check("k", "bob"), Some(fence.try_into().unwrap()));
}

#[test]
fn a_grant_that_its_owner_was_told_of_while_writes_were_paused_is_not_taken_back() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let bob = Waiter::of(&server, "k", "bob");
    // Bob's grant cannot be taken back before bob asks for the lock on another connection.
    let kill = format!("CLIENT KILL ID {}", bob.id);
    let transaction = [
        "MULTI",
        "LOCK.RELEASE k alice",
        &kill,
        "CLIENT PAUSE 60000 WRITE",
        "LOCK.ACQUIRE k bob 60000",
        "EXEC",
        "CLIENT UNPAUSE",
    ];
    let replies = client.pipeline(&transaction);
    let Value::Array(executed) = &replies[5] else { panic!("{replies:?}") };
    let Some(&Value::Int(fence)) = executed.last() else { panic!("{replies:?}") };
    // Whatever the server still had to do about the one that was killed is done by now.
    let mut carol = Waiter::sends(&server, "LOCK.ACQUIRE k carol 60000 BLOCK 100");
    assert_eq!(carol.reply(), Value::Nil);
    assert_eq!(client.check("k", "bob"), Some(fence.try_into().unwrap()));
}

#[test]
fn an_owner_that_reconnects_before_its_unheard_grant_is_taken_back_is_not_told_that_it_holds_the_lock()
 {
    let server = Server::start();
    let mut client = server.client();
    for ask in ["LOCK.ACQUIRE k bob 60000", "LOCK.CHECK k bob", "LOCK.EXTEND k bob 60000"] {
        client.grant("k", "alice", LONG);
        let bob = Waiter::of(&server, "k", "bob");
        let mut carol = Waiter::of(&server, "k", "carol");
        let kill = format!("CLIENT KILL ID {}", bob.id);
        let replies = client.pipeline(&["LOCK.RELEASE k alice", &kill, ask, "LOCK.CHECK k bob"]);
        assert!(matches!(replies[2], Value::Nil | Value::Int(0)), "{ask}: {replies:?}");
        assert_eq!(replies[3], Value::Nil, "{ask}");
        carol.fence();
        assert!(client.release("k", "carol"));
    }
}

#[test]
fn an_owner_that_reconnects_after_an_unheard_grant_nobody_else_wanted_is_granted_anew() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let bob = Waiter::of(&server, "k", "bob");
    let kill = format!("CLIENT KILL ID {}", bob.id);
    let ask = "LOCK.ACQUIRE k bob 60000";
    let replies = client.pipeline(&["LOCK.RELEASE k alice", &kill, ask]);
    let Value::Int(fence) = replies[2] else { panic!("{replies:?}") };
    // Whatever the server still had to do about the one that was killed is done by now.
    let mut carol = Waiter::sends(&server, "LOCK.ACQUIRE k carol 60000 BLOCK 100");
    assert_eq!(carol.reply(), Value::Nil);
    assert_eq!(client.check("k", "bob"), Some(fence.try_into().unwrap()));
}

#[test]
fn a_grant_that_its_owner_heard_of_on_another_connection_is_not_taken_back() {
    let server = Server::start();
    let mut client = server.client();
    for ask in ["LOCK.ACQUIRE k bob 60000", "LOCK.CHECK k bob", "LOCK.EXTEND k bob 60000"] {
        client.grant("k", "alice", LONG);
        let bob = Waiter::of(&server, "k", "bob");
        let mut carol = Waiter::sends(&server, "LOCK.ACQUIRE k carol 60000 BLOCK 200");
        let kill = format!("CLIENT KILL ID {}", bob.id);
        let replies = client.pipeline(&["LOCK.RELEASE k alice", ask, &kill]);
        assert!(matches!(replies[1], Value::Int(1..)), "{ask}: {replies:?}");
        assert_eq!(carol.reply(), Value::Nil, "{ask}: two believe that they hold the lock");
        assert!(client.release("k", "bob"));
    }
}

#[test]
fn a_grant_that_only_others_heard_of_is_taken_back() {
    let server = Server::start();
    let mut client = server.client();
    for ask in ["LOCK.ACQUIRE k dave 60000", "LOCK.CHECK k dave", "LOCK.EXTEND k dave 60000"] {
        client.grant("k", "alice", LONG);
        let bob = Waiter::of(&server, "k", "bob");
        let mut carol = Waiter::of(&server, "k", "carol");
        let kill = format!("CLIENT KILL ID {}", bob.id);
        client.pipeline(&["LOCK.RELEASE k alice", ask, &kill]);
        carol.fence();
        assert!(client.release("k", "carol"));
    }
}
