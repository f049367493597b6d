//! Watches the queues. An owner that was seen in a queue must be granted the lock before any owner that asks later.

use crate::claims::Excuse;
use crate::connection::{Connection, Lost, owners};
use crate::runner::{Shared, now};
use leasehold_campaign::{Op, Record};
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;
use testkit::Seed;

/// As many waiters of a lock are looked at.
const COUNT: u32 = 8;

pub(crate) fn watch(shared: &Shared, mut seed: Seed) -> Vec<Record> {
    let mut seen = Vec::new();
    while !shared.over.load(SeqCst) {
        thread::sleep(Duration::from_millis(5));
        let Ok(mut connection) = Connection::connect(shared.port.load(SeqCst), 0) else { continue };
        while !shared.over.load(SeqCst) && shared.is_at(connection.port) {
            thread::sleep(Duration::from_millis(2));
            // Many ask for the first ones. Queues are longest for the last, which are asked for together.
            let first = *seed.pick(&[
                0,
                shared.plan.locks.saturating_sub(3),
                shared.plan.locks.saturating_sub(3),
            ]);
            let lock = (first + seed.below(3) as u32).min(shared.plan.locks - 1);
            if look(shared, &mut connection, lock, &mut seen).is_err() {
                break;
            }
        }
    }
    seen
}

fn look(
    shared: &Shared,
    connection: &mut Connection,
    lock: u32,
    seen: &mut Vec<Record>,
) -> Result<(), Lost> {
    let asked = now();
    let queue =
        connection.ask(&format!("LOCK.WAITERS {}{lock} COUNT {COUNT}", shared.plan.prefix))?;
    let told = now();
    let waiting = owners(&queue)?;
    for (position, owner) in waiting.iter().enumerate() {
        if waiting[..position].contains(owner) {
            let what = format!("{owner} waits twice for lock {lock}");
            shared.claims.add("L4", Excuse::None, asked, what);
        }
    }
    for owner in waiting {
        let Some(owner) = owner.strip_prefix('o').and_then(|number| number.parse().ok()) else {
            let what = format!("{owner} is in the queue of lock {lock}, for which it never asked");
            shared.claims.add("L4", Excuse::None, asked, what);
            continue;
        };
        let server = shared.server.load(SeqCst);
        seen.push(Record { server, ..Record::new(Op::Seen, owner, lock, (asked, told)) });
    }
    Ok(())
}
