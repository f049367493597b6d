//! A conversation about queues that are no longer new. A new queue is looked at every few milliseconds, so a lock that nothing
//! else hands on is handed on all the same. Later it is looked at once a second.

use super::turns::{DONE, unseen_ways};
use super::{EVER, LONG, Probe, WAITERS, is_granted};
use crate::claims::Excuse;
use crate::connection::Lost;
use std::thread;
use std::time::Duration;

/// The last look at a queue for its being new comes before it is two seconds old. The next one may come soon by chance.
const OLD: Duration = Duration::from_millis(2_100);

/// After what somebody is let in.
enum Change {
    /// The lock becomes free, or one of two holders holds it no longer.
    Command(String),
    /// A writer that waits before it, behind readers, hangs up.
    FirstLeaves,
}

struct Wait {
    lock: String,
    /// Who is let in. `waiter + 1` may wait before it.
    waiter: usize,
    change: Change,
}

/// Some locks with queues become free at once, in different ways, when these queues are old.
pub(crate) fn handed_on_when_old(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let mut waits = Vec::new();
    for waiter in (0..WAITERS).step_by(2) {
        waits.push(begin(probe, waiter)?);
    }
    thread::sleep(OLD);
    for Wait { waiter, change, .. } in &waits {
        match change {
            Change::Command(way) => drop(probe.main.ask(way)?),
            Change::FirstLeaves => probe.renew(waiter + 1)?,
        }
    }
    thread::sleep(DONE);
    for Wait { lock, waiter, change } in &waits {
        let after = match change {
            Change::Command(way) => way,
            Change::FirstLeaves => "the writer before it has hung up",
        };
        let what = format!("who has waited for {lock} for two seconds has it after {after}");
        let reply = probe.reply_soon(*waiter, &what)?;
        if is_granted(&reply).is_none() {
            probe.claim("L5", Excuse::Stop, format!("{what}, and was told {reply:?}"));
            return Err(Lost);
        }
    }
    let locks: Vec<_> = waits.into_iter().map(|wait| wait.lock).collect();
    probe.main.ask(&format!("DEL {}", locks.join(" "))).map(drop)
}

fn begin(probe: &mut Probe<'_>, waiter: usize) -> Result<Wait, Lost> {
    let lock = probe.fresh();
    let change = match probe.seed.below(4) {
        0 => {
            probe.joins(&lock, "reader", LONG, 0)?;
            probe.queue_for(&lock, waiter + 1, "writer", 1, EVER)?;
            probe.queue_for(&lock, waiter, "w", 0, EVER)?;
            Change::FirstLeaves
        }
        1 => {
            probe.joins(&lock, "long", LONG, 2)?;
            probe.joins(&lock, "short", LONG, 2)?;
            probe.queue_for(&lock, waiter, "w", 2, EVER)?;
            Change::Command(format!("LOCK.EXTEND {lock} short 10"))
        }
        _ => {
            probe.grant(&lock, "m", LONG)?;
            probe.queue(&lock, waiter, "w", EVER)?;
            Change::Command(probe.seed.pick(&unseen_ways(&lock)).clone())
        }
    };
    Ok(Wait { lock, waiter, change })
}
