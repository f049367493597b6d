//! Each way in which a lock becomes free hands it on, in the very command or event that frees it, and
//! replicas and the append-only file are told in that order.

use super::{LONG, Waiter, exact, granted_at, owners, waiters};
use redis::Value;
use testkit::{
    Client, Server, Snapshot, aof, bulk, deadline, eventually, int, lacks, micros, start_pair,
    wait_until_in_sync,
};

/// What frees `k`, which alice holds in database 0.
const WAYS: [&str; 32] = [
    "LOCK.RELEASE k alice",
    "LOCK.EXTEND k alice 1",
    "DEL k",
    "DEL other k another",
    "UNLINK k",
    "GETDEL k",
    "RENAME k elsewhere",
    "RENAMENX k elsewhere",
    "MOVE k 1",
    "EXPIRE k 0",
    "EXPIRE k -1",
    "PEXPIRE k 1",
    "PEXPIRE k 5",
    "PEXPIREAT k 1",
    "EXPIREAT k 1",
    "GETEX k PX 1",
    "SET k stranger PX 1",
    "SET k stranger PXAT 1",
    "SET k stranger EXAT 1",
    "SETEX k 1 stranger",
    "PSETEX k 1 stranger",
    "SINTERSTORE k none nothing",
    "ZUNIONSTORE k 1 nothing",
    "BITOP AND k none nothing",
    "SORT nothing BY nosort STORE k",
    "EVAL return(redis.call('DEL',KEYS[1])) 1 k",
    "EVAL return(redis.call('LOCK.RELEASE',KEYS[1],'alice')) 1 k",
    "FLUSHDB",
    "FLUSHDB ASYNC",
    "FLUSHALL",
    "FLUSHALL ASYNC",
    "SWAPDB 0 1",
];

/// Far above what a machine takes that is not loaded, and a quarter of the second after which a lock is looked at again whose
/// queue is old. So a way that goes unnoticed shows in three of four runs.
const LATE: i64 = 250;

/// A queue of this age is looked at once a second only. While it is new, it is looked at so often that nothing else need hand
/// the lock on; the last of these looks may come when it is nearly two seconds old.
const OLD: i64 = 2_100;

fn let_queues_grow_old(client: &mut Client) {
    let begun = client.now();
    eventually("the queues are not new", || match client.now() - begun {
        OLD.. => Ok(()),
        age => Err(age),
    });
}

fn frees_all(way: &str) -> bool {
    way.starts_with("FLUSH") || way.starts_with("SWAPDB")
}

/// The same way for another lock than `k`.
fn way_for(way: &str, key: &str) -> String {
    let word = |word: &str| match word {
        "k" => key.to_owned(),
        "elsewhere" => format!("{key}.elsewhere"),
        other => other.to_owned(),
    };
    way.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// The server's clock, in Unix milliseconds, right after a command of the same packet.
fn sent_with_time(client: &mut Client, command: &str) -> (Value, i64) {
    let mut replies = client.pipeline(&[command, "TIME"]);
    let at = micros(&replies.remove(1)).unwrap() / 1_000;
    (replies.remove(0), at.cast_signed())
}

/// One of the ways, and those who wait for a lock of its own.
struct Scene {
    way: &'static str,
    key: String,
    before: u64,
    bob: Waiter,
    carol: Waiter,
}

impl Scene {
    fn of(server: &Server, client: &mut Client, way: &'static str, number: usize) -> Self {
        let key = format!("k{number}");
        let before = client.grant(&key, "alice", LONG);
        let bob = Waiter::of(server, &key, "bob");
        let carol = Waiter::of(server, &key, "carol");
        Self { way, key, before, bob, carol }
    }

    fn check(self, server: &Server, client: &mut Client) {
        let Self { way, key, before, mut bob, carol } = self;
        let (reply, at) = sent_with_time(client, &way_for(way, &key));
        assert!(!matches!(reply, Value::ServerError(_)), "{way}: {reply:?}");
        let fence = bob.fence();
        // The one key that SETEX can set only by the second.
        let patience = if way.starts_with("SETEX") { 1_000 } else { 0 };
        let late = granted_at(fence) - at - patience;
        assert!(late < LATE, "{way}: granted {late} ms later");
        assert!(fence > before, "{way}");
        assert_eq!(client.check(&key, "bob"), Some(fence), "{way}");
        assert_eq!(owners(server, &key), ["carol"], "{way}");
        drop(carol);
    }
}

#[test]
fn each_way_in_which_a_lock_becomes_free_hands_it_on() {
    let server = exact().aof().start();
    let mut client = server.client();
    let (of_all, of_one): (Vec<_>, Vec<_>) = WAYS.into_iter().partition(|way| frees_all(way));
    let one_by_one = of_all.into_iter().map(|way| vec![way]);
    for ways in std::iter::once(of_one).chain(one_by_one) {
        client.cmd("FLUSHALL");
        let ways = ways.into_iter().zip(0..);
        let scenes: Vec<_> =
            ways.map(|(way, number)| Scene::of(&server, &mut client, way, number)).collect();
        let_queues_grow_old(&mut client);
        for scene in scenes {
            scene.check(&server, &mut client);
        }
        eventually("all have left", || match waiters(&server) {
            0 => Ok(()),
            left => Err(left),
        });
    }
}

#[test]
fn a_transaction_that_deletes_a_lock_hands_it_on() {
    let server = exact().start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    let replies = client.transaction(&["SET before 1", "DEL k", "GET k", "SET after 1"]);
    assert_eq!(replies[1..3], [int(1), Value::Nil], "nothing happens between two of its commands");
    assert_eq!(client.check("k", "bob"), Some(bob.fence()));
}

#[test]
fn a_transaction_that_is_executed_later_hands_the_lock_on_soon_after() {
    let server = exact().start();
    let (mut client, mut other) = (server.client(), server.client());
    for quick in [true, false] {
        client.cmd("FLUSHALL");
        client.grant("k", "alice", LONG);
        let mut bob = Waiter::of(&server, "k", "bob");
        let_queues_grow_old(&mut other);
        client.pipeline(&["MULTI", "DEL k"]);
        let queued = other.now();
        eventually("time passes", || match other.now() - queued {
            100.. => Ok(()),
            _ if quick => Ok(()),
            passed => Err(passed),
        });
        let executed = other.now();
        client.cmd("EXEC");
        let late = granted_at(bob.fence()) - executed;
        assert!(late < 2 * (executed - queued) + 100, "granted {late} ms later");
    }
}

/// Where nobody waits, the module does not listen to commands, so it has not heard of the deletion.
#[test]
fn a_transaction_that_was_queued_before_anybody_waited_hands_the_lock_on_soon_after() {
    let server = exact().start();
    let (mut client, mut other) = (server.client(), server.client());
    for quick in [true, false] {
        client.cmd("FLUSHALL");
        client.grant("k", "alice", LONG);
        client.pipeline(&["MULTI", "DEL k"]);
        let begun = other.now();
        let mut bob = Waiter::of(&server, "k", "bob");
        eventually("time passes", || match other.now() - begun {
            100.. => Ok(()),
            _ if quick => Ok(()),
            passed => Err(passed),
        });
        let executed = other.now();
        assert_eq!(client.cmd("EXEC"), Value::Array(vec![int(1)]));
        let late = granted_at(bob.fence()) - executed;
        assert!(late < 2 * (executed - begun) + 100, "granted {late} ms later");
    }
}

#[test]
fn a_transaction_that_takes_a_lock_away_and_puts_it_back_hands_nothing_on() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let bob = Waiter::of(&server, "k", "bob");
    client.transaction(&["RENAME k elsewhere", "RENAME elsewhere k"]);
    client.transaction(&["DEL k", "SET k stranger"]);
    // One more command, so that whatever was queued behind the transaction has been done.
    assert_eq!(client.cmd("GET k"), bulk("stranger"));
    bob.assert_waits(&server);
}

#[test]
fn a_release_inside_a_transaction_hands_on_there_and_then() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    let replies = client.transaction(&["LOCK.RELEASE k alice", "LOCK.CHECK k bob", "SET after 1"]);
    assert_eq!(replies[..2], [int(1), int(bob.fence())]);
}

#[test]
fn a_deletion_and_a_try_in_one_transaction_grant_the_waiter() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    let replies = client.transaction(&["DEL k", "LOCK.ACQUIRE k carol 60000", "LOCK.CHECK k bob"]);
    assert_eq!(replies, [int(1), Value::Nil, int(bob.fence())]);
    let tail = tail(&aof::framed_lines(&server), 4);
    assert_eq!(names(&tail), ["MULTI", "DEL", "SET", "EXEC"], "{tail:?}");
}

#[test]
fn every_lock_of_a_flush_is_handed_on() {
    let server = Server::start();
    let mut client = server.client();
    let mut queued = Vec::new();
    for number in 0..50 {
        let key = format!("k{number}");
        client.grant(&key, "alice", LONG);
        queued.push((Waiter::of(&server, &key, "bob"), key));
    }
    client.cmd("FLUSHALL");
    for (waiter, key) in &mut queued {
        let fence = waiter.fence();
        assert_eq!(client.check(&*key, "bob"), Some(fence));
    }
}

#[test]
fn a_lock_that_was_moved_is_held_where_it_went() {
    let server = Server::start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    client.grant("elsewhere", "dave", LONG);
    let mut there = Waiter::of(&server, "elsewhere", "carol");
    client.cmd("RENAME k elsewhere");
    bob.fence();
    assert_eq!(client.check("elsewhere", "alice"), Some(fence));
    there.assert_waits(&server);
    client.release("elsewhere", "alice");
    there.fence();
}

#[test]
fn each_database_has_locks_of_its_own() {
    let server = Server::start();
    let mut five = server.client();
    five.cmd("SELECT 5");
    let mut zero = server.client();
    zero.grant("k", "alice", LONG);
    five.grant("k", "alice", LONG);
    let in_zero = Waiter::of(&server, "k", "bob");
    let mut client = server.client();
    client.cmd("SELECT 5");
    let mut in_five = Waiter::sends_on(client, &server, "LOCK.ACQUIRE k carol 60000 BLOCK 0");
    assert!(five.release("k", "alice"));
    let fence = in_five.fence();
    assert_eq!(five.check("k", "carol"), Some(fence), "and the releasing client is still there");
    in_zero.assert_waits(&server);
    assert!(zero.check("k", "alice").is_some());
    five.cmd("FLUSHDB");
    in_zero.assert_waits(&server);
}

#[test]
fn a_lease_that_ends_in_another_database_is_noticed_there() {
    let server = Server::start();
    let mut seven = server.client();
    seven.cmd("SELECT 7");
    let mut client = server.client();
    client.cmd("SELECT 7");
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::sends_on(client, &server, "LOCK.ACQUIRE k bob 60000 BLOCK 0");
    assert_eq!(seven.cmd("LOCK.EXTEND k alice 30"), int(1));
    let fence = bob.fence();
    assert_eq!(seven.check("k", "bob"), Some(fence));
    assert_eq!(bob.client.check("k", "bob"), Some(fence), "the waiter is still there");
    assert_eq!(server.cmd("EXISTS k"), int(0));
}

#[test]
fn waiters_stay_with_the_number_of_their_database_when_two_are_swapped() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    client.cmd("SELECT 1");
    client.grant("k", "dave", LONG);
    let bob = Waiter::of(&server, "k", "bob");
    client.cmd("SWAPDB 0 1");
    assert_eq!(server.client().info("k").unwrap().owner, b"dave");
    bob.assert_waits(&server);
    client.cmd("SWAPDB 1 2");
    bob.assert_waits(&server);
    client.cmd("SELECT 0");
    assert!(client.release("k", "dave"));
    assert!(client.check("k", "bob").is_some());
}

#[test]
fn the_lease_of_a_waiter_starts_with_its_grant() {
    let server = exact().start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::sends(&server, "LOCK.ACQUIRE k bob 400 BLOCK 0");
    // Longer than bob's whole lease.
    eventually("time passes", || match super::queue(&server, "k")[0].waited {
        500.. => Ok(()),
        waited => Err(waited),
    });
    let before = client.now();
    client.release("k", "alice");
    let fence = bob.fence();
    assert!(granted_at(fence) >= before);
    eventually("the lease ends", || match client.info("k") {
        None => Ok(()),
        Some(info) => {
            assert_eq!(info.deadline, granted_at(fence) + 400);
            Err(info)
        }
    });
}

fn tail(lines: &[String], count: usize) -> Vec<String> {
    lines[lines.len() - count..].to_vec()
}

fn names(lines: &[String]) -> Vec<&str> {
    lines.iter().map(|line| line.split(' ').next().unwrap()).collect()
}

/// Bob is queued behind alice, and `free` is sent; the last lines of the append-only file.
fn told_of(free: &str, count: usize) -> (Vec<String>, String) {
    // Freed lazily, an expired key would be unlinked instead.
    let server = Server::builder().aof().config("lazyfree-lazy-expire", "no").start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    client.cmd(free);
    let fence = bob.fence();
    let set = format!("SET k {fence}:bob PXAT {}", deadline(&mut client, b"k"));
    (tail(&aof::framed_lines(&server), count), set)
}

#[test]
fn a_release_and_the_grant_that_follows_are_one_transaction_of_the_file() {
    let (told, set) = told_of("LOCK.RELEASE k alice", 4);
    if lacks((7, 0), "one transaction for what a command does") {
        assert_eq!(told[2], set);
        return;
    }
    assert_eq!(told, ["MULTI", "DEL k", &set, "EXEC"]);
}

#[test]
fn a_deletion_comes_before_the_grant_that_it_made_possible() {
    let (told, set) = told_of("DEL k", 4);
    let told: Vec<_> = told.into_iter().filter(|line| line.contains(' ')).collect();
    assert_eq!(tail(&told, 2), ["DEL k".to_owned(), set]);
}

#[test]
fn the_end_of_a_lease_is_told_as_a_deletion_before_the_grant() {
    let (told, set) = told_of("PEXPIRE k 20", 4);
    let told: Vec<_> = told.into_iter().filter(|line| line.contains(' ')).collect();
    assert_eq!(tail(&told, 2), ["DEL k".to_owned(), set]);
}

#[test]
fn a_replica_and_a_reload_of_the_file_agree_after_every_way() {
    let (mut primary, replica) = start_pair(exact().aof(), Server::builder());
    let mut client = primary.client();
    let mut left: Vec<Waiter> = Vec::new();
    for (number, way) in WAYS.into_iter().enumerate() {
        // A flush or a swap would take the others' keys away.
        if frees_all(way) {
            continue;
        }
        let key = format!("k{number}");
        client.grant(&key, "alice", LONG);
        let mut bob = Waiter::of(&primary, &key, "bob");
        left.push(Waiter::of(&primary, &key, "carol"));
        client.cmd(way_for(way, &key));
        let fence = bob.fence();
        assert_eq!(client.check(&key, "bob"), Some(fence), "{way}");
    }
    wait_until_in_sync(&primary, &replica);
    let live = Snapshot::of(&primary);
    assert!(live.size() >= left.len());
    assert_eq!(Snapshot::of(&replica), live);
    primary.kill();
    primary.start_again();
    assert_eq!(Snapshot::of(&primary), live);
}

/// The server tells of a flush only when it is over, and a grant made in the midst of it would be told first: replicas
/// would flush it away.
#[test]
fn a_flush_is_told_before_the_grants_that_it_made_possible() {
    let (mut primary, replica) = start_pair(exact().aof(), Server::builder());
    let mut client = primary.client();
    for way in WAYS.into_iter().filter(|way| frees_all(way)) {
        let keys = ["k1", "k2", "k3"];
        for key in keys {
            client.grant(key, "alice", LONG);
        }
        let waiters = keys.map(|key| Waiter::of(&primary, key, "bob"));
        client.cmd(way);
        for (key, mut bob) in keys.into_iter().zip(waiters) {
            let fence = bob.fence();
            assert_eq!(client.check(key, "bob"), Some(fence), "{way}");
        }
        wait_until_in_sync(&primary, &replica);
        let live = Snapshot::of(&primary);
        assert!(live.size() >= keys.len());
        assert_eq!(Snapshot::of(&replica), live, "{way}");
        primary.kill();
        primary.start_again();
        assert_eq!(Snapshot::of(&primary), live, "{way}, from the file");
        client = primary.client();
        client.cmd("FLUSHALL");
        wait_until_in_sync(&primary, &replica);
    }
}
