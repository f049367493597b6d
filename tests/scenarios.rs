//! The stories locks are told by: racers, lapsed holders, stolen locks, lost updates.

use redis::Value;
use std::sync::Barrier;
use std::thread;
use testkit::{Server, bulk, eventually, int, strings};

const LONG: u64 = 60_000;

#[test]
fn of_many_racers_one_wins_each_lock_with_io_threads_or_without() {
    assert_one_wins_each_lock(&Server::start());
    assert_one_wins_each_lock(&Server::builder().config("io-threads", "3").start());
}

fn assert_one_wins_each_lock(server: &Server) {
    const RACERS: usize = 8;
    const LOCKS: usize = 100;
    let start = Barrier::new(RACERS);
    let race = |racer: usize| {
        let mut client = server.client();
        let owner = format!("racer-{racer}");
        start.wait();
        let won = |lock: &usize| client.acquire(format!("k{lock}"), &owner, LONG).is_some();
        (0..LOCKS).filter(won).collect::<Vec<_>>()
    };
    let won = thread::scope(|scope| {
        let racers: Vec<_> = (0..RACERS).map(|racer| scope.spawn(move || race(racer))).collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).collect::<Vec<_>>()
    });
    let mut all = won.concat();
    all.sort_unstable();
    assert_eq!(all, (0..LOCKS).collect::<Vec<_>>(), "each lock has exactly one winner");
    for (racer, locks) in won.iter().enumerate() {
        for lock in locks {
            let holder = server.client().info(format!("k{lock}")).unwrap().owner;
            assert_eq!(holder, format!("racer-{racer}").into_bytes());
        }
    }
}

/// What a lock protects, if it takes part, remembers the highest fence it has seen, and refuses smaller ones.
#[test]
fn storage_that_compares_fences_refuses_a_holder_that_slept_through_its_lease() {
    let server = Server::start();
    let (mut alice, mut bob) = (server.client(), server.client());
    let stale = alice.grant("k", "alice", 100);
    let alices_end = alice.info("k").map(|info| info.deadline);
    let fence = eventually("bob gets the lock", || bob.acquire("k", "bob", LONG).ok_or(()));
    assert!(stale < fence, "the storage tells them apart");
    let bobs_start = bob.info("k").unwrap().deadline - i64::try_from(LONG).unwrap();
    // A machine slow enough sees no lease of Alice's at all, and then there is nothing to compare.
    assert!(alices_end.is_none_or(|end| bobs_start >= end), "{alices_end:?} {bobs_start}");
    let before = bob.cmd("GET k");
    assert_eq!(alice.check("k", "alice"), None);
    assert!(!alice.release("k", "alice"));
    assert!(!alice.extend("k", "alice", LONG));
    assert_eq!(alice.cmd(format!("LOCK.RELEASE k alice {stale}")), int(0));
    assert_eq!(alice.acquire("k", "alice", LONG), None);
    assert_eq!(bob.cmd("GET k"), before);
    assert_eq!(bob.check("k", "bob"), Some(fence));
}

#[test]
fn updates_under_a_lock_are_never_lost() {
    const WORKERS: usize = 6;
    const UPDATES: usize = 40;
    let server = Server::start();
    server.cmd("SET total 0");
    let work = |worker: usize| {
        let mut client = server.client();
        let owner = format!("worker-{worker}");
        for _ in 0..UPDATES {
            let fence =
                eventually("the lock is free", || client.acquire("k", &owner, LONG).ok_or(()));
            // Read, then write: wrong without the lock as soon as two workers meet.
            let Value::BulkString(total) = client.cmd("GET total") else { panic!("no total") };
            let total: usize = String::from_utf8_lossy(&total).parse().unwrap();
            client.cmd(format!("SET total {}", total + 1));
            client.cmd(format!("RPUSH fences {fence}"));
            assert!(client.release("k", &owner));
        }
    };
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            scope.spawn(move || work(worker));
        }
    });
    let mut client = server.client();
    assert_eq!(client.cmd("GET total"), bulk((WORKERS * UPDATES).to_string()));
    let fences = strings(&client.cmd("LRANGE fences 0 -1"));
    // All have sixteen digits, so the order of texts is the order of numbers.
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
}
