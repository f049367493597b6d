//! What happens next: random, but all from one seed.
//!
//! Every seed has its own habits: how many steps, locks and owners, whether requests name several locks, how long the
//! leases, which events happen and how often. A schedule in which everything happens all the time would never get
//! anywhere. Names are few and times short, so that everything meets everything.

use super::content::Content;
use super::dropping::Drop;
use super::model::{Asked, Client, Waits};
use super::names::{CROWD, KEYS, LockName, Names, OWNERS};
use super::requests::Claim;
use super::tickets::CHANNELS;
use super::world::{CONNECTIONS, Role, Server, State};
use crate::lock::{Fence, Suspicion, WaitKind};
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};

const FEW: usize = 5;

/// More than there ever is to do.
pub(super) const EVERYTHING: usize = 2 * CROWD;
/// November 2025, and one second before the last fence, in microseconds.
const USUAL_START: u64 = 1_763_000_000_000_000;
const LATE_START: u64 = (1 << 53) - 1_000_000;

#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Time passes, in microseconds.
    Pass(u64),
    /// Somebody sets the wall clock, by this many microseconds.
    Step(i64),
    Acquire(Asked),
    /// A request during which the wall clock is off by this many microseconds.
    AcquireWhileSet(Asked, i64),
    /// A try inside a transaction: without waiting, after the clock of key expiry has stood still.
    TryInTransaction(Asked, u64),
    Release(Claim),
    Drop(Drop),
    Extend(Claim, u64),
    Raise(Claim, u64),
    Check(Claim),
    Look(LockName),
    /// One of the connections with bound holds ends.
    Disconnect(usize),
    /// A waiter's client leaves.
    Leave(Client),
    /// A client with a grant leaves before it hears of the grant.
    DieUnheard(usize),
    Put(LockName, Content),
    Delete(LockName),
    ExpireAt(LockName, Option<u64>),
    Rename(LockName, LockName),
    Copy(LockName, LockName),
    Flush(Option<i32>),
    Swap(i32, i32),
    Evict(LockName),
    RemoveExpired,
    /// An event without a meaning.
    Touch(LockName, Suspicion),
    Become(Role),
    SendAway(LockName),
    Room(usize, usize, usize),
    /// The subscribers of this channel leave, or come back.
    Hear(&'static str, bool),
    /// The write of a grant with this number, from now on, is refused.
    RefuseWrite(usize),
}

#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) op: Op,
    /// How much time passes whenever the engine asks for the time, in microseconds.
    pub(super) drift: u64,
    /// Whether the module is told of the event.
    pub(super) is_heard: bool,
    /// Whether the module works right after. Otherwise something else happens first.
    pub(super) then_works: bool,
    /// Whether the first client that is told of its grant has already left.
    pub(super) dies_at_once: bool,
    /// Whether clients then receive what they were told.
    pub(super) then_delivers: bool,
    /// The key that the server uses itself meanwhile, if any.
    pub(super) in_use: Option<LockName>,
}

macro_rules! kinds {
    ($($kind:ident $usual:literal $is_needed:literal,)*) => {
        #[derive(Clone, Copy)]
        enum Kind {
            $($kind,)*
        }

        const USUAL: &[(Kind, u32, bool)] = &[$((Kind::$kind, $usual, $is_needed),)*];
    };
}

// The events by name; how often each happens, if at all; and whether it is what a lock is for, and so never left out.
kinds! {
    Pass 200 true, Leap 6 false, Step 12 false,
    WaitWhileSet 40 false, Wait 340 true, Ticket 240 false, Try 60 true, TryInTransaction 20 false,
    Release 110 true, Drop 15 false, Extend 30 false, Raise 20 false, Check 15 false,
    Look 15 false, Disconnect 40 false, Leave 40 false, DieUnheard 40 false,
    Put 20 false, Delete 30 false, ExpireAt 20 false, Rename 10 false, Copy 6 false,
    Flush 6 false, Swap 8 false, Evict 30 false, RemoveExpired 15 false, Touch 10 false,
    Role 16 false, SendAway 3 false, Room 4 false, Hear 20 false, RefuseWrite 20 false,
}

pub(super) struct Schedule {
    rng: SmallRng,
    /// Most schedules are short, because habits matter more than length.
    pub(super) steps: usize,
    weights: Vec<(Kind, u32)>,
    has_tickets: bool,
    dbs: i32,
    keys: usize,
    most_names: usize,
    /// The most microseconds that pass whenever the engine asks for the time.
    most_drift: u64,
    owners: usize,
    longest_lease: u64,
    longest_patience: u64,
    /// The shares of owners. In some schedules all holds are exclusive.
    shares: &'static [u32],
    ephemerals: u32,
    works_late: u32,
    unheard: u32,
    in_use: u32,
    pub(super) at_once: usize,
    pub(super) quarantine_millis: u64,
    /// How long a grant is kept that nobody heard of.
    pub(super) window_millis: u64,
    pub(super) start: u64,
}

impl Schedule {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let is_crowd = rng.random_ratio(1, 30);
        let mut weights = weights(&mut rng, USUAL);
        if is_crowd {
            weights.push((Kind::Wait, 1_500));
        }
        let most_names = if is_crowd { 1 } else { *pick(&mut rng, &[1, 1, 2, 4]) };
        let has_tickets = weights.iter().any(|(kind, _)| matches!(kind, Kind::Ticket));
        Self {
            steps: if is_crowd { 2_000 } else { *pick(&mut rng, &[500, 500, 500, 2_000, 5_000]) },
            has_tickets,
            weights,
            dbs: if most_names > 1 && rng.random_bool(0.7) { 1 } else { rng.random_range(1..=2) },
            keys: match most_names {
                _ if is_crowd => 1,
                1 => rng.random_range(1..=3),
                _ => rng.random_range(most_names..=KEYS.len()),
            },
            most_names,
            most_drift: *pick(&mut rng, &[0, 0, 0, 2_000]),
            owners: if is_crowd { CROWD } else { rng.random_range(2..=FEW) },
            longest_lease: *pick(&mut rng, &[3, 20, 300]),
            longest_patience: if is_crowd { 3_000 } else { *pick(&mut rng, &[5, 40, 500]) },
            shares: pick::<&[u32]>(&mut rng, &[&[1], &[0, 0, 0, 1], &[3], &[0, 1, 2, 3, 5]]),
            ephemerals: *pick(&mut rng, &[0, 300, 700, 1_000]),
            works_late: *pick(&mut rng, &[0, 300]),
            unheard: *pick(&mut rng, &[0, 0, 0, 200]),
            in_use: *pick(&mut rng, &[0, 0, 300]),
            at_once: *pick(&mut rng, &[EVERYTHING, EVERYTHING, 2, 1]),
            quarantine_millis: *pick(&mut rng, &[0, 0, 20, 200]),
            window_millis: *pick(&mut rng, &[1, 5, 50]),
            start: if rng.random_ratio(1, 50) { LATE_START } else { USUAL_START },
            rng,
        }
    }

    pub(super) fn next(&mut self, server: &Server) -> Step {
        let server = &*server.state.borrow();
        let mut op = None;
        while op.is_none() {
            let kind = self.weights.choose_weighted(&mut self.rng, |(_, weight)| *weight);
            op = self.draw(kind.expect("weights").0, server);
        }
        // How long a grant is kept that nobody hears of depends on the moment of the announcement.
        let is_deaf = !server.model.deaf.is_empty() || matches!(op, Some(Op::Hear(..)));
        Step {
            drift: if is_deaf { 0 } else { self.rng.random_range(0..=self.most_drift) },
            op: op.expect("one was drawn"),
            is_heard: self.unheard == 0 || !self.rng.random_ratio(self.unheard, 1_000),
            then_works: self.works_late == 0 || !self.rng.random_ratio(self.works_late, 1_000),
            dies_at_once: self.rng.random_ratio(1, 50),
            then_delivers: self.rng.random_bool(0.5),
            in_use: self.rng.random_ratio(self.in_use, 1_000).then(|| self.name()),
        }
    }

    /// `None` if this cannot happen now.
    fn draw(&mut self, kind: Kind, server: &State) -> Option<Op> {
        let op = match kind {
            Kind::Pass => Op::Pass(self.rng.random_range(0..3_000)),
            Kind::Leap => Op::Pass(self.rng.random_range(0..2_500_000)),
            Kind::Step => Op::Step(clock_step(&mut self.rng)),
            Kind::Leave => {
                let at = self.one_of(server.model.waiters.len())?;
                let waiting = &server.model.waiters[at];
                (waiting.kind == WaitKind::Blocked).then_some(Op::Leave(waiting.client))?
            }
            Kind::Disconnect => Op::Disconnect(self.rng.random_range(0..CONNECTIONS)),
            Kind::DieUnheard => Op::DieUnheard(self.one_of(server.in_flight.len())?),
            Kind::Look => Op::Look(self.name()),
            Kind::Touch => Op::Touch(self.name(), self.suspicion()),
            Kind::Role => Op::Become(self.role(server.role)),
            Kind::SendAway => Op::SendAway(self.name()),
            Kind::Room => Op::Room(self.limit(), self.limit(), self.limit()),
            Kind::Hear => Op::Hear(self.channel(), self.rng.random_bool(0.5)),
            // A replica does what its primary tells it.
            Kind::Put if server.role == Role::Replica => {
                let holder = self.owner();
                let now = server.now();
                let fence = possible(now.micros() + self.rng.random_range(0..4_000_000));
                let deadline = Some(now.millis() + self.millis(self.longest_lease));
                Op::Put(self.name(), Content::sole(holder, fence, deadline))
            }
            Kind::Delete if server.role == Role::Replica => Op::Delete(self.name()),
            _ if has_to_wait(kind, server.role) => return None,
            Kind::WaitWhileSet => {
                Op::AcquireWhileSet(self.request(server, true), clock_step(&mut self.rng))
            }
            Kind::Wait => Op::Acquire(self.request(server, true)),
            Kind::Ticket => Op::Acquire(self.by_ticket(server)),
            Kind::Try => Op::Acquire(self.request(server, false)),
            Kind::TryInTransaction => {
                let by_ticket = self.has_tickets && self.rng.random_ratio(1, 3);
                let request =
                    if by_ticket { self.by_ticket(server) } else { self.request(server, false) };
                Op::TryInTransaction(request, self.millis(3))
            }
            Kind::Release => Op::Release(self.claim(server)),
            Kind::Drop => {
                let (db, owner) = (self.db(), self.owner());
                let count = *pick(&mut self.rng, &[1, 2, 1_000]);
                let denied = self.rng.random_ratio(1, 4).then(|| self.name().1);
                Op::Drop(Drop { db, owner, count, denied })
            }
            Kind::Extend => Op::Extend(self.claim(server), self.millis(self.longest_lease)),
            Kind::Raise => {
                Op::Raise(self.claim_of_one(server), self.fence_of_another_server(server))
            }
            Kind::Check => Op::Check(self.claim_of_one(server)),
            Kind::Put => Op::Put(self.name(), self.content(server)),
            Kind::Delete => Op::Delete(self.name()),
            Kind::ExpireAt => Op::ExpireAt(self.name(), self.deadline(server)),
            Kind::Rename => Op::Rename(self.name(), self.name()),
            Kind::Copy => Op::Copy(self.name(), self.name()),
            Kind::Flush => Op::Flush(self.rng.random_bool(0.5).then(|| self.db())),
            Kind::Swap => Op::Swap(self.db(), self.db()),
            Kind::Evict => Op::Evict(self.name()),
            Kind::RemoveExpired => Op::RemoveExpired,
            Kind::RefuseWrite => Op::RefuseWrite(self.rng.random_range(0..3)),
        };
        Some(op)
    }

    fn suspicion(&mut self) -> Suspicion {
        if self.rng.random_bool(0.5) { Suspicion::Freed } else { Suspicion::Rewritten }
    }

    /// An owner of another lock asks like any other owner. One in ten asks again for its own lock.
    fn request(&mut self, server: &State, waits: bool) -> Asked {
        let names = self.names();
        let holder = self.holder(server, names[0]);
        let owner = match holder {
            Some((holder, _)) if self.rng.random_ratio(1, 10) => holder,
            _ => self.owner(),
        };
        let ttl = self.millis(self.longest_lease);
        let patience =
            if self.rng.random_ratio(1, 5) { 0 } else { self.millis(self.longest_patience) };
        let share = *pick(&mut self.rng, self.shares);
        let (waits, bind) = (waits.then_some(Waits::Block(patience)), self.connection(server));
        Asked { names, owner, ttl, share, waits, bind }
    }

    /// Half of these requests come from owners that already wait.
    fn by_ticket(&mut self, server: &State) -> Asked {
        let mut request = self.request(server, false);
        if self.rng.random_bool(0.5)
            && let Some(at) = self.one_of(server.model.waiters.len())
        {
            let asked = server.model.waiters[at].asked;
            (request.names, request.owner) = (self.again(asked.names), asked.owner);
        }
        let lasts = self.millis(self.longest_patience);
        let channel = self.rng.random_bool(0.7).then(|| self.channel());
        Asked { waits: Some(Waits::Ticket(lasts, channel)), ..request }
    }

    /// The connection that the hold is bound to, and the grace, if it is bound.
    fn connection(&mut self, server: &State) -> Option<(u64, u64)> {
        if self.ephemerals == 0 || !self.rng.random_ratio(self.ephemerals, 1_000) {
            return None;
        }
        let grace = if self.rng.random_bool(0.5) { 0 } else { self.millis(self.longest_lease) };
        Some((server.connections[self.rng.random_range(0..CONNECTIONS)], grace))
    }

    fn holder(&mut self, server: &State, name: LockName) -> Option<(&'static str, u64)> {
        let holders = server.model.holders(name, server.now().micros());
        Some(holders[self.one_of(holders.len())?])
    }

    /// Usually the truth.
    fn claim(&mut self, server: &State) -> Claim {
        let name = self.name();
        let holder = self.holder(server, name);
        let names = self.granted_with(server, name, holder);
        let (owner, fence) = match holder {
            Some(holder) if self.rng.random_ratio(9, 10) => holder,
            Some((_, fence)) => (self.owner(), fence),
            None => (self.owner(), 0),
        };
        let fence = match self.rng.random_range(0..10) {
            0..5 => None,
            5 => Some(if fence < Fence::LAST.number() { fence + 1 } else { fence - 1 }),
            _ => Some(fence),
        };
        Claim { names, owner, fence }
    }

    fn claim_of_one(&mut self, server: &State) -> Claim {
        let claim = self.claim(server);
        Claim { names: Names::one(claim.names[0]), ..claim }
    }

    /// Usually all locks of a grant, in any order. Sometimes one too many, or only one.
    fn granted_with(
        &mut self,
        server: &State,
        name: LockName,
        holder: Option<(&'static str, u64)>,
    ) -> Names {
        let now = server.clocks().wall.micros();
        let is_granted = |key: &&'static str| {
            let holders = server.model.holders((name.0, key), now);
            holder.is_some_and(|holder| holders.contains(&holder))
        };
        let all = KEYS[..self.keys].iter().copied();
        let mut keys: Vec<_> = all.filter(is_granted).take(self.most_names).collect();
        if keys.is_empty() {
            keys.push(name.1);
        }
        if self.most_names > 1 && self.rng.random_ratio(1, 8) {
            keys.extend(KEYS[..self.keys].iter().find(|key| !keys.contains(*key)));
        }
        self.again(Names::of(name.0, &keys))
    }

    /// The same locks in any order, and sometimes only one of them.
    fn again(&mut self, names: Names) -> Names {
        let mut keys: Vec<_> = names.iter().map(|name| name.1).collect();
        keys.shuffle(&mut self.rng);
        if self.rng.random_ratio(1, 8) {
            keys.truncate(1);
        }
        Names::of(names[0].0, &keys)
    }

    /// Locks of older clients, locks copied from elsewhere with any fence, and values that are no locks.
    fn content(&mut self, server: &State) -> Content {
        let now = server.now();
        if self.rng.random_ratio(1, 6) {
            return Content::OtherType;
        }
        let fence = match self.rng.random_range(0..12) {
            0..8 => 0,
            8..10 => possible(now.micros() - self.rng.random_range(0..10_000_000)),
            10 => possible(now.micros() + self.rng.random_range(0..60_000_000)),
            _ => possible(now.micros() + self.rng.random_range(0..200_000_000_000)),
        };
        let deadline =
            self.rng.random_bool(0.5).then(|| now.millis() + self.millis(self.longest_lease));
        Content::sole(self.owner(), fence, deadline)
    }

    /// The other server's clock may be behind, a little ahead, or as wrong as no clock is.
    fn fence_of_another_server(&mut self, server: &State) -> u64 {
        let now = server.now().micros();
        possible(match self.rng.random_range(0..8) {
            0 => self.rng.random_range(0..now),
            1 => now + self.rng.random_range(0..200_000_000_000),
            _ => now + self.rng.random_range(0..4_000_000),
        })
    }

    fn deadline(&mut self, server: &State) -> Option<u64> {
        let now = server.now().millis();
        match self.rng.random_range(0..6) {
            0 => None,
            1 => Some(now - 1),
            2 => Some(now + self.millis(1_000)),
            _ => Some(now + self.millis(3)),
        }
    }

    fn role(&mut self, role: Role) -> Role {
        match role {
            Role::Primary => *pick(&mut self.rng, &[Role::Paused, Role::Refusing, Role::Replica]),
            Role::Paused | Role::Refusing | Role::Replica => Role::Primary,
        }
    }

    fn limit(&mut self) -> usize {
        if self.rng.random_bool(0.5) { usize::MAX } else { self.rng.random_range(0..=4) }
    }

    fn millis(&mut self, most: u64) -> u64 {
        self.rng.random_range(1..=most)
    }

    fn owner(&mut self) -> &'static str {
        OWNERS[self.rng.random_range(0..self.owners)]
    }

    fn channel(&mut self) -> &'static str {
        CHANNELS[self.rng.random_range(0..CHANNELS.len())]
    }

    fn db(&mut self) -> i32 {
        self.rng.random_range(0..self.dbs)
    }

    fn name(&mut self) -> LockName {
        (self.db(), KEYS[self.rng.random_range(0..self.keys)])
    }

    fn names(&mut self) -> Names {
        let mut keys = KEYS[..self.keys].to_vec();
        keys.shuffle(&mut self.rng);
        keys.truncate(self.rng.random_range(1..=self.most_names));
        Names::of(self.db(), &keys)
    }

    fn one_of(&mut self, len: usize) -> Option<usize> {
        (len > 0).then(|| self.rng.random_range(0..len))
    }
}

/// Whether the server does not do this now. While writes are paused, it does what follows `CLIENT PAUSE` in the same
/// transaction.
fn has_to_wait(kind: Kind, role: Role) -> bool {
    match (role, kind) {
        (Role::Primary, _)
        | (Role::Paused, Kind::TryInTransaction | Kind::Release | Kind::Extend) => false,
        (Role::Paused | Role::Refusing | Role::Replica, _) => true,
    }
}

fn possible(fence: u64) -> u64 {
    fence.min(Fence::LAST.number())
}

fn pick<'c, T>(rng: &mut SmallRng, choices: &'c [T]) -> &'c T {
    &choices[rng.random_range(0..choices.len())]
}

/// How often each kind happens in a schedule, drawn from its usual frequency. A kind that is not needed may not happen
/// at all.
fn weights<K: Copy>(rng: &mut SmallRng, usual: &[(K, u32, bool)]) -> Vec<(K, u32)> {
    let mut weights = Vec::new();
    for &(kind, usual, is_needed) in usual {
        if is_needed || rng.random_ratio(2, 3) {
            weights.push((kind, rng.random_range(1..=2 * usual)));
        }
    }
    weights
}

/// How many microseconds somebody moves the wall clock: from a little to a summer's hour, in either direction.
fn clock_step(rng: &mut SmallRng) -> i64 {
    let micros = *pick(rng, &[2_000, 30_000, 2_000_000, 3_600_000_000]);
    rng.random_range(-micros..=micros)
}
