//! The clients whose operations are recorded: they send bursts of lock commands in one write, and requests that wait.

use crate::claims::Excuse;
use crate::connection::{Connection, Lost};
use crate::request::{Asked, Node, Redirect, Reply};
use crate::runner::{Shared, now};
use leasehold_campaign::{Op, Outcome, Record, Span};
use std::collections::HashMap;
use std::fs;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;
use testkit::Seed;

/// The longest wait for a lock. It is longer than a lock may be free while somebody waits, so that
/// such a lock is noticed.
const LONGEST_WAIT: u32 = 2_200;

/// Longer than any wait. A client that hears nothing for so long reconnects.
pub(crate) const PATIENCE: Duration = Duration::from_millis(2_500);

/// A thread that was kept from running for longer says so.
const USUAL_DELAY: Duration = Duration::from_millis(300);

/// A server that answers so many other requests has forgotten one that it has not answered by then.
const ANSWERS: u32 = 30;

/// The last so many locks are also asked for together. The others are never kept free for one who waits for another.
const TOGETHER: u32 = 3;

/// Only leases up to this length are left to expire. Longer ones are released, if the client lives.
pub(crate) const LONGEST_TTL_LEFT: u32 = 50;

pub(crate) struct Client<'f> {
    pub(crate) shared: &'f Shared,
    pub(crate) seed: Seed,
    pub(crate) owner: u32,
    pub(crate) server: u8,
    pub(crate) records: Vec<Record>,
    /// The locks that it believes it holds.
    held: HashMap<u32, Held>,
    /// The lock, owner and fence of a grant that has ended.
    former: Option<(u32, u32, u64)>,
    /// The requests that were redirected, and how long each may wait.
    elsewhere: Vec<(Redirect, Asked, u32)>,
}

#[derive(Clone, Copy, Default)]
struct Held {
    fence: u64,
    /// How many holders it tolerates. 0: any number, or not known.
    share: u8,
}

pub(crate) fn work(shared: &Shared, seed: Seed) -> Vec<Record> {
    let owner = shared.next_owner.fetch_add(1, SeqCst);
    let (records, held) = (Vec::new(), HashMap::new());
    let (former, elsewhere) = (None, Vec::new());
    let mut client = Client { shared, seed, owner, server: 0, records, held, former, elsewhere };
    while !shared.over.load(SeqCst) {
        let Some(mut node) = client.connect() else {
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        while !shared.over.load(SeqCst) && shared.is_at(node.port) {
            let _on_the_way = shared.on_the_way.read().unwrap();
            if client.goes_on(&mut node).is_err() || client.follows(&mut node).is_err() {
                break;
            }
        }
        client.elsewhere.clear();
        // It asks again by its name in one case of four.
        if !shared.plan.owners_stay || client.seed.below(4) > 0 {
            client.is_another();
        }
        client.former = client.former.filter(|_| shared.plan.owners_stay);
    }
    client.records
}

impl Client<'_> {
    fn connect(&mut self) -> Option<Node> {
        self.server = self.shared.server.load(SeqCst);
        Node::at(self.shared.port.load(SeqCst))
    }

    /// Follows a redirection, and repeats the requests that were redirected.
    fn follows(&mut self, node: &mut Node) -> Result<(), Lost> {
        let elsewhere = std::mem::take(&mut self.elsewhere);
        let Some((redirect, ..)) = elsewhere.last() else { return Ok(()) };
        if !self.shared.roams.load(SeqCst) {
            return Ok(());
        }
        let mut there = Node::at(redirect.port).ok_or(Lost)?;
        if !redirect.once {
            *node = there;
            return Ok(());
        }
        there.asking = true;
        for (_, asked, patience) in elsewhere {
            self.ask(&mut there, &[asked], patience)?;
        }
        // A request that was redirected twice is dropped: the node that is asked next knows better.
        self.elsewhere.clear();
        Ok(())
    }

    fn goes_on(&mut self, node: &mut Node) -> Result<(), Lost> {
        match self.seed.below(100) {
            0..89 => self.bursts(node),
            89..92 => self.is_late(node),
            92..95 => self.is_bound(node),
            _ if self.seed.below(3) == 0 => self.wait_by_ticket(node),
            _ => self.wait(node),
        }
    }

    /// A try for one lock, or for two or three in one request of so many.
    pub(crate) fn any(&mut self, one_in: usize) -> Asked {
        // Half of all requests are for at most three locks.
        let locks = self.shared.plan.locks;
        let among = *self.seed.pick(&[locks.min(3), locks]);
        let mut lock = self.seed.below(among as usize) as u32;
        let mut also = [None; 2];
        if self.seed.below(one_in) == 0 {
            let together = locks.saturating_sub(TOGETHER)..locks;
            lock = together.start + lock % TOGETHER.min(locks);
            let mut others: Vec<_> = together.filter(|other| *other != lock).collect();
            if self.seed.below(2) == 0 {
                others.reverse();
            }
            others.truncate(1 + self.seed.below(2));
            also = [0, 1].map(|at| others.get(at).copied());
        }
        let asked = Asked { also, ..Asked::plain(lock, Op::Try, 0, 1) };
        Asked { share: self.share(&asked), ..asked }
    }

    /// A share for all of these locks: nobody shares one that is exclusive.
    pub(crate) fn share(&mut self, asked: &Asked) -> u8 {
        if asked.locks().any(|lock| self.shared.plan.shares.is_exclusive(lock)) {
            return 1;
        }
        *self.seed.pick(self.shared.plan.shares.of(asked.lock))
    }

    pub(crate) fn ttl(&mut self, longest: u32) -> u32 {
        (*self.seed.pick(&[1, 2, 5, 20, LONGEST_TTL_LEFT, 200, 1_000])).min(longest)
    }

    /// Sends commands for some locks in one write: an acquire first, then any others, as the holder or not.
    fn bursts(&mut self, node: &mut Node) -> Result<(), Lost> {
        let mut asked = Vec::new();
        for _ in 0..1 + self.seed.below(6) {
            let all = self.any(14);
            let each: Vec<_> = all.locks().collect();
            let releases = self.seed.below(10) < 9;
            let longest = if releases { 1_000 } else { LONGEST_TTL_LEFT };
            asked.push(Asked { ttl: self.ttl(longest), ..all });
            for _ in 0..self.seed.below(4) {
                let op = *self.seed.pick(&[Op::Check, Op::Extend, Op::Check, Op::Try]);
                // Of several locks, any may be meant by itself.
                let is_one = op == Op::Check || self.seed.below(2) == 0;
                let one = Asked::plain(*self.seed.pick(&each), op, 0, all.share);
                let these = if is_one { one } else { Asked { op, ..all } };
                let ttl = if op == Op::Check { 0 } else { self.ttl(longest) };
                let share = if op == Op::Try { self.share(&these) } else { all.share };
                asked.push(Asked { ttl, share, ..these });
            }
            if !releases {
                continue;
            }
            if all.is_for_several() && self.seed.below(3) == 0 {
                asked.push(Asked::plain(*self.seed.pick(&each), Op::Release, 0, all.share));
            }
            asked.push(Asked { op: Op::Release, ttl: 0, ..all });
            if all.is_for_several() {
                // None of them is left.
                let check = |lock: &u32| Asked::plain(*lock, Op::Check, 0, all.share);
                asked.extend(each.iter().map(check).take(self.seed.below(4)));
            }
        }
        self.ask(node, &asked, 0)
    }

    /// Names a fence from long ago.
    fn is_late(&mut self, node: &mut Node) -> Result<(), Lost> {
        let Some((lock, owner, fence)) = self.former else { return Ok(()) };
        let op = *self.seed.pick(&[Op::Release, Op::Extend, Op::Check]);
        let ttl = if op == Op::Extend { LONGEST_TTL_LEFT } else { 0 };
        let plain = Asked::plain(lock, op, ttl, 1);
        self.ask(node, &[Asked { shown: Some((owner, fence)), ..plain }], 0)
    }

    fn wait(&mut self, node: &mut Node) -> Result<(), Lost> {
        let all = self.any(4);
        let abandons = self.seed.below(6) == 0;
        let ttl = self.ttl(if abandons { LONGEST_TTL_LEFT } else { 1_000 });
        // Rarely for long where it makes several locks wait for each other.
        let patience = *self.seed.pick(match all.is_for_several() {
            true => &[1, 20, 20, 100, 300],
            false => &[1, 20, 300, LONGEST_WAIT],
        });
        let wait = Asked { op: Op::Wait, ttl, ..all };
        let (asked_at, delay) = (now(), delay_of_this_thread());
        self.ask(node, &[wait], patience)?;
        self.may_have_been_delayed(asked_at, delay);
        match self.records.last() {
            Some(Record { fence, outcome: Outcome::Ok, op: Op::Wait, .. }) => {
                let fence = *fence;
                self.uses(node, (&wait, fence), abandons)
            }
            // Nobody who was refused all has one of them.
            Some(Record { outcome: Outcome::Refused, op: Op::Wait, .. })
                if wait.is_for_several() =>
            {
                let check = |lock| Asked::plain(lock, Op::Check, 0, wait.share);
                let all: Vec<_> = wait.locks().map(check).collect();
                self.ask(node, &all, 0)
            }
            _ => Ok(()),
        }
    }

    /// A reply to what was asked then may have arrived long before this thread could read it.
    pub(crate) fn may_have_been_delayed(&self, asked_at: u64, delay: Duration) {
        if delay_of_this_thread() > delay + USUAL_DELAY {
            self.shared.claims.delayed(Span { from: asked_at, to: now() });
        }
    }

    /// Holds a lock, or several by one fence, for a moment, and perhaps releases it.
    pub(crate) fn uses(
        &mut self,
        node: &mut Node,
        (granted, fence): (&Asked, u64),
        abandons: bool,
    ) -> Result<(), Lost> {
        let again = |op, ttl| Asked { op, ttl, ticket: None, ..*granted };
        let hold = self.seed.below(1_500) as u64;
        thread::sleep(Duration::from_micros(hold));
        let longest = if abandons { LONGEST_TTL_LEFT } else { 1_000 };
        match self.seed.below(8) {
            0 | 1 => {
                let (ttl, shown) = (self.ttl(longest), Some((self.owner, fence)));
                self.ask(node, &[Asked { shown, ..again(Op::Extend, ttl) }], 0)?;
            }
            // It comes to tolerate more or fewer, perhaps.
            2 => {
                let (ttl, share) = (self.ttl(longest), self.share(granted));
                self.ask(node, &[Asked { share, ..again(Op::Try, ttl) }], 0)?;
            }
            _ => {}
        }
        if abandons {
            Ok(())
        } else {
            let fence = self.held_by(granted.lock).unwrap_or(fence);
            self.ask(
                node,
                &[Asked { shown: Some((self.owner, fence)), ..again(Op::Release, 0) }],
                0,
            )
        }
    }

    /// The fence by which it believes that it holds the lock.
    pub(crate) fn held_by(&self, lock: u32) -> Option<u64> {
        self.held.get(&lock).map(|held| held.fence)
    }

    /// It goes on by another name.
    pub(crate) fn is_another(&mut self) {
        self.owner = self.shared.next_owner.fetch_add(1, SeqCst);
        self.held.clear();
    }

    /// It was granted the lock, and tolerates so many.
    pub(crate) fn has(&mut self, lock: u32, fence: u64, share: u8) {
        self.former = Some((lock, self.owner, fence));
        self.held.insert(lock, Held { fence, share });
    }

    /// Sends all commands in one write, and records the outcome of each.
    pub(crate) fn ask(
        &mut self,
        node: &mut Node,
        all: &[Asked],
        patience: u32,
    ) -> Result<(), Lost> {
        let mut lines = String::with_capacity(all.len() * 80);
        for asked in all {
            if node.asking {
                lines.push_str("ASKING\r\n");
            }
            lines.push_str(&asked.line(self.owner, patience, &self.shared.plan.prefix));
        }
        // The process may have been stopped, and the server with it, until clients are sent to another.
        if !self.shared.is_at(node.port) {
            return Err(Lost);
        }
        let asked_at = now();
        let mut lost = node.client.try_send(lines.as_bytes()).is_err();
        for asked in all {
            if node.asking && !lost {
                lost = node.reply().is_none();
            }
            let was_lost = lost;
            let reply = if lost { None } else { node.reply() };
            lost = reply.is_none();
            if reply.is_none() && !was_lost {
                self.is_silence_right(node, asked, patience, asked_at);
            }
            let reply = reply.filter(|_| !is_too_late(asked_at));
            lost |= reply.is_none();
            if let Some(Reply::Error(redirect)) = &reply {
                // A hold would be bound to a connection that is closed at once.
                let redirect = redirect.filter(|_| asked.grace.is_none());
                self.elsewhere.extend(redirect.map(|redirect| (redirect, *asked, patience)));
            }
            let set = if asked.is_for_several() { self.shared.set() } else { 0 };
            for lock in asked.locks() {
                self.hears(&Asked { lock, ..*asked }, reply.as_ref(), asked_at, set);
            }
        }
        if lost { Err(Lost) } else { Ok(()) }
    }

    /// Records what it is told of one lock.
    fn hears(&mut self, asked: &Asked, reply: Option<&Reply>, asked_at: u64, set: u32) {
        let (owner, shown) = asked.shown.unwrap_or((self.owner, 0));
        let held = self.held.get(&asked.lock).copied().unwrap_or_default();
        let believed = if asked.shown.is_some() { shown } else { held.fence };
        let acquires = matches!(asked.op, Op::Try | Op::Wait);
        // A refusal of all says little of each.
        let refused = if set != 0 && asked.op != Op::Release { 0 } else { believed };
        let (outcome, fence) = match reply {
            // By the time it is executed it may concern another grant.
            None => (Outcome::Unknown, shown),
            Some(Reply::Error(_)) if asked.op != Op::Wait => return,
            // Until then it may have been in the queue before others.
            Some(Reply::Error(_)) => (Outcome::Failed, 0),
            Some(Reply::Nil | Reply::Number(0)) => (Outcome::Refused, refused),
            Some(Reply::Number(fence)) if acquires || asked.op == Op::Check => {
                (Outcome::Ok, *fence)
            }
            Some(Reply::Number(released)) if asked.op == Op::Release => {
                match *released == asked.locks().count() as u64 {
                    true => (Outcome::Ok, believed),
                    false => (Outcome::Over, believed),
                }
            }
            Some(Reply::Number(_)) => (Outcome::Ok, believed),
        };
        self.records.push(Record {
            fence,
            ttl: asked.ttl,
            outcome,
            server: self.server,
            share: asked.share,
            set,
            is_bound: asked.grace.is_some(),
            ..Record::new(asked.op, owner, asked.lock, (asked_at, now()))
        });
        if owner != self.owner {
            return;
        }
        let is_over = match outcome {
            Outcome::Ok => asked.op == Op::Release,
            // Who is to tolerate fewer and is refused keeps its hold.
            Outcome::Refused => !acquires || tolerates(asked.share) >= tolerates(held.share),
            Outcome::Over => true,
            Outcome::Unknown | Outcome::Failed => false,
        };
        if outcome == Outcome::Ok {
            self.former = Some((asked.lock, owner, fence));
        }
        if !is_over && outcome == Outcome::Ok {
            let share = match acquires {
                true => asked.share,
                false if held.fence == fence => held.share,
                false => 0,
            };
            self.held.insert(asked.lock, Held { fence, share });
        } else if is_over && held.fence == fence {
            self.held.remove(&asked.lock);
        }
    }

    /// Decides what a reply that never came means: the connection was lost, or the server was, or
    /// it forgot the request. Only the last is a violation.
    fn is_silence_right(&self, node: &Node, asked: &Asked, patience: u32, asked_at: u64) {
        let Ok(mut other) = Connection::connect(self.shared.port.load(SeqCst), 0) else {
            return;
        };
        // Other connections are answered many times, and this one is still open.
        let is_answered = (0..ANSWERS).all(|_| {
            thread::sleep(Duration::from_millis(2));
            other.ask("PING").is_ok()
        });
        let is_silent = node.client.has_reply().is_ok_and(|replied| !replied);
        if is_answered && is_silent && self.shared.is_at(node.port) {
            let what = format!(
                "o{} asked for lock {} ({:?}), and is told nothing for {PATIENCE:?}",
                self.owner, asked.lock, asked.op
            );
            // A server that was stopped before it read the request counts the wait from when it goes on.
            let excuse = Excuse::Cut { stopped_within: u64::from(patience) * 1_000 };
            self.shared.claims.add("L5", excuse, asked_at, what);
        }
    }
}

/// Whether a reply to what was asked then comes after its client has given up. If this process was stopped, the wait for a
/// reply has begun anew.
pub(crate) fn is_too_late(asked: u64) -> bool {
    u128::from(now().saturating_sub(asked)) > PATIENCE.as_micros()
}

/// For how long this thread was ready to run and did not, as Linux says. Zero elsewhere.
pub(crate) fn delay_of_this_thread() -> Duration {
    let told = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = told.split_whitespace().nth(1).and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// A number that is larger if more holders are tolerated.
fn tolerates(share: u8) -> u32 {
    if share == 0 { u32::MAX } else { share.into() }
}
