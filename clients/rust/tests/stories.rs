//! The stories that locks are told by, and the habits of those who had another lock before.

use crate::scene::{
    LONG, both_kinds, held, locks, locks_with, millis, server, soon, standing, ttl_of, with_module,
};
use leasehold_client::{Guard, Locks, Loss, Released, Settings};
use redis::Value;
use std::collections::BTreeSet;
use std::env;
use std::process::{self, Command};
use std::time::{Duration, Instant};
use testkit::clock::HOUR;
use testkit::{Clock, Seed, short_or_long, strings};
use tokio::time::sleep;
use uuid::Uuid;

async fn take(locks: &Locks, name: &str) -> Guard {
    locks.try_lock(name).await.unwrap().expect("it is free")
}

/// What a lock protects: it keeps the largest fence that it has seen, and refuses a smaller one.
#[derive(Default)]
struct Store {
    largest: u64,
}

impl Store {
    fn write(&mut self, fence: u64) -> bool {
        let is_written = fence >= self.largest;
        self.largest = self.largest.max(fence);
        is_written
    }
}

/// In a process of its own, whose environment nobody else reads.
#[tokio::test(flavor = "multi_thread")]
async fn the_ttl_comes_from_the_environment() {
    if env::var_os("LEASEHOLD_TTL_MS").is_none() {
        let mut itself = Command::new(env::current_exe().unwrap());
        itself.args(["stories::the_ttl_comes_from_the_environment", "--exact"]);
        let output = itself.env("LEASEHOLD_TTL_MS", "5000").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let server = server();
    let locks = locks_with(&server, Settings::from_env().unwrap()).await;
    let _guard = take(&locks, "printer").await;
    let left = ttl_of(&server, "printer");
    assert!((1..=5_000).contains(&left), "{left}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_who_ask_in_the_same_instant_one_is_refused_and_writes_nothing() {
    for server in both_kinds() {
        let (carol, dave) = (locks(&server).await, locks(&server).await);
        for table in 0..50 {
            let name = format!("table:{table}");
            let (carol, dave) = tokio::join!(carol.try_lock(&name), dave.try_lock(&name));
            let guards = [carol.unwrap(), dave.unwrap()];
            let booked = guards.iter().flatten().count();
            assert_eq!(booked, 1, "of table {table}");
        }
    }
}

/// Alice's lease ends at 5,000, Bob acquires at 5,001, Alice releases at 5,100: ten times as quick, but in `make test-long`.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_at_5100_of_a_lease_that_ended_at_5000_leaves_alone_who_acquired_at_5001() {
    let ttl = millis(short_or_long(500, 5_000));
    for server in both_kinds() {
        let (alice, bob) = (locks(&server).await, locks(&server).await);
        let begun = Instant::now();
        let alice = alice.lock("printer").fixed_ttl(ttl).await.unwrap();
        let bob = bob.lock("printer").ttl(LONG).await.unwrap();
        let acquired = begun.elapsed();
        // A server's milliseconds are whole ones.
        assert!(acquired >= ttl - millis(1), "{acquired:?}");
        assert!(acquired < ttl + millis(2_000), "{acquired:?}");
        let until = ttl + ttl / 50;
        sleep(until.saturating_sub(begun.elapsed())).await;
        let before = (held(&server, "printer"), ttl_of(&server, "printer"));
        assert_eq!(alice.release().await.unwrap(), Released::Late);
        let after = (held(&server, "printer"), ttl_of(&server, "printer"));
        assert!(before.0.as_ref().unwrap().ends_with(bob.owner()));
        assert_eq!(after.0, before.0);
        assert!(before.1 - after.1 < 10_000, "{before:?}, {after:?}");
        assert_eq!((bob.loss(), bob.release().await.unwrap()), (None, Released::Released));
    }
}

/// A holder has fence 42 and is paused, the next one has 43, and the store refuses 42 after that.
#[test]
fn a_holder_that_is_paused_past_its_lease_knows_it_and_its_write_is_refused() {
    let alone = || standing();
    for server in both_kinds() {
        let mut store = Store::default();
        // Nothing runs on it but what it is given here: between the two it stands still.
        let paused = alone();
        let slow = paused
            .block_on(async { locks(&server).await.lock("page").ttl(millis(300)).await.unwrap() });
        assert!(store.write(slow.fence()));
        let other = alone();
        let next = other
            .block_on(async { soon(locks(&server).await.lock("page").ttl(LONG)).await.unwrap() });
        assert!(store.write(next.fence()));
        assert_eq!((slow.loss(), slow.valid_for()), (Some(Loss::Expired), Duration::ZERO));
        assert!(!store.write(slow.fence()), "{} after {}", slow.fence(), next.fence());
        assert!(store.write(next.fence()), "the holder goes on");
        assert_eq!(paused.block_on(slow.lost()), Loss::Expired);
        assert_eq!(paused.block_on(slow.release()).unwrap(), Released::Late);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_locks_that_are_held_are_those_that_a_scan_by_prefix_shows() {
    for server in both_kinds() {
        let locks = locks_with(&server, Settings::default().prefix("lock:table:")).await;
        let (_seven, nine) = (take(&locks, "7").await, take(&locks, "9").await);
        let _twelve = take(&locks, "12").await;
        let short = locks.lock("3").fixed_ttl(millis(30)).await.unwrap();
        assert_eq!(nine.release().await.unwrap(), Released::Released);
        soon(short.lost()).await;
        crate::scene::eventually_free(&server, "lock:table:3").await;
        let Value::Array(reply) = server.cmd("SCAN 0 MATCH lock:table:* COUNT 1000") else {
            panic!("no reply to SCAN")
        };
        let found: BTreeSet<_> = strings(&reply[1]).into_iter().collect();
        assert_eq!(found, ["lock:table:12", "lock:table:7"].map(str::to_owned).into());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_acquisition_has_a_random_owner_unless_it_is_given_one() {
    let server = server();
    let locks = locks(&server).await;
    let mut owners = BTreeSet::new();
    for _ in 0..20 {
        let guard = take(&locks, "printer").await;
        assert_eq!(Uuid::parse_str(guard.owner()).unwrap().get_version_num(), 4);
        owners.insert(guard.owner().to_owned());
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
    assert_eq!(owners.len(), 20);
    let of_process = format!("{}:{}", process::id(), Uuid::nil());
    let _guard = locks.lock("printer").owner(&of_process).await.unwrap();
    assert!(held(&server, "printer").unwrap().ends_with(&format!(":{of_process}")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_is_refused_is_told_and_is_the_last_one() {
    let server = server();
    let locks = locks(&server).await;
    let guard = locks.lock("printer").ttl(millis(300)).await.unwrap();
    let refused = || server.client().counter("extends_refused");
    server.cmd("DEL printer");
    assert_eq!(soon(guard.lost()).await, Loss::Taken);
    assert_eq!(refused(), 1);
    // Time enough for three more.
    sleep(millis(400)).await;
    assert_eq!(refused(), 1);
}

/// As long as names are sorted, whoever has one waits only for those who have a later one.
#[tokio::test(flavor = "multi_thread")]
async fn those_who_take_several_locks_in_one_order_never_wait_for_each_other() {
    async fn lock_all(locks: &Locks, mut names: Vec<String>) -> Vec<Guard> {
        names.sort();
        let mut guards = Vec::new();
        for name in names {
            guards.push(locks.lock(name).await.unwrap());
        }
        guards
    }
    let server = server();
    let mut seed = Seed::announced();
    let locks = locks(&server).await;
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (locks, mut seed) = (locks.clone(), seed.fork());
            tokio::spawn(async move {
                for _ in 0..25 {
                    let mut accounts = vec!["account:1", "account:2", "account:3"];
                    accounts.swap(0, seed.below(3));
                    accounts.swap(1, 1 + seed.below(2));
                    accounts.truncate(2);
                    let names = accounts.into_iter().map(str::to_owned).collect();
                    assert_eq!(lock_all(&locks, names).await.len(), 2);
                }
            })
        })
        .collect();
    for task in tasks {
        soon(task).await.unwrap();
    }
}

/// The alert of docs/operating.md on contention: those who were refused and did not wait are more
/// than 5 % of grants.
#[tokio::test(flavor = "multi_thread")]
async fn how_many_were_refused_and_did_not_wait_is_counted() {
    for (contended, alerts) in [(5, false), (6, true)] {
        let server = server();
        let (ours, theirs) = (locks(&server).await, locks(&server).await);
        let mut client = server.client();
        for number in 0..100 {
            let guard = take(&theirs, "printer").await;
            if number < contended {
                assert!(ours.try_lock("printer").await.unwrap().is_none());
            }
            assert_eq!(guard.release().await.unwrap(), Released::Released);
        }
        let mut counters = || {
            let names = ["grants", "tries_refused", "waits_started_after_try"];
            names.map(|name| client.counter(name))
        };
        let [grants, refused, followed] = counters();
        assert_eq!((grants, refused, followed), (100, contended, 0));
        assert_eq!((refused - followed) * 100 > grants * 5, alerts, "{contended} of 100");
        // It tries before it waits, and counts as one who waits.
        let guard = take(&theirs, "printer").await;
        let request = ours.lock("printer");
        let waiter = tokio::spawn(async move { request.await.unwrap().release().await.unwrap() });
        crate::scene::eventually_waiting(&server, "printer", 1).await;
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        assert_eq!(soon(waiter).await.unwrap(), Released::Released);
        assert_eq!(counters(), [102, contended + 1, 1]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clocks_of_client_and_server_may_be_hours_apart() {
    let (mut ahead, mut behind) = (Clock::new(), Clock::new());
    ahead.step_forward(12 * HOUR);
    behind.step_back(12 * HOUR);
    for clock in [&ahead, &behind] {
        let server = with_module().clock(clock).start();
        let (ours, theirs) = (locks(&server).await, locks(&server).await);
        let begun = Instant::now();
        let guard = ours.lock("printer").fixed_ttl(millis(300)).await.unwrap();
        assert!(guard.valid_for() > Duration::ZERO);
        assert!(theirs.try_lock("printer").await.unwrap().is_none());
        let next = theirs.lock("printer").ttl(LONG).await.unwrap();
        assert!(begun.elapsed() >= millis(299), "{:?}", begun.elapsed());
        assert_eq!((guard.loss(), next.loss()), (Some(Loss::Expired), None));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_as_fine_as_one_order_of_one_user_keep_nobody_else_out() {
    for server in both_kinds() {
        let (ours, theirs) = (locks(&server).await, locks(&server).await);
        let _guard = take(&ours, "user:123:order:456").await;
        assert!(theirs.try_lock("user:123:order:456").await.unwrap().is_none());
        for other in ["user:123:order:457", "user:124:order:456", "user:123"] {
            assert!(theirs.try_lock(other).await.unwrap().is_some(), "{other}");
        }
    }
}
