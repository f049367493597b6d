//! The module in the tiny server: what `src/server` does with the queues and the decisions, in the same
//! order, with the model a step behind.
//!
//! Commands settle the lock that they change before they return. Everything else only marks it, and
//! [`Server::work`] settles it: right after, or somewhat later.

use super::super::decision::{self, Acquired, Checked, Extended, Raised, Released};
use super::super::fence::{Fence, FenceClock};
use super::super::hold::{NotALock, Proof, Stored, Value};
use super::super::lease::{Deadline, Moment, Patience, Ttl};
use super::super::model::{Client, LockName, Reply};
use super::super::owner::Owner;
use super::super::queue::{Cause, Joined, Left, Look, Marked, Name, Next, Seen, Settled, Waiter};
use super::world::{InFlight, KEYS, Role, Server};

/// How long to wait before asking again whether the module may write.
const PAUSE_MILLIS: u64 = 10;

/// A request of `LOCK.ACQUIRE`. `block` is how many milliseconds the client is ready to wait, if it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) name: LockName,
    pub(super) owner: &'static str,
    pub(super) ttl: u64,
    pub(super) block: Option<u64>,
}

/// Who says to hold which lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) name: LockName,
    pub(super) owner: &'static str,
    pub(super) fence: Option<u64>,
}

// The commands.
impl Server {
    pub(super) fn acquire(&mut self, client: Client, request: Request) {
        let Request { name, owner: asker, ttl, block } = request;
        let is_contended = self.settle_if_dirty(name);
        self.open(name);
        self.put_back(name);
        let now = self.now();
        let outcome = self.keys.stored(name).hold(now, &mut self.fences).map(|current| {
            let current = current.as_ref();
            decision::acquire(
                current,
                usize::from(is_contended),
                owner(asker),
                lease(ttl),
                now,
                &mut self.fences,
            )
        });
        self.model.acquire(client, name, asker, ttl, block, now.micros());
        let changes = match outcome {
            Ok(Acquired::Granted(grant)) => {
                self.history.granted(name, asker, grant.fence, grant.deadline, None, now);
                self.write_grant(name, grant.owner, grant.fence, grant.deadline);
                self.tell(client, name, grant.fence.number());
                true
            }
            Ok(Acquired::Again { fence_number, longer }) => {
                self.lengthen(name, longer);
                self.tell(client, name, fence_number);
                longer.is_some()
            }
            Ok(Acquired::Busy) => {
                match block.and_then(Patience::from_millis) {
                    Some(patience) => self.park(client, request, patience),
                    None => self.answer(client, Reply::Nil),
                }
                false
            }
            Ok(Acquired::NoFenceLeft) => {
                self.answer(client, Reply::NoFenceLeft);
                false
            }
            Err(NotALock) => {
                self.answer(client, Reply::WrongType);
                false
            }
        };
        if is_contended && changes {
            self.settle(name);
        }
    }

    pub(super) fn release(&mut self, client: Client, claim: Claim) {
        let name = claim.name;
        let is_contended = self.settle_if_dirty(name);
        self.open(name);
        self.put_back(name);
        let now = self.now();
        let outcome = self
            .keys
            .stored(name)
            .hold(now, &mut self.fences)
            .map(|current| decision::release(current.as_ref(), &proof(claim)));
        self.model.release(client, name, claim.owner, claim.fence, now.micros());
        match outcome {
            Ok(Released::Released) => {
                self.free(name);
                self.queues.changed(name.0, name.1.as_bytes());
                self.history.released(name, claim.owner, claim.fence);
                self.answer(client, Reply::Done);
                if is_contended {
                    self.settle(name);
                }
            }
            Ok(Released::NotHolder) => self.answer(client, Reply::NotHolder),
            Err(NotALock) => self.answer(client, Reply::WrongType),
        }
    }

    pub(super) fn extend(&mut self, client: Client, claim: Claim, ttl: u64) {
        let name = claim.name;
        let is_contended = self.settle_if_dirty(name);
        self.open(name);
        self.put_back(name);
        let now = self.now();
        let outcome = self
            .keys
            .stored(name)
            .hold(now, &mut self.fences)
            .map(|current| decision::extend(current.as_ref(), &proof(claim), lease(ttl), now));
        self.model.extend(client, name, claim.owner, claim.fence, ttl, now.micros());
        match outcome {
            Ok(Extended::Until(deadline)) => {
                self.lengthen(name, Some(deadline));
                let fence = self.history.extended(name, claim.owner);
                self.counts_on(name, fence);
                self.answer(client, Reply::Done);
                if is_contended {
                    self.settle(name);
                }
            }
            Ok(Extended::NotHolder) => self.answer(client, Reply::NotHolder),
            Err(NotALock) => self.answer(client, Reply::WrongType),
        }
    }

    pub(super) fn raise(&mut self, client: Client, claim: Claim, asked: u64) {
        let Claim { name, owner: asker, .. } = claim;
        let is_contended = self.settle_if_dirty(name);
        self.open(name);
        self.put_back(name);
        let now = self.now();
        let outcome = self.keys.stored(name).hold(now, &mut self.fences).map(|current| {
            decision::raise(current.as_ref(), owner(asker), asked, now, &mut self.fences)
        });
        self.model.raise_hold(client, name, asker, asked, now.micros());
        match outcome {
            Ok(Raised::To { fence, deadline }) => {
                self.write(
                    name,
                    Value::new(fence, owner(asker)).as_bytes(),
                    deadline.map(Deadline::millis),
                );
                self.history.raised(name, asker, fence);
                self.tell(client, name, fence.number());
                if is_contended {
                    self.queues.changed(name.0, name.1.as_bytes());
                    self.settle(name);
                }
            }
            Ok(Raised::Already { fence_number }) => self.tell(client, name, fence_number),
            Ok(Raised::NotHolder) => self.answer(client, Reply::Nil),
            Ok(Raised::TooFarAhead) => self.answer(client, Reply::TooFarAhead),
            Err(NotALock) => self.answer(client, Reply::WrongType),
        }
    }

    pub(super) fn check(&mut self, client: Client, claim: Claim) {
        let name = claim.name;
        self.open(name);
        let now = self.now();
        let stored = match (self.keys.stored(name), self.evicted.get(name.0, name.1.as_bytes())) {
            (Stored::Nothing, Some(evicted)) => evicted.as_stored(),
            (stored, _) => stored,
        };
        let outcome = stored
            .hold(now, &mut self.fences)
            .map(|current| decision::check(current.as_ref(), &proof(claim)));
        self.model.check(client, name, claim.owner, claim.fence, now.micros());
        match outcome {
            Ok(Checked::Holds { fence_number }) => self.tell(client, name, fence_number),
            Ok(Checked::NotHolder) => self.answer(client, Reply::Nil),
            Err(NotALock) => self.answer(client, Reply::WrongType),
        }
    }

    /// Whether anybody waits for the lock, once whatever may have happened to it has had its effect.
    fn settle_if_dirty(&mut self, name: LockName) -> bool {
        let (db, key) = (name.0, name.1.as_bytes());
        if self.queues.may_have_changed(db, key) {
            self.settle(name);
        }
        self.queues.waiters_for(db, key) > 0
    }
}

// Those who wait.
impl Server {
    fn park(&mut self, client: Client, request: Request, patience: Patience) {
        let Request { name, owner: asker, ttl, .. } = request;
        let (db, key) = (name.0, name.1.as_bytes());
        if !self.queues.has_room(db, key, owner(asker), self.room) {
            return self.answer(client, Reply::QueueFull);
        }
        let since = self.monotonic();
        let gives_up = patience.ends(since);
        let waiter =
            Waiter { owner: owner(asker).into(), ttl: lease(ttl), since, gives_up, parked: client };
        let id = match self.queues.join(db, key, waiter) {
            Joined::Queued(id) => {
                self.history.joined(client, name, asker);
                id
            }
            Joined::InPlaceOf(id, former) => {
                self.history.took_over(client, former);
                self.parked.remove(&former);
                self.answer(former, Reply::Replaced);
                id
            }
        };
        self.parked.insert(client, id);
        self.settle_if_dirty(name);
    }

    /// The connection of one who waits ends, or its wait is interrupted.
    pub(super) fn leaves(&mut self, client: Client) {
        let id = self.parked.remove(&client).expect("it waits");
        let left = self.queues.leave(id).expect("it is in the queue");
        assert_eq!(left.waiter.parked, client, "another left");
        self.history.left(client);
        self.model.leave(client);
    }

    /// The connection of one who was granted a lock ends before it hears of it.
    pub(super) fn dies_unheard(&mut self, at: usize) {
        let grant = self.in_flight.remove(at);
        if !grant.is_counted_on {
            self.given_back.push(grant);
        }
    }

    /// What was granted up to now reaches those who waited for it.
    pub(super) fn deliver(&mut self) {
        for InFlight { name, fence, .. } in std::mem::take(&mut self.in_flight) {
            self.history.told(name, fence, true);
        }
    }

    /// What a slot on its way to another node does to the waiters of a lock in it.
    pub(super) fn send_away(&mut self, name: LockName) {
        while let Some(Left { waiter, .. }) = self.queues.leave_first(name.0, name.1.as_bytes()) {
            let first = self.model.first_for(name).map(|first| first.client);
            assert_eq!(Some(waiter.parked), first, "who came first is sent away first");
            self.is_sent_away(waiter);
        }
    }

    /// This server no longer decides.
    pub(super) fn send_all_away(&mut self) {
        for Left { waiter, .. } in self.queues.leave_all() {
            self.is_sent_away(waiter);
        }
    }

    fn is_sent_away(&mut self, waiter: Waiter<Client>) {
        let client = waiter.parked;
        self.ends_its_wait(client, Reply::SentAway);
        self.history.left(client);
        self.model.leave(client);
        self.model.answers.push((client, Reply::SentAway));
    }
}

// The hand-off.
impl Server {
    /// Does what is due, as the timer does it.
    pub(super) fn work(&mut self) {
        let now = self.now();
        self.worked_at = now.micros();
        let ended = self.queues.wake(self.both_clocks(), self.at_once);
        assert!(ended.len() <= self.at_once, "too many at once");
        for Left { waiter, .. } in ended {
            let client = waiter.parked;
            let is_first = self.model.is_first_to_give_up(client);
            assert!(is_first, "{client} was sent away before its time, or before its turn");
            self.ends_its_wait(client, Reply::Nil);
            self.history.left(client);
            self.model.leave(client);
            self.model.answers.push((client, Reply::Nil));
        }
        for grant in std::mem::take(&mut self.given_back) {
            self.takes_back(grant);
        }
        self.put_back_due(now);
        for cause in [Cause::Due, Cause::Suspected] {
            for _ in 0..self.at_once {
                let Some(Marked { name, .. }) = self.queues.take_marked(cause) else { break };
                self.settle(lock_name(&name));
            }
        }
    }

    fn put_back_due(&mut self, now: Moment) {
        while let Some(kept) = self.evicted.next(now) {
            let name = lock_name(&kept);
            match self.role {
                Role::Primary => {
                    self.open(name);
                    self.put_back(name);
                    self.model.put_back(name, now.micros());
                    if matches!(self.keys.stored(name), Stored::Nothing) {
                        self.queues.mark(kept.db, &kept.key);
                    }
                }
                Role::Paused => return self.evicted.wait(now),
                Role::Replica => {
                    self.evicted.remove(kept.db, &kept.key);
                    self.model.forget_evictions(|evicted| evicted == name);
                    self.history.evictions_forgotten(|evicted| evicted == name);
                }
            }
        }
    }

    /// Puts back the lock that the key held when it was evicted, if nothing else is there.
    fn put_back(&mut self, name: LockName) {
        let (db, key, now) = (name.0, name.1.as_bytes(), self.now());
        if self.evicted.get(db, key).is_none() {
            return;
        }
        match self.evicted.take(db, key, self.keys.stored(name), now) {
            Some(Seen { value, deadline }) => self.restore(name, &value, deadline),
            None => self.history.evictions_forgotten(|evicted| evicted == name),
        }
    }

    /// Whether [`Server::work`] has done all there was to do.
    pub(super) fn is_at_rest(&self) -> bool {
        let now = self.both_clocks();
        let due = self.queues.next_due(now).into_iter().chain(self.evicted.due(now.wall)).min();
        !self.queues.has_marks() && due.is_none_or(|due| due > now.wall)
    }

    /// Gives the lock to whoever is next, until it is held or nobody waits.
    fn settle(&mut self, name: LockName) {
        let (db, key) = (name.0, name.1.as_bytes());
        let now = self.now();
        self.settled.push(name);
        match self.role {
            Role::Primary => {}
            Role::Paused => {
                return self.queues.postpone(db, key, now, PAUSE_MILLIS);
            }
            Role::Replica => return self.send_away(name),
        }
        self.open(name);
        let now = self.both_clocks();
        let look = self.queues.look(db, key, self.keys.stored(name), now, &mut self.fences);
        if let Look::Held { lost } = look {
            if let Some(lost) = &lost {
                self.history.lost(name, lost, now.wall);
            }
            return self.model.settle(name, now.wall.micros());
        }
        loop {
            self.open(name);
            self.put_back(name);
            let stored = self.keys.stored(name);
            let Settled { lost, next } =
                self.queues.settle(db, key, stored, now, Ttl::LONGEST, &mut self.fences);
            if let Some(lost) = &lost {
                self.history.lost(name, lost, now.wall);
            }
            match next {
                Next::Held | Next::Nobody => break,
                Next::Grant { waiter, fence, deadline } => {
                    self.hands_on(name, &waiter, fence, deadline);
                }
                Next::Again { waiter, fence_number, longer } => {
                    self.lengthen(name, longer);
                    self.parked.remove(&waiter.parked);
                    self.history.left(waiter.parked);
                    self.tell(waiter.parked, name, fence_number);
                }
                Next::GaveUp(waiter) => {
                    self.ends_its_wait(waiter.parked, Reply::Nil);
                    self.history.left(waiter.parked);
                }
                Next::NoFenceLeft(waiter) => {
                    self.ends_its_wait(waiter.parked, Reply::NoFenceLeft);
                    self.history.left(waiter.parked);
                }
            }
        }
        self.model.settle(name, now.wall.micros());
    }

    fn hands_on(
        &mut self,
        name: LockName,
        waiter: &Waiter<Client>,
        fence: Fence,
        deadline: Deadline,
    ) {
        let client = waiter.parked;
        let asker = self.history.owner_of(client);
        self.history.granted(name, asker, fence, deadline, Some(client), self.now());
        self.write_grant(name, waiter.owner.as_owner(), fence, deadline);
        self.ends_its_wait(client, Reply::Fence(fence.number()));
        self.in_flight.push(InFlight {
            name,
            owner: asker,
            fence: fence.number(),
            is_counted_on: false,
        });
    }

    fn takes_back(&mut self, grant: InFlight) {
        let InFlight { name, owner: asker, fence, .. } = grant;
        match self.role {
            Role::Primary => {}
            Role::Paused => return self.given_back.push(grant),
            Role::Replica => return,
        }
        self.open(name);
        self.put_back(name);
        let now = self.now();
        let hold = self.keys.stored(name).hold(now, &mut self.fences).ok().flatten();
        let claim = Claim { name, owner: asker, fence: Some(fence) };
        self.model.take_back(name, fence, now.micros());
        if decision::release(hold.as_ref(), &proof(claim)) == Released::Released {
            self.free(name);
            self.queues.changed(name.0, name.1.as_bytes());
            self.history.given_back(name, fence);
            self.settle(name);
        }
    }

    fn write_grant(&mut self, name: LockName, owner: Owner<'_>, fence: Fence, deadline: Deadline) {
        self.write(name, Value::new(fence, owner).as_bytes(), Some(deadline.millis()));
    }
}

// What clients hear.
impl Server {
    fn answer(&mut self, client: Client, reply: Reply) {
        self.answers.push((client, reply));
    }

    fn ends_its_wait(&mut self, client: Client, reply: Reply) {
        self.parked.remove(&client);
        self.answer(client, reply);
    }

    /// Tells somebody that it holds the lock.
    fn tell(&mut self, client: Client, name: LockName, fence: u64) {
        self.answer(client, Reply::Fence(fence));
        self.history.told(name, fence, is_learned(fence, self.now()));
        self.counts_on(name, fence);
    }

    /// From now on somebody counts on this grant: it is not given back, whoever else has not heard of it.
    fn counts_on(&mut self, name: LockName, fence: u64) {
        self.given_back.retain(|grant| (grant.name, grant.fence) != (name, fence));
        for grant in &mut self.in_flight {
            grant.is_counted_on |= (grant.name, grant.fence) == (name, fence);
        }
    }
}

fn lock_name(name: &Name) -> LockName {
    let key = KEYS.into_iter().find(|key| key.as_bytes() == &*name.key);
    (name.db, key.expect("a key that there is"))
}

pub(super) fn owner(name: &'static str) -> Owner<'static> {
    Owner::new(name.as_bytes()).expect("a short name")
}

fn lease(millis: u64) -> Ttl {
    Ttl::from_millis(millis).expect("a short lease")
}

fn proof(claim: Claim) -> Proof<'static> {
    Proof { owner: owner(claim.owner), fence: claim.fence }
}

/// A fence too far in the future is believed, but not learned.
fn is_learned(fence: u64, now: Moment) -> bool {
    fence <= now.plus_millis(FenceClock::HORIZON_MILLIS).micros()
}
