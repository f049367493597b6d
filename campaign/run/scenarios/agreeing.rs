//! Scenario `mirror`: a primary and its replica. When all is quiet, both hold the same, to the millisecond.

use crate::runner::{Plan, Totals};
use redis::Value;
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Client, Proxy, Seed, Server, Snapshot, Waiter, wait_until_in_sync};

/// Every lease of the last clients has ended by then.
const QUIET: Duration = Duration::from_secs(4);

const LONG: u64 = 600_000;

pub(crate) fn mirror(seed: u64, length: Duration) -> Totals {
    let mut seed = Seed::of(seed);
    let primary = Server::builder().aof().tcp().start();
    let link = Proxy::to(primary.port());
    link.slow(Duration::from_millis(3));
    let replica = Server::builder().tcp().replica_through(link.port()).start();
    wait_until_in_sync(&primary, &replica);
    let mut client = primary.client();
    let plan = Plan { probes: 1, calm_micros: 250_000, ..Plan::at(primary.port()) };
    let mut totals = Totals::default();
    let begin = Instant::now();
    while begin.elapsed() < length && totals.wrong.is_empty() {
        let round = (seed.number(), Duration::from_millis(700));
        let of_round = plan.clone().run(round, |faults, seed, _| {
            thread::sleep(Duration::from_millis(seed.below(100) as u64));
            // A database that is swapped away must not come back.
            let swap = ["SWAPDB 0 1", "SELECT 1", "FLUSHDB", "SELECT 0"];
            if seed.below(2) == 0 {
                faults.frees("FLUSHALL", None, || drop(client.cmd("FLUSHALL")));
            } else {
                faults.frees("SWAPDB", None, || drop(client.transaction(&swap)));
            }
        });
        totals.add(of_round);
        last_words(&primary, &mut client, &mut seed);
        wait_until_in_sync(&primary, &replica);
        totals.wrong.extend(differ(&primary, &replica));
    }
    totals
}

/// Makes each kind of change to a lock in a quiet moment. Some of the locks stay held.
fn last_words(primary: &Server, client: &mut Client, seed: &mut Seed) {
    let mut waiters = Vec::new();
    for number in 0..8 {
        let lock = format!("last{number}");
        client.grant(&lock, "m", LONG);
        match seed.below(5) {
            0 => assert!(client.release(&lock, "m")),
            1 => assert!(client.extend(&lock, "m", 2 * LONG)),
            2 => assert!(client.acquire(&lock, "m", 3 * LONG).is_some()),
            3 => {}
            _ => {
                let request = format!("LOCK.ACQUIRE {lock} w {LONG} BLOCK 0");
                waiters.push(Waiter::sends(primary, &request));
            }
        }
    }
    // Locks that two hold, one of them for longer.
    for number in 0..6 {
        let lock = format!("several{number}");
        for (owner, ttl) in [("m", LONG), ("n", 2 * LONG)] {
            let granted = client.cmd(format!("LOCK.ACQUIRE {lock} {owner} {ttl} SHARE 2"));
            assert!(matches!(granted, Value::Int(_)), "{granted:?}");
        }
        match seed.below(5) {
            0 => assert!(client.release(&lock, "n")),
            1 => assert!(client.extend(&lock, "n", LONG / 2)),
            2 => assert!(client.extend(&lock, "m", 3 * LONG)),
            3 => drop(client.cmd(format!("LOCK.ACQUIRE {lock} m {LONG} SHARE 0"))),
            _ => assert!(client.release(&lock, "m")),
        }
    }
    match seed.below(3) {
        0 => drop(client.cmd("FLUSHALL")),
        1 => drop(client.cmd("SWAPDB 0 1")),
        _ => (0..8).for_each(|number| {
            client.release(format!("last{number}"), "m");
        }),
    }
    for waiter in &mut waiters {
        waiter.fence();
    }
    client.grant("held", "m", LONG);
    client.grant("free", "m", LONG);
    client.release("free", "m");
}

/// Whether both still hold the same when the short leases have ended.
fn differ(primary: &Server, replica: &Server) -> Option<String> {
    let end = Instant::now() + QUIET;
    loop {
        let (here, there) = (Snapshot::of(primary), Snapshot::of(replica));
        if here == there {
            // For the next round.
            primary.cmd("FLUSHALL");
            return None;
        }
        if Instant::now() > end {
            return Some(format!("L7: the primary holds {here:?}\n and its replica {there:?}"));
        }
        thread::sleep(Duration::from_millis(50));
    }
}
