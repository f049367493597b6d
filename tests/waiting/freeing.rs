//! Each way in which a lock becomes free hands it on, in the very command or event that frees it, and
//! replicas and the append-only file are told in that order.

use super::play;
use super::{LONG, Waiter, exact, granted_at, held_on, owners};
use redis::Value;
use testkit::contended::Contended;
use testkit::traffic::Traffic;
use testkit::{
    Client, Seed, Server, Snapshot, aof, deadline, eventually, int, lacks, micros, start_pair,
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

/// One of the ways, and those who wait for a lock of its own. In every other scene bob waits for another lock, too, that
/// nobody holds.
struct Scene {
    way: &'static str,
    key: String,
    all: Vec<String>,
    before: u64,
    bob: Waiter,
    carol: Waiter,
}

impl Scene {
    fn of(server: &Server, client: &mut Client, way: &'static str, number: usize) -> Self {
        let key = format!("k{number}");
        let before = client.grant(&key, "alice", LONG);
        let (mut all, mut request) = (vec![key.clone()], format!("LOCK.ACQUIRE {key} bob {LONG}"));
        if number % 2 == 1 {
            let beside = format!("{key}.beside");
            request = format!("LOCK.ACQUIRE {beside} bob {LONG} ALSO 1 {key}");
            all.push(beside);
        }
        let bob = Waiter::sends(server, &format!("{request} BLOCK 0"));
        let carol = Waiter::of(server, &key, "carol");
        Self { way, key, all, before, bob, carol }
    }

    /// Frees the lock, unless it was freed at this time with all others. Returns when it was.
    fn check(self, server: &Server, client: &mut Client, freed: Option<i64>) -> i64 {
        let Self { way, key, all, before, mut bob, carol } = self;
        let at = freed.unwrap_or_else(|| {
            let (reply, at) = sent_with_time(client, &way_for(way, &key));
            assert!(!matches!(reply, Value::ServerError(_)), "{way}: {reply:?}");
            at
        });
        let fence = bob.fence();
        // The one key that SETEX can set only by the second.
        let patience = if way.starts_with("SETEX") { 1_000 } else { 0 };
        let late = granted_at(fence) - at - patience;
        assert!(late < LATE, "{way}: {all:?} granted {late} ms later");
        assert!(fence > before, "{way}");
        for key in &all {
            assert_eq!(client.check(key, "bob"), Some(fence), "{way}: {key}");
        }
        assert_eq!(owners(server, &key), ["carol"], "{way}");
        drop(carol);
        at
    }
}

/// The ways that can be tried side by side, and each of the others by itself: for one lock, and for several.
fn groups() -> impl Iterator<Item = Vec<&'static str>> {
    let (of_all, of_one): (Vec<_>, Vec<_>) = WAYS.into_iter().partition(|way| frees_all(way));
    let of_one = of_one.into_iter().flat_map(|way| [way; 2]).collect();
    std::iter::once(of_one).chain(of_all.into_iter().map(|way| vec![way; 2]))
}

#[test]
fn each_way_in_which_a_lock_becomes_free_hands_it_on() {
    let server = exact().aof().start();
    let mut client = server.client();
    for ways in groups() {
        client.cmd("FLUSHALL");
        let ways = ways.into_iter().zip(0..);
        let scenes: Vec<_> =
            ways.map(|(way, number)| Scene::of(&server, &mut client, way, number)).collect();
        let_queues_grow_old(&mut client);
        let mut freed = None;
        for scene in scenes {
            let is_of_all = frees_all(scene.way);
            let at = scene.check(&server, &mut client, freed);
            freed = is_of_all.then_some(at);
        }
        client.wait_until_waiters(0);
    }
}

/// The server tells of a flush only when it is over, and a grant made in the midst of it would be told first: replicas
/// would flush it away.
#[test]
fn a_replica_and_a_reload_of_the_file_agree_after_every_way() {
    let (mut primary, replica) = start_pair(exact().aof(), Server::builder());
    for ways in groups() {
        let mut client = primary.client();
        client.cmd("FLUSHALL");
        let ways = ways.into_iter().zip(0..);
        let mut scenes: Vec<_> =
            ways.map(|(way, number)| Scene::of(&primary, &mut client, way, number)).collect();
        for (number, Scene { way, key, bob, .. }) in scenes.iter_mut().enumerate() {
            if number == 0 || !frees_all(way) {
                client.cmd(way_for(way, key));
            }
            let fence = bob.fence();
            assert_eq!(client.check(&*key, "bob"), Some(fence), "{way}");
        }
        wait_until_in_sync(&primary, &replica);
        let live = Snapshot::of(&primary);
        assert!(live.size() >= scenes.len());
        assert_eq!(Snapshot::of(&replica), live, "{}", scenes[0].way);
        primary.kill();
        primary.start_again();
        assert_eq!(Snapshot::of(&primary), live, "{}, from the file", scenes[0].way);
        wait_until_in_sync(&primary, &replica);
    }
}

/// Where nobody waits, the module does not listen to commands, so it has not heard of a deletion that was queued before.
#[test]
fn a_transaction_that_was_queued_before_hands_the_lock_on_soon_after() {
    let server = exact().start();
    let (mut client, mut other) = (server.client(), server.client());
    for (waits_before, quick) in [(true, true), (true, false), (false, true), (false, false)] {
        client.cmd("FLUSHALL");
        client.grant("k", "alice", LONG);
        let before = waits_before.then(|| Waiter::of(&server, "k", "bob"));
        if waits_before {
            let_queues_grow_old(&mut other);
        }
        client.pipeline(&["MULTI", "DEL k"]);
        let queued = other.now();
        let mut bob = before.unwrap_or_else(|| Waiter::of(&server, "k", "bob"));
        eventually("time passes", || match other.now() - queued {
            100.. => Ok(()),
            _ if quick => Ok(()),
            passed => Err(passed),
        });
        let executed = other.now();
        assert_eq!(client.cmd("EXEC"), Value::Array(vec![int(1)]));
        let late = granted_at(bob.fence()) - executed;
        assert!(late < 2 * (executed - queued) + 100, "granted {late} ms later");
    }
}

const SESSIONS: &str = "
    # a transaction that deletes a lock hands it on, and nothing happens between two of its commands
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    MULTI: SET before 1; DEL k; GET k; SET after 1 -> OK; 1; nil; OK
    LOCK.CHECK k bob -> B
    bob: -> B

    # a release inside a transaction hands on there and then
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    MULTI: LOCK.RELEASE k alice; LOCK.CHECK k bob -> 1; B
    bob: -> B

    # a deletion and a try in one transaction grant the waiter
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    MULTI: DEL k; LOCK.ACQUIRE k carol 60000; LOCK.CHECK k bob -> 1; nil; B
    bob: -> B

    # a lock that was moved is held where it went
    LOCK.ACQUIRE elsewhere dave 60000 -> B
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    there: LOCK.ACQUIRE elsewhere carol 60000 BLOCK 0 -> waits
    RENAME k elsewhere -> OK
    bob: -> C
    LOCK.CHECK elsewhere alice -> A
    there: -> waits
    LOCK.RELEASE elsewhere alice -> 1
    there: -> D

    # each database has locks of its own, and whoever changes one there or waits is still there afterwards
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    five: SELECT 5 -> OK
    five: LOCK.ACQUIRE k alice 60000 -> B
    carol: SELECT 5 -> OK
    carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
    five: LOCK.RELEASE k alice -> 1
    carol: -> C
    five: LOCK.CHECK k carol -> C
    bob: -> waits
    dave: SELECT 5 -> OK
    dave: LOCK.ACQUIRE k dave 60000 BLOCK 0 -> waits
    five: LOCK.EXTEND k carol 30 -> 1
    dave: -> D
    five: LOCK.CHECK k dave -> D
    dave: LOCK.CHECK k dave -> D
    five: FLUSHDB -> OK
    bob: -> waits
    LOCK.CHECK k alice -> A

    # waiters stay with the number of their database when two are swapped
    other: SELECT 1 -> OK
    other: LOCK.ACQUIRE k dave 60000 -> B
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    SWAPDB 0 1 -> OK
    LOCK.CHECK k dave -> B
    bob: -> waits
    SWAPDB 1 2 -> OK
    bob: -> waits
    LOCK.RELEASE k dave -> 1
    bob: -> C
";

#[test]
fn a_lock_that_falls_free_in_its_database_is_handed_on_and_no_other() {
    play(Server::builder, SESSIONS);
}

/// Bob is queued behind alice, and what is sent frees the lock. The last lines of the append-only file are the deletion and his
/// grant, in one transaction where the server has that.
#[test]
fn what_frees_a_lock_is_told_before_the_grant_that_it_made_possible() {
    for free in [
        &["LOCK.RELEASE k alice"][..],
        &["DEL k"],
        &["PEXPIRE k 20"],
        &["MULTI", "DEL k", "LOCK.ACQUIRE k carol 60000", "EXEC"],
    ] {
        // Freed lazily, an expired key would be unlinked instead.
        let (server, mut client) =
            held_on(Server::builder().aof().config("lazyfree-lazy-expire", "no"));
        let mut bob = Waiter::of(&server, "k", "bob");
        client.pipeline(free);
        let fence = bob.fence();
        let set = format!("SET k {fence}:bob PXAT {}", deadline(&mut client, b"k"));
        let told = aof::framed_lines(&server);
        let commands: Vec<_> = told.iter().filter(|line| line.contains(' ')).collect();
        assert_eq!(commands[commands.len() - 2..], ["DEL k", &set], "{free:?}");
        let is_one = free[0] == "MULTI" || free[0].starts_with("LOCK.");
        if is_one && !lacks((7, 0), "one transaction for what a command does") {
            assert_eq!(told[told.len() - 4..], ["MULTI", "DEL k", &set, "EXEC"], "{free:?}");
        }
    }
}

/// As a fleet does that moves over from `SET NX`: its older clients poll the locks that the newer ones wait for.
#[test]
fn a_lock_that_is_freed_is_handed_on_although_other_contended_locks_are_named() {
    let server = exact().start();
    // More than are looked at in one turn of the server.
    let contended = Contended::hold(&server, "lock:", 1_500);
    let _traffic = Traffic::on(&server, 50, "", contended.polls(&mut Seed::announced()));
    let mut client = server.client();
    for free in ["LOCK.EXTEND victim alice 300", "DEL victim", "RENAME victim elsewhere"] {
        let mut late = [(); 5].map(|()| {
            client.grant("victim", "alice", LONG);
            let mut bob = Waiter::of(&server, "victim", "bob");
            client.cmd(free);
            let left = match client.cmd("PTTL victim") {
                Value::Int(left) if free.starts_with("LOCK.EXTEND") => left,
                _ => 0,
            };
            let freed = client.now() + left;
            let late = granted_at(bob.fence()) - freed;
            assert!(client.release("victim", "bob"));
            late
        });
        late.sort_unstable();
        // Where the machine is busy too, within the second after which all locks are looked at anyway.
        assert!(late[2] <= 50 && late[4] <= 800, "{free}: granted after {late:?} ms");
    }
}
