//! What clients do: bursts of lock commands in one write, and requests that wait.

use crate::claims::Excuse;
use crate::connection::{Connection, Lost};
use crate::fight::{Field, now};
use crate::roaming::{SentOn, sent_on};
use leasehold_campaign::{Op, Outcome, Record, Span};
use std::collections::HashMap;
use std::fs;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;
use testkit::{LineClient, Seed};

/// The longest that a client waits for a lock: longer than a lock may be free while somebody waits, so that it is seen.
const LONGEST_WAIT: u32 = 2_200;

/// Longer than any wait. A client that is told nothing for so long connects anew.
pub(crate) const PATIENCE: Duration = Duration::from_millis(2_500);

/// More than this is no more the machine's usual delay.
const USUAL_DELAY: Duration = Duration::from_millis(300);

/// So many others are answered before it is believed that the server forgot somebody.
const ANSWERS: u32 = 30;

/// Longer leases are always released, if the client lives.
const LONGEST_TTL_LEFT: u32 = 50;

enum Reply {
    Number(u64),
    Nil,
    /// Refused for another reason than the lock: nothing happened here.
    Error(Option<SentOn>),
}

struct Client<'f> {
    field: &'f Field,
    seed: Seed,
    owner: u32,
    server: u8,
    records: Vec<Record>,
    /// What it takes itself to hold: the fence, by lock.
    held: HashMap<u32, u64>,
    /// A grant that it let go of, one way or another.
    former: Option<(u32, u32, u64)>,
    /// What it was told to ask elsewhere, and how long that may wait.
    elsewhere: Vec<(SentOn, Asked, u32)>,
}

/// A connection to one server, or to one node of a cluster.
struct Node {
    client: LineClient,
    port: u16,
    /// Each command says that it was sent on to here.
    asking: bool,
}

/// One command on its way.
#[derive(Clone, Copy)]
struct Asked {
    lock: u32,
    op: Op,
    ttl: u32,
    /// The fence that it shows, if it shows one.
    shown: Option<(u32, u64)>,
}

pub(crate) fn work(field: &Field, seed: Seed) -> Vec<Record> {
    let owner = field.next_owner.fetch_add(1, SeqCst);
    let (records, held) = (Vec::new(), HashMap::new());
    let (former, elsewhere) = (None, Vec::new());
    let mut client = Client { field, seed, owner, server: 0, records, held, former, elsewhere };
    while !field.over.load(SeqCst) {
        let Some(mut node) = client.connect() else {
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        while !field.over.load(SeqCst) && field.is_at(node.port) {
            let _on_the_way = field.on_the_way.read().unwrap();
            if client.goes_on(&mut node).is_err() || client.follows(&mut node).is_err() {
                break;
            }
        }
        client.elsewhere.clear();
        // Mostly somebody new comes; else it asks again under its name.
        if client.seed.below(4) > 0 {
            client.owner = field.next_owner.fetch_add(1, SeqCst);
            client.held.clear();
        }
    }
    client.records
}

impl Client<'_> {
    fn connect(&mut self) -> Option<Node> {
        self.server = self.field.server.load(SeqCst);
        Node::at(self.field.port.load(SeqCst))
    }

    /// Goes where it was sent, and asks there what it was to ask there.
    fn follows(&mut self, node: &mut Node) -> Result<(), Lost> {
        let elsewhere = std::mem::take(&mut self.elsewhere);
        let Some((sent_on, ..)) = elsewhere.last() else { return Ok(()) };
        if !self.field.roams.load(SeqCst) {
            return Ok(());
        }
        let mut there = Node::at(sent_on.port).ok_or(Lost)?;
        if !sent_on.once {
            *node = there;
            return Ok(());
        }
        there.asking = true;
        for (_, asked, patience) in elsewhere {
            self.ask(&mut there, &[asked], patience)?;
        }
        // Sent on from there too: whoever sent it here knows better by now.
        self.elsewhere.clear();
        Ok(())
    }

    fn goes_on(&mut self, node: &mut Node) -> Result<(), Lost> {
        match self.seed.below(100) {
            0..94 => self.bursts(node),
            94..97 => self.is_late(node),
            _ => self.wait(node),
        }
    }

    fn lock(&mut self) -> u32 {
        // Half of all requests are for a few.
        let few = self.field.locks.min(3);
        let among = *self.seed.pick(&[few, self.field.locks]);
        self.seed.below(among as usize) as u32
    }

    fn ttl(&mut self, longest: u32) -> u32 {
        (*self.seed.pick(&[1, 2, 5, 20, LONGEST_TTL_LEFT, 200, 1_000])).min(longest)
    }

    /// For some locks in one write: tries, and whatever else, as the holder or not.
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
                Asked { lock, op, ttl, shown: None }
            }));
        }
        self.ask(node, &asked, 0)
    }

    /// Comes back with a fence that it had long ago.
    fn is_late(&mut self, node: &mut Node) -> Result<(), Lost> {
        let Some((lock, owner, fence)) = self.former else { return Ok(()) };
        let op = *self.seed.pick(&[Op::Release, Op::Extend, Op::Check]);
        let ttl = if op == Op::Extend { LONGEST_TTL_LEFT } else { 0 };
        self.ask(node, &[Asked { lock, op, ttl, shown: Some((owner, fence)) }], 0)
    }

    fn wait(&mut self, node: &mut Node) -> Result<(), Lost> {
        let lock = self.lock();
        let abandons = self.seed.below(6) == 0;
        let ttl = self.ttl(if abandons { LONGEST_TTL_LEFT } else { 1_000 });
        let patience = *self.seed.pick(&[1, 20, 300, LONGEST_WAIT]);
        let (asked_at, delay) = (now(), delay_of_this_thread());
        self.ask(node, &[Asked { lock, op: Op::Wait, ttl, shown: None }], patience)?;
        if delay_of_this_thread() > delay + USUAL_DELAY {
            // It may have been told long before it could listen.
            self.field.claims.delayed(Span { from: asked_at, to: now() });
        }
        let Some(Record { fence, outcome: Outcome::Ok, op: Op::Wait, .. }) =
            self.records.last().copied()
        else {
            return Ok(());
        };
        let hold = self.seed.below(1_500) as u64;
        thread::sleep(Duration::from_micros(hold));
        let shown = Some((self.owner, fence));
        if self.seed.below(4) == 0 {
            let (op, ttl) = (Op::Extend, self.ttl(if abandons { LONGEST_TTL_LEFT } else { 1_000 }));
            self.ask(node, &[Asked { lock, op, ttl, shown }], 0)?;
        }
        if abandons {
            Ok(())
        } else {
            self.ask(node, &[Asked { lock, op: Op::Release, ttl: 0, shown }], 0)
        }
    }

    /// Sends all of it at once, and records what comes of each.
    fn ask(&mut self, node: &mut Node, all: &[Asked], patience: u32) -> Result<(), Lost> {
        let mut lines = String::with_capacity(all.len() * 80);
        for asked in all {
            if node.asking {
                lines.push_str("ASKING\r\n");
            }
            lines.push_str(&line(asked, self.owner, patience, &self.field.prefix));
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
            let held = self.held.get(&asked.lock).copied().unwrap_or(0);
            let believed = if asked.shown.is_some() { shown } else { held };
            let (outcome, fence) = match reply {
                // It may concern another grant by the time it is executed.
                None => {
                    if !was_lost {
                        self.is_silence_right(node, asked, patience, asked_at);
                    }
                    (Outcome::Unknown, shown)
                }
                Some(Reply::Error(sent_on)) => {
                    self.elsewhere.extend(sent_on.map(|sent_on| (sent_on, *asked, patience)));
                    continue;
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
            };
            self.records.push(record);
            if owner != self.owner {
                continue;
            }
            let is_over = match outcome {
                Outcome::Ok => asked.op == Op::Release,
                Outcome::Refused => true,
                Outcome::Unknown => false,
            };
            if outcome == Outcome::Ok {
                self.former = Some((asked.lock, owner, fence));
            }
            if !is_over && outcome == Outcome::Ok {
                self.held.insert(asked.lock, fence);
            } else if is_over && held == fence {
                self.held.remove(&asked.lock);
            }
        }
        if lost { Err(Lost) } else { Ok(()) }
    }
}

impl Client<'_> {
    /// Nothing was heard for longer than anything may take: the connection was lost, or the server is, or it forgot.
    fn is_silence_right(&self, node: &Node, asked: &Asked, patience: u32, asked_at: u64) {
        let Ok(mut other) = Connection::connect(self.field.port.load(SeqCst), 0) else {
            return;
        };
        // Other connections are answered, and many times, and this one is still open.
        let is_answered = (0..ANSWERS).all(|_| {
            thread::sleep(Duration::from_millis(2));
            other.ask("PING").is_ok()
        });
        let is_silent = node.client.has_reply().is_ok_and(|replied| !replied);
        if is_answered && is_silent && self.field.is_at(node.port) {
            let what = format!(
                "o{} asked for lock {} ({:?}), and is told nothing for {PATIENCE:?}",
                self.owner, asked.lock, asked.op
            );
            // A server that was stopped when it was asked begins to wait when it goes on.
            let excuse = Excuse::Cut { stopped_within: u64::from(patience) * 1_000 };
            self.field.claims.add("L5", excuse, asked_at, what);
        }
    }
}

/// For how long this thread was ready to run so far and another did instead, as far as the system tells (Linux).
fn delay_of_this_thread() -> Duration {
    let told = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = told.split_whitespace().nth(1).and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// As a line: what is asked needs no quotes.
fn line(asked: &Asked, client: u32, patience: u32, prefix: &str) -> String {
    let (owner, fence) = asked.shown.map_or((client, None), |(owner, fence)| (owner, Some(fence)));
    let (lock, ttl) = (asked.lock, asked.ttl);
    let proof = fence.map(|fence| format!(" {fence}")).unwrap_or_default();
    match asked.op {
        Op::Try => format!("LOCK.ACQUIRE {prefix}{lock} o{owner} {ttl}\r\n"),
        Op::Wait => format!("LOCK.ACQUIRE {prefix}{lock} o{owner} {ttl} BLOCK {patience}\r\n"),
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

    /// `None` if there is none. Replies to what is asked here are one line each.
    fn reply(&mut self) -> Option<Reply> {
        let line = str::from_utf8(self.client.try_line().ok()?).ok()?;
        match line.as_bytes().first()? {
            b':' => line[1..].parse().ok().map(Reply::Number),
            b'$' | b'*' | b'_' => Some(Reply::Nil),
            _ => Some(Reply::Error(sent_on(line))),
        }
    }
}
