//! What is about to be written, and what has been: all locks of a grant, or none.
//!
//! A request plans the change of each of its locks. A grant to a waiter does so at its first write. From then on each
//! write must be the next of the plan, or a write that the engine may do on its own account.

#![allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test, as it should")]

use super::model::{Asked, Bound, Content, Held, Key, Model, Verdict, Waiting};
use crate::simulation::alike::MICROS_PER_MILLI;

#[derive(Clone, Debug)]
pub(super) enum Effect {
    /// This hold, in place of the owner's former hold.
    Granted(Held),
    /// The later of two ends, and the looser of two shares.
    Renewed {
        end: u64,
        share: u32,
    },
    Extended {
        end: u64,
    },
    Released,
}

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) owner: &'static str,
    pub(super) to_do: Vec<(Key, Effect)>,
    pub(super) done: Vec<Key>,
    pub(super) fence: Option<u64>,
    pub(super) bind: Option<(u64, u64)>,
    /// The waiter that gets the grant.
    pub(super) waiter: Option<Waiting>,
    /// One of the writes was refused.
    pub(super) has_failed: bool,
}

impl Plan {
    pub(super) fn new(owner: &'static str, to_do: Vec<(Key, Effect)>) -> Self {
        let (done, fence, bind, waiter, has_failed) = (Vec::new(), None, None, None, false);
        Self { owner, to_do, done, fence, bind, waiter, has_failed }
    }
}

impl Model {
    /// A request has been decided: plans its outcome.
    pub(super) fn plan_acquire(
        &mut self,
        asked: &Asked,
        verdict: &Verdict,
        fence: Option<u64>,
        now: u64,
    ) {
        let end = now / MICROS_PER_MILLI + asked.ttl;
        let effect = match verdict {
            Verdict::Granted => {
                let fence = fence.expect("the fence of a grant");
                self.mints(fence, asked);
                Effect::Granted(self.hold_of(asked, fence, end))
            }
            Verdict::Again(fence) => {
                self.hear(*fence);
                Effect::Renewed { end, share: asked.share }
            }
            _ => return,
        };
        let to_do = asked.keys.iter().map(|&key| (key, effect.clone())).collect();
        let bind = asked.bind;
        self.plan = Some(Plan { fence, bind, ..Plan::new(asked.owner, to_do) });
    }

    fn hold_of(&self, asked: &Asked, fence: u64, end: u64) -> Held {
        Held { owner: asked.owner.to_owned(), fence, end: Some(end), share: asked.share }
    }

    /// L2: checks that the new fence is larger than every earlier fence.
    fn mints(&mut self, fence: u64, asked: &Asked) {
        let last = self.last_fence;
        assert!(fence > last, "L2: {fence} comes after {last}");
        self.last_fence = fence;
        self.grants.insert(fence, (asked.owner, asked.keys.clone()));
    }

    /// The engine has written this key. `before` and `after` are the holds in force.
    pub(super) fn written(&mut self, key: Key, before: &[Held], after: &[Held], now: u64) {
        if !self.is_planned(key) {
            self.written_by_itself(key, before, after, now);
        }
        if self.is_planned(key) {
            self.does(key, now);
        }
    }

    /// A value to which a hold is added loses the holds that have run out.
    pub(super) fn forgets_what_has_run_out(&mut self, key: Key, now: u64) {
        if let Some(Content::Holds(holds)) = self.keys.get_mut(key) {
            holds.retain(|held| held.lasts(now));
        }
    }

    pub(super) fn assert_holds(&self, key: Key, holds: &[Held], now: u64) {
        let (mut holds, live) = (holds.to_vec(), self.live(key, now));
        holds.sort();
        let live = live.map(|mut live| {
            live.sort();
            live
        });
        assert_eq!(Some(holds), live, "{key}: its holds, and the model's");
    }

    /// The engine has found that this key needs no write.
    pub(super) fn kept(&mut self, key: Key, now: u64) {
        if self.is_planned(key) {
            self.does(key, now);
        }
    }

    /// The server has refused this write.
    pub(super) fn refused(&mut self, key: Key, before: &[Held], after: &[Held], now: u64) {
        if !self.is_planned(key) {
            self.written_by_itself(key, before, after, now);
        }
        let plan = self.plan.as_mut().expect("a grant is refused");
        plan.has_failed = true;
        let (fence, done) = (plan.fence.expect("the fence of a grant"), plan.done.clone());
        plan.to_do.clear();
        self.undo(&done, fence);
    }

    fn is_planned(&self, key: Key) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.to_do.iter().any(|(other, _)| *other == key))
    }

    fn does(&mut self, key: Key, now: u64) {
        let plan = self.plan.as_mut().expect("it is planned");
        let (owner, bind, fence) = (plan.owner, plan.bind, plan.fence);
        let at = plan.to_do.iter().position(|(other, _)| *other == key).expect("it is planned");
        let (_, effect) = plan.to_do.remove(at);
        plan.done.push(key);
        let Some(own) = self.own(key, owner, now) else {
            let Effect::Granted(held) = effect else { panic!("{key}: {owner} holds nothing") };
            self.hold(key, held);
            return self.bind(key, owner, fence.expect("that of the grant"), bind);
        };
        self.has_parted(key, &own, now);
        match effect {
            Effect::Granted(held) => {
                self.hear(own.fence);
                self.end(key, &own);
                self.hold(key, held);
                self.bind(key, owner, fence.expect("that of the grant"), bind);
            }
            Effect::Renewed { end, share } => {
                self.hear(own.fence);
                let end = own.end.map(|former| former.max(end));
                let share = if own.fence == 0 { own.share } else { share };
                // A hold that tolerates others has an end.
                let is_endless = end.is_none() && share != own.share;
                let end = if is_endless { Some(99_999_999_999_999) } else { end };
                self.change(key, &own, end, share);
                self.bind(key, owner, own.fence, bind);
            }
            Effect::Extended { end } => {
                self.hear(own.fence);
                self.change(key, &own, Some(end), own.share);
            }
            Effect::Released => self.end(key, &own),
        }
    }

    fn hold(&mut self, key: Key, held: Held) {
        match self.keys.entry(key).or_insert_with(|| Content::Holds(Vec::new())) {
            Content::Holds(holds) => holds.push(held),
            Content::OtherType => panic!("{key} is no lock"),
        }
    }

    pub(super) fn end(&mut self, key: Key, own: &Held) {
        if let Some(Content::Holds(holds)) = self.keys.get_mut(key) {
            holds.retain(|held| held != own);
        }
        self.unbind(key, &own.owner, own.fence);
    }

    fn change(&mut self, key: Key, own: &Held, end: Option<u64>, share: u32) {
        if let Some(Content::Holds(holds)) = self.keys.get_mut(key) {
            for held in holds.iter_mut().filter(|held| *held == own) {
                (held.end, held.share) = (end, share);
            }
        }
    }

    /// A write without a current request: a grant to a waiter, a grant that is taken back, the end of a connection.
    fn written_by_itself(&mut self, key: Key, before: &[Held], after: &[Held], now: u64) {
        let is_in = |held: &Held, holds: &[Held]| {
            holds.iter().any(|other| (&other.owner, other.fence) == (&held.owner, held.fence))
        };
        if let Some(granted) = after.iter().find(|held| !is_in(held, before)) {
            return self.hands_on(key, granted, now);
        }
        if let Some(over) = before.iter().find(|held| !is_in(held, after)) {
            assert!(
                self.may_end(key, over),
                "{key}: {over:?} was ended, and nobody asked for that"
            );
            self.undone.retain(|undone| (undone.key, undone.fence) != (key, over.fence));
            return self.end(key, over);
        }
        let changed = after.iter().find(|held| !before.contains(held));
        let Some(changed) = changed else { return };
        let former = before.iter().find(|held| held.owner == changed.owner).expect("of the same");
        let is_shorter =
            changed.end.is_some() && (former.end.is_none() || changed.end < former.end);
        if is_shorter && changed.share == former.share {
            self.shortens(key, changed, now);
        } else {
            let waits = self.waiters_for(key).any(|waiting| waiting.asked.owner == changed.owner);
            assert!(waits, "{key}: {changed:?} was {former:?}, and nobody asked for that");
        }
        self.change(key, former, changed.end, changed.share);
    }

    fn hands_on(&mut self, key: Key, granted: &Held, now: u64) {
        let is_it = |waiting: &Waiting| {
            waiting.asked.owner == granted.owner && waiting.asked.keys.contains(&key)
        };
        let at = self.waiters.iter().position(is_it).expect("a grant to one who waits");
        assert!(self.has_turn(at, now), "L4 or L1: {:?} is granted {key}", self.waiters[at]);
        let waiting = self.waiters.remove(at);
        let has_patience = waiting.gives_up.is_none_or(|end| end > self.elapsed);
        assert!(has_patience, "granted to one whose patience has ended: {waiting:?}");
        let asked = waiting.asked.clone();
        self.mints(granted.fence, &asked);
        let end = now / MICROS_PER_MILLI + asked.ttl;
        let held = self.hold_of(&asked, granted.fence, end);
        let to_do = asked.keys.iter().map(|&key| (key, Effect::Granted(held.clone()))).collect();
        self.may_be_gone(asked.bind);
        let is_done = |plan: &Plan| plan.to_do.is_empty() && plan.waiter.is_none();
        assert!(self.plan.as_ref().is_none_or(is_done), "in the middle of {:?}", self.plan);
        self.plan = Some(Plan {
            fence: Some(granted.fence),
            bind: asked.bind,
            waiter: Some(waiting),
            ..Plan::new(asked.owner, to_do)
        });
    }

    /// The engine notices only now that the connection of an unclaimed hold has ended.
    pub(super) fn may_be_gone(&mut self, bind: Option<(u64, u64)>) {
        if let Some(end) = bind.and_then(|(connection, _)| self.ended.get_mut(&connection)) {
            *end = self.elapsed;
        }
    }

    /// A command finds a hold as the end of its connection has left it, and may extend it.
    fn has_parted(&mut self, key: Key, own: &Held, now: u64) {
        // An end that is noticed at the grant of a ticket, in the middle of a command, is left to the timer.
        let ended = |connection| self.ended.get(&connection).is_some_and(|&at| at < self.elapsed);
        let is_over = |bound: &&Bound| {
            (bound.key, bound.owner, bound.fence) == (key, &*own.owner, own.fence)
                && ended(bound.connection)
        };
        // While nothing can be written, the hold is found unchanged, and ends later.
        let bound = self.bound.iter().find(is_over).filter(|_| !self.is_held_up);
        let Some(bound) = bound else { return };
        let left = own.end.map(|end| end.saturating_sub(now / MICROS_PER_MILLI));
        let is_short = left.is_some_and(|left| left <= bound.grace);
        assert!(is_short, "{key}: {own:?} is found as if {bound:?} had not ended");
        self.unbind(key, &own.owner, own.fence);
    }

    fn may_end(&self, key: Key, over: &Held) -> bool {
        let is_undone =
            self.undone.iter().any(|undone| (undone.key, undone.fence) == (key, over.fence));
        let has_parted = self.bound.iter().any(|bound| {
            let ended = self.ended.get(&bound.connection);
            let is_it = (bound.key, bound.owner, bound.fence) == (key, &*over.owner, over.fence);
            let is_over = |&at: &u64| {
                self.elapsed
                    .checked_sub(at)
                    .is_some_and(|gone| gone >= bound.grace * MICROS_PER_MILLI)
            };
            is_it && ended.is_some_and(is_over)
        });
        is_undone || has_parted
    }

    fn shortens(&mut self, key: Key, changed: &Held, now: u64) {
        let bound = self.bound.iter().find(|bound| {
            let is_it = (bound.key, bound.owner) == (key, &*changed.owner);
            is_it && bound.fence == changed.fence && self.ended.contains_key(&bound.connection)
        });
        let grace = bound.unwrap_or_else(|| panic!("{key}: {changed:?} was shortened")).grace;
        let left = changed.end.expect("an end") - now / MICROS_PER_MILLI;
        assert!(left <= grace, "{key}: {left} ms are left, of {grace}");
        self.unbind(key, &changed.owner, changed.fence);
    }
}
