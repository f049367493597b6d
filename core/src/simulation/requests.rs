//! What clients ask for, by the pages of the commands, and how clients go.

use super::binding::Wanted;
use super::host::LIMITS;
use super::model::{Asked, Client, LockName, Model, Reply};
use super::world::Server;
use crate::command::{self, Decide, Error, acquire, check, extend, raise, release};
use crate::engine::{Lock, NoRoom, WaiterGrant};
use crate::lock::{
    Ephemeral, FenceClock, Grace, Holders, KeptOwner, Moment, Outcome, Owner, Patience, Share, Ttl,
    Waiter,
};
use std::cell::RefMut;

/// A request of `LOCK.ACQUIRE`. `block` is how many milliseconds the client is ready to wait, if it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) name: LockName,
    pub(super) owner: &'static str,
    pub(super) ttl: u64,
    pub(super) share: u32,
    pub(super) block: Option<u64>,
    /// On which of the connections it comes, and the grace, if its hold is to end with that.
    pub(super) ephemeral: Option<(usize, u64)>,
}

/// Who says to hold which lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) name: LockName,
    pub(super) owner: &'static str,
    pub(super) fence: Option<u64>,
}

/// The request that has been decided and not written yet, and whose it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Requested {
    Acquire(&'static str),
    Release(&'static str, Option<u64>),
    Extend(&'static str),
    Raise(&'static str),
}

/// A request, with the model looking on: it decides at the same moment.
struct Watched<'s, R, M> {
    request: &'s R,
    requested: Requested,
    server: &'s Server,
    model: M,
}

impl<R: Decide, M: Fn(&mut Model, u64)> Decide for Watched<'_, R, M> {
    fn owner(&self) -> Result<Owner<'_>, Error> {
        self.request.owner()
    }

    fn grace(&self) -> Option<Grace> {
        self.request.grace()
    }

    fn decide(
        &self,
        holders: &Holders<'_>,
        waiters: usize,
        now: Moment,
        fences: &mut FenceClock,
    ) -> Result<Outcome<'_>, Error> {
        let mut state = self.server.state.borrow_mut();
        (self.model)(&mut state.model, now.micros());
        state.requested = Some(self.requested);
        drop(state);
        let outcome = self.request.decide(holders, waiters, now, fences);
        if outcome.is_err() {
            self.server.state.borrow_mut().requested = None;
        }
        outcome
    }
}

impl Server {
    pub(super) fn acquire(&self, client: Client, request: Request) {
        let Request { name, owner: asker, ttl, share, block, ephemeral } = request;
        let (ttl_word, share_word) = (ttl.to_string(), share.to_string());
        let block_word = block.map(|millis| millis.to_string());
        let mut words = vec![b"", name.1.as_bytes(), asker.as_bytes(), ttl_word.as_bytes()];
        if share != 1 {
            words.extend([b"SHARE", share_word.as_bytes()]);
        }
        words.extend(block_word.iter().flat_map(|millis| [&b"BLOCK"[..], millis.as_bytes()]));
        let grace_word = ephemeral.map(|(_, grace)| grace.to_string());
        words.extend(grace_word.iter().flat_map(|grace| [&b"EPHEMERAL"[..], grace.as_bytes()]));
        let bind = self.comes_on(client, ephemeral);
        let asked = Asked { owner: asker, ttl, share, bind };
        let page =
            acquire::Request::parse(&words, &LIMITS, || *b"00000000-0000-4000-8000-000000000000")
                .expect("a good request");
        let watched = Watched {
            request: &page,
            requested: Requested::Acquire(asker),
            server: self,
            model: |model: &mut Model, now| model.acquire(client, name, asked, block, now),
        };
        let outcome = self.engine.change(self, &self.at(name), &watched);
        self.state.borrow_mut().connection = None;
        match outcome {
            Ok(Outcome::Wait(patience)) => self.wait(client, request, patience, page.grace()),
            Ok(outcome) => {
                let reply = page.reply(&outcome).expect("a reply");
                self.hears(client, name, reply);
            }
            Err(error) => self.is_refused(client, error, &watched.model),
        }
    }

    /// The connection of this request, and the grace that it asks for.
    fn comes_on(&self, client: Client, ephemeral: Option<(usize, u64)>) -> Option<Wanted> {
        let state = &mut *self.state.borrow_mut();
        let (slot, grace) = ephemeral?;
        let connection = state.connections[slot];
        state.connection = Some(connection);
        state.connection_of.insert(client, connection);
        Some((connection, grace))
    }

    fn wait(&self, client: Client, request: Request, patience: Patience, grace: Option<Grace>) {
        let Request { name, owner: asker, ttl, share, .. } = request;
        let (place, room) = (self.at(name), self.state.borrow().room);
        match self.engine.has_room(self, place.name(), owner(asker), room) {
            Ok(()) => {}
            Err(NoRoom::ForThisLock | NoRoom::OnTheServer) => {
                return self.answers(client, Reply::QueueFull);
            }
        }
        let since = self.state.borrow().monotonic();
        let waiter = Waiter {
            owner: KeptOwner::from(owner(asker)),
            ttl: Ttl::from_millis(ttl).expect("a short lease"),
            share: Share::new(share).expect("a small share"),
            since,
            gives_up: patience.ends(since),
            ephemeral: grace.map(|grace| {
                let connection = self.state.borrow().connection_of[&client];
                Ephemeral { connection, grace }
            }),
            client,
        };
        let mut state = self.state.borrow_mut();
        state.joining = Some(client);
        let already_waits = state.history.waits(name, asker);
        if !already_waits {
            state.history.joined(client, name, asker);
        }
        drop(state);
        let id = self.engine.join(self, place.name(), waiter);
        let mut state = self.state.borrow_mut();
        state.joining = None;
        state.parked.insert(client, id);
        drop(state);
        self.engine.settle_joined(self, &place);
    }

    pub(super) fn release(&self, client: Client, claim: Claim) {
        let Claim { name, owner: asker, fence } = claim;
        let fence_word = fence.map(|fence| fence.to_string());
        let words = shown(claim, None, &fence_word);
        let page = release::Request::parse(&words).expect("a good request");
        let watched = Watched {
            request: &page,
            requested: Requested::Release(asker, fence),
            server: self,
            model: |model: &mut Model, now| model.release(client, name, asker, fence, now),
        };
        match self.engine.change(self, &self.at(name), &watched) {
            Ok(outcome) => self.hears_whether(client, release::reply(&outcome)),
            Err(error) => self.is_refused(client, error, &watched.model),
        }
    }

    pub(super) fn extend(&self, client: Client, claim: Claim, ttl: u64) {
        let Claim { name, owner: asker, fence } = claim;
        let (ttl_word, fence_word) = (ttl.to_string(), fence.map(|fence| fence.to_string()));
        let words = shown(claim, Some(&ttl_word), &fence_word);
        let page = extend::Request::parse(&words, &LIMITS).expect("a good request");
        let watched = Watched {
            request: &page,
            requested: Requested::Extend(asker),
            server: self,
            model: |model: &mut Model, now| model.extend(client, name, asker, fence, ttl, now),
        };
        match self.engine.change(self, &self.at(name), &watched) {
            Ok(outcome) => self.hears_whether(client, extend::reply(&outcome)),
            Err(error) => self.is_refused(client, error, &watched.model),
        }
    }

    pub(super) fn raise(&self, client: Client, claim: Claim, asked: u64) {
        let Claim { name, owner: asker, .. } = claim;
        let asked_word = asked.to_string();
        let words = [b"", name.1.as_bytes(), asker.as_bytes(), asked_word.as_bytes()];
        let page = raise::Request::parse(&words).expect("a good request");
        let watched = Watched {
            request: &page,
            requested: Requested::Raise(asker),
            server: self,
            model: |model: &mut Model, now| model.raise_hold(client, name, asker, asked, now),
        };
        match self.engine.change(self, &self.at(name), &watched) {
            Ok(outcome) => self.hears(client, name, raise::reply(&outcome)),
            Err(error) => self.is_refused(client, error, &watched.model),
        }
    }

    pub(super) fn check(&self, client: Client, claim: Claim) {
        let Claim { name, owner: asker, fence } = claim;
        let fence_word = fence.map(|fence| fence.to_string());
        let words = shown(claim, None, &fence_word);
        let page = check::Request::parse(&words).expect("a good request");
        let now = self.state.borrow().now().micros();
        let held = self.state.borrow().model.holders(name, now);
        let held = held.into_iter().rev().find(|(holder, _)| *holder == asker);
        let place = self.at(name);
        let is_undone = held.is_some_and(|(_, fence)| {
            self.engine.is_pending_release(place.name(), fence)
                || self.state.borrow().model.is_over(name, asker, fence)
        });
        let checked = self.engine.check(self, &place, page.proof());
        self.state.borrow_mut().model.check(client, name, asker, fence, is_undone, now);
        match checked {
            Ok(checked) => self.hears(client, name, check::reply(checked)),
            Err(error) => self.is_refused(client, error, &|_, _| {}),
        }
    }

    /// The connection of one who waits ends, or its wait is interrupted.
    pub(super) fn leaves(&self, client: Client) {
        let mut state = self.state.borrow_mut();
        let id = state.parked.remove(&client).expect("it waits");
        state.history.left(client);
        state.model.leave(client);
        drop(state);
        assert_eq!(self.engine.leave(self, id), Some(client));
    }

    /// The connection of one who was granted a lock ends before it hears of it.
    pub(super) fn dies_unheard(&self, at: usize) {
        let mut state = self.state.borrow_mut();
        let (_, grant) = state.in_flight.remove(at);
        state.left_unheard(&grant);
        drop(state);
        self.engine.mark_undeliverable(self, grant);
    }

    /// What was granted up to now reaches those who waited for it.
    pub(super) fn deliver(&self) {
        let in_flight = std::mem::take(&mut self.state.borrow_mut().in_flight);
        for (_, WaiterGrant { name, fence, .. }) in in_flight {
            self.engine.mark_delivered(fence.number());
            let name = super::host::lock_name(name.as_name());
            self.state.borrow_mut().history.told(name, fence.number(), true);
        }
    }

    /// A reply that is a fence if the client holds the lock.
    fn hears(&self, client: Client, name: LockName, reply: command::Reply<'_>) {
        let mut state: RefMut<'_, _> = self.state.borrow_mut();
        match reply {
            command::Reply::Integer(fence) => {
                let fence = u64::try_from(fence).expect("a fence");
                state.answers.push((client, Reply::Fence(fence)));
                state.told(name, fence);
            }
            command::Reply::Nil => state.answers.push((client, Reply::Nil)),
            other => panic!("{client} was told {other:?}"),
        }
    }

    fn hears_whether(&self, client: Client, reply: command::Reply<'_>) {
        let done = reply == command::Reply::DONE;
        self.answers(client, if done { Reply::Done } else { Reply::NotHolder });
    }

    fn is_refused(&self, client: Client, error: Error, model: &impl Fn(&mut Model, u64)) {
        if error == Error::WrongType {
            // Of what is no lock nothing is decided.
            let state = &mut *self.state.borrow_mut();
            let now = state.now().micros();
            model(&mut state.model, now);
        }
        let reply = match error {
            Error::WrongType => Reply::WrongType,
            Error::NoFenceLeft => Reply::NoFenceLeft,
            Error::FenceTooFarAhead => Reply::TooFarAhead,
            other => panic!("{client} was refused: {other}"),
        };
        self.answers(client, reply);
    }

    fn answers(&self, client: Client, reply: Reply) {
        self.state.borrow_mut().answers.push((client, reply));
    }
}

/// The words of a request that shows who holds the lock.
fn shown<'w>(claim: Claim, ttl: Option<&'w String>, fence: &'w Option<String>) -> Vec<&'w [u8]> {
    let mut words: Vec<&[u8]> = vec![b"", claim.name.1.as_bytes(), claim.owner.as_bytes()];
    words.extend(ttl.map(String::as_bytes));
    words.extend(fence.as_ref().map(String::as_bytes));
    words
}

pub(super) fn owner(name: &'static str) -> Owner<'static> {
    Owner::new(name.as_bytes()).expect("a short name")
}
