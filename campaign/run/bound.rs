//! Clients whose holds end with a connection of their own.
//!
//! ```text
//!   bound       ├─grant──────────┤ closed, reset or killed
//!   another           ├─again──────────────┤        bound anew: the end of the former does nothing
//!   ordinary    check, extend, release, PING PING PING      the server has noticed by then
//! ```

use crate::clients::Client;
use crate::connection::Lost;
use crate::request::{Asked, Node, Reply};
use crate::runner::now;
use leasehold_campaign::{Op, Outcome, Record};
use std::thread;
use std::time::Duration;
use testkit::is_older_than;

/// A server that has answered so many other requests has noticed the end of a connection.
const ANSWERS: u32 = 3;

/// A lease that its owner lets run out.
const SHORT: u32 = 20;

/// A hold of one lock or of several, and the connection that it is bound to.
struct Hold {
    asked: Asked,
    fence: u64,
    node: Node,
    /// Its `CLIENT ID`.
    id: u64,
    /// When the last request was sent that the connection answered. It may have ended since.
    alive: u64,
}

impl Hold {
    /// What its owner asks for next, with its proof.
    fn mine(&self, op: Op, ttl: u32, owner: u32) -> Asked {
        Asked { op, ttl, grace: None, shown: Some((owner, self.fence)), ..self.asked }
    }
}

impl Client<'_> {
    pub(crate) fn is_bound(&mut self, node: &mut Node) -> Result<(), Lost> {
        if node.asking {
            return Ok(());
        }
        // Nobody has asked for anything by this name, so the binding is certain.
        self.is_another();
        let grace = Some(*self.seed.pick(&[0, 0, 0, 5, 20, 200]));
        let (op, patience, longest) = match self.seed.below(3) {
            0 => (Op::Wait, *self.seed.pick(&[1, 20, 300]), 1_000),
            _ => (Op::Try, 0, 3_000),
        };
        // Where servers are stopped, no lease is long that only one ends that knows of a connection.
        let longest = if self.shared.plan.probes > 0 { longest } else { 200 };
        let ttl = (*self.seed.pick(&[5, SHORT, 200, 1_000, 3_000])).min(longest);
        let asked = Asked { op, ttl, grace, ..self.any(3) };
        let Some(hold) = self.binds(node.port, asked, patience) else { return Ok(()) };
        let mut hold = Some(hold);
        let done = self.has_bound(node, &mut hold);
        if let Some(hold) = hold.take() {
            self.closed(&hold, Outcome::Unknown);
        }
        if self.seed.below(2) == 0 {
            self.is_another();
        }
        done
    }

    /// Asks on a connection of its own, and has the hold that is granted.
    fn binds(&mut self, port: u16, asked: Asked, patience: u32) -> Option<Hold> {
        let (mut node, alive) = (Node::at(port)?, now());
        let Some(Reply::Number(id)) = node.asks("CLIENT ID\r\n") else { return None };
        let sent = now();
        let mut hold = Hold { asked, fence: 0, node, id, alive };
        if self.ask(&mut hold.node, &[asked], patience).is_err() {
            // Perhaps it was granted, and bound to what has ended now.
            self.closed(&hold, Outcome::Unknown);
            return None;
        }
        let last = self.records.last().filter(|record| record.asked >= sent);
        let fence = last.filter(|record| record.outcome == Outcome::Ok)?.fence;
        Some(Hold { fence, alive: sent, ..hold })
    }

    /// Does this and that with a hold, and ends its connection. What is left of it is not over.
    fn has_bound(&mut self, node: &mut Node, hold: &mut Option<Hold>) -> Result<(), Lost> {
        thread::sleep(Duration::from_micros(self.seed.below(1_500) as u64));
        let Some(first) = hold.as_ref() else { return Ok(()) };
        let (asked, fence) = (first.asked, first.fence);
        match self.seed.below(6) {
            0 => {
                let ttl = self.ttl(1_000);
                self.ask(node, &[first.mine(Op::Extend, ttl, self.owner)], 0)?;
            }
            1 => self.checks(node, &asked, fence)?,
            2 => {
                let again = Asked { op: Op::Try, ..asked };
                let Some(other) = self.binds(first.node.port, again, 0) else { return Ok(()) };
                let same = other.fence == fence;
                if let Some(former) = hold.replace(other) {
                    if !same {
                        self.closed(&former, Outcome::Unknown);
                        return Ok(());
                    }
                    self.ends(node, former)?;
                }
                self.checks(node, &asked, fence)?;
            }
            3 => {
                // The next hold of the same owner is bound to nothing.
                if asked.ttl > SHORT || self.seed.below(2) == 0 {
                    self.ask(node, &[first.mine(Op::Release, 0, self.owner)], 0)?;
                } else {
                    thread::sleep(Duration::from_millis(u64::from(asked.ttl) + 5));
                }
                let again = Asked { grace: None, op: Op::Try, ttl: 200, ..asked };
                self.ask(node, &[again], 0)?;
                if let Some(former) = hold.take() {
                    // Perhaps it is the same hold: the release may have been forbidden.
                    self.closed(&former, Outcome::Unknown);
                    self.ends(node, former)?;
                }
                let lasts = self.held_by(asked.lock).filter(|next| *next != fence);
                if let Some(next) = lasts {
                    self.checks(node, &asked, next)?;
                    let shown = Some((self.owner, next));
                    self.ask(node, &[Asked { op: Op::Release, ttl: 0, shown, ..again }], 0)?;
                }
                return Ok(());
            }
            _ => {}
        }
        self.lets_it_end(node, hold)
    }

    /// Ends the connection, and perhaps looks whether the lock is still its own.
    fn lets_it_end(&mut self, node: &mut Node, hold: &mut Option<Hold>) -> Result<(), Lost> {
        let Some(mut last) = hold.take() else { return Ok(()) };
        let sent = now();
        if last.node.asks("PING\r\n").is_some() {
            last.alive = sent;
        }
        let (asked, fence, from, port) = (last.asked, last.fence, last.alive, last.node.port);
        let ended = self.ends(node, last);
        // Where there is a link in between, nobody knows when the server notices.
        let is_sure = ended.is_ok() && self.shared.plan.aside.is_none() && !is_older_than((7, 0));
        let outcome = if is_sure { Outcome::Ok } else { Outcome::Unknown };
        self.ended((&asked, fence), from, outcome);
        ended?;
        match self.seed.below(3) {
            0 => self.checks(node, &asked, fence),
            1 => {
                *hold = self.binds(port, Asked { op: Op::Try, ..asked }, 0);
                let Some(again) = hold else { return Ok(()) };
                self.ask(node, &[again.mine(Op::Release, 0, self.owner)], 0)
            }
            _ => Ok(()),
        }
    }

    /// Whether it still holds each of these locks.
    fn checks(&mut self, node: &mut Node, asked: &Asked, fence: u64) -> Result<(), Lost> {
        let shown = Some((self.owner, fence));
        let check = |lock| Asked { shown, ..Asked::plain(lock, Op::Check, 0, asked.share) };
        let all: Vec<_> = asked.locks().map(check).collect();
        self.ask(node, &all, 0)
    }

    /// Ends a connection in some way, and waits until the server has noticed.
    fn ends(&mut self, node: &mut Node, mut hold: Hold) -> Result<(), Lost> {
        match self.seed.below(3) {
            0 => drop(hold),
            1 => hold.node.client.reset(),
            _ => {
                let kill = format!("CLIENT KILL ID {}\r\n", hold.id);
                node.asks(&kill).ok_or(Lost)?;
                // Its end, where it has come already.
                let _ended = hold.node.asks("");
            }
        }
        for _ in 0..ANSWERS {
            node.asks("PING\r\n").ok_or(Lost)?;
        }
        Ok(())
    }

    /// Records that the connection of a hold ends now, or has ended before.
    fn closed(&mut self, hold: &Hold, outcome: Outcome) {
        self.ended((&hold.asked, hold.fence), hold.alive, outcome);
    }

    fn ended(&mut self, (asked, fence): (&Asked, u64), alive: u64, outcome: Outcome) {
        let (owner, server, share) = (self.owner, self.server, asked.share);
        let (ttl, span) = (asked.grace.unwrap_or(0), (alive, now()));
        self.records.extend(asked.locks().map(|lock| {
            let plain = Record::new(Op::Closed, owner, lock, span);
            Record { fence, ttl, outcome, server, share, ..plain }
        }));
    }
}
