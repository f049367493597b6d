//! What happens next: random, but all from one seed.
//!
//! As in the [simulation of single locks](crate::simulation), every seed has its own habits.

use super::super::alike::{CONNECTIONS, Role};
use super::super::chance::{clock_step, pick, weighted, weights};
use super::model::{Client, Content, Held, Key};
use super::requests::{Claim, Request, Waits};
use super::server::{KEYS, State};
use crate::lock::WaitKind;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

const OWNERS: [&str; 6] = ["ann", "bob", "cat", "dan", "eve", "fay"];

/// More than there ever is to do.
pub(super) const EVERYTHING: usize = 1_000;

#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Time passes, in microseconds.
    Pass(u64),
    /// Somebody sets the wall clock.
    Step(i64),
    Acquire(Request),
    Release(Claim),
    Extend(Claim, u64),
    Disconnect(usize),
    Leave(Client),
    DieUnheard(usize),
    Put(Key, Content),
    Delete(Key),
    Flush,
    Evict(Key),
    RemoveExpired,
    Touch(Key),
    Become(Role),
    Room(usize, usize, usize),
    /// The write of a grant with this number, from now on, is refused.
    RefuseWrite(usize),
}

#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) op: Op,
    /// Whether the module works right after. Otherwise something else happens first.
    pub(super) then_works: bool,
    pub(super) dies_at_once: bool,
    pub(super) then_delivers: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    Pass,
    Leap,
    Step,
    Try,
    Block,
    Ticket,
    Release,
    Extend,
    Disconnect,
    Leave,
    DieUnheard,
    Put,
    Delete,
    Flush,
    Evict,
    RemoveExpired,
    Touch,
    Role,
    Room,
    RefuseWrite,
}

/// How often each event happens, if at all. What locks are for is never left out.
const USUAL: [(Kind, u32, bool); 20] = [
    (Kind::Pass, 200, true),
    (Kind::Leap, 6, false),
    (Kind::Step, 4, false),
    (Kind::Try, 60, true),
    (Kind::Block, 280, true),
    (Kind::Ticket, 240, false),
    (Kind::Release, 200, true),
    (Kind::Extend, 30, false),
    (Kind::Disconnect, 30, false),
    (Kind::Leave, 40, false),
    (Kind::DieUnheard, 40, false),
    (Kind::Put, 20, false),
    (Kind::Delete, 30, false),
    (Kind::Flush, 4, false),
    (Kind::Evict, 30, false),
    (Kind::RemoveExpired, 10, false),
    (Kind::Touch, 20, false),
    (Kind::Role, 16, false),
    (Kind::Room, 6, false),
    (Kind::RefuseWrite, 30, false),
];

pub(super) struct Schedule {
    rng: SmallRng,
    weights: Vec<(Kind, u32)>,
    keys: usize,
    most_keys: usize,
    owners: usize,
    longest_lease: u64,
    longest_patience: u64,
    shares: &'static [u32],
    /// In a thousand.
    ephemerals: u32,
    works_late: u32,
    pub(super) at_once: usize,
    pub(super) quarantine_millis: u64,
    pub(super) start: u64,
}

impl Schedule {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let weights = weights(&mut rng, &USUAL);
        Self {
            weights,
            keys: rng.random_range(3..=KEYS.len()),
            most_keys: rng.random_range(2..=4),
            owners: rng.random_range(2..=OWNERS.len()),
            longest_lease: *pick(&mut rng, &[3, 20, 300]),
            longest_patience: *pick(&mut rng, &[5, 40, 500]),
            shares: pick::<&[u32]>(&mut rng, &[&[1], &[0, 0, 0, 1], &[3], &[0, 1, 2, 3, 5]]),
            ephemerals: *pick(&mut rng, &[0, 0, 200, 700]),
            works_late: *pick(&mut rng, &[0, 0, 300]),
            at_once: *pick(&mut rng, &[EVERYTHING, EVERYTHING, 3, 1]),
            quarantine_millis: *pick(&mut rng, &[0, 0, 20, 200]),
            start: 1_763_000_000_000_000,
            rng,
        }
    }

    pub(super) fn next(&mut self, server: &State) -> Step {
        let mut op = None;
        while op.is_none() {
            let kind = weighted(&mut self.rng, &self.weights);
            op = self.draw(kind, server);
        }
        Step {
            op: op.expect("one was drawn"),
            then_works: self.works_late == 0 || !self.rng.random_ratio(self.works_late, 1_000),
            dies_at_once: self.rng.random_ratio(1, 50),
            then_delivers: self.rng.random_bool(0.5),
        }
    }

    /// `None` if this cannot happen now.
    fn draw(&mut self, kind: Kind, server: &State) -> Option<Op> {
        let is_usual = server.role == Role::Primary;
        let op = match kind {
            Kind::Pass => Op::Pass(self.rng.random_range(0..3_000)),
            Kind::Leap => Op::Pass(self.rng.random_range(0..2_500_000)),
            Kind::Step => Op::Step(clock_step(&mut self.rng)),
            Kind::Disconnect => Op::Disconnect(self.rng.random_range(0..CONNECTIONS)),
            Kind::Leave => {
                let waiting = &server.model.waiters[self.one_of(server.model.waiters.len())?];
                (waiting.kind == WaitKind::Blocked).then_some(Op::Leave(waiting.client))?
            }
            Kind::DieUnheard => Op::DieUnheard(self.one_of(server.in_flight.len())?),
            Kind::Role => Op::Become(match server.role {
                Role::Primary => {
                    *pick(&mut self.rng, &[Role::Paused, Role::Refusing, Role::Replica])
                }
                _ => Role::Primary,
            }),
            Kind::Room => Op::Room(self.limit(), self.limit(), self.limit()),
            Kind::Touch => Op::Touch(self.key()),
            Kind::RefuseWrite => Op::RefuseWrite(self.rng.random_range(0..3)),
            // In the transaction that pauses writes, a client may go on.
            Kind::Release if is_usual || server.role == Role::Paused => {
                Op::Release(self.claim(server))
            }
            Kind::Extend if is_usual || server.role == Role::Paused => {
                Op::Extend(self.claim(server), self.millis(self.longest_lease))
            }
            Kind::Delete if is_usual || server.role == Role::Replica => Op::Delete(self.key()),
            _ if !is_usual => return None,
            Kind::Try => Op::Acquire(self.request(server, None)),
            Kind::Block => {
                let is_endless = self.rng.random_ratio(1, 5);
                let patience = if is_endless { 0 } else { self.millis(self.longest_patience) };
                Op::Acquire(self.request(server, Some(Waits::Block(patience))))
            }
            Kind::Ticket => {
                let lasts = self.millis(self.longest_patience);
                Op::Acquire(self.request(server, Some(Waits::Ticket(lasts))))
            }
            Kind::Put => Op::Put(self.key(), self.content(server)),
            Kind::Delete => Op::Delete(self.key()),
            Kind::Flush => Op::Flush,
            Kind::Evict => Op::Evict(self.key()),
            Kind::RemoveExpired => Op::RemoveExpired,
            Kind::Release => Op::Release(self.claim(server)),
            Kind::Extend => Op::Extend(self.claim(server), self.millis(self.longest_lease)),
        };
        Some(op)
    }

    /// Some requests repeat what their owner waits for, or was granted, in any order. Some ask for a part of it.
    fn request(&mut self, server: &State, waits: Option<Waits>) -> Request {
        let mut keys = self.keys();
        let mut owner = self.owner();
        let asks_again = match waits {
            Some(Waits::Ticket(_)) => self.rng.random_ratio(1, 2),
            _ => self.rng.random_ratio(1, 8),
        };
        if asks_again {
            let waiters = &server.model.waiters;
            if let Some(at) = self.one_of(waiters.len()).filter(|_| self.rng.random_bool(0.6)) {
                (owner, keys) = (waiters[at].asked.owner, waiters[at].asked.keys.clone());
            } else if let Some((latest, of)) = self.latest_grant(server) {
                (owner, keys) = (latest, of);
            }
            keys.shuffle(&mut self.rng);
            if self.rng.random_ratio(1, 6) {
                keys.truncate(1);
            }
        }
        let ephemeral = self.ephemeral();
        let (ttl, share) = (self.millis(self.longest_lease), *pick(&mut self.rng, self.shares));
        Request { keys, owner, ttl, share, waits, ephemeral }
    }

    fn ephemeral(&mut self) -> Option<(usize, u64)> {
        if self.ephemerals == 0 || !self.rng.random_ratio(self.ephemerals, 1_000) {
            return None;
        }
        let grace = if self.rng.random_bool(0.5) { 0 } else { self.millis(self.longest_lease) };
        Some((self.rng.random_range(0..CONNECTIONS), grace))
    }

    /// One of the latest grants, over or not.
    fn latest_grant(&mut self, server: &State) -> Option<(&'static str, Vec<Key>)> {
        let back = self.rng.random_range(0..6);
        server.model.grants.values().rev().nth(back).cloned()
    }

    /// Usually the truth.
    fn claim(&mut self, server: &State) -> Claim {
        let back = self.rng.random_range(0..8);
        let grant = server.model.grants.iter().rev().nth(back);
        let (mut fence, (mut owner, mut keys)) = match grant {
            Some((&fence, grant)) => (fence, grant.clone()),
            None => (1, (self.owner(), self.keys())),
        };
        keys.shuffle(&mut self.rng);
        match self.rng.random_range(0..10) {
            0 => owner = self.owner(),
            1 => fence += 1,
            2 => keys = self.keys(),
            3 => keys.truncate(1),
            4 => keys.extend(KEYS.into_iter().find(|key| !keys.contains(key))),
            _ => {}
        }
        Claim { keys, owner, fence: self.rng.random_bool(0.5).then_some(fence) }
    }

    /// A lock of an older client, a copied lock, or a value that is no lock.
    fn content(&mut self, server: &State) -> Content {
        if self.rng.random_ratio(1, 5) {
            return Content::OtherType;
        }
        let now = server.now();
        let fence = if self.rng.random_ratio(2, 3) {
            0
        } else {
            now.micros() - self.rng.random_range(0..10_000_000)
        };
        let end = self.rng.random_bool(0.7).then(|| now.millis() + self.millis(self.longest_lease));
        Content::Holds(vec![Held { owner: self.owner().to_owned(), fence, end, share: 1 }])
    }

    fn limit(&mut self) -> usize {
        if self.rng.random_bool(0.5) { usize::MAX } else { self.rng.random_range(0..=6) }
    }

    fn millis(&mut self, most: u64) -> u64 {
        self.rng.random_range(1..=most)
    }

    fn owner(&mut self) -> &'static str {
        OWNERS[self.rng.random_range(0..self.owners)]
    }

    fn key(&mut self) -> Key {
        KEYS[self.rng.random_range(0..self.keys)]
    }

    /// Some of the locks, in any order.
    fn keys(&mut self) -> Vec<Key> {
        let mut keys = KEYS[..self.keys].to_vec();
        keys.shuffle(&mut self.rng);
        keys.truncate(self.rng.random_range(1..=self.most_keys));
        keys
    }

    fn one_of(&mut self, len: usize) -> Option<usize> {
        (len > 0).then(|| self.rng.random_range(0..len))
    }
}
