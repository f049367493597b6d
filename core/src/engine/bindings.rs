//! Holds that are bound to a connection, and what happens to them when the connection ends.
//!
//! A connection ends in the middle of whatever the server does, so the event only notes the end. The timer shortens the
//! leases right after; or the next command that names the lock does, if it comes first. Otherwise a client that comes
//! back would be told that it holds a lock, and lose it then.
//!
//! A binding never keeps a hold alive, and never ends another hold: it names one grant, and before anything is written
//! the key is asked whether that grant is still in force.

mod table;

use super::effort::{Budget, Effort};
use super::{
    Authority, Engine, Host, Initiator, Key, Lock, Memory, Mode, PAUSE_MILLIS, REFUSAL_MILLIS,
};
use crate::command::{Decide, Error};
use crate::lock::{
    self, Changed, Deadline, Ephemeral, KeptOwner, Moment, Monotonic, Name, Outcome, Owner, Proof,
    Raised, Ttl,
};
use crate::observe::{Event, Observer};

pub(super) use table::{Binding, Bindings, Demand};

/// When to look at a hold for the first time.
const FIRST_LOOK_MILLIS: u64 = 1_000;

/// Longest time between two looks at a hold without a deadline.
const ENDLESS_MILLIS: u64 = 60_000;

/// The result of disconnecting a hold, whose connection has ended.
enum Disconnecting {
    Done(Effort),
    /// Nothing can be written for this many milliseconds. The hold is still bound.
    PutOff(Binding, u64),
}

/// Whether the asker's hold was handled because its connection had ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Disconnected {
    Own,
    Nothing,
}

/// Holds of one lock that are over, by fence and owner.
#[derive(Debug, Default)]
pub(super) struct Over(Vec<(KeptOwner, u64)>);

impl Over {
    fn new(mut holds: Vec<(KeptOwner, u64)>) -> Self {
        holds.sort_unstable_by(|one, other| Self::order(one).cmp(&Self::order(other)));
        Self(holds)
    }

    fn order((owner, fence_number): &(KeptOwner, u64)) -> (u64, &[u8]) {
        (*fence_number, owner.as_owner().as_bytes())
    }

    pub(super) fn has(&self, owner: &[u8], fence_number: u64) -> bool {
        self.0.binary_search_by(|hold| Self::order(hold).cmp(&(fence_number, owner))).is_ok()
    }
}

impl<H: Host> Engine<'_, H> {
    /// The connection that the request wants its hold bound to.
    pub(super) fn ephemeral(self, request: &impl Decide) -> Result<Option<Ephemeral>, Error> {
        let bound = |grace| {
            let connection = self.host.connection().ok_or(Error::NoConnection)?;
            Ok(Ephemeral { connection, grace })
        };
        request.grace().map(bound).transpose()
    }

    /// Binds the hold that a request led to, in place of its former binding. A foreign lock has no fence, and is never
    /// bound.
    pub(super) fn bind(
        self,
        name: Name<'_>,
        outcome: &Outcome<'_>,
        ephemeral: Ephemeral,
        now: Moment,
    ) {
        let (owner, fence_number, end) = match *outcome {
            Outcome::Granted { grant, .. } => {
                (grant.owner, grant.fence.number(), Some(grant.deadline))
            }
            Outcome::Again { owner, fence_number, longer, .. } if fence_number > 0 => {
                (owner, fence_number, longer)
            }
            _ => return,
        };
        let was_empty = !self.has_bindings();
        let demand = if self.is_contended(name) { Demand::Some } else { Demand::None };
        self.bindings.borrow_mut().bind(Binding {
            name: name.into(),
            owner: owner.into(),
            fence_number,
            ephemeral,
            since: now,
            demand,
            look: next_look(end, now, now),
        });
        if was_empty {
            self.host.hear_of_connections();
        }
    }

    /// Ends the holds whose connections have ended, and forgets the bindings of holds that ended otherwise: as many as
    /// fit in one turn.
    pub(super) fn serve_bindings(self) {
        let now = self.host.clocks();
        if self.bindings.borrow().next_due(now).is_none_or(|due| due > now.wall) {
            return;
        }
        self.changes_due();
        match self.host.authority() {
            Authority::Yes => {
                self.disconnect_due();
                self.drop_stale_bindings();
                self.bindings.borrow_mut().tidy();
            }
            Authority::Replica => self.forget_bindings(),
            _ => self.bindings.borrow_mut().wait(now.monotonic.plus_millis(PAUSE_MILLIS)),
        }
    }

    fn disconnect_due(self) {
        let (budget, mut effort) = (Budget::of(self.host, self.host.batch()), Effort::default());
        while !budget.is_used_up(self.host, effort) {
            let ended = self.bindings.borrow_mut().take_ended();
            let Some((binding, since)) = ended else { return };
            let name = binding.name.clone();
            let Some(lock) = self.host.lock(name.as_name()) else { continue };
            match self.disconnect(&lock, binding, since) {
                Disconnecting::Done(done) => effort.add(done),
                Disconnecting::PutOff(binding, millis) => {
                    return self.put_off(binding, since, millis);
                }
            }
        }
    }

    fn put_off(self, binding: Binding, since: Monotonic, millis: u64) {
        self.changes_due();
        let mut bindings = self.bindings.borrow_mut();
        bindings.put_off(binding, since);
        bindings.wait(self.host.monotonic().plus_millis(millis));
    }

    /// Disconnects the holds of this lock from connections that have ended, before a command looks at the lock: first the
    /// hold of the owner who asks, then others, at most `most` in all. Each hold costs a read of the whole value, so if
    /// a thousand holders end at once, most are left to the timer.
    pub(super) fn disconnect_pending(
        self,
        lock: &H::Lock<'_>,
        asker: Option<Owner<'_>>,
        most: usize,
    ) {
        if !self.has_ended_connections() {
            return;
        }
        let pending = self.bindings.borrow_mut().take_ended_of(lock.name(), asker, most);
        let (budget, mut effort) = (Budget::of(self.host, most), Effort::default());
        let mut is_over = false;
        for (binding, since) in pending {
            // The asker's hold comes first, so the budget never puts it off.
            if is_over {
                self.changes_due();
                self.bindings.borrow_mut().put_off(binding, since);
                continue;
            }
            match self.disconnect(lock, binding, since) {
                Disconnecting::Done(done) => effort.add(done),
                Disconnecting::PutOff(binding, millis) => self.put_off(binding, since, millis),
            }
            is_over = budget.is_used_up(self.host, effort);
        }
    }

    /// Disconnects only the hold of the owner who asks, if its connection has ended.
    pub(super) fn disconnect_own(
        self,
        lock: &H::Lock<'_>,
        asker: Option<Owner<'_>>,
    ) -> Disconnected {
        let has_ended = |owner| self.bindings.borrow().has_ended_of(lock.name(), owner);
        if !asker.is_some_and(has_ended) {
            return Disconnected::Nothing;
        }
        self.disconnect_pending(lock, asker, 1);
        Disconnected::Own
    }

    /// Shortens the lease to what is left of the grace, if that is less. As in [`Engine::settle`], the key is looked at
    /// before the server is asked.
    fn disconnect(self, lock: &H::Lock<'_>, binding: Binding, since: Monotonic) -> Disconnecting {
        match self.host.authority() {
            Authority::Yes => {}
            Authority::Replica => return Disconnecting::Done(Effort::ROUND),
            _ => return Disconnecting::PutOff(binding, PAUSE_MILLIS),
        }
        let left = binding.ephemeral.grace.left(since, self.host.monotonic());
        let is_longer = |end: Option<Deadline>| match (left, end) {
            (Some(left), Some(end)) => end > Deadline::after(self.host.now(), left),
            _ => true,
        };
        let proof = Proof::of(&binding.owner, binding.fence_number);
        let Ok((end, looked)) = self.end_of(lock, &proof) else {
            return Disconnecting::PutOff(binding, PAUSE_MILLIS);
        };
        if !end.is_some_and(is_longer) {
            return Disconnecting::Done(looked);
        }
        match lock.may_write(Initiator::Module) {
            Authority::Yes => {}
            Authority::NotNow => return Disconnecting::PutOff(binding, PAUSE_MILLIS),
            Authority::Refused | Authority::ClusterDown => {
                return Disconnecting::PutOff(binding, REFUSAL_MILLIS);
            }
            // Another server decides, and may have bound the hold anew. The lease ends this one.
            Authority::Replica | Authority::NotOurs => return Disconnecting::Done(Effort::ROUND),
        }
        let note = |observer: &mut Observer, outcome: &Outcome<'_>, end, now| {
            observer.note_disconnected(lock.name(), outcome, proof.owner, end, now)
        };
        match self.shorten(lock, &proof, left, note) {
            Ok(effort) => Disconnecting::Done(effort),
            // The server has refused the change. The hold stays bound until it is over.
            Err(_refused) => Disconnecting::PutOff(binding, REFUSAL_MILLIS),
        }
    }

    /// The module itself gives a hold what is `left` of its lease, or ends it. The lock is only marked for its waiters,
    /// so that it is settled once, however many of its holds end. `note` is told of the hold's former end, too.
    pub(super) fn shorten(
        self,
        lock: &H::Lock<'_>,
        proof: &Proof<'_>,
        left: Option<Ttl>,
        note: impl FnOnce(&mut Observer, &Outcome<'_>, Option<Deadline>, Moment) -> Option<Event>,
    ) -> Result<Effort, Error> {
        let mut key = lock.open(Mode::Write)?;
        let now = self.host.now();
        self.put_back(&mut key, lock.name(), now)?;
        let effort = Effort::of_round(key.stored());
        let Some(holders) = self.holders_in(key.stored(), proof, now) else {
            return Ok(effort);
        };
        let end = holders.own().and_then(|own| own.deadline);
        let outcome = match left {
            None => lock::release(&holders, proof),
            Some(left) => lock::extend_one(&holders, proof, left, now),
        };
        let write = outcome.write(&holders);
        let changed = write.changes();
        if changed == Changed::Nothing {
            return Ok(effort);
        }
        key.write(&write)?;
        drop(key);
        let event = self.with_observer(|observer| note(observer, &outcome, end, now));
        event.iter().for_each(|event| lock.publish(*event));
        self.with_queues(|queues| {
            if changed == Changed::Value {
                queues.forget_seen(lock.name());
            }
            queues.mark(lock.name());
        });
        Ok(effort)
    }

    /// The holds of this lock that are over with their connections, and have not been released yet.
    pub(super) fn over_with_connections(self, name: Name<'_>) -> Over {
        let bindings = self.bindings.borrow();
        if !bindings.has_ended() {
            return Over::default();
        }
        Over::new(bindings.over(name, self.host.monotonic()).collect())
    }

    fn drop_stale_bindings(self) {
        let (budget, mut effort) = (Budget::of(self.host, self.host.batch()), Effort::default());
        while !budget.is_used_up(self.host, effort) {
            let binding = self.bindings.borrow_mut().take_look(self.host.now());
            let Some(binding) = binding else { return };
            let name = binding.name.clone();
            let Some(lock) = self.host.lock(name.as_name()) else { continue };
            let proof = Proof::of(&binding.owner, binding.fence_number);
            let still_bound = (Some(None), Effort::ROUND);
            let (end, looked) = self.end_of(&lock, &proof).unwrap_or(still_bound);
            effort.add(looked);
            if let Some(end) = end {
                let look = next_look(end, binding.since, self.host.now());
                self.bindings.borrow_mut().keep(binding, look);
            }
        }
    }
}

impl<C> Memory<C> {
    pub(super) fn unbind(&self, name: Name<'_>, owner: Owner<'_>, fence_number: u64) {
        // Usually no hold is bound, so this costs one comparison.
        if self.has_bindings() {
            self.bindings.borrow_mut().remove(name, owner, fence_number);
            if !self.has_bindings() {
                // The host need not hear of connections any more.
                self.changes_due();
            }
        }
    }

    /// Updates the binding of this owner's hold if the request ended the hold or changed its fence.
    #[inline(always)]
    pub(super) fn rebind(&self, name: Name<'_>, owner: Owner<'_>, outcome: &Outcome<'_>) {
        // Usually no hold is bound, so this costs one comparison.
        if self.has_bindings() {
            self.rebind_one(name, owner, outcome);
        }
    }

    #[inline(never)]
    fn rebind_one(&self, name: Name<'_>, owner: Owner<'_>, outcome: &Outcome<'_>) {
        match *outcome {
            Outcome::Raise(Raised::To { former, fence, .. }) => {
                let (former, fence) = (former.number(), fence.number());
                self.bindings.borrow_mut().raise(name, owner, former, fence);
            }
            Outcome::Released { fence: Some(over) }
            | Outcome::Granted { former: Some(over), .. } => {
                self.unbind(name, owner, over.number());
            }
            _ => {}
        }
    }

    /// Lends the bindings to `look`, to compare them with a model's: lock, owner, fence, connection and grace.
    #[cfg(test)]
    pub(crate) fn with_bindings<T>(
        &self,
        look: impl FnOnce(&mut dyn Iterator<Item = (Name<'_>, Owner<'_>, u64, Ephemeral)>) -> T,
    ) -> T {
        let bindings = self.bindings.borrow();
        look(&mut bindings.iter().map(|(name, binding)| {
            let Binding { owner, fence_number, ephemeral, .. } = binding;
            (name, owner.as_owner(), *fence_number, *ephemeral)
        }))
    }

    /// Forgets all bindings: another server decides from now on.
    pub(super) fn forget_bindings(&self) {
        *self.bindings.borrow_mut() = Bindings::default();
        self.changes_due();
    }

    /// Whether any hold is bound, so that the host must tell the engine when connections end.
    pub fn has_bindings(&self) -> bool {
        !self.bindings.borrow().is_empty()
    }

    /// Whether connections have ended whose holds must still end.
    pub(super) fn has_ended_connections(&self) -> bool {
        self.bindings.borrow().has_ended()
    }

    /// A connection has ended. True if the engine has work now.
    pub fn connection_ended(&self, connection: u64, now: Monotonic) -> bool {
        let is_bound = self.bindings.borrow_mut().connection_ended(connection, now);
        if is_bound {
            self.changes_due();
        }
        is_bound
    }
}

/// A hold is looked at when its lease ends, and earlier once its age has doubled: it may have been deleted or
/// overwritten. So a binding outlives its hold by no more than the hold has lasted, and clients that keep deleting
/// their locks leave no crowd of bindings behind.
fn next_look(end: Option<Deadline>, since: Moment, now: Moment) -> Moment {
    let passed = now.millis_since(since).max(FIRST_LOOK_MILLIS);
    end.map_or(now.plus_millis(passed.min(ENDLESS_MILLIS)), |end| {
        end.first_moment_after().min(now.plus_millis(passed))
    })
}
