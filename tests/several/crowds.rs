//! Many clients that ask for overlapping sets of locks: no circle, no overlap, nobody starved.
//!
//! `LEASEHOLD_STRESS_SECONDS` says for how long.

use super::{as_words, asks, behind, names, takes};
use redis::Value;
use std::collections::BTreeSet;
use std::env;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Client, Seed, Server, eventually, int};

const CLIENTS: usize = 50;
const LOCKS: usize = 8;
const USUAL_SECONDS: u64 = 5;

/// No wait may come near this: it would be a circle.
const TOO_LONG: Duration = Duration::from_secs(20);

/// What one client has seen.
struct Seen {
    grants: usize,
    longest: Duration,
}

/// Waits for sets of the locks, uses them and releases them.
fn work(server: &Server, number: usize, mut seed: Seed, held: &Held, over: &AtomicBool) -> Seen {
    let all = names(LOCKS);
    let mut client = server.client();
    let mut seen = Seen { grants: 0, longest: Duration::ZERO };
    let owner = format!("c{number}");
    while !over.load(SeqCst) {
        let mut keys = as_words(&all);
        for at in 0..keys.len() {
            let other = seed.below(LOCKS);
            keys.swap(at, other);
        }
        keys.truncate(1 + seed.below(4));
        let asked = Instant::now();
        let fence = if seed.below(3) == 0 {
            by_ticket(&mut client, &owner, &keys)
        } else {
            match client.cmd(format!("{} BLOCK 0", asks(&owner, &keys))) {
                Value::Int(fence) => fence.cast_unsigned(),
                other => panic!("{owner}: {other:?}"),
            }
        };
        seen.grants += 1;
        seen.longest = seen.longest.max(asked.elapsed());
        held.begin(&keys, &owner, fence);
        held.end(&keys);
        let release = format!("LOCK.RELEASE {} {owner} {fence}{}", keys[0], behind(&keys[1..]));
        assert_eq!(client.cmd(release), int(keys.len()), "{owner}");
    }
    seen
}

/// Asks again until all are granted.
fn by_ticket(client: &mut Client, owner: &str, keys: &[&str]) -> u64 {
    eventually("its turn comes", || {
        match client.cmd(format!("{} TICKET 10000", asks(owner, keys))) {
            Value::Int(fence) => Ok(fence.cast_unsigned()),
            other => Err(other),
        }
    })
}

/// Which locks are in use, and the latest fence of each.
#[derive(Default)]
struct Held(Mutex<(BTreeSet<String>, std::collections::BTreeMap<String, u64>)>);

impl Held {
    fn begin(&self, keys: &[&str], owner: &str, fence: u64) {
        let (in_use, fences) = &mut *self.0.lock().unwrap();
        for key in keys {
            assert!(in_use.insert((*key).to_owned()), "{owner} uses {key} beside another");
            let former = fences.insert((*key).to_owned(), fence).unwrap_or(0);
            assert!(fence > former, "{key}: fence {fence} after {former}");
        }
    }

    fn end(&self, keys: &[&str]) {
        let (in_use, _) = &mut *self.0.lock().unwrap();
        keys.iter().for_each(|key| assert!(in_use.remove(*key)));
    }
}

#[test]
fn overlapping_sets_in_every_order_are_granted_without_a_circle_and_everybody_has_a_turn() {
    let seconds = env::var("LEASEHOLD_STRESS_SECONDS").map_or(USUAL_SECONDS, |seconds| {
        seconds.parse().expect("LEASEHOLD_STRESS_SECONDS is a number")
    });
    let mut seed = Seed::announced();
    let server = Server::start();
    let (held, over) = (Held::default(), AtomicBool::new(false));
    let seen: Vec<_> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (seed, server, held, over) = (seed.fork(), &server, &held, &over);
                scope.spawn(move || work(server, number, seed, held, over))
            })
            .collect();
        let end = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < end && !clients.iter().any(|client| client.is_finished()) {
            thread::sleep(Duration::from_millis(20));
        }
        over.store(true, SeqCst);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let grants: usize = seen.iter().map(|seen| seen.grants).sum();
    let fewest = seen.iter().map(|seen| seen.grants).min().unwrap();
    let longest = seen.iter().map(|seen| seen.longest).max().unwrap();
    println!("{grants} grants, {fewest} to the one that had fewest, the longest wait {longest:?}");
    assert!(fewest > 0 && longest < TOO_LONG);
    let mut client = server.client();
    assert_eq!((client.counter("waiters"), client.counter("tickets")), (0, 0));
    let all = names(LOCKS);
    takes(&mut client, "last", &as_words(&all)).expect("no place and no hold is left behind");
}

#[test]
fn a_hundred_who_wait_for_the_same_locks_in_every_order_are_granted_in_theirs() {
    let server = Server::start();
    let mut client = server.client();
    takes(&mut client, "alice", &["a", "b", "c"]).unwrap();
    let orders = [
        ["a", "b", "c"],
        ["a", "c", "b"],
        ["b", "a", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["c", "b", "a"],
    ];
    let mut waiters: Vec<_> = (0..100)
        .map(|number| super::waits(&server, &format!("w{number}"), &orders[number % orders.len()]))
        .collect();
    let mut owner = "alice".to_owned();
    let mut last = 0;
    for (number, waiter) in waiters.iter_mut().enumerate() {
        assert_eq!(client.cmd(format!("LOCK.RELEASE b {owner} ALSO 2 a c")), int(3));
        let fence = waiter.fence();
        assert!(fence > last);
        (last, owner) = (fence, format!("w{number}"));
    }
}

#[test]
fn a_wide_request_that_waits_for_one_lock_keeps_no_other_client_of_the_server_waiting() {
    let server = Server::start();
    let mut client = server.client();
    let all = names(128);
    let keys = as_words(&all);
    client.grant(keys[77], "alice", 60_000);
    let mut wide = super::waits(&server, "wide", &keys);
    let mut others: Vec<_> =
        (0..20).map(|number| super::waits(&server, &format!("o{number}"), &keys)).collect();
    // Everybody touches the locks that it has found free.
    let deletions: Vec<_> = keys.iter().filter(|key| **key != keys[77]).collect();
    let begun = Instant::now();
    for _ in 0..20 {
        for key in &deletions {
            client.send(["DEL", key]);
        }
        for _ in &deletions {
            client.receive();
        }
    }
    println!("20 x 127 deletions took {:?}", begun.elapsed());
    wide.assert_waits(&server);
    assert!(client.release(keys[77], "alice"));
    let mut last = wide.fence();
    assert_eq!(
        client.cmd(format!("LOCK.RELEASE {} wide{}", keys[0], behind(&keys[1..]))),
        int(128)
    );
    for (number, other) in others.iter_mut().enumerate() {
        let fence = other.fence();
        assert!(fence > last);
        last = fence;
        let release = format!("LOCK.RELEASE {} o{number}{}", keys[0], behind(&keys[1..]));
        assert_eq!(client.cmd(release), int(128));
    }
}

#[test]
fn a_release_of_many_locks_lets_in_no_more_at_once_than_that_of_one() {
    const READERS: i64 = 60;
    let server = Server::start();
    let mut client = server.client();
    let all = names(40);
    let keys = as_words(&all);
    takes(&mut client, "alice", &keys).unwrap();
    for key in &keys {
        for number in 0..READERS {
            let ask = format!("LOCK.ACQUIRE {key} r{number} 60000 SHARE 0 TICKET 60000");
            assert_eq!(client.cmd(ask), Value::Nil);
        }
    }
    let release = format!("LOCK.RELEASE {} alice{}", keys[0], behind(&keys[1..]));
    let last = format!("LOCK.INFO {}", keys[39]);
    let replies = client.pipeline(&[&release, &last]);
    assert_eq!(replies, [int(40), Value::Nil], "others have their turn first");
    eventually("all are let in", || {
        let holders: Vec<_> =
            keys.iter().map(|key| client.info(key).map_or(0, |info| info.holders)).collect();
        if holders.iter().all(|holders| *holders == READERS) { Ok(()) } else { Err(holders) }
    });
}
