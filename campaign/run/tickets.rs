//! Clients that wait by a ticket: they ask again and again, until they have the lock or have had enough.
//!
//! ```text
//!   asked   nil     nil           nil   fence          a wait from the first request to the last reply,
//!   ├────────┼───────┼─────────────┼─────┤             and a try, which claims the lock
//!            └─ shorter than the lease ┘               else the place may be another one since
//! ```

use crate::clients::{Client, LONGEST_TTL_LEFT, USUAL_DELAY, delay_of_this_thread};
use crate::connection::Lost;
use crate::request::{Asked, Node, Reply, also};
use crate::runner::now;
use leasehold_campaign::{Op, Outcome, Record, Span};
use std::thread;
use std::time::Duration;

/// So long that others notice who is kept waiting for it.
const UNCLAIMED_TTL: u32 = 5_000;

impl Client<'_> {
    pub(crate) fn wait_by_ticket(&mut self, node: &mut Node) -> Result<(), Lost> {
        // Where nobody has asked for anything by this name, the place is certain.
        if self.seed.below(4) > 0 {
            self.is_another();
        }
        let plain = match self.several() {
            Some(several) if self.seed.below(4) == 0 => several,
            _ => {
                let lock = self.lock();
                Asked::plain(lock, Op::Try, 0, self.share(lock))
            }
        };
        // One that holds the lock already does not get a place.
        if node.asking || plain.locks().any(|lock| self.holds(lock)) {
            return Ok(());
        }
        let abandons = self.seed.below(6) == 0;
        let gives_up = self.seed.below(40) > 0;
        // Who keeps its place and goes away asks once.
        let patience: u32 = if gives_up { *self.seed.pick(&[1, 20, 200]) } else { 0 };
        // Seldom for long: while its turn may have come, nobody knows whether the lock is free.
        let lasts = *self.seed.pick(if gives_up { &[10, 40, 200] } else { &[10, 20, 40] });
        // A ttl that nobody has the use of who does not claim the lock.
        let longest = if gives_up { self.ttl(1_000) } else { UNCLAIMED_TTL };
        let ttl = if abandons { self.ttl(LONGEST_TTL_LEFT) } else { longest };
        let Asked { share, .. } = plain;
        let tolerates = if share == 1 { String::new() } else { format!(" SHARE {share}") };
        let (prefix, owner) = (&self.shared.prefix, self.owner);
        let (lock, also) = (plain.lock, also(&plain, prefix));
        let line = format!(
            "LOCK.ACQUIRE {prefix}{lock} o{owner} {ttl}{tolerates} TICKET {lasts}{also}\r\n"
        );
        let record = |asked, op, outcome, fence, ttl| Record {
            asked,
            told: now(),
            fence,
            ttl,
            owner,
            lock,
            op,
            outcome,
            server: 0,
            share,
            set: 0,
            is_ticket: op == Op::Wait,
            is_bound: false,
        };
        let lease = ttl.min(lasts);
        let (mut begun, mut before) = (now(), now());
        let (first, delay) = (begun, delay_of_this_thread());
        loop {
            let asked = now();
            let reply = node.asks(&line);
            if now() - before > u64::from(lease) * 1_000 {
                // The place may have been given up, or the lock granted and lost again, before this request.
                self.noted(&plain, record(begun, Op::Wait, Outcome::Unknown, 0, lease));
                begun = asked;
            }
            match reply {
                Some(Reply::Nil) => {}
                Some(Reply::Number(fence)) => {
                    self.noted(&plain, record(begun, Op::Wait, Outcome::Ok, fence, lease));
                    self.noted(&plain, record(asked, Op::Try, Outcome::Ok, fence, ttl));
                    if delay_of_this_thread() > delay + USUAL_DELAY {
                        self.shared.claims.delayed(Span { from: first, to: now() });
                    }
                    plain.locks().for_each(|lock| self.has(lock, fence, share));
                    return self.uses(node, (&plain, fence), abandons);
                }
                // An earlier request may have come to a grant.
                Some(Reply::Error(_)) => {
                    self.noted(&plain, record(begun, Op::Wait, Outcome::Unknown, 0, lease));
                    return Ok(());
                }
                // And this one may have claimed it.
                None => {
                    self.noted(&plain, record(begun, Op::Wait, Outcome::Unknown, 0, lease));
                    self.noted(&plain, record(asked, Op::Try, Outcome::Unknown, 0, ttl));
                    return Err(Lost);
                }
            }
            before = asked;
            if now() - first > u64::from(patience) * 1_000 {
                break;
            }
            thread::sleep(Duration::from_micros(200 + self.seed.below(4_000) as u64));
        }
        // Its turn may have come since it asked last. If it does not come any more, the place is kept for a while.
        let at = self.records.len();
        let left = record(begun, Op::Wait, Outcome::Unknown, 0, lease);
        let told = left.told + u64::from(lasts) * 1_000;
        self.noted(&plain, Record { told, ..left });
        if !gives_up {
            return Ok(());
        }
        self.ask(node, &[Asked { op: Op::Release, ..plain }], 0)?;
        let is_over = now() - before > u64::from(lease) * 1_000;
        let Some(released) = self.records.last().filter(|last| last.op == Op::Release) else {
            return Ok(());
        };
        let (told, outcome) = (released.told, released.outcome);
        for wait in &mut self.records[at..][..plain.locks().count()] {
            wait.told = told;
            if outcome == Outcome::Refused && !is_over {
                // Its turn had not come: it would have had something to release.
                wait.outcome = Outcome::Refused;
            }
        }
        Ok(())
    }

    /// For each of the locks.
    fn noted(&mut self, asked: &Asked, record: Record) {
        let set = if asked.is_for_several() { self.shared.set() } else { 0 };
        let server = self.server;
        self.records.extend(asked.locks().map(|lock| Record { lock, set, server, ..record }));
    }
}
