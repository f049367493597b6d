//! What other clients do to the keys of locks, to waiters, to settings and to permissions.

use crate::connection::PROBE_NAME;
use crate::runner::Faults;
use std::thread;
use std::time::Duration;
use testkit::{Client, Seed, bulk_text, may_crash_when_a_paused_client_is_unblocked};

/// Of these, only a deletion of a lock excuses anything.
pub(crate) fn act(faults: &mut Faults, seed: &mut Seed, client: &mut Client, lock: u32) {
    let key = format!("l{lock}");
    match seed.below(9) {
        0 | 1 => unblock(faults, seed, client),
        2 => {
            // The key must not come back when databases are swapped.
            let all = [
                "SELECT 1",
                "FLUSHDB",
                "SELECT 0",
                &format!("MOVE {key} 1"),
                "SELECT 1",
                "FLUSHDB",
                "SELECT 0",
            ];
            drop(faults.frees("MOVE", Some(lock), || client.transaction(&all)));
        }
        3 => drop(faults.note("COPY", || client.cmd(format!("COPY {key} copy REPLACE")))),
        4 => {
            // Restores the same value with the same deadline.
            let script = "local p,d=redis.call('PTTL',KEYS[1]),redis.call('DUMP',KEYS[1]) \
                          if d and p>0 then redis.call('RESTORE',KEYS[1],p,d,'REPLACE') end";
            faults.unbinds("RESTORE … REPLACE of itself", || {
                client.cmd(["EVAL", script, "1", &key])
            });
        }
        5 => {
            let all = [format!("PERSIST {key}"), format!("LOCK.INFO {key}"), format!("DEL {key}")];
            let all: Vec<_> = all.iter().map(|command| &**command).collect();
            drop(faults.frees("PERSIST and DEL", Some(lock), || client.transaction(&all)));
        }
        6 => {
            let all = [
                format!("DEL {key}"),
                format!("LOCK.ACQUIRE {key} stranger 5"),
                format!("LOCK.RELEASE {key} stranger"),
            ];
            let all: Vec<_> = all.iter().map(|command| &**command).collect();
            drop(faults.frees("DEL and a try", Some(lock), || client.transaction(&all)));
        }
        7 => settings(faults, seed, client),
        _ => permissions(faults, seed, client),
    }
}

/// A waiter that is unblocked hears nil or an error, so it knows that it has no lock. Probes are
/// spared, because they would call that a violation. Older servers crash if a pause holds the client
/// back by then, and probes pause writes at any time.
fn unblock(faults: &mut Faults, seed: &mut Seed, client: &mut Client) {
    // Drawn whether somebody waits or not, so that the seed gives the same faults.
    let how = *seed.pick(&["TIMEOUT", "ERROR"]);
    let which = seed.number();
    if may_crash_when_a_paused_client_is_unblocked() {
        return;
    }
    let list = bulk_text(&client.cmd("CLIENT LIST TYPE normal"));
    let is_waiting = |line: &&str| line.contains(" flags=b") && !line.contains(PROBE_NAME);
    let waiting = list.lines().filter(is_waiting);
    let ids: Vec<_> =
        waiting.filter_map(|line| line.split(' ').next()?.strip_prefix("id=")).collect();
    let Some(place) = which.checked_rem(ids.len() as u64) else { return };
    let id = ids[place as usize];
    faults.note(&format!("CLIENT UNBLOCK … {how}"), || {
        client.cmd(format!("CLIENT UNBLOCK {id} {how}"))
    });
}

/// Changes a setting and changes it back. No waiter may be sent away by that.
fn settings(faults: &mut Faults, seed: &mut Seed, client: &mut Client) {
    let (name, value, usual) = *seed.pick(&[
        ("max-waiters", "0", "8000"),
        ("max-waiters-per-lock", "2", "8000"),
        // Nobody who waits asks for more, probes included: it would be granted no more than that.
        ("max-ttl", "60000", "86400000"),
        ("fence-margin", "0", "15000"),
        ("quarantine-ms", "100000", "0"),
        ("log-max-len", "0", "128"),
        ("log-long-wait", "1", "10000"),
    ]);
    faults.note(&format!("CONFIG SET leasehold.{name} {value}"), || {
        client.cmd(format!("CONFIG SET leasehold.{name} {value}"));
        thread::sleep(Duration::from_micros(seed.below(10_000) as u64));
        client.cmd(format!("CONFIG SET leasehold.{name} {usual}"));
    });
}

/// Takes permissions away and gives them back. All clients are this user. Neither waiters nor holders lose anything.
fn permissions(faults: &mut Faults, seed: &mut Seed, client: &mut Client) {
    let (takes, gives) = *seed.pick(&[
        ("-lock.acquire", "+lock.acquire"),
        ("-lock.release", "+lock.release"),
        ("-lock.extend -lock.check", "+lock.extend +lock.check"),
        ("resetkeys ~other", "~*"),
    ]);
    faults.note(&format!("ACL SETUSER default {takes}"), || {
        client.cmd(format!("ACL SETUSER default {takes}"));
        thread::sleep(Duration::from_micros(seed.below(10_000) as u64));
        client.cmd(format!("ACL SETUSER default {gives} +@all"));
    });
}
