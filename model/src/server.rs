//! One server: its key, its fence clock, and what its key held before.
//!
//! The engine asks the key, decides, and writes what it decided; so does [`Server::change`], by the same functions of
//! `leasehold_core::lock`. The rest is what `src` does with the fence clock, under the same names.

use crate::setting::{Differences, Mistake, Setting};
use leasehold_core::lock::{
    self, Acquired, Deadline, Decision, Extended, Fence, FenceClock, Moment, Monotonic, Outcome,
    Owner, Proof, Released, Share, Standing, Stored, Ttl, Value, Wanted, Write, learn_from,
};

/// When stories begin, in milliseconds.
const BEGINNING: u64 = 1_763_000_000_000;

const SECOND: u64 = 1_000;

/// More than two may not hold a lock here.
const MAX_HOLDERS: usize = 2;

/// A name of one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u8);

/// What the key of the lock holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Held {
    /// That of the grant.
    pub fence: Fence,
    /// The holder.
    pub owner: OwnerId,
    /// By the clock of the server that has the key.
    pub deadline: Deadline,
}

impl Held {
    fn value(&self) -> Option<Value> {
        Some(Value::new(self.fence, Owner::new(&[self.owner.0])?))
    }
}

/// What a replica is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    /// `SET key value PXAT deadline`: a grant, or another end of a lease.
    Set(Held),
    /// `DEL key`: a release.
    Del,
    /// How far the fence clock is: see `fence_clock`.
    FenceClock(Fence),
}

/// Whether a server decides, or repeats what another one decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It grants locks.
    Primary,
    /// It refuses requests that would change something.
    Replica,
}

/// What a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A new grant.
    Granted(Fence),
    /// The hold that its owner has already.
    Again(Fence),
    /// Nil.
    Busy,
    /// The lease ends later.
    Extended,
    /// The lock is free.
    Released,
    /// Nothing has changed.
    NotHolder,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    pub(crate) is_up: bool,
    pub(crate) role: Role,
    /// By how many seconds its clock is ahead of the slowest that there can be.
    pub(crate) clock: u8,
    pub(crate) fences: FenceClock,
    pub(crate) key: Option<Held>,
    /// What the key held before: what a file may say that lacks the last writes. In no order, since any of them may be the last
    /// that was kept.
    pub(crate) history: Vec<Option<Held>>,
    /// A replica: whether it has received anything from its primary since it follows it.
    pub(crate) has_heard: bool,
}

/// The clock that nobody sets.
fn monotonic(now: u8) -> Monotonic {
    Monotonic::from_micros(0).plus_millis(millis(now))
}

fn millis(seconds: u8) -> u64 {
    u64::from(seconds).saturating_mul(SECOND)
}

impl Server {
    /// One that has been up for long, and has never met a fence.
    pub(crate) fn new(role: Role, clock: u8) -> Self {
        let (key, history, fences) = (None, Vec::new(), FenceClock::new());
        let mut server = Self { is_up: true, role, clock, fences, key, history, has_heard: false };
        let now = server.wall(0);
        server.fences.raise(now);
        server
    }

    /// What its clock says.
    pub(crate) fn wall(&self, now: u8) -> Moment {
        Self::moment(now.saturating_add(self.clock))
    }

    fn moment(seconds: u8) -> Moment {
        Moment::from_millis(BEGINNING.saturating_add(millis(seconds)))
    }

    /// Microseconds since stories begin, for a fence.
    pub fn since_beginning(fence: Fence) -> u64 {
        fence.number().saturating_sub(Moment::from_millis(BEGINNING).micros())
    }

    /// Whether its clock may say this when it starts.
    pub(crate) fn may_have(&self, clock: u8, setting: &Setting) -> bool {
        setting.differences == Differences::All || clock == self.clock
    }

    // What `fence_clock` does.

    /// `fence_clock::lift`.
    pub(crate) fn lift(&mut self, now: u8, setting: &Setting) {
        self.fences.raise(self.wall(now).plus_millis(millis(setting.margin)));
    }

    /// `fence_clock::begin`, of a server that starts or has loaded its data.
    pub(crate) fn begin(&mut self, now: u8, setting: &Setting) {
        if setting.is_without(Mistake::BeginDoesNotLift) {
            self.lift(now, setting);
        }
        if setting.is_without(Mistake::BeginDoesNotRest) {
            self.quarantine(now, setting);
        }
    }

    /// `fence_clock::take_over`, of a replica that becomes a primary.
    pub(crate) fn take_over(&mut self, now: u8, setting: &Setting) {
        self.role = Role::Primary;
        if setting.mistake == Some(Mistake::TakeOverForgetsKnown) {
            self.lift(now, setting);
        } else if setting.is_without(Mistake::TakeOverDoesNotLift) {
            self.fences.raise_above_known(self.wall(now), millis(setting.margin));
        }
        if setting.is_without(Mistake::TakeOverDoesNotRest) {
            self.quarantine(now, setting);
        }
    }

    fn quarantine(&mut self, now: u8, setting: &Setting) {
        self.fences.quarantine(monotonic(now), millis(setting.quarantine));
    }

    // What `fence_observer` and `fence_clock` do.

    /// `fence_observer`: learns from a key that was loaded, or that was written for a primary.
    fn learn(&mut self, now: u8) {
        let now = self.wall(now);
        if let Some(value) = self.key.as_ref().and_then(Held::value) {
            learn_from(value.as_bytes(), now, &mut self.fences);
        }
    }

    /// `fence_clock`: what a replica is told when it joins, if locks were ever used.
    pub(crate) fn broadcast(&self) -> Option<Told> {
        let fence = self.fences.highest().filter(|_| self.fences.is_in_use());
        fence.map(Told::FenceClock)
    }

    /// A replica repeats what its primary has done.
    pub(crate) fn apply(&mut self, told: Told, now: u8, setting: &Setting) {
        let learns = setting.is_without(Mistake::ReplicaLearnsNothing);
        match told {
            Told::Set(held) => {
                self.store(Some(held));
                if learns {
                    self.learn(now);
                }
            }
            Told::Del => self.store(None),
            // A lock of nobody's, which is deleted right away.
            Told::FenceClock(fence) if learns => self.fences.observe(fence, self.wall(now)),
            Told::FenceClock(_) => {}
        }
        // That a lock is free again tells no fence.
        self.has_heard |= !matches!(told, Told::Del);
    }

    // What becomes of the process.

    /// It ends.
    pub(crate) fn die(&mut self) {
        self.is_up = false;
        self.fences = FenceClock::new();
        self.has_heard = false;
    }

    /// It starts with a clock that says this. Its file says this of the key: what it held last, or what it held before. What is
    /// read from a file now is lost later with all of it, or not at all.
    pub(crate) fn start(&mut self, clock: u8, kept: Option<Held>, now: u8, setting: &Setting) {
        (self.is_up, self.role, self.clock) = (true, Role::Primary, clock);
        (self.key, self.history) = (kept, vec![None]);
        self.expire(now, setting);
        self.begin(now, setting);
        self.load(now, setting);
    }

    /// It loads what another one has, and follows that.
    pub(crate) fn follow(&mut self, key: Option<Held>, now: u8, setting: &Setting) {
        self.role = Role::Replica;
        self.has_heard = false;
        (self.key, self.history) = (key, vec![None]);
        self.load(now, setting);
    }

    fn load(&mut self, now: u8, setting: &Setting) {
        self.learn(now);
        self.begin(now, setting);
    }

    // The key.

    /// Time passes for the quarantine.
    fn pass(&mut self, now: u8) {
        self.fences.pass(monotonic(now));
    }

    /// Time passes. What is over by every clock makes no difference any more.
    pub(crate) fn tick(&mut self, now: u8, setting: &Setting) {
        self.pass(now);
        if self.is_up && self.role == Role::Primary {
            self.expire(now, setting);
        }
        let slowest = Self::moment(now);
        self.history.retain(|key| key.is_none_or(|held| !held.deadline.may_have_passed(slowest)));
    }

    /// Whether the lock is held here.
    pub(crate) fn is_held(&self, now: u8) -> bool {
        self.key.is_some_and(|held| !held.deadline.may_have_passed(self.wall(now)))
    }

    /// The server looks for keys that have expired, and takes them as early as any server does.
    pub(crate) fn expire(&mut self, now: u8, setting: &Setting) {
        let early = u8::from(setting.mistake == Some(Mistake::LeaseEndsEarly));
        if !self.is_held(now.saturating_add(early)) {
            self.store(None);
        }
    }

    /// Puts this into the key.
    pub(crate) fn store(&mut self, key: Option<Held>) {
        if self.key != key {
            self.history.push(self.key);
            self.history.sort_unstable();
            self.history.dedup();
            self.key = key;
        }
    }

    /// What `MIGRATE` sends: the time that is left goes along, and not the end.
    pub(crate) fn migrated(&self, to: &Self, now: u8) -> Option<Held> {
        let held = self.key?;
        let left = Ttl::from_millis(held.deadline.millis_left(self.wall(now)))?;
        Some(Held { deadline: Deadline::after(to.wall(now), left), ..held })
    }

    // What clients ask for.

    /// `LOCK.ACQUIRE key owner ttl`.
    pub(crate) fn acquire(
        &mut self,
        owner: OwnerId,
        now: u8,
        setting: &Setting,
    ) -> (Answer, Option<Told>) {
        let Some(ttl) = Ttl::from_millis(millis(setting.ttl)) else { return (Answer::Busy, None) };
        self.change(owner, now, setting, |standing, owner, moment, fences| {
            let wanted = Wanted { owner, ttl, share: Share::EXCLUSIVE };
            lock::acquire(&[standing], &wanted, moment, fences)
        })
    }

    /// `LOCK.EXTEND key owner ttl fence`.
    pub(crate) fn extend(
        &mut self,
        (owner, fence): (OwnerId, Fence),
        now: u8,
        setting: &Setting,
    ) -> (Answer, Option<Told>) {
        let Some(ttl) = Ttl::from_millis(millis(setting.ttl)) else { return (Answer::Busy, None) };
        self.change(owner, now, setting, |standing, owner, _, _| {
            let proof = Proof { owner, fence: Some(fence.number()) };
            lock::extend(&[standing], &proof, ttl)
        })
    }

    /// `LOCK.RELEASE key owner fence`.
    pub(crate) fn release(
        &mut self,
        (owner, fence): (OwnerId, Fence),
        now: u8,
        setting: &Setting,
    ) -> (Answer, Option<Told>) {
        self.change(owner, now, setting, |_, owner, _, _| {
            Decision::Released(Proof { owner, fence: Some(fence.number()) })
        })
    }

    /// What `Engine::change` does for one lock for which nobody waits: it looks at the key, decides, and writes. Returns
    /// what the client is told, and what replicas are.
    fn change(
        &mut self,
        id: OwnerId,
        now: u8,
        setting: &Setting,
        decide: impl for<'r> FnOnce(Standing, Owner<'r>, Moment, &mut FenceClock) -> Decision<'r>,
    ) -> (Answer, Option<Told>) {
        self.expire(now, setting);
        self.pass(now);
        let (name, moment) = ([id.0], self.wall(now));
        let Some(owner) = Owner::new(&name) else { return (Answer::Busy, None) };
        let value = self.key.as_ref().and_then(Held::value);
        let stored = match (&value, self.key) {
            (Some(value), Some(held)) => {
                Stored::Text { value: value.as_bytes(), deadline: Some(held.deadline) }
            }
            _ => Stored::Nothing,
        };
        let Ok(holders) = stored.holders(owner, moment, &mut self.fences) else {
            return (Answer::Busy, None);
        };
        let standing = Standing::new(&holders, 0, Share::EXCLUSIVE, MAX_HOLDERS);
        let decision = decide(standing, owner, moment, &mut self.fences);
        let Some(outcome) = decision.outcome(0, &holders, moment) else {
            return (Answer::Busy, None);
        };
        let told = self.write(id, &outcome.write(&holders));
        (answer(&outcome), told)
    }

    fn write(&mut self, owner: OwnerId, write: &Write<'_>) -> Option<Told> {
        let told = match *write {
            Write::Hold { fence, deadline: Some(deadline), .. } => {
                Told::Set(Held { fence, owner, deadline })
            }
            Write::Expire(deadline) => Told::Set(Held { deadline, ..self.key? }),
            Write::Delete => Told::Del,
            Write::Hold { deadline: None, .. }
            | Write::Keep
            | Write::Edit(_)
            | Write::Restore(_) => return None,
        };
        self.store(match told {
            Told::Set(held) => Some(held),
            Told::Del | Told::FenceClock(_) => None,
        });
        Some(told)
    }
}

fn answer(outcome: &Outcome<'_>) -> Answer {
    match *outcome {
        Outcome::Acquire(Acquired::Granted { grant, .. }) => Answer::Granted(grant.fence),
        Outcome::Acquire(Acquired::Again { fence_number, .. }) => {
            Fence::new(fence_number).map_or(Answer::Busy, Answer::Again)
        }
        Outcome::Extend(Extended::Until { .. }) => Answer::Extended,
        Outcome::Release(Released::Released { .. }) => Answer::Released,
        Outcome::Extend(Extended::NotHolder(_)) | Outcome::Release(Released::NotHolder(_)) => {
            Answer::NotHolder
        }
        Outcome::Acquire(_) | Outcome::Raise(_) => Answer::Busy,
    }
}
