//! Scenario `alone`: one server that does not die, and everything that its clients and its operator can do to it.

use crate::runner::{Faults, Plan, Totals};
use std::thread;
use std::time::Duration;
use testkit::{Client, Seed, Server, eventually};

pub(crate) fn run(seed: u64, length: Duration) -> Totals {
    let mut of_locks = Seed::of(seed);
    let locks = *of_locks.pick(&[2, 10, 30, 100]);
    let server = Server::builder().tcp().start();
    let mut client = server.client();
    // Some servers check only `hz` times a second whether a pause is over.
    let plan = Plan { locks, probes: 3, calm_micros: 250_000, ..Plan::at(server.port()) };
    plan.run((seed, length), |faults, seed, _| {
        thread::sleep(Duration::from_micros(seed.below(30_000) as u64));
        match seed.below(56) {
            0 => stop(faults, seed, &mut client),
            _ => touch(faults, seed, &mut client, locks),
        }
    })
}

/// What any client that may write can do.
pub(super) fn touch(faults: &mut Faults, seed: &mut Seed, client: &mut Client, locks: u32) {
    let lock = seed.below(locks as usize) as u32;
    match seed.below(55) {
        0 => drop(faults.frees("FLUSHALL", None, || client.cmd("FLUSHALL"))),
        1 => drop(faults.frees("FLUSHALL ASYNC", None, || client.cmd("FLUSHALL ASYNC"))),
        2 => {
            let all = ["SWAPDB 0 1", "SELECT 1", "FLUSHDB", "SELECT 0"];
            drop(faults.frees("SWAPDB", None, || client.transaction(&all)));
        }
        3 => {
            faults.still("CLIENT KILL of everybody", || {
                client.cmd("CLIENT KILL TYPE normal SKIPME yes");
            });
        }
        4 => drop(faults.note("BGSAVE", || client.cmd("BGSAVE"))),
        5 => drop(faults.note("BGREWRITEAOF", || client.cmd("BGREWRITEAOF"))),
        6 => {
            let hz = *seed.pick(&[10, 100, 500]);
            faults.note("CONFIG SET hz", || client.cmd(format!("CONFIG SET hz {hz}")));
        }
        7..15 => super::strangers::act(faults, seed, client, lock),
        _ => {
            let ways = [
                format!("DEL l{lock}"),
                format!("UNLINK l{lock}"),
                format!("PEXPIRE l{lock} -1"),
                format!("GETDEL l{lock}"),
                format!("RENAME l{lock} elsewhere"),
                format!("SET l{lock} stranger PX 5"),
                format!("EVAL return(redis.call('DEL',KEYS[1])) 1 l{lock}"),
            ];
            let way = &ways[seed.below(ways.len())];
            faults.frees(way, Some(lock), || client.cmd(&**way));
        }
    }
}

/// Stops the server for a while. This is rare, because what the server does not do then is excused.
fn stop(faults: &mut Faults, seed: &mut Seed, client: &mut Client) {
    match seed.below(3) {
        0 => {
            let millis = 5 + seed.below(80);
            faults.still("CLIENT PAUSE", || {
                client.cmd(format!("CLIENT PAUSE {millis} WRITE"));
                thread::sleep(Duration::from_millis(millis as u64 + 5));
            });
        }
        1 => {
            // A BGSAVE that ends just then would put an older file where the server is about to load its own from.
            eventually("no file is being saved", || {
                match client.info_field("persistence", "rdb_bgsave_in_progress").as_deref() {
                    Some("0") => Ok(()),
                    other => Err(other.map(str::to_owned)),
                }
            });
            faults.still("DEBUG RELOAD", || {
                client.cmd("DEBUG RELOAD");
                // Valkey 8.1 and 9.0 leave the client in the database of the last key that the
                // module was told of: valkey#4024.
                client.cmd("SELECT 0");
            });
        }
        _ => {
            let value = *seed.pick(&["yes", "no"]);
            faults.still("CONFIG SET appendonly", || {
                client.cmd(format!("CONFIG SET appendonly {value}"));
            });
        }
    }
}
