//! What clients ask for, through the pages of the commands, and how clients leave.

use super::binding;
use super::host::LIMITS;
use super::model::{Asked, Client, LockName, Model, Reply, Waits};
use super::world::Server;
use crate::command::{self, Decide, Error, acquire, check, extend, raise, release};
use crate::engine::{Lock, WaiterGrant};
use crate::lock::{Decision, FenceClock, Grace, Holders, Moment, Owner, Standing, Wanted};
use std::cell::RefMut;

/// A request of `LOCK.ACQUIRE`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) name: LockName,
    pub(super) owner: &'static str,
    pub(super) ttl: u64,
    pub(super) share: u32,
    pub(super) waits: Option<Waits>,
    /// The connection of the request, and the grace, if the hold is bound to the connection.
    pub(super) ephemeral: Option<(usize, u64)>,
}

/// An owner, and the lock that it claims to hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) name: LockName,
    pub(super) owner: &'static str,
    pub(super) fence: Option<u64>,
}

/// The request that has been decided and not written yet, and its client.
#[derive(Clone, Copy, Debug)]
pub(super) enum Requested {
    Acquire(&'static str),
    Release(&'static str, Option<u64>),
    Extend(&'static str),
    Raise(&'static str),
}

/// A request that the model watches: the model decides at the same moment.
struct Watched<'s, R, M> {
    request: &'s R,
    requested: Requested,
    server: &'s Server,
    model: M,
}

impl<R: Decide, M: Fn(&mut Model, u64)> Decide for Watched<'_, R, M> {
    fn gives_up_ticket(&self) -> bool {
        self.request.gives_up_ticket()
    }

    fn owner(&self) -> Result<Owner<'_>, Error> {
        self.request.owner()
    }

    fn wanted(&self) -> Option<Wanted<'_>> {
        self.request.wanted()
    }

    fn grace(&self) -> Option<Grace> {
        self.request.grace()
    }

    fn stand(&self, holders: &Holders<'_>, others: usize) -> Standing {
        self.request.stand(holders, others)
    }

    fn decide(
        &self,
        standings: &[Standing],
        now: Moment,
        fences: &mut FenceClock,
    ) -> Result<Decision<'_>, Error> {
        let mut state = self.server.state.borrow_mut();
        (self.model)(&mut state.model, now.micros());
        if let Some(client) = state.model.gave_up.take() {
            state.history.left(client);
        }
        state.requested = Some(self.requested);
        drop(state);
        let decision = self.request.decide(standings, now, fences);
        match decision {
            Err(_) => self.server.state.borrow_mut().requested = None,
            Ok(Decision::Wait(_)) => self.server.may_join(),
            Ok(_) => {}
        }
        decision
    }
}

impl Server {
    pub(super) fn acquire(&self, client: Client, request: Request) {
        let Request { name, owner: asker, ttl, share, waits, ephemeral } = request;
        let (ttl_word, share_word) = (ttl.to_string(), share.to_string());
        let (option, millis) = match waits {
            None => (&b""[..], 0),
            Some(Waits::Block(millis)) => (&b"BLOCK"[..], millis),
            Some(Waits::Ticket(lasts, _)) => (&b"TICKET"[..], lasts),
        };
        let millis = millis.to_string();
        let mut words = vec![b"", name.1.as_bytes(), asker.as_bytes(), ttl_word.as_bytes()];
        if share != 1 {
            words.extend([b"SHARE", share_word.as_bytes()]);
        }
        if waits.is_some() {
            words.extend([option, millis.as_bytes()]);
        }
        if let Some(Waits::Ticket(_, Some(channel))) = waits {
            words.extend([b"NOTIFY", channel.as_bytes()]);
        }
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
            model: |model: &mut Model, now| model.acquire(client, name, asked, waits, now),
        };
        let may_wait = waits.map(|_| (client, name, asker));
        self.state.borrow_mut().may_wait = may_wait;
        let outcome = self.engine.change(self, &[self.at(name)], &watched);
        let mut state = self.state.borrow_mut();
        (state.connection, state.may_wait, state.joining) = (None, None, None);
        drop(state);
        match outcome {
            Ok(done) => match page.reply(&done.decision).expect("a reply") {
                None => {}
                Some(reply) if matches!(done.decision, Decision::Wait(_)) => {
                    self.hears(client, name, reply);
                    self.state.borrow_mut().model.answer(client, Reply::Nil);
                }
                Some(reply) => {
                    self.state.borrow_mut().tally.requested(&done);
                    self.hears(client, name, reply);
                }
            },
            Err(error) => self.is_refused(client, error, &watched.model),
        }
    }

    /// The connection of this request, and the grace that it asks for.
    fn comes_on(&self, client: Client, ephemeral: Option<(usize, u64)>) -> Option<binding::Wanted> {
        let state = &mut *self.state.borrow_mut();
        let (slot, grace) = ephemeral?;
        let connection = state.connections[slot];
        state.connection = Some(connection);
        state.connection_of.insert(client, connection);
        Some((connection, grace))
    }

    /// Tells the history of a client that is about to join, perhaps in its own place. The model has decided already.
    fn may_join(&self) {
        let mut state = self.state.borrow_mut();
        let Some((client, name, asker)) = state.may_wait else { return };
        if state.model.waiter_of(client).is_none() {
            return;
        }
        state.joining = Some(client);
        if !state.history.waits(name, asker) {
            return state.history.joined(client, name, asker);
        }
        let former = state.history.client_of(name, asker.as_bytes());
        // Nobody is told that its own ticket was replaced.
        if !state.parked.contains_key(&former) {
            state.history.took_over(client, former);
        }
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
        let outcome = self.engine.change(self, &[self.at(name)], &watched);
        match outcome {
            Ok(done) => {
                self.state.borrow_mut().tally.requested(&done);
                self.hears_whether(client, release::reply(done.released));
            }
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
        match self.engine.change(self, &[self.at(name)], &watched) {
            Ok(done) => {
                self.state.borrow_mut().tally.requested(&done);
                self.hears_whether(client, extend::reply(&done.decision));
            }
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
        match self.engine.change(self, &[self.at(name)], &watched) {
            Ok(done) => self.hears(client, name, raise::reply(&done.decision)),
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

    /// The connection of a waiter ends, or its wait is interrupted.
    pub(super) fn leaves(&self, client: Client) {
        let mut state = self.state.borrow_mut();
        let id = state.parked.remove(&client).expect("it waits");
        state.history.left(client);
        state.model.leave(client);
        drop(state);
        assert_eq!(self.engine.leave(self, id), Some(client));
    }

    /// The connection of a client ends before the client hears of its grant.
    pub(super) fn dies_unheard(&self, at: usize) {
        let mut state = self.state.borrow_mut();
        let (_, grant) = state.in_flight.remove(at);
        state.left_unheard(&grant);
        drop(state);
        self.engine.mark_undeliverable(self, grant);
    }

    /// Delivers all grants so far to the clients that waited for them.
    pub(super) fn deliver(&self) {
        let in_flight = std::mem::take(&mut self.state.borrow_mut().in_flight);
        for (_, WaiterGrant { names, fence, .. }) in in_flight {
            self.engine.mark_delivered(fence.number());
            for name in names.iter().map(|name| super::host::lock_name(name.as_name())) {
                self.state.borrow_mut().history.told(name, fence.number(), true);
            }
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
            // Nothing is decided about a key that is no lock.
            let state = &mut *self.state.borrow_mut();
            let now = state.now().micros();
            model(&mut state.model, now);
        }
        let reply = match error {
            Error::WrongType => Reply::WrongType,
            Error::NoFenceLeft => Reply::NoFenceLeft,
            Error::FenceTooFarAhead => Reply::TooFarAhead,
            Error::QueueFull | Error::LockQueueFull | Error::TicketsFull => {
                self.state.borrow_mut().tally.had_no_room();
                Reply::QueueFull
            }
            other => panic!("{client} was refused: {other}"),
        };
        self.answers(client, reply);
    }

    fn answers(&self, client: Client, reply: Reply) {
        self.state.borrow_mut().answers.push((client, reply));
    }
}

/// The words of a request that proves a hold.
fn shown<'w>(claim: Claim, ttl: Option<&'w String>, fence: &'w Option<String>) -> Vec<&'w [u8]> {
    let mut words: Vec<&[u8]> = vec![b"", claim.name.1.as_bytes(), claim.owner.as_bytes()];
    words.extend(ttl.map(String::as_bytes));
    words.extend(fence.as_ref().map(String::as_bytes));
    words
}

pub(super) fn owner(name: &'static str) -> Owner<'static> {
    Owner::new(name.as_bytes()).expect("a short name")
}
