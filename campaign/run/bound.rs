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
use leasehold_campaign::{Op, Outcome, Record, Span};
use std::thread;
use std::time::Duration;
use testkit::is_older_than;

/// A server that has answered so many other requests has noticed the end of a connection.
const ANSWERS: u32 = 3;

/// A lease that its owner lets run out.
const SHORT: u32 = 20;

/// A connection that a hold is bound to.
struct Side {
    node: Node,
    /// Its `CLIENT ID`.
    id: u64,
    /// When the last request was sent that it answered. It may have ended since.
    alive: u64,
}

/// A hold of one lock or of several.
struct Hold {
    asked: Asked,
    fence: u64,
    side: Side,
}

impl Side {
    fn open(port: u16) -> Option<Self> {
        let mut node = Node::at(port)?;
        let alive = now();
        match node.asks("CLIENT ID\r\n")? {
            Reply::Number(id) => Some(Self { node, id, alive }),
            _ => None,
        }
    }
}

impl Client<'_> {
    pub(crate) fn is_bound(&mut self, node: &mut Node) -> Result<(), Lost> {
        if node.asking {
            return Ok(());
        }
        // Nobody has asked for anything by this name, so the binding is certain.
        self.is_another();
        let Some(side) = Side::open(node.port) else { return Ok(()) };
        let grace = *self.seed.pick(&[0, 0, 0, 5, 20, 200]);
        let (op, patience, longest) = match self.seed.below(3) {
            0 => (Op::Wait, *self.seed.pick(&[1, 20, 300]), 1_000),
            _ => (Op::Try, 0, 3_000),
        };
        let longest = if self.shared.is_left_running { longest } else { 200 };
        let ttl = (*self.seed.pick(&[5, SHORT, 200, 1_000, 3_000])).min(longest);
        let plain = match self.several() {
            Some(several) if self.seed.below(3) == 0 => several,
            _ => {
                let lock = self.lock();
                Asked::plain(lock, op, ttl, self.share(lock))
            }
        };
        let asked = Asked { op, ttl, grace: Some(grace), ..plain };
        let Some(hold) = self.binds(side, asked, patience) else { return Ok(()) };
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

    /// Asks on this connection, and has the hold that is granted.
    fn binds(&mut self, mut side: Side, asked: Asked, patience: u32) -> Option<Hold> {
        let sent = now();
        if self.ask(&mut side.node, &[asked], patience).is_err() {
            // Perhaps it was granted, and bound to what has ended now.
            self.closed(&Hold { asked, fence: 0, side }, Outcome::Unknown);
            return None;
        }
        side.alive = sent;
        let last = self.records.last().filter(|record| record.asked >= sent);
        let granted = last.filter(|record| record.outcome == Outcome::Ok);
        granted.map(|record| record.fence).map(|fence| Hold { asked, fence, side })
    }

    /// Does this and that with a hold, and ends its connection. What is left of it is not over.
    fn has_bound(&mut self, node: &mut Node, hold: &mut Option<Hold>) -> Result<(), Lost> {
        thread::sleep(Duration::from_micros(self.seed.below(1_500) as u64));
        let Some(Hold { asked, fence, .. }) = hold else { return Ok(()) };
        let (asked, fence) = (*asked, *fence);
        let mine =
            |op, ttl, owner| Asked { grace: None, op, ttl, shown: Some((owner, fence)), ..asked };
        match self.seed.below(6) {
            0 => {
                let ttl = self.ttl(1_000);
                self.ask(node, &[mine(Op::Extend, ttl, self.owner)], 0)?;
            }
            1 => self.checks(node, &asked, fence)?,
            2 => {
                let Some(side) = Side::open(node.port) else { return Ok(()) };
                let again = Asked { op: Op::Try, ..asked };
                let Some(other) = self.binds(side, again, 0) else { return Ok(()) };
                let same = other.fence == fence;
                if let Some(former) = hold.replace(other) {
                    if !same {
                        self.closed(&former, Outcome::Unknown);
                        return Ok(());
                    }
                    self.ends(node, former.side)?;
                }
                self.checks(node, &asked, fence)?;
            }
            3 => {
                // The next hold of the same owner is bound to nothing.
                if asked.ttl > SHORT || self.seed.below(2) == 0 {
                    self.ask(node, &[mine(Op::Release, 0, self.owner)], 0)?;
                } else {
                    thread::sleep(Duration::from_millis(u64::from(asked.ttl) + 5));
                }
                let again = Asked { grace: None, op: Op::Try, ttl: 200, ..asked };
                self.ask(node, &[again], 0)?;
                if let Some(former) = hold.take() {
                    // Perhaps it is the same hold: the release may have been forbidden.
                    self.closed(&former, Outcome::Unknown);
                    self.ends(node, former.side)?;
                }
                let lasts = self.held_by(asked.lock).filter(|next| *next != fence);
                if let Some(next) = lasts {
                    self.checks(node, &asked, next)?;
                    let release = Asked { shown: Some((self.owner, next)), ..again };
                    self.ask(node, &[Asked { op: Op::Release, ttl: 0, ..release }], 0)?;
                }
                return Ok(());
            }
            _ => {}
        }
        self.lets_it_end(node, hold)
    }

    /// Ends the connection, and perhaps comes back.
    fn lets_it_end(&mut self, node: &mut Node, hold: &mut Option<Hold>) -> Result<(), Lost> {
        let Some(Hold { asked, fence, side }) = hold else { return Ok(()) };
        let (asked, fence) = (*asked, *fence);
        let sent = now();
        if side.node.asks("PING\r\n").is_some() {
            side.alive = sent;
        }
        let Some(Hold { side, .. }) = hold.take() else { return Ok(()) };
        let (from, port) = (side.alive, side.node.port);
        let ended = self.ends(node, side);
        // Where there is a link in between, nobody knows when the server notices.
        let is_sure = ended.is_ok() && self.shared.aside.is_none() && !is_older_than((7, 0));
        let outcome = if is_sure { Outcome::Ok } else { Outcome::Unknown };
        self.ended((&asked, fence), Span { from, to: now() }, outcome);
        ended?;
        match self.seed.below(3) {
            0 => self.checks(node, &asked, fence),
            1 => {
                let Some(side) = Side::open(port) else { return Ok(()) };
                *hold = self.binds(side, Asked { op: Op::Try, ..asked }, 0);
                let Some(Hold { fence, .. }) = hold else { return Ok(()) };
                let shown = Some((self.owner, *fence));
                self.ask(node, &[Asked { grace: None, op: Op::Release, ttl: 0, shown, ..asked }], 0)
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
    fn ends(&mut self, node: &mut Node, mut side: Side) -> Result<(), Lost> {
        match self.seed.below(3) {
            0 => drop(side),
            1 => side.node.client.reset(),
            _ => {
                let kill = format!("CLIENT KILL ID {}\r\n", side.id);
                node.asks(&kill).ok_or(Lost)?;
                // Its end, where it has come already.
                let _ended = side.node.asks("");
            }
        }
        for _ in 0..ANSWERS {
            node.asks("PING\r\n").ok_or(Lost)?;
        }
        Ok(())
    }

    /// Records that the connection of a hold ends now, or has ended before.
    fn closed(&mut self, hold: &Hold, outcome: Outcome) {
        let span = Span { from: hold.side.alive, to: now() };
        self.ended((&hold.asked, hold.fence), span, outcome);
    }

    fn ended(&mut self, (asked, fence): (&Asked, u64), span: Span, outcome: Outcome) {
        let (owner, server, share) = (self.owner, self.server, asked.share);
        self.records.extend(asked.locks().map(|lock| Record {
            asked: span.from,
            told: span.to,
            fence,
            ttl: asked.grace.unwrap_or(0),
            owner,
            lock,
            op: Op::Closed,
            outcome,
            server,
            share,
            set: 0,
            is_ticket: false,
            is_bound: false,
        }));
    }
}
