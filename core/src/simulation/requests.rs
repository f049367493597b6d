//! What clients ask for, through the pages of the commands, and how clients leave.

use super::binding;
use super::host::{At, LIMITS};
use super::model::{Asked, Client, LockName, Model, Reply, Waits};
use super::world::Server;
use crate::command::{self, Decide, Error, acquire, check, extend, raise, release};
use crate::engine::{Done, Lock, NoRoom, Taken, WaiterGrant};
use crate::lock::{
    Decision, Ephemeral, FenceClock, Grace, Holders, KeptOwner, Moment, Owner, Renewed, Room,
    Share, Standing, TicketRequest, Told, Ttl, Wait, WaitKind, Waiter, Wanted,
};
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

/// How a request that was ready to wait began.
enum Begun {
    Blocked,
    /// The owner has a ticket.
    Queued,
    /// The owner had a ticket, and its turn came at once, or it was sent away.
    Over,
    Refused,
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
        if decision.is_err() {
            self.server.state.borrow_mut().requested = None;
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
        let outcome = self.engine.change(self, &[self.at(name)], &watched);
        self.state.borrow_mut().connection = None;
        match outcome {
            Ok(Done { decision: decision @ Decision::Wait(wait), .. }) => {
                match self.wait(client, request, wait, page.grace()) {
                    Begun::Blocked | Begun::Refused => {}
                    Begun::Queued => {
                        self.hears(client, name, page.reply(&decision).expect("a reply"));
                        self.state.borrow_mut().model.answer(client, Reply::Nil);
                    }
                    Begun::Over => self.acquire(client, Request { waits: None, ..request }),
                }
            }
            Ok(done) => {
                self.state.borrow_mut().tally.requested(&done);
                let reply = page.reply(&done.decision).expect("a reply");
                self.hears(client, name, reply);
            }
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

    fn wait(
        &self,
        client: Client,
        request: Request,
        wait: Wait<'_>,
        grace: Option<Grace>,
    ) -> Begun {
        let Request { name, owner: asker, ttl, share, .. } = request;
        let place = self.at(name);
        let (since, room) = {
            let state = self.state.borrow();
            (state.monotonic(), state.room)
        };
        let (ttl, share) = (Ttl::from_millis(ttl).expect("a short lease"), Share::new(share));
        let share = share.expect("a small share");
        let ephemeral = grace.map(|grace| {
            let connection = self.state.borrow().connection_of[&client];
            Ephemeral { connection, grace }
        });
        let patience = match wait {
            Wait::Block(patience) => patience,
            Wait::Ticket(ticket) => {
                let wanted = Wanted { owner: owner(asker), ttl, share };
                let request = TicketRequest { ticket, client: client.into(), ephemeral };
                return self.take_ticket(client, &place, &wanted, &request);
            }
        };
        match self.engine.has_room(self, place.name().into(), owner(asker), WaitKind::Blocked, room)
        {
            Ok(()) => {}
            Err(no_room) => return self.has_no_room(client, no_room),
        }
        let waiter = Waiter {
            owner: KeptOwner::from(owner(asker)),
            ttl,
            share,
            since,
            gives_up: patience.ends(since),
            ephemeral,
            told: Told::Blocked(client),
        };
        self.joins(client, name, asker);
        let id = self.engine.join(self, place.name().into(), waiter);
        let mut state = self.state.borrow_mut();
        state.joining = None;
        state.parked.insert(client, id);
        drop(state);
        self.engine.settle_joined(self, &place);
        Begun::Blocked
    }

    fn take_ticket(
        &self,
        client: Client,
        place: &At<'_>,
        wanted: &Wanted<'_>,
        request: &TicketRequest<'_>,
    ) -> Begun {
        let most = self.state.borrow().model.most_tickets;
        let room = Room { connections: usize::MAX, for_all: most, per_lock: most };
        // The model has decided already.
        let waiting = self.state.borrow().model.waiter_of(client);
        if let Some(waiting) = waiting {
            self.joins(client, place.name, waiting.owner);
        }
        let taken = match self.engine.renew_ticket(self, place.name().into(), wanted, request) {
            Renewed::Yes | Renewed::Sooner => Ok(Taken::Queued),
            Renewed::No => {
                let (places, names) = (std::slice::from_ref(place), place.name().into());
                self.engine.take_ticket(self, places, names, wanted, request, room)
            }
        };
        self.state.borrow_mut().joining = None;
        match taken {
            Ok(Taken::Queued) => Begun::Queued,
            Ok(Taken::Over) => Begun::Over,
            Err(no_room) => self.has_no_room(client, no_room),
        }
    }

    fn has_no_room(&self, client: Client, no_room: NoRoom) -> Begun {
        self.state.borrow_mut().tally.had_no_room();
        match no_room {
            NoRoom::ForThisLock | NoRoom::OnTheServer => self.answers(client, Reply::QueueFull),
        }
        Begun::Refused
    }

    /// Tells the history of a client that is about to join, perhaps in its own place.
    fn joins(&self, client: Client, name: LockName, asker: &'static str) {
        let mut state = self.state.borrow_mut();
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
