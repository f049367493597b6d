//! Looks at the queues. Who is seen there must be granted the lock before whoever asks from then on; and nobody
//! may be seen at the head of the queue of a free lock again and again.

use crate::claims::Excuse;
use crate::fight::{Field, now};
use crate::support::{Seed, field};
use crate::wire::{Lost, Wire};
use leasehold_campaign::{Op, Outcome, Record};
use redis::Value;
use std::collections::HashMap;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

/// More of a queue says no more.
const COUNT: u32 = 8;

/// A free lock that has the same head of its queue in so many looks in a row, and for so long, is not handed on.
/// Each look is an answer of the server, so that one on a machine that stands still is not blamed.
const LOOKS: u32 = 10;
const LATE_MICROS: u64 = 100_000;

/// The last looks at a lock, all of which saw the same.
struct Idle {
    head: (String, Value),
    since: u64,
    looks: u32,
}

pub(crate) fn watch(at: &Field, mut seed: Seed) -> Vec<Record> {
    let mut seen = Vec::new();
    while !at.over.load(SeqCst) {
        thread::sleep(Duration::from_millis(5));
        let Ok(mut wire) = Wire::connect(at.port.load(SeqCst), 0) else { continue };
        let mut idle = HashMap::new();
        while !at.over.load(SeqCst) && at.is_at(wire.stream()) {
            thread::sleep(Duration::from_millis(2));
            let lock = seed.below(at.locks.min(3) as usize) as u32;
            if look(at, &mut wire, lock, &mut idle, &mut seen).is_err() {
                break;
            }
        }
    }
    seen
}

fn look(
    at: &Field,
    wire: &mut Wire,
    lock: u32,
    idle: &mut HashMap<u32, Idle>,
    seen: &mut Vec<Record>,
) -> Result<(), Lost> {
    let name = format!("{}{lock}", at.prefix);
    let asked = now();
    let both = [format!("LOCK.WAITERS {name} COUNT {COUNT}"), format!("LOCK.INFO {name}")];
    let replies = wire.all(&both)?;
    let told = now();
    let [Value::Array(rows), holder] = &replies[..] else { return Err(Lost) };
    let heads = rows.iter().filter_map(|row| match (field(row, "owner"), field(row, "client")) {
        (Some(Value::BulkString(owner)), Some(client)) => {
            Some((String::from_utf8_lossy(owner).into_owned(), client.clone()))
        }
        _ => None,
    });
    let waiting: Vec<_> = heads.collect();
    match waiting.first().filter(|_| *holder == Value::Nil) {
        Some(head) => {
            let before = idle.remove(&lock).filter(|before| before.head == *head);
            let mut now_idle =
                before.unwrap_or_else(|| Idle { head: head.clone(), since: told, looks: 0 });
            now_idle.looks += 1;
            if now_idle.looks >= LOOKS && asked > now_idle.since + LATE_MICROS {
                let what = format!("lock {lock} is free in {LOOKS} looks, and {} waits", head.0);
                at.claims.add("L5", Excuse::Stop, now_idle.since, what);
            } else {
                idle.insert(lock, now_idle);
            }
        }
        None => drop(idle.remove(&lock)),
    }
    for (position, (owner, _)) in waiting.iter().enumerate() {
        if waiting[..position].iter().any(|(other, _)| other == owner) {
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
