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
use crate::connection::{Connection, Lost};
use crate::runner::{Shared, now};
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
const TTLS: [u64; 4] = [2, 5, 20, 200];

/// How long a writer pauses at most, in milliseconds.
const LONGEST_PAUSE: usize = 12;

/// Writes until the round is over. Returns how many guarded commands it has sent.
pub(crate) fn write(shared: &Shared, mut seed: Seed) -> u64 {
    let owner = format!("g{}", shared.next_owner.fetch_add(1, SeqCst));
    let mut writer = Writer { shared, owner, former: [None; LOCKS], sent: 0 };
    while !shared.over.load(SeqCst) {
        let port = shared.port.load(SeqCst);
        if let Ok(mut connection) = Connection::connect(port, 0) {
            while !shared.over.load(SeqCst) && shared.is_at(port) {
                if writer.turn(&mut connection, &mut seed).is_err() {
                    break;
                }
            }
        }
        thread::sleep(Duration::from_millis(2));
    }
    writer.sent
}

struct Writer<'s> {
    shared: &'s Shared,
    owner: String,
    /// The fence by which it held each lock before.
    former: [Option<u64>; LOCKS],
    sent: u64,
}

impl Writer<'_> {
    /// Takes a lock, and writes by its fence, in time or too late.
    fn turn(&mut self, connection: &mut Connection, seed: &mut Seed) -> Result<(), Lost> {
        let lock = seed.below(LOCKS);
        let (prefix, owner) = (&self.shared.plan.prefix, &self.owner);
        let ttl = *seed.pick(&TTLS);
        let asked = format!("LOCK.ACQUIRE {prefix}g{lock} {owner} {ttl} BLOCK 50");
        let Value::Int(fence) = connection.ask(&asked)? else { return Ok(()) };
        let fence = u64::try_from(fence).map_err(|_| Lost)?;
        for _ in 0..1 + seed.below(3) {
            if seed.below(3) == 0 {
                thread::sleep(Duration::from_millis(seed.below(LONGEST_PAUSE) as u64));
            }
            self.writes(connection, lock, fence)?;
            if let Some(former) = self.former[lock].filter(|_| seed.below(4) == 0) {
                self.writes(connection, lock, former)?;
            }
            match seed.below(8) {
                0 => drop(self.guarded(connection, lock, fence, "INCR {count}")?),
                1 => self.adds(connection, lock, fence)?,
                _ => {}
            }
        }
        self.former[lock] = Some(fence);
        if seed.below(4) > 0 {
            // Now and then the lock goes in the step in which it was written by it.
            let line = format!("LOCK.RELEASE {}g{lock} {}", self.shared.plan.prefix, self.owner);
            match seed.below(3) {
                0 => drop(self.guarded(connection, lock, fence, &line)?),
                _ => drop(connection.ask(&line)?),
            }
        }
        Ok(())
    }

    /// Leaves its fence in the register, if it may.
    fn writes(&mut self, connection: &mut Connection, lock: usize, fence: u64) -> Result<(), Lost> {
        let begun = now();
        let line = format!("GETSET {{register}} {fence}");
        let Some(Value::BulkString(before)) = self.guarded(connection, lock, fence, &line)? else {
            return Ok(());
        };
        let before = String::from_utf8_lossy(&before).into_owned();
        if before.parse::<u64>().is_ok_and(|before| before <= fence) {
            return Ok(());
        }
        let what = format!("the register of g{lock} went from {before} back to {fence}");
        self.shared.claims.add("L2", Excuse::None, begun, what);
        Err(Lost)
    }

    /// Reads a set, and writes it again with its fence in it. Whoever has written in between held the lock, too, so what that
    /// one added would be lost.
    fn adds(&mut self, connection: &mut Connection, lock: usize, fence: u64) -> Result<(), Lost> {
        let begun = now();
        let read = match self.guarded(connection, lock, fence, "GET {set}")? {
            Some(Value::BulkString(read)) => String::from_utf8_lossy(&read).into_owned(),
            Some(_) => String::new(),
            None => return Ok(()),
        };
        let longest = read.len().saturating_sub(LONGEST_SET);
        let line = format!("GETSET {{set}} {}.{fence}", &read[longest..]);
        let Some(Value::BulkString(before)) = self.guarded(connection, lock, fence, &line)? else {
            return Ok(());
        };
        let before = String::from_utf8_lossy(&before).into_owned();
        if before == read {
            return Ok(());
        }
        let what = format!("the set of g{lock} went from {read} to {before} while {fence} held it");
        self.shared.claims.add("L1", Excuse::None, begun, what);
        Err(Lost)
    }

    /// The reply to a guarded command. `None` if it was refused, as that of one who no longer holds the lock.
    fn guarded(
        &mut self,
        connection: &mut Connection,
        lock: usize,
        fence: u64,
        command: &str,
    ) -> Result<Option<Value>, Lost> {
        let (prefix, owner) = (&self.shared.plan.prefix, &self.owner);
        let command = command
            .replace("{register}", &format!("{prefix}g{lock}-register"))
            .replace("{set}", &format!("{prefix}g{lock}-set"))
            .replace("{count}", &format!("{prefix}g{lock}-count"));
        self.sent += 1;
        connection.send(&[format!("LOCK.GUARD {prefix}g{lock} {owner} {fence} {command}")])?;
        match connection.receive_any()? {
            Value::ServerError(refusal) if refusal.code() == "NOTHOLDER" => Ok(None),
            // It is not known why, nor whether the next one fares better.
            Value::ServerError(_) => Err(Lost),
            reply => Ok(Some(reply)),
        }
    }
}
