//! Holds that are bound to connections, as the model sees them, and connections that end.
//!
//! The model does not shorten a lease by itself: it says what the engine may do, and by when. When the engine writes
//! on its own account, [`host`](super::host) asks whether the reason is the end of a connection.

use super::content::{Content, own};
use super::model::{Client, Model, Reply, Waiting};
use super::names::{LockName, lock_name, owner_named};
use super::world::{MICROS_PER_MILLI, Server};
use crate::lock::{Ephemeral, Name, Owner, WaitKind};

/// The connection to which a hold should be bound, and how many milliseconds the hold may outlive it.
pub(super) type Wanted = (u64, u64);

/// A hold: its lock, its holder and its fence.
pub(super) type HoldOf = (LockName, &'static str, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    hold: HoldOf,
    connection: u64,
    grace: u64,
}

impl Model {
    /// Replaces the hold's former binding. Foreign locks have no fence, and are never bound.
    pub(super) fn bind(&mut self, hold: HoldOf, wanted: Option<Wanted>) {
        let Some((connection, grace)) = wanted.filter(|_| hold.2 > 0) else { return };
        self.unbind(hold);
        self.bound.push(Bound { hold, connection, grace });
    }

    /// Whether this owner's hold of the lock is bound.
    pub(super) fn is_bound(&self, name: LockName, holder: &str, fence: u64) -> bool {
        self.bound.iter().any(|bound| bound.hold == (name, holder, fence))
    }

    pub(super) fn unbind(&mut self, hold: HoldOf) {
        self.bound.retain(|bound| bound.hold != hold);
    }

    /// Gives this hold an end. `None` ends it now.
    pub(super) fn give_end(&mut self, (name, holder, fence): HoldOf, end: Option<u64>, now: u64) {
        let own = self.own_live(name, holder, now).filter(|own| own.fence == fence);
        match (own, end) {
            (None, _) => {}
            (Some(own), None) => self.end(name, own, now),
            (Some(own), Some(_)) => self.lease(name, own, end, own.share, now),
        }
    }

    /// How many tickets would bind their hold to a connection that has ended.
    pub(super) fn gone_tickets(&self) -> usize {
        let is_gone = |waiting: &&Waiting| {
            let ended = |(connection, _)| self.ended.contains_key(&connection);
            waiting.kind == WaitKind::Ticket && waiting.asked.bind.is_some_and(ended)
        };
        self.waiters.iter().filter(is_gone).count()
    }

    pub(super) fn raise_bound(&mut self, hold: HoldOf, to: u64) {
        self.bound.iter_mut().filter(|bound| bound.hold == hold).for_each(|it| it.hold.2 = to);
    }

    pub(super) fn swap_bound(&mut self, one: i32, other: i32) {
        for Bound { hold: ((db, _), ..), .. } in &mut self.bound {
            *db = match *db {
                db if db == one => other,
                db if db == other => one,
                db => db,
            };
        }
    }

    /// How many milliseconds this hold has left after the end of its connection, 0 if it is over. `None` if the
    /// connection is open.
    fn left(&self, bound: &Bound) -> Option<u64> {
        let since = self.ended.get(&bound.connection)?;
        Some(bound.grace.saturating_sub((self.elapsed - since) / MICROS_PER_MILLI))
    }

    fn left_of(&self, hold: HoldOf) -> Option<u64> {
        self.left(self.bound.iter().find(|bound| bound.hold == hold)?)
    }

    pub(super) fn is_over(&self, hold: HoldOf) -> bool {
        self.left_of(hold) == Some(0)
    }

    /// When this hold ends, if it is in force. `Some(None)` means never.
    fn end_of(&self, (name, holder, fence): HoldOf, now: u64) -> Option<Option<u64>> {
        let Some(Content::Lock(lock)) = self.content(name) else { return None };
        let held = own(&lock.live(now), holder).filter(|held| held.fence == fence)?;
        Some(lock.end(&held))
    }

    /// A command of this owner names the lock. If the connection of the owner's hold has ended, the hold gets its
    /// short lease before the command looks at the lock. A hold whose lease is short anyway is unbound. Too many holds
    /// of others are left for later.
    pub(super) fn part_pending(&mut self, name: LockName, holder: &str, now: u64) {
        let bound = std::mem::take(&mut self.bound);
        let is_short = |bound: &Bound| {
            bound.hold.0 == name
                && self.left(bound).is_some_and(|left| self.is_short(bound, left, now))
        };
        let (short, mut bound): (Vec<_>, Vec<_>) = bound.into_iter().partition(is_short);
        let of_others: Vec<_> = short.into_iter().filter(|bound| bound.hold.1 != holder).collect();
        bound.extend(&of_others);
        self.bound = bound;
        self.may_be_forgotten.extend(of_others);
    }

    /// Whether a hold is over, or ends within `left` milliseconds.
    fn is_short(&self, bound: &Bound, left: u64, now: u64) -> bool {
        match self.end_of(bound.hold, now) {
            None => true,
            Some(end) => left > 0 && end.is_some_and(|end| end <= now / MICROS_PER_MILLI + left),
        }
    }

    /// The engine gives this end to a hold whose connection has ended.
    pub(super) fn shorten(&mut self, hold: HoldOf, end: u64, now: u64) {
        let left = self.left_of(hold).expect("its connection has ended");
        assert_eq!(end, now / MICROS_PER_MILLI + left, "{hold:?}: what is left of the grace");
        self.give_end(hold, Some(end), now);
        // The window of a grant that nobody heard may be as long as the grace. Such a hold is still bound.
        self.may_be_forgotten.extend(self.bound.iter().find(|bound| bound.hold == hold));
    }

    /// The hold that would end later than this, if its connection has ended: then this is not a longer lease for an
    /// owner that asked again.
    pub(super) fn shortened(
        &self,
        name: LockName,
        fence: u64,
        end: u64,
        now: u64,
    ) -> Option<HoldOf> {
        let is_it = |bound: &&Bound| {
            // If time passes between the look and the write, the end may come out later instead.
            let (of, holder, its_fence) = bound.hold;
            let left = self.left(bound).filter(|_| of == name && its_fence == fence);
            let is_what_is_left = left.is_some_and(|left| end == now / MICROS_PER_MILLI + left)
                && self.waits(name, holder).is_none();
            let later = |then: Option<u64>| then.is_none_or(|then| then > end);
            let then = self.end_of(bound.hold, now);
            left.is_some() && then.is_some_and(|then| later(then) || is_what_is_left)
        };
        Some(self.bound.iter().find(is_it)?.hold)
    }
}

impl Server {
    /// A connection ends: the server first reports it, and then ends its waits.
    pub(super) fn disconnects(&self, slot: usize) {
        let mut borrowed = self.state.borrow_mut();
        let state = &mut *borrowed;
        let ended = state.connections[slot];
        state.connections[slot] = state.next_connection;
        state.next_connection += 1;
        let now = state.monotonic();
        state.model.ended.insert(ended, state.model.elapsed);
        let _has_work = self.engine.connection_ended(ended, now);
        let is_of = |client: &Client| state.connection_of.get(client) == Some(&ended);
        // A ticket stays.
        let blocked =
            state.model.waiters.iter().filter(|waiting| waiting.kind == WaitKind::Blocked);
        let waiting: Vec<_> = blocked.map(|waiting| waiting.client).filter(is_of).collect();
        drop(borrowed);
        waiting.into_iter().for_each(|client| self.leaves(client));
        let next_unheard = || {
            let state = self.state.borrow();
            let is_of = |client: &Client| state.connection_of.get(client) == Some(&ended);
            state.in_flight.iter().position(|(client, _)| is_of(client))
        };
        while let Some(at) = next_unheard() {
            self.dies_unheard(at);
        }
    }

    /// The engine's bindings are the model's. Bindings of holds that are no longer in force may be forgotten.
    pub(super) fn assert_bindings(&self, has_worked: bool) {
        let is_done = has_worked && self.is_at_rest();
        let known = self.bindings();
        let state = &mut *self.state.borrow_mut();
        let may_be_forgotten = std::mem::take(&mut state.model.may_be_forgotten);
        if known.is_empty() && state.model.bound.is_empty() {
            return;
        }
        let (now, is_paused) = (state.now().micros(), state.is_paused());
        let model = &state.model;
        let is_in_force = |bound: &Bound| model.end_of(bound.hold, now).is_some();
        for known in &known {
            assert!(
                model.bound.contains(known) || !is_in_force(known),
                "{known:?}, and the model's: {:?}",
                model.bound
            );
        }
        let mut stays = Vec::new();
        for bound in &model.bound {
            let left = model.left(bound);
            if known.contains(bound) {
                assert!(
                    left.is_none() || !is_done || is_paused,
                    "{bound:?} outlives its connection"
                );
                stays.push(*bound);
            } else if is_in_force(bound) {
                let was_told = || {
                    let told = [Reply::Fence(bound.hold.2), Reply::Published(bound.hold.2)];
                    state.answers.iter().any(|(_, reply)| told.contains(reply))
                };
                let is_short = may_be_forgotten.contains(bound)
                    || left.is_some_and(|left| model.is_short(bound, left, now));
                assert!(is_short || (left.is_some() && was_told()), "{bound:?} was forgotten");
            }
        }
        state.model.bound = stays;
    }

    /// Forgets the bindings of a lock whose slot has left, even briefly.
    pub(super) fn forget_bindings_of(&self, name: LockName) {
        let known = self.bindings();
        let state = &mut *self.state.borrow_mut();
        state.model.bound.retain(|bound| bound.hold.0 != name || known.contains(bound));
    }

    fn bindings(&self) -> Vec<Bound> {
        self.engine.with_bindings(|bindings| {
            let bound = |(name, owner, fence, ephemeral): (Name<'_>, Owner<'_>, u64, Ephemeral)| {
                let Ephemeral { connection, grace } = ephemeral;
                let hold = (lock_name(name), owner_named(owner.as_bytes()), fence);
                Bound { hold, connection, grace: grace.millis() }
            };
            bindings.map(bound).collect()
        })
    }
}
