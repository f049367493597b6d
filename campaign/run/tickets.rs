//! Clients that wait by a ticket: they ask again and again, until they have the lock or have had enough.
//!
//! ```text
//!   asked   nil     nil           nil   fence          a wait from the first request to the last reply,
//!   ├────────┼───────┼─────────────┼─────┤             and a try, which claims the lock
//!            └─ shorter than the lease ┘               else the place may be another one since
//! ```

use crate::clients::{Client, LONGEST_TTL_LEFT, delay_of_this_thread};
use crate::connection::Lost;
use crate::request::{Asked, Node, Reply};
use crate::runner::now;
use leasehold_campaign::{Op, Outcome, Record};
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
        let plain = self.any(4);
        // One that holds the lock already does not get a place.
        if node.asking || plain.locks().any(|lock| self.held_by(lock).is_some()) {
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
        let ticket = Asked { ttl, ticket: Some(lasts), ..plain };
        let line = ticket.line(self.owner, 0, &self.shared.plan.prefix);
        let lease = ttl.min(lasts);
        let (mut begun, mut before) = (now(), now());
        let (first, delay) = (begun, delay_of_this_thread());
        loop {
            let asked = now();
            let reply = node.asks(&line);
            if now() - before > u64::from(lease) * 1_000 {
                // The place may have been given up, or the lock granted and lost again, before this request.
                self.noted(&plain, (Op::Wait, begun), lease, Outcome::Unknown, 0);
                begun = asked;
            }
            match reply {
                Some(Reply::Nil) => {}
                Some(Reply::Number(fence)) => {
                    self.noted(&plain, (Op::Wait, begun), lease, Outcome::Ok, fence);
                    self.noted(&plain, (Op::Try, asked), ttl, Outcome::Ok, fence);
                    self.may_have_been_delayed(first, delay);
                    plain.locks().for_each(|lock| self.has(lock, fence, plain.share));
                    return self.uses(node, (&plain, fence), abandons);
                }
                // An earlier request may have come to a grant. And one that got no reply may have claimed it.
                other => {
                    self.noted(&plain, (Op::Wait, begun), lease, Outcome::Unknown, 0);
                    if other.is_some() {
                        return Ok(());
                    }
                    self.noted(&plain, (Op::Try, asked), ttl, Outcome::Unknown, 0);
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
        self.noted(&plain, (Op::Wait, begun), lease, Outcome::Unknown, 0);
        let waits = at..self.records.len();
        for wait in &mut self.records[waits.clone()] {
            wait.told += u64::from(lasts) * 1_000;
        }
        if !gives_up {
            return Ok(());
        }
        self.ask(node, &[Asked { op: Op::Release, ..plain }], 0)?;
        let is_over = now() - before > u64::from(lease) * 1_000;
        let Some(released) = self.records.last().filter(|last| last.op == Op::Release) else {
            return Ok(());
        };
        let (told, outcome) = (released.told, released.outcome);
        for wait in &mut self.records[waits] {
            wait.told = told;
            if outcome == Outcome::Refused && !is_over {
                // Its turn had not come: it would have had something to release.
                wait.outcome = Outcome::Refused;
            }
        }
        Ok(())
    }

    /// Records what it was told now of each of the locks.
    fn noted(
        &mut self,
        of: &Asked,
        (op, asked): (Op, u64),
        ttl: u32,
        outcome: Outcome,
        fence: u64,
    ) {
        let set = if of.is_for_several() { self.shared.set() } else { 0 };
        let (owner, server, share, is_ticket) = (self.owner, self.server, of.share, op == Op::Wait);
        let told = now();
        self.records.extend(of.locks().map(|lock| {
            let plain = Record::new(op, owner, lock, (asked, told));
            Record { fence, ttl, outcome, server, share, set, is_ticket, ..plain }
        }));
    }
}
