//! Clients that ask for several locks at once, beside those who ask for one of them.

use crate::clients::{Client, LONGEST_TTL_LEFT, USUAL_DELAY, delay_of_this_thread};
use crate::connection::Lost;
use crate::request::{Also, Asked, Node};
use crate::runner::now;
use leasehold_campaign::{Op, Outcome, Record, Span};

/// The locks of one request are neighbours, so that not all locks wait for each other: a free lock may be waited for
/// for as long as any is held that others tie it to.
const NEIGHBOURS: u32 = 3;

impl Client<'_> {
    /// A request for two locks or three, if there are as many.
    pub(crate) fn several(&mut self) -> Option<Asked> {
        let (first, locks) = (self.lock(), self.shared.locks);
        let begin = (first / NEIGHBOURS * NEIGHBOURS).min(locks.saturating_sub(NEIGHBOURS));
        let neighbours = begin..(begin + NEIGHBOURS).min(locks);
        let mut others: Vec<_> = neighbours.filter(|lock| *lock != first).collect();
        if others.is_empty() {
            return None;
        }
        if self.seed.below(2) == 0 {
            others.reverse();
        }
        let most = if self.seed.below(2) == 0 { others.len() } else { 1 };
        let also: Also = [0, 1].map(|at| others.get(at).copied().filter(|_| at < most));
        let several = Asked { also, ..Asked::plain(first, Op::Try, 0, 1) };
        let share = self.share_of(&several);
        Some(Asked { share, ..several })
    }

    /// A share for all of these locks: nobody shares one that is exclusive.
    pub(crate) fn share_of(&mut self, asked: &Asked) -> u8 {
        if asked.locks().any(|lock| self.shared.shares.is_exclusive(lock)) {
            return 1;
        }
        self.share(asked.lock)
    }

    /// Sends commands for several locks in one write: all at once, and each by itself.
    pub(crate) fn bursts_for_several(&mut self, node: &mut Node) -> Result<(), Lost> {
        let mut asked = Vec::new();
        for _ in 0..1 + self.seed.below(3) {
            let Some(several) = self.several() else { return self.bursts(node) };
            let releases = self.seed.below(10) < 9;
            let longest = if releases { 1_000 } else { LONGEST_TTL_LEFT };
            let each: Vec<_> = several.locks().collect();
            asked.push(Asked { ttl: self.ttl(longest), ..several });
            for _ in 0..self.seed.below(4) {
                let one = *self.seed.pick(&each);
                let ttl = self.ttl(longest);
                asked.push(match self.seed.below(8) {
                    0 | 1 => Asked { op: Op::Extend, ttl, ..several },
                    2 => Asked { ttl, share: self.share_of(&several), ..several },
                    3 => Asked::plain(one, Op::Extend, ttl, several.share),
                    4 => Asked::plain(one, Op::Try, ttl, self.share(one)),
                    _ => Asked::plain(one, Op::Check, 0, several.share),
                });
            }
            if !releases {
                continue;
            }
            if self.seed.below(3) == 0 {
                let one = *self.seed.pick(&each);
                asked.push(Asked::plain(one, Op::Release, 0, several.share));
            }
            asked.push(Asked { op: Op::Release, ttl: 0, ..several });
            // None of them is left.
            let check = |lock: &u32| Asked::plain(*lock, Op::Check, 0, several.share);
            asked.extend(each.iter().map(check).take(self.seed.below(4)));
        }
        self.ask(node, &asked, 0)
    }

    pub(crate) fn waits_for_several(&mut self, node: &mut Node) -> Result<(), Lost> {
        let Some(several) = self.several() else { return self.bursts(node) };
        let abandons = self.seed.below(6) == 0;
        let ttl = self.ttl(if abandons { LONGEST_TTL_LEFT } else { 1_000 });
        // Rarely for long: while it waits, all of these locks wait for each other.
        let patience = *self.seed.pick(&[1, 20, 20, 100, 300]);
        let asked = Asked { op: Op::Wait, ttl, ..several };
        let (begin, delay) = (now(), delay_of_this_thread());
        self.ask(node, &[asked], patience)?;
        if delay_of_this_thread() > delay + USUAL_DELAY {
            self.shared.claims.delayed(Span { from: begin, to: now() });
        }
        match self.records.last() {
            Some(Record { fence, outcome: Outcome::Ok, op: Op::Wait, .. }) => {
                let fence = *fence;
                self.uses(node, (&asked, fence), abandons)
            }
            // Nobody who was refused all has one of them.
            Some(Record { outcome: Outcome::Refused, op: Op::Wait, .. }) => {
                let check = |lock| Asked::plain(lock, Op::Check, 0, asked.share);
                let all: Vec<_> = asked.locks().map(check).collect();
                self.ask(node, &all, 0)
            }
            _ => Ok(()),
        }
    }
}
