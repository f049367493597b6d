//! Clients that wait by a ticket: they ask again and again, until they have the lock or have had enough.
//!
//! ```text
//!   asked   nil     nil           nil   fence          a wait from the first request to the last reply,
//!   ├────────┼───────┼─────────────┼─────┤             and a try, which claims the lock
//!            └─ shorter than the lease ┘               else the place may be another one since
//! ```

use crate::clients::{
    Asked, Client, LONGEST_TTL_LEFT, Node, Reply, USUAL_DELAY, delay_of_this_thread,
};
use crate::connection::Lost;
use crate::runner::now;
use leasehold_campaign::{Op, Outcome, Record, Span};
use std::thread;
use std::time::Duration;

impl Client<'_> {
    pub(crate) fn wait_by_ticket(&mut self, node: &mut Node) -> Result<(), Lost> {
        let lock = self.lock();
        // One that holds the lock already does not get a place.
        if node.asking || self.holds(lock) {
            return Ok(());
        }
        let abandons = self.seed.below(6) == 0;
        let ttl = self.ttl(if abandons { LONGEST_TTL_LEFT } else { 1_000 });
        let lasts = *self.seed.pick(&[10, 40, 200]);
        let patience: u32 = *self.seed.pick(&[1, 20, 200]);
        let share = self.share(lock);
        let tolerates = if share == 1 { String::new() } else { format!(" SHARE {share}") };
        let (prefix, owner) = (&self.shared.prefix, self.owner);
        let line =
            format!("LOCK.ACQUIRE {prefix}{lock} o{owner} {ttl}{tolerates} TICKET {lasts}\r\n");
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
        };
        let lease = ttl.min(lasts);
        let (mut begun, mut before) = (now(), now());
        let (first, delay) = (begun, delay_of_this_thread());
        loop {
            let asked = now();
            let reply = node.asks(&line);
            if now() - before > u64::from(lease) * 1_000 {
                // The place may have been given up, or the lock granted and lost again, before this request.
                self.noted(record(begun, Op::Wait, Outcome::Unknown, 0, lease));
                begun = asked;
            }
            match reply {
                Some(Reply::Nil) => {}
                Some(Reply::Number(fence)) => {
                    self.noted(record(begun, Op::Wait, Outcome::Ok, fence, lease));
                    self.noted(record(asked, Op::Try, Outcome::Ok, fence, ttl));
                    if delay_of_this_thread() > delay + USUAL_DELAY {
                        self.shared.claims.delayed(Span { from: first, to: now() });
                    }
                    self.has(lock, fence, share);
                    return self.uses(node, (lock, fence, share), abandons);
                }
                // An earlier request may have come to a grant.
                Some(Reply::Error(_)) => {
                    self.noted(record(begun, Op::Wait, Outcome::Unknown, 0, lease));
                    return Ok(());
                }
                // And this one may have claimed it.
                None => {
                    self.noted(record(begun, Op::Wait, Outcome::Unknown, 0, lease));
                    self.noted(record(asked, Op::Try, Outcome::Unknown, 0, ttl));
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
        let gives_up = self.seed.below(4) > 0;
        let mut left = record(begun, Op::Wait, Outcome::Unknown, 0, lease);
        left.told += if gives_up { 0 } else { u64::from(lasts) * 1_000 };
        self.noted(left);
        if gives_up {
            let asked = Asked { lock, op: Op::Release, ttl: 0, share, shown: None };
            return self.ask(node, &[asked], 0);
        }
        Ok(())
    }

    fn noted(&mut self, record: Record) {
        self.records.push(Record { server: self.server, ..record });
    }
}
