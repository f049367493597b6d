//! `LOCK.DROP`: somebody frees what an owner holds and waits for, in as many steps as it takes.
//!
//! The model does not know which locks the engine remembers. It does for the engine what the engine does, if that is
//! allowed; and in the end it says what nobody may have forgotten.

use super::content::{Content, own};
use super::model::Client;
use super::names::{KEYS, LockName, Names, lock_name};
use super::requests::{Claim, Requested, bytes};
use super::world::{Server, State};
use crate::command::{Decide, Error, drop};
use crate::engine::Cursor;
use crate::lock::{Decision, FenceClock, Grace, Moment, Name, Owner, Standing};
use std::cell::Cell;

/// Whose locks are dropped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drop {
    pub(super) db: i32,
    pub(super) owner: &'static str,
    /// How many are freed in a step.
    pub(super) count: usize,
    /// The key that the client may not use.
    pub(super) denied: Option<&'static str>,
}

impl Drop {
    fn allows(&self, name: LockName) -> bool {
        self.denied != Some(name.1)
    }

    /// Whether nothing of these locks may be left.
    fn covers(&self, owner: &str, names: &[LockName]) -> bool {
        owner == self.owner && names.iter().all(|name| name.0 == self.db && self.allows(*name))
    }
}

/// The release of the lock that was found last.
struct Dropping<'s> {
    page: &'s drop::Request<'s>,
    server: &'s Server,
    drop: Drop,
    found: Cell<Option<LockName>>,
}

impl Dropping<'_> {
    fn names(&self) -> Names {
        Names::one(self.found.get().expect("it was asked whether that is allowed"))
    }
}

impl Decide for Dropping<'_> {
    fn owner(&self) -> Result<Owner<'_>, Error> {
        self.page.owner()
    }

    /// Asked once, when the release begins.
    fn grace(&self) -> Option<Grace> {
        self.server.begins(&self.names(), self.page.owner().expect("an owner"));
        self.page.grace()
    }

    fn decide(
        &self,
        standings: &[Standing],
        now: Moment,
        fences: &mut FenceClock,
    ) -> Result<Decision<'_>, Error> {
        let state = &mut *self.server.state.borrow_mut();
        let names = self.names();
        state.decides(&names);
        let (owner, micros) = (self.drop.owner, now.micros());
        let live = state.model.look(names[0], micros).expect("it is a lock");
        if let Some(own) = own(&live, owner) {
            state.model.claim(own.fence);
            state.model.end(names[0], own, micros);
            state.tally.releases += 1;
            state.dropped += 1;
        } else {
            state.tally.releases_refused += 1;
        }
        let claim = Claim { names, owner, fence: None };
        (state.requested, state.half) = (Some(Requested::Release(claim)), names.to_vec());
        self.page.decide(standings, now, fences)
    }
}

impl Server {
    pub(super) fn drops(&self, drop: Drop) {
        let Drop { db, owner, count, .. } = drop;
        let words = ["", owner, "COUNT", &count.to_string()].map(str::to_owned);
        let words = bytes(&words);
        let page = drop::Request::parse(&words).expect("a good request");
        let dropping = Dropping { page: &page, server: self, drop, found: Cell::new(None) };
        let is_allowed = |name: Name<'_>| {
            let name = lock_name(name);
            assert_eq!(name.0, db, "a lock of another database");
            self.state.borrow_mut().has_released();
            dropping.found.set(Some(name));
            drop.allows(name)
        };
        self.state.borrow_mut().dropping = Some(drop);
        let (mut next, mut freed) = (Cursor::from(0), 0);
        loop {
            let step = self.engine.on(self).drop_owner(&dropping, db, next, page.count, is_allowed);
            let step = step.expect("a primary");
            self.state.borrow_mut().has_released();
            freed += step.count;
            next = step.next;
            if next.number() == 0 {
                break;
            }
            assert!(step.count >= page.count, "{drop:?} stopped early");
        }
        let state = &mut *self.state.borrow_mut();
        assert_eq!(freed, std::mem::take(&mut state.dropped), "{drop:?}, and the model's");
        state.dropping = None;
        state.assert_dropped(drop);
    }
}

impl State {
    /// A waiter is told that it was dropped.
    pub(super) fn drops_place(&mut self, client: Client) {
        let drop = self.dropping.expect("somebody is dropped");
        let gone = self.model.leave(client).expect("it waits");
        assert!(drop.covers(gone.asked.owner, &gone.asked.names), "{drop:?} dropped {gone:?}");
        self.dropped += gone.asked.names.len();
    }

    fn has_released(&mut self) {
        self.assert_settled();
        (self.requested, self.half, self.in_command) = (None, Vec::new(), false);
        self.to_settle.clear();
    }

    /// The owner waits for nothing, and holds no contended lock and no lock that is bound to a connection.
    fn assert_dropped(&self, drop: Drop) {
        let left = self.model.waiters.iter();
        let left = left.clone().find(|left| drop.covers(left.asked.owner, &left.asked.names));
        assert!(left.is_none(), "{drop:?} forgot {left:?}");
        if drop.denied.is_some() {
            // Where the owner still waits for several locks, it may have been granted them meanwhile.
            return;
        }
        let now = self.now().micros();
        let all = KEYS.map(|key| (drop.db, key));
        // A key without an expiry may be other data.
        let ends = |name| match self.model.content(name) {
            Some(Content::Lock(lock)) => lock.expiry.is_some(),
            _ => true,
        };
        for name in all.into_iter().filter(|name| !self.is_in_use(*name) && ends(*name)) {
            for (holder, fence) in self.model.holders(name, now) {
                let is_known =
                    self.model.anyone_waits_for(name) || self.model.is_bound(name, holder, fence);
                assert!(holder != drop.owner || !is_known, "{drop:?} forgot the hold of {name:?}");
            }
        }
    }
}
