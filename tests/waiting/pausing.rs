//! `CLIENT PAUSE`: leases end, clients leave and grants fall due while nothing may be written. Nothing is
//! written, nothing crashes, and all of it is made good when the pause ends.

use super::{LONG, Waiter, exact, granted_at, is_parked, owners};
use redis::Value;
use std::collections::BTreeSet;
use testkit::{Client, Server, Snapshot, eventually, int, lacks, start_pair, wait_until_in_sync};

/// Long enough for whatever should not happen to happen; ended by `UNPAUSE`, not by time.
const PAUSE: &str = "CLIENT PAUSE 60000 WRITE";
const UNPAUSE: &str = "CLIENT UNPAUSE";

/// Waits until the server's clock is well past `moment`.
fn let_pass(client: &mut Client, moment: i64) {
    eventually("time passes", || match client.now() {
        now if now > moment + 60 => Ok(()),
        now => Err(now),
    });
}

/// Makes alice's lease end while writes are paused, which begins at once. Returns when it has ended at the latest.
fn end_in_a_pause(client: &mut Client) -> i64 {
    let replies = client.pipeline(&["LOCK.EXTEND k alice 50", PAUSE]);
    assert_eq!(replies, [int(1), Value::Okay]);
    client.now() + 50
}

#[test]
fn a_lease_that_ends_while_writes_are_paused_is_handed_on_after_the_pause() {
    let server = exact().aof().start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    let end = end_in_a_pause(&mut client);
    let_pass(&mut client, end);
    bob.assert_waits(&server);
    assert_eq!(client.info("k"), None, "it is free, and nobody may take it");
    let before = client.now();
    assert_eq!(client.cmd(UNPAUSE), Value::Okay);
    let fence = bob.fence();
    assert!((0..500).contains(&(granted_at(fence) - before)), "long after the pause");
    assert_eq!(client.check("k", "bob"), Some(fence));
}

#[test]
fn a_lease_that_ends_while_all_clients_are_paused_is_handed_on_after_the_pause() {
    let server = exact().start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    // Nobody could end the pause: it ends by itself.
    let (end, pause_end) = (client.now() + 50, client.now() + 300);
    client.pipeline(&["LOCK.EXTEND k alice 50", "CLIENT PAUSE 300 ALL"]);
    let granted = granted_at(bob.fence());
    assert!(granted > end && granted >= pause_end, "{granted} is within the pause to {pause_end}");
    assert!(granted < pause_end + 500, "{granted} is long after the pause to {pause_end}");
}

/// Most servers do not show a command to the module again when they execute it after the pause.
#[test]
fn a_deletion_that_a_pause_held_back_is_noticed_soon_after_the_pause() {
    let server = exact().config("hz", "10").start();
    let mut client = server.client();
    for command in ["DEL k", "EVAL return{redis.call('DEL',KEYS[1])} 1 k"] {
        client.cmd(format!("SET k stranger PX {LONG}"));
        let mut bob = Waiter::of(&server, "k", "bob");
        // It ends by itself, which the module may be the first to notice.
        client.cmd("CLIENT PAUSE 1300 WRITE");
        client.cmd(command);
        let deleted = client.now();
        let late = granted_at(bob.fence()) - deleted;
        assert!(late < 200, "{command}: bob has the lock after {late} ms");
        client.release("k", "bob");
    }
}

/// Where nobody waits, the module does not listen to commands, so it has not heard of the deletion either.
#[test]
fn a_deletion_that_a_pause_held_back_before_anybody_waited_is_noticed_soon_after_the_pause() {
    let server = exact().config("hz", "10").start();
    let mut client = server.client();
    for command in ["DEL k", "EVAL return{redis.call('DEL',KEYS[1])} 1 k"] {
        client.cmd(format!("SET k stranger PX {LONG}"));
        client.cmd("CLIENT PAUSE 500 WRITE");
        // The pause holds it back, too, and it comes first.
        let mut bob = Waiter::of(&server, "k", "bob");
        client.cmd(command);
        let deleted = client.now();
        let late = granted_at(bob.fence()) - deleted;
        assert!(late < 200, "{command}: bob has the lock after {late} ms");
        client.release("k", "bob");
    }
}

#[test]
fn patience_ends_while_writes_are_paused() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::sends(&server, "LOCK.ACQUIRE k bob 60000 BLOCK 200");
    let mut carol = Waiter::sends(&server, "LOCK.ACQUIRE k carol 60000 BLOCK 200");
    client.cmd(PAUSE);
    assert_eq!([bob.reply(), carol.reply()], [Value::Nil, Value::Nil]);
    client.cmd(UNPAUSE);
}

#[test]
fn patience_may_end_before_the_lock_that_fell_free_in_a_pause_can_be_granted() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::sends(&server, "LOCK.ACQUIRE k bob 60000 BLOCK 200");
    let mut carol = Waiter::of(&server, "k", "carol");
    end_in_a_pause(&mut client);
    assert_eq!(bob.reply(), Value::Nil);
    assert_eq!(owners(&server, "k"), ["carol"]);
    client.cmd(UNPAUSE);
    carol.fence();
}

#[test]
fn who_leaves_while_writes_are_paused_is_gone_after_it() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let bob = Waiter::of(&server, "k", "bob");
    let mut carol = Waiter::of(&server, "k", "carol");
    let dave = Waiter::of(&server, "k", "dave");
    let end = end_in_a_pause(&mut client);
    let_pass(&mut client, end);
    client.cmd(format!("CLIENT KILL ID {}", bob.id));
    let id = dave.id;
    drop(dave);
    eventually("dave has left", || if is_parked(&mut client, id) { Err(()) } else { Ok(()) });
    assert_eq!(owners(&server, "k"), ["carol"]);
    client.cmd(UNPAUSE);
    carol.fence();
}

#[test]
fn a_grant_that_nobody_heard_is_taken_back_after_the_pause() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let bob = Waiter::of(&server, "k", "bob");
    let mut carol = Waiter::of(&server, "k", "carol");
    let kill = format!("CLIENT KILL ID {}", bob.id);
    client.pipeline(&["LOCK.RELEASE k alice", &kill, PAUSE]);
    let now = client.now();
    let_pass(&mut client, now);
    assert!(matches!(client.cmd("GET k"), Value::BulkString(_)), "nothing can be taken back now");
    assert_eq!(client.check("k", "bob"), None, "and nobody is told that it holds the lock");
    carol.assert_waits(&server);
    client.cmd(UNPAUSE);
    let fence = carol.fence();
    assert_eq!(client.check("k", "carol"), Some(fence));
}

#[test]
fn a_hand_off_right_before_a_pause_is_heard_in_it() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    client.pipeline(&["LOCK.RELEASE k alice", PAUSE]);
    let fence = bob.fence();
    assert_eq!(client.check("k", "bob"), Some(fence));
    client.cmd(UNPAUSE);
}

#[test]
fn a_deletion_right_before_a_pause_is_handed_on_after_it_at_the_latest() {
    let server = Server::start();
    let mut client = server.client();
    for free in ["DEL k", "FLUSHALL", "PEXPIRE k 1"] {
        client.grant("k", "alice", LONG);
        let mut bob = Waiter::of(&server, "k", "bob");
        client.pipeline(&[free, PAUSE]);
        client.cmd(UNPAUSE);
        bob.fence();
        client.release("k", "bob");
    }
}

#[test]
fn a_request_made_in_a_pause_waits_its_turn_after_it() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut first = Waiter::of(&server, "k", "first");
    client.cmd(PAUSE);
    // The server keeps the command for later, so this one is not in the queue yet.
    let mut second = Waiter::of(&server, "k", "second");
    assert_eq!(owners(&server, "k"), ["first"]);
    client.cmd(UNPAUSE);
    eventually("it is queued", || match owners(&server, "k") {
        owners if owners == ["first", "second"] => Ok(()),
        owners => Err(owners),
    });
    client.release("k", "alice");
    first.fence();
    client.release("k", "first");
    second.fence();
}

#[test]
fn many_pauses_with_leases_ending_and_clients_leaving_lose_no_lock() {
    let (primary, replica) = start_pair(exact().aof(), Server::builder());
    let mut client = primary.client();
    for round in 0..8 {
        let kind = if round % 2 == 0 { "WRITE" } else { "ALL" };
        let mut queued = Vec::new();
        for key in ["a", "b", "c"] {
            client.grant(key, "alice", LONG);
            for owner in ["w0", "w1", "w2", "w3"] {
                let request = format!("LOCK.ACQUIRE {key} {owner} 10 BLOCK 0");
                queued.push(Waiter::sends(&primary, &request));
            }
        }
        client.transaction(&["PEXPIRE a 10", "PEXPIRE b 15", "PEXPIRE c 20"]);
        client.cmd(format!("CLIENT PAUSE 60 {kind}"));
        // They leave at any time; here, before, in and after the pause, as it happens.
        let gone: Vec<_> = (0..queued.len()).filter(|index| index % 4 == 1).collect();
        for index in gone.into_iter().rev() {
            drop(queued.remove(index));
        }
        // A lease of 10 ms may be over before a busy server tells of it: then the reply is nil.
        let told = |waiter: &mut Waiter| match waiter.reply() {
            Value::Int(fence) => Some(fence),
            Value::Nil => None,
            other => panic!("neither a fence nor nil: {other:?}"),
        };
        let fences: Vec<_> = queued.iter_mut().map(told).collect();
        for of_one_lock in fences.chunks_exact(3) {
            assert!(of_one_lock.iter().flatten().is_sorted(), "not in order: {of_one_lock:?}");
        }
        let distinct: BTreeSet<_> = fences.iter().flatten().collect();
        assert_eq!(distinct.len(), fences.iter().flatten().count(), "a fence was granted twice");
        eventually("the last leases end", || match client.cmd("EXISTS a b c") {
            Value::Int(0) => Ok(()),
            left => Err(left),
        });
    }
    client.grant("last", "alice", LONG);
    wait_until_in_sync(&primary, &replica);
    assert_eq!(Snapshot::of(&primary).size(), 1);
    assert_eq!(Snapshot::of(&replica), Snapshot::of(&primary));
}

#[test]
fn a_lease_that_ends_while_too_few_replicas_are_in_sync_is_handed_on_when_they_are_again() {
    if lacks((7, 0), "a way for a module to ask whether writes are refused") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    client.pipeline(&["LOCK.EXTEND k alice 50", "CONFIG SET min-replicas-to-write 1"]);
    let refused = client.cmd("LOCK.ACQUIRE other carol 60000");
    assert!(matches!(&refused, Value::ServerError(error) if error.code() == "NOREPLICAS"));
    let now = client.now();
    let_pass(&mut client, now + 300);
    bob.assert_waits(&server);
    assert!(client.info("k").is_none(), "the lease is over, and the lock nobody's");
    client.cmd("CONFIG SET min-replicas-to-write 0");
    bob.fence();
}

#[test]
fn the_servers_routine_may_be_the_first_to_find_the_leases_that_ended_in_a_pause() {
    // It runs often enough to see the end of the pause before the module asks again.
    let server = Server::builder().config("hz", "500").start();
    let mut client = server.client();
    let locks: Vec<_> = (0..200).map(|number| format!("k{number}")).collect();
    for _ in 0..25 {
        for lock in &locks {
            client.grant(lock, "alice", LONG);
        }
        let mut waiters: Vec<_> =
            locks.iter().map(|lock| Waiter::of(&server, lock, "bob")).collect();
        let mut packet: Vec<_> = locks.iter().map(|lock| format!("PEXPIRE {lock} 10")).collect();
        packet.push("CLIENT PAUSE 60 WRITE".to_owned());
        client.pipeline(&packet.iter().map(String::as_str).collect::<Vec<_>>());
        for (waiter, lock) in waiters.iter_mut().zip(&locks) {
            waiter.fence();
            assert!(waiter.client.release(lock, "bob"));
        }
    }
}
