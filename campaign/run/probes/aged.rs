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

/// Why the last waiter of a lock is let in.
enum Scene {
    /// The lock becomes free.
    Freed,
    /// One of two holders, whose lease is the shorter one, holds it no longer.
    Ended,
    /// A writer that waits before it behind readers leaves.
    Left,
}

struct Wait {
    scene: Scene,
    lock: String,
    /// Who is let in, and `waiter + 1` leaves before it, if anybody does.
    waiter: usize,
    way: String,
}

/// Some locks with queues become free at once, in different ways, when these queues are old.
pub(crate) fn handed_on_when_old(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let mut waits = Vec::new();
    for waiter in (0..WAITERS).step_by(2) {
        waits.push(begin(probe, waiter)?);
    }
    thread::sleep(OLD);
    for Wait { scene, waiter, way, .. } in &waits {
        match scene {
            Scene::Left => probe.renew(waiter + 1)?,
            Scene::Freed | Scene::Ended => drop(probe.main.ask(way)?),
        }
    }
    thread::sleep(DONE);
    for Wait { scene, lock, waiter, way } in &waits {
        let what = format!("who has waited for {lock} for two seconds has it after {way}");
        // If a fault had deleted the lock, the writer had it before it left, and has it still.
        let excuse = if matches!(scene, Scene::Left) { Excuse::Freed } else { Excuse::Stop };
        let reply = probe.soon(excuse, &what, |probe| probe.reply_of(*waiter))?;
        if is_granted(&reply).is_none() {
            probe.claim("L5", excuse, format!("{what}, and was told {reply:?}"));
            return Err(Lost);
        }
    }
    let locks: Vec<_> = waits.into_iter().map(|wait| wait.lock).collect();
    probe.main.ask(&format!("DEL {}", locks.join(" "))).map(drop)
}

fn begin(probe: &mut Probe<'_>, waiter: usize) -> Result<Wait, Lost> {
    let lock = probe.fresh();
    let wait = |scene, way| Wait { scene, lock: lock.clone(), waiter, way };
    match probe.seed.below(4) {
        0 => {
            probe.joins(&lock, "reader", LONG, 0)?;
            probe.queue_for(&lock, waiter + 1, "writer", 1, EVER)?;
            probe.queue_for(&lock, waiter, "w", 0, EVER)?;
            Ok(wait(Scene::Left, "the end of the writer before it".to_owned()))
        }
        1 => {
            probe.joins(&lock, "long", LONG, 2)?;
            probe.joins(&lock, "short", LONG, 2)?;
            probe.queue_for(&lock, waiter, "w", 2, EVER)?;
            Ok(wait(Scene::Ended, format!("LOCK.EXTEND {lock} short 10")))
        }
        _ => {
            probe.grant(&lock, "m", LONG)?;
            probe.queue(&lock, waiter, "w", EVER)?;
            let way = probe.seed.pick(&unseen_ways(&lock)).clone();
            Ok(wait(Scene::Freed, way))
        }
    }
}
