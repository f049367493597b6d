//! Scenarios `clock`, `memory`, `disk` and `disk-always`: servers without the right time, memory or disk.

use crate::runner::{Faults, Plan, Totals, now};
use leasehold_campaign::Span;
use redis::Value;
use std::thread;
use std::time::Duration;
use testkit::{Client, Clock, Server, eventually};

/// How long the clock may stay behind.
const BEHIND: Duration = Duration::from_millis(300);

/// How far the clock is set, in seconds. No lease is longer than the shortest step.
pub(super) const STEPS: [u64; 5] = [1, 2, 30, 600, 3_600];

/// While the clock is set to and fro over and over, only guarded writes are judged.
pub(crate) fn clock(seed: u64, length: Duration) -> Totals {
    let mut clock = Clock::new();
    let server = Server::builder().tcp().clock(&clock).start();
    let mut client = server.client();
    Plan::at(server.port()).run((seed, length), |faults, seed, _| {
        thread::sleep(Duration::from_millis(seed.below(300) as u64));
        let step = Duration::from_secs(*seed.pick(&STEPS));
        let mut rest = || Duration::from_millis(seed.below(BEHIND.as_millis() as usize) as u64);
        let (one, other) = (rest(), rest());
        let begin = now();
        match seed.below(3) {
            0 => {
                forward(faults, &mut clock, step, &mut client);
                thread::sleep(one);
                back_and_flush(faults, &mut clock, step, &mut client, other);
            }
            1 => {
                back_and_flush(faults, &mut clock, step, &mut client, one);
                thread::sleep(other);
                // This ends what was granted since the step back.
                forward(faults, &mut clock, step, &mut client);
            }
            _ => {
                for _ in 0..30 {
                    let rest = Duration::from_micros(seed.below(10_000) as u64);
                    faults.note("the clock is set forward", || clock.step_forward(step));
                    thread::sleep(rest);
                    faults.note("the clock is set back", || clock.step_back(step));
                    thread::sleep(rest);
                }
                // So that leases of later grants end by the right clock.
                clock.wait_until_known(&mut client);
                client.cmd("FLUSHALL");
                let set = Span { from: begin, to: now() };
                faults.was_behind(set, set.to);
            }
        }
        // Leases that were to end are noticed a second later at the latest, by either clock.
        faults.rules.standstill.push(Span { from: begin, to: now() + 1_000_000 });
    })
}

/// Every lease ends. The server is made to look at all locks, so that it notices.
pub(super) fn forward(faults: &mut Faults, clock: &mut Clock, step: Duration, client: &mut Client) {
    faults.frees("the clock is set forward", None, || {
        clock.step_forward(step);
        clock.wait_until_known(client);
        client.cmd("EXISTS l0 l1 l2 l3 l4 l5 l6 l7 l8 l9");
    });
}

/// Leases last longer, and those that have ended are in force again, until everything is flushed.
fn back_and_flush(
    faults: &mut Faults,
    clock: &mut Clock,
    step: Duration,
    client: &mut Client,
    rest: Duration,
) {
    let ((), set_back) = faults.note("the clock is set back", || {
        clock.step_back(step);
        clock.wait_until_known(client);
    });
    thread::sleep(rest);
    faults.frees("FLUSHALL", None, || drop(client.cmd("FLUSHALL")));
    faults.was_behind(set_back, now());
}

pub(crate) fn memory(seed: u64, length: Duration) -> Totals {
    const POLICIES: [&str; 10] = [
        "noeviction",
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-random",
        "volatile-lru",
        "volatile-lfu",
        "volatile-random",
        "volatile-ttl",
        "allkeys-lrm",
        "volatile-lrm",
    ];
    let server = Server::builder().tcp().start();
    let mut client = server.client();
    let mut set = {
        let mut client = server.client();
        move |name: &str, value: &str| client.cmd(format!("CONFIG SET {name} {value}"))
    };
    // Not every server has the last two.
    let mut known = POLICIES.to_vec();
    known.retain(|policy| set("maxmemory-policy", policy) == Value::Okay);
    assert!(known.len() >= 8, "of the policies, the server knows {known:?}");
    let plan = Plan { locks: 100, ..Plan::at(server.port()) };
    plan.run((seed, length), |faults, seed, _| {
        thread::sleep(Duration::from_millis(seed.below(100) as u64));
        let policy = *seed.pick(&known);
        let used: u64 = client.info_number("memory", "used_memory");
        let what = format!("maxmemory with {policy}");
        let mut starve = || {
            assert_eq!(set("maxmemory-policy", policy), Value::Okay);
            assert_eq!(set("maxmemory", &(used + 20_000).to_string()), Value::Okay);
            for number in 0..200 {
                client.cmd(format!("SET fill{number} {} EX 100", "x".repeat(1_000)));
            }
            thread::sleep(Duration::from_millis(seed.below(150) as u64));
            assert_eq!(set("maxmemory", "0"), Value::Okay);
            for number in 0..200 {
                client.cmd(format!("DEL fill{number}"));
            }
        };
        if policy == "noeviction" {
            faults.still(&what, starve);
        } else {
            // A lock that is evicted while nobody waits for it is lost.
            faults.lossy(&what, Duration::ZERO, &mut starve);
        }
    })
}

/// The disk is full for a while, or while a file is saved, or until the server is killed, which
/// loses what it could not write.
pub(crate) fn disk(seed: u64, length: Duration) -> Totals {
    let setup = Server::builder().tcp();
    let setup = setup.config("appendonly", "yes").config("appendfsync", "everysec");
    // The server never saves by itself, but refuses writes after a failed save.
    let mut server = setup.config("save", "100000 1000000").start();
    Plan::at(server.port()).run((seed, length), |faults, seed, _| {
        let mut moment = |most| Duration::from_millis(seed.below(most) as u64);
        thread::sleep(moment(300));
        let (rest, full) = (moment(4), moment(300));
        match rest.as_millis() {
            0 => faults.lossy("the disk is full, kill -9", Duration::from_secs(2), || {
                server.limit_files(1);
                thread::sleep(full);
                server.kill();
                server.start_again();
            }),
            1 => faults.still("the disk is full while a file is saved", || {
                server.limit_files(1);
                saves(&server, "err");
                thread::sleep(full);
                server.lift_limit();
                saves(&server, "ok");
            }),
            _ => faults.still("the disk is full for a while", || {
                server.limit_files(1);
                thread::sleep(full);
                server.lift_limit();
                writes_again(&server);
            }),
        }
    })
}

/// Saves a file until that has succeeded, or failed.
fn saves(server: &Server, end: &str) {
    let mut client = server.client();
    eventually("the file is saved, or not", || {
        client.cmd("BGSAVE");
        let field = |client: &mut testkit::Client, name| client.info_field("persistence", name);
        let is_over = field(&mut client, "rdb_bgsave_in_progress").as_deref() == Some("0");
        let ended = field(&mut client, "rdb_last_bgsave_status");
        if is_over && ended.as_deref() == Some(end) { Ok(()) } else { Err(ended) }
    });
    if end == "ok" {
        writes_again(server);
    }
}

/// The server tries to write once a second.
fn writes_again(server: &Server) {
    let mut client = server.client();
    eventually("the server takes writes again", || match client.cmd("SET space x PX 1") {
        Value::Okay => Ok(()),
        other => Err(other),
    });
}

/// A server that forces every write to disk ends itself when it cannot. What it has acknowledged is
/// there after a restart.
pub(crate) fn disk_always(seed: u64, length: Duration) -> Totals {
    let setup = Server::builder().tcp().config("appendonly", "yes").config("appendfsync", "always");
    // Otherwise the server rewrites the file by itself, and the new one never reaches the limit.
    let mut server = setup.config("auto-aof-rewrite-percentage", "0").start();
    Plan::at(server.port()).run((seed, length), |faults, seed, _| {
        thread::sleep(Duration::from_millis(100 + seed.below(300) as u64));
        // The limit may be in the middle of a command.
        let room = *seed.pick(&[0, 1, 30, 70, 500, 5_000]);
        faults.still("the disk is full, the server ends", || {
            server.limit_files(written(&server) + room);
            server.wait_until_it_ends();
            thread::sleep(Duration::from_millis(seed.below(50) as u64));
            server.start_again();
        });
    })
}

/// The size of the append-only file, or of its longest part.
fn written(server: &Server) -> u64 {
    let parts =
        |folder: std::path::PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = parts(server.dir().join("appendonlydir")).chain(parts(server.dir().to_owned()));
    let lengths = files.filter(|file| file.path().extension().is_some_and(|end| end == "aof"));
    lengths.filter_map(|file| Some(file.metadata().ok()?.len())).max().unwrap()
}
