//! The clients whose operations are recorded: they send bursts of lock commands in one write, and
//! requests that wait.

use crate::claims::Excuse;
use crate::connection::{Connection, Lost};
use crate::redirect::Redirect;
use crate::runner::{Shared, now};
use leasehold_campaign::{Op, Outcome, Record, Span};
use std::collections::HashMap;
use std::fs;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;
use testkit::{LineClient, Seed};

/// The longest wait for a lock. It is longer than a lock may be free while somebody waits, so that
/// such a lock is noticed.
const LONGEST_WAIT: u32 = 2_200;

/// Longer than any wait. A client that hears nothing for so long reconnects.
pub(crate) const PATIENCE: Duration = Duration::from_millis(2_500);

/// A thread that was kept from running for longer says so.
pub(crate) const USUAL_DELAY: Duration = Duration::from_millis(300);

/// A server that answers so many other requests has forgotten one that it has not answered by then.
const ANSWERS: u32 = 30;

/// Only leases up to this length are left to expire. Longer ones are released, if the client lives.
pub(crate) const LONGEST_TTL_LEFT: u32 = 50;

pub(crate) enum Reply {
    Number(u64),
    Nil,
    /// An error: nothing happened here, and a node may name another one.
    Error(Option<Redirect>),
}

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

/// A connection to one server, or to one node of a cluster.
pub(crate) struct Node {
    pub(crate) client: LineClient,
    port: u16,
    /// Each command is preceded by `ASKING`.
    pub(crate) asking: bool,
}

/// A command that has been sent.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) lock: u32,
    pub(crate) op: Op,
    pub(crate) ttl: u32,
    /// How many holders a request that acquires tolerates.
    pub(crate) share: u8,
    /// The owner and the fence that it names, if it names a fence.
    pub(crate) shown: Option<(u32, u64)>,
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
        if client.seed.below(4) > 0 {
            client.owner = shared.next_owner.fetch_add(1, SeqCst);
            client.held.clear();
        }
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
            0..94 => self.bursts(node),
            94..97 => self.is_late(node),
            _ if self.seed.below(4) == 0 => self.wait_by_ticket(node),
            _ => self.wait(node),
        }
    }

    pub(crate) fn lock(&mut self) -> u32 {
        // Half of all requests are for at most three locks.
        let few = self.shared.locks.min(3);
        let among = *self.seed.pick(&[few, self.shared.locks]);
        self.seed.below(among as usize) as u32
    }

    pub(crate) fn share(&mut self, lock: u32) -> u8 {
        *self.seed.pick(self.shared.shares.of(lock))
    }

    pub(crate) fn ttl(&mut self, longest: u32) -> u32 {
        (*self.seed.pick(&[1, 2, 5, 20, LONGEST_TTL_LEFT, 200, 1_000])).min(longest)
    }

    /// Sends commands for some locks in one write: an acquire first, then any others, as the holder
    /// or not.
    fn bursts(&mut self, node: &mut Node) -> Result<(), Lost> {
        let mut asked = Vec::new();
        for _ in 0..1 + self.seed.below(6) {
            let lock = self.lock();
            let releases = self.seed.below(10) < 9;
            let longest = if releases { 1_000 } else { LONGEST_TTL_LEFT };
            let mut ops = vec![Op::Try];
            for _ in 0..self.seed.below(4) {
                ops.push(*self.seed.pick(&[Op::Check, Op::Extend, Op::Check, Op::Try]));
            }
            ops.extend(releases.then_some(Op::Release));
            asked.extend(ops.into_iter().map(|op| {
                let ttl = if matches!(op, Op::Try | Op::Extend) { self.ttl(longest) } else { 0 };
                Asked { lock, op, ttl, share: self.share(lock), shown: None }
            }));
        }
        self.ask(node, &asked, 0)
    }

    /// Names a fence from long ago.
    fn is_late(&mut self, node: &mut Node) -> Result<(), Lost> {
        let Some((lock, owner, fence)) = self.former else { return Ok(()) };
        let op = *self.seed.pick(&[Op::Release, Op::Extend, Op::Check]);
        let ttl = if op == Op::Extend { LONGEST_TTL_LEFT } else { 0 };
        let share = self.share(lock);
        self.ask(node, &[Asked { lock, op, ttl, share, shown: Some((owner, fence)) }], 0)
    }

    fn wait(&mut self, node: &mut Node) -> Result<(), Lost> {
        let lock = self.lock();
        let abandons = self.seed.below(6) == 0;
        let ttl = self.ttl(if abandons { LONGEST_TTL_LEFT } else { 1_000 });
        let patience = *self.seed.pick(&[1, 20, 300, LONGEST_WAIT]);
        let (asked_at, delay) = (now(), delay_of_this_thread());
        let share = self.share(lock);
        self.ask(node, &[Asked { lock, op: Op::Wait, ttl, share, shown: None }], patience)?;
        if delay_of_this_thread() > delay + USUAL_DELAY {
            // The reply may have arrived long before this thread could read it.
            self.shared.claims.delayed(Span { from: asked_at, to: now() });
        }
        match self.records.last() {
            Some(Record { fence, outcome: Outcome::Ok, op: Op::Wait, .. }) => {
                let fence = *fence;
                self.uses(node, (lock, fence, share), abandons)
            }
            _ => Ok(()),
        }
    }

    /// Holds a lock for a moment, and perhaps releases it.
    pub(crate) fn uses(
        &mut self,
        node: &mut Node,
        (lock, fence, share): (u32, u64, u8),
        abandons: bool,
    ) -> Result<(), Lost> {
        let hold = self.seed.below(1_500) as u64;
        thread::sleep(Duration::from_micros(hold));
        let longest = if abandons { LONGEST_TTL_LEFT } else { 1_000 };
        match self.seed.below(8) {
            0 | 1 => {
                let (op, ttl, shown) = (Op::Extend, self.ttl(longest), Some((self.owner, fence)));
                self.ask(node, &[Asked { lock, op, ttl, share, shown }], 0)?;
            }
            // It comes to tolerate more or fewer, perhaps.
            2 => {
                let (op, ttl, share) = (Op::Try, self.ttl(longest), self.share(lock));
                self.ask(node, &[Asked { lock, op, ttl, share, shown: None }], 0)?;
            }
            _ => {}
        }
        if abandons {
            Ok(())
        } else {
            let fence = self.held.get(&lock).map_or(fence, |held| held.fence);
            let (op, shown) = (Op::Release, Some((self.owner, fence)));
            self.ask(node, &[Asked { lock, op, ttl: 0, share, shown }], 0)
        }
    }

    /// Whether it believes that it holds the lock.
    pub(crate) fn holds(&self, lock: u32) -> bool {
        self.held.contains_key(&lock)
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
            lines.push_str(&line(asked, self.owner, patience, &self.shared.prefix));
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
            let (owner, shown) = asked.shown.unwrap_or((self.owner, 0));
            let held = self.held.get(&asked.lock).copied().unwrap_or_default();
            let believed = if asked.shown.is_some() { shown } else { held.fence };
            let (outcome, fence) = match reply {
                // By the time it is executed it may concern another grant.
                None => {
                    if !was_lost {
                        self.is_silence_right(node, asked, patience, asked_at);
                    }
                    (Outcome::Unknown, shown)
                }
                Some(Reply::Error(redirect)) => {
                    self.elsewhere.extend(redirect.map(|redirect| (redirect, *asked, patience)));
                    if asked.op != Op::Wait {
                        continue;
                    }
                    // Until then it may have been in the queue before others.
                    (Outcome::Failed, 0)
                }
                Some(Reply::Nil | Reply::Number(0)) => (Outcome::Refused, believed),
                Some(Reply::Number(fence))
                    if matches!(asked.op, Op::Try | Op::Wait | Op::Check) =>
                {
                    (Outcome::Ok, fence)
                }
                Some(Reply::Number(_)) => (Outcome::Ok, believed),
            };
            let record = Record {
                asked: asked_at,
                told: now(),
                fence,
                ttl: asked.ttl,
                owner,
                lock: asked.lock,
                op: asked.op,
                outcome,
                server: self.server,
                share: asked.share,
            };
            self.records.push(record);
            if owner != self.owner {
                continue;
            }
            let acquires = matches!(asked.op, Op::Try | Op::Wait);
            let is_over = match outcome {
                Outcome::Ok => asked.op == Op::Release,
                // Who is to tolerate fewer and is refused keeps its hold.
                Outcome::Refused => !acquires || tolerates(asked.share) >= tolerates(held.share),
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
        if lost { Err(Lost) } else { Ok(()) }
    }
}

impl Client<'_> {
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
            // A server that was stopped before it read the request counts the wait from when it
            // goes on.
            let excuse = Excuse::Cut { stopped_within: u64::from(patience) * 1_000 };
            self.shared.claims.add("L5", excuse, asked_at, what);
        }
    }
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

/// As an inline command: no word needs quotes.
fn line(asked: &Asked, client: u32, patience: u32, prefix: &str) -> String {
    let (owner, fence) = asked.shown.map_or((client, None), |(owner, fence)| (owner, Some(fence)));
    let (lock, ttl) = (asked.lock, asked.ttl);
    let proof = fence.map(|fence| format!(" {fence}")).unwrap_or_default();
    let share = match asked.share {
        1 => String::new(),
        share => format!(" SHARE {share}"),
    };
    match asked.op {
        Op::Try => format!("LOCK.ACQUIRE {prefix}{lock} o{owner} {ttl}{share}\r\n"),
        Op::Wait => {
            format!("LOCK.ACQUIRE {prefix}{lock} o{owner} {ttl}{share} BLOCK {patience}\r\n")
        }
        Op::Extend => format!("LOCK.EXTEND {prefix}{lock} o{owner} {ttl}{proof}\r\n"),
        Op::Release => format!("LOCK.RELEASE {prefix}{lock} o{owner}{proof}\r\n"),
        Op::Check => format!("LOCK.CHECK {prefix}{lock} o{owner}{proof}\r\n"),
        Op::Delete | Op::Seen => String::new(),
    }
}

impl Node {
    fn at(port: u16) -> Option<Self> {
        let mut client = LineClient::over_tcp(("127.0.0.1", port)).ok()?;
        client.set_deadline(Some(PATIENCE));
        Some(Self { client, port, asking: false })
    }

    /// Sends one line, and returns its reply.
    pub(crate) fn asks(&mut self, line: &str) -> Option<Reply> {
        self.client.try_send(line.as_bytes()).ok()?;
        self.reply()
    }

    /// The next reply, or `None` if there is none. Each reply to these commands is one line.
    fn reply(&mut self) -> Option<Reply> {
        let line = str::from_utf8(self.client.try_line().ok()?).ok()?;
        match line.as_bytes().first()? {
            b':' => line[1..].parse().ok().map(Reply::Number),
            b'$' | b'*' | b'_' => Some(Reply::Nil),
            _ => Some(Reply::Error(Redirect::parse(line))),
        }
    }
}
