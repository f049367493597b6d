//! Looks at the queues. Who is seen there must be granted the lock before whoever asks from then on.

use crate::claims::Excuse;
use crate::connection::{Connection, Lost, owners};
use crate::fight::{Field, now};
use leasehold_campaign::{Op, Outcome, Record};
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;
use testkit::Seed;

/// More of a queue says no more.
const COUNT: u32 = 8;

pub(crate) fn watch(at: &Field, mut seed: Seed) -> Vec<Record> {
    let mut seen = Vec::new();
    while !at.over.load(SeqCst) {
        thread::sleep(Duration::from_millis(5));
        let Ok(mut connection) = Connection::connect(at.port.load(SeqCst), 0) else { continue };
        while !at.over.load(SeqCst) && at.is_at(connection.port) {
            thread::sleep(Duration::from_millis(2));
            let lock = seed.below(at.locks.min(3) as usize) as u32;
            if look(at, &mut connection, lock, &mut seen).is_err() {
                break;
            }
        }
    }
    seen
}

fn look(
    at: &Field,
    connection: &mut Connection,
    lock: u32,
    seen: &mut Vec<Record>,
) -> Result<(), Lost> {
    let asked = now();
    let queue = connection.ask(&format!("LOCK.WAITERS {}{lock} COUNT {COUNT}", at.prefix))?;
    let told = now();
    let waiting = owners(&queue)?;
    for (position, owner) in waiting.iter().enumerate() {
        if waiting[..position].contains(owner) {
            let what = format!("{owner} waits twice for lock {lock}");
            at.claims.add("L4", Excuse::None, asked, what);
        }
        let owner = owner[1..].parse().unwrap();
        let server = at.server.load(SeqCst);
        let (op, outcome) = (Op::Seen, Outcome::Ok);
        seen.push(Record { asked, told, fence: 0, ttl: 0, owner, lock, op, outcome, server });
    }
    Ok(())
}
