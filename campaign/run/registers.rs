//! Clients that write behind the fence of their lock: each lock has a register, which holds the fence of its last writer.
//!
//! ```text
//!   one      grant 7 ── LOCK.GUARD … 7 GETSET register 7 ── pauses past its lease ───── LOCK.GUARD … 7: refused
//!   other                                                     grant 8 ── GETSET … 8
//! ```
//!
//! Whoever writes is told what was there before. That is never a later fence than its own, whatever was lost: a server
//! that lost a grant has lost what was written by it too. So nothing excuses it. Each lock also has a set, which writers read
//! and write again: while one fence holds the lock, nobody else adds to it.

use crate::claims::Excuse;
use crate::clients::is_too_late;
use crate::connection::{Connection, Lost};
use crate::runner::{Shared, now};
use leasehold_campaign::{Op, Outcome, Record};
use redis::Value;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;
use testkit::Seed;

/// How many write in turn.
pub(crate) const WRITERS: usize = 3;

/// Few, so that they take them from each other.
const LOCKS: usize = 2;

/// Of a set, only the end is kept.
const LONGEST_SET: usize = 100;

/// Short, so that many leases end while their holders pause.
const TTLS: [u32; 4] = [2, 5, 20, 200];

/// How long a writer pauses at most, in milliseconds.
const LONGEST_PAUSE: usize = 12;

/// Writes until the round is over. Returns how many guarded commands it has sent, and what it was told: a guarded command that is
/// run says that its sender holds the lock, as a check does.
pub(crate) fn write(shared: &Shared, mut seed: Seed) -> (u64, Vec<Record>) {
    let mut writer =
        Writer { shared, owner: 0, former: [None; LOCKS], sent: 0, records: Vec::new() };
    while !shared.over.load(SeqCst) {
        let port = shared.port.load(SeqCst);
        // Of one whose connection was lost, it is not known what it holds.
        writer.owner = shared.next_owner.fetch_add(1, SeqCst);
        if !shared.plan.owners_stay {
            writer.former = [None; LOCKS];
        }
        if let Ok(mut connection) = Connection::connect(port, 0) {
            while !shared.over.load(SeqCst) && shared.is_at(port) {
                if writer.turn(&mut connection, &mut seed).is_err() {
                    break;
                }
            }
        }
        thread::sleep(Duration::from_millis(2));
    }
    (writer.sent, writer.records)
}

struct Writer<'s> {
    shared: &'s Shared,
    owner: u32,
    /// The owner and the fence by which it held each lock before.
    former: [Option<(u32, u64)>; LOCKS],
    sent: u64,
    records: Vec<Record>,
}

impl Writer<'_> {
    /// Takes a lock, and writes by its fence, in time or too late.
    fn turn(&mut self, connection: &mut Connection, seed: &mut Seed) -> Result<(), Lost> {
        let lock = seed.below(LOCKS);
        let (owner, ttl) = (self.owner, *seed.pick(&TTLS));
        let line = format!("LOCK.ACQUIRE {} g{owner} {ttl} BLOCK 50", self.key(lock));
        let asked = Record { ttl, ..self.record(Op::Wait, lock, (owner, 0)) };
        let Some(Value::Int(fence)) = self.asks(connection, asked, &line)? else { return Ok(()) };
        let fence = u64::try_from(fence).map_err(|_| Lost)?;
        let by = (owner, fence);
        for _ in 0..1 + seed.below(3) {
            if seed.below(3) == 0 {
                thread::sleep(Duration::from_millis(seed.below(LONGEST_PAUSE) as u64));
            }
            self.writes(connection, lock, by)?;
            if let Some(former) = self.former[lock].filter(|_| seed.below(4) == 0) {
                self.writes(connection, lock, former)?;
            }
            match seed.below(8) {
                0 => drop(self.guarded(connection, lock, by, "INCR {count}")?),
                1 => self.adds(connection, lock, by)?,
                _ => {}
            }
        }
        self.former[lock] = Some(by);
        if seed.below(4) > 0 {
            // Now and then the lock goes in the step in which it was written by it.
            let line = format!("LOCK.RELEASE {} g{owner}", self.key(lock));
            let release = self.record(Op::Release, lock, by);
            match seed.below(3) {
                0 => {
                    let line = format!("LOCK.GUARD {} g{owner} {fence} {line}", self.key(lock));
                    self.sent += 1;
                    self.asks(connection, release, &line)?;
                }
                _ => drop(self.asks(connection, release, &line)?),
            }
        }
        Ok(())
    }

    /// Leaves its fence in the register, if it may.
    fn writes(
        &mut self,
        connection: &mut Connection,
        lock: usize,
        by: (u32, u64),
    ) -> Result<(), Lost> {
        let (_, fence) = by;
        let begun = now();
        let line = format!("GETSET {{register}} {fence}");
        let Some(before) = self.replaced(connection, lock, by, &line)? else { return Ok(()) };
        if before.parse::<u64>().is_ok_and(|before| before <= fence) {
            return Ok(());
        }
        let what = format!("the register of g{lock} went from {before} back to {fence}");
        self.shared.claims.add("L2", Excuse::None, begun, what);
        Err(Lost)
    }

    /// Reads a set, and writes it again with its fence in it. Whoever has written in between held the lock, too, so what that
    /// one added would be lost.
    fn adds(
        &mut self,
        connection: &mut Connection,
        lock: usize,
        by: (u32, u64),
    ) -> Result<(), Lost> {
        let (_, fence) = by;
        let begun = now();
        let read = match self.guarded(connection, lock, by, "GET {set}")? {
            Some(Value::BulkString(read)) => String::from_utf8_lossy(&read).into_owned(),
            Some(_) => String::new(),
            None => return Ok(()),
        };
        let longest = read.len().saturating_sub(LONGEST_SET);
        let line = format!("GETSET {{set}} {}.{fence}", &read[longest..]);
        let Some(before) = self.replaced(connection, lock, by, &line)? else { return Ok(()) };
        if before == read {
            return Ok(());
        }
        let what = format!("the set of g{lock} went from {read} to {before} while {fence} held it");
        self.shared.claims.add("L1", Excuse::None, begun, what);
        Err(Lost)
    }

    /// The text that a guarded command has replaced. `None` if there was none, or the command was refused.
    fn replaced(
        &mut self,
        connection: &mut Connection,
        lock: usize,
        by: (u32, u64),
        command: &str,
    ) -> Result<Option<String>, Lost> {
        Ok(match self.guarded(connection, lock, by, command)? {
            Some(Value::BulkString(text)) => Some(String::from_utf8_lossy(&text).into_owned()),
            _ => None,
        })
    }

    /// The reply to a guarded command. `None` if it was refused, as that of one who no longer holds the lock.
    fn guarded(
        &mut self,
        connection: &mut Connection,
        lock: usize,
        (owner, fence): (u32, u64),
        command: &str,
    ) -> Result<Option<Value>, Lost> {
        let key = self.key(lock);
        let command = command
            .replace("{register}", &format!("{key}-register"))
            .replace("{set}", &format!("{key}-set"))
            .replace("{count}", &format!("{key}-count"));
        self.sent += 1;
        let line = format!("LOCK.GUARD {key} g{owner} {fence} {command}");
        let check = self.record(Op::Check, lock, (owner, fence));
        self.asks(connection, check, &line)
    }

    fn key(&self, lock: usize) -> String {
        format!("{}g{lock}", self.shared.plan.prefix)
    }

    /// A request by this owner with this fence. The numbers of these locks follow those of all others.
    fn record(&self, op: Op, lock: usize, (owner, fence): (u32, u64)) -> Record {
        let lock = self.shared.plan.locks + u32::try_from(lock).unwrap();
        Record { fence, outcome: Outcome::Unknown, ..Record::new(op, owner, lock, (now(), 0)) }
    }

    /// Sends a request, and records the outcome. `None` if a guarded command was refused.
    fn asks(
        &mut self,
        connection: &mut Connection,
        mut asked: Record,
        line: &str,
    ) -> Result<Option<Value>, Lost> {
        let sent = connection.send(&[line.to_owned()]);
        let reply = match sent.and_then(|()| connection.receive_any()) {
            Ok(Value::ServerError(refusal)) if refusal.code() == "NOTHOLDER" => Ok(None),
            // It is not known why, nor whether the next one fares better.
            Ok(Value::ServerError(_)) | Err(Lost) => Err(Lost),
            Ok(_) if is_too_late(asked.asked) => Err(Lost),
            Ok(reply) => Ok(Some(reply)),
        };
        (asked.told, asked.outcome) = match &reply {
            Err(Lost) => (now(), Outcome::Unknown),
            Ok(None | Some(Value::Int(0))) if asked.op == Op::Release => (now(), Outcome::Refused),
            Ok(Some(Value::Nil)) if asked.op == Op::Wait => (now(), Outcome::Refused),
            Ok(None) => (now(), Outcome::Refused),
            Ok(Some(Value::Int(fence))) if asked.op == Op::Wait => {
                asked.fence = u64::try_from(*fence).unwrap_or(0);
                (now(), Outcome::Ok)
            }
            Ok(Some(_)) => (now(), Outcome::Ok),
        };
        self.records.push(asked);
        reply
    }
}
