//! What clients ask for, through the pages of the commands, and how clients leave.

use super::content::{Held, Identity};
use super::host::{At, LIMITS};
use super::model::{Asked, Client, Model, Reply, Waits};
use super::names::{LockName, Names, lock, lock_name, owner_named};
use super::schedule::EVERYTHING;
use super::world::{Role, Server, State};
use crate::command::{self, Decide, Error, MayWait, acquire, check, extend, raise, release};
use crate::engine::{Done, Lock, WaiterGrant};
use crate::lock::{Decision, FenceClock, Grace, Hold, Holders, Moment, Owner, Standing, Wanted};
use std::cell::Cell;

/// An owner, and the locks that it claims to hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) names: Names,
    pub(super) owner: &'static str,
    pub(super) fence: Option<u64>,
}

/// The request that has been decided and not written yet, and its client.
#[derive(Clone, Copy, Debug)]
pub(super) enum Requested {
    Acquire(Asked),
    Release(Claim),
    Extend(&'static str),
    Raise(&'static str),
}

/// A request that the model watches: the model decides at the same moment.
struct Watched<'s, R, M> {
    request: &'s R,
    requested: Requested,
    names: Names,
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
        let mut borrowed = self.server.state.borrow_mut();
        let state = &mut *borrowed;
        state.decides(&self.names);
        state.undecided = state.refuses.map(|_| Box::new(state.model.clone()));
        (self.model)(&mut state.model, now.micros());
        (state.requested, state.half) = (Some(self.requested), self.names.to_vec());
        drop(borrowed);
        let decision = self.request.decide(standings, now, fences);
        if decision.is_err() {
            self.server.state.borrow_mut().requested = None;
        }
        decision
    }
}

impl<M: Fn(&mut Model, u64)> MayWait for Watched<'_, acquire::Request<'_>, M> {
    fn wanted(&self) -> Result<Wanted<'_>, Error> {
        self.request.wanted()
    }

    fn is_minted(&self) -> bool {
        self.request.is_minted()
    }
}

impl Server {
    /// A command on the locks of a claim. It does not wait.
    fn commands<R: Decide, M: Fn(&mut Model, u64)>(
        &self,
        client: Client,
        request: &R,
        requested: Requested,
        names: Names,
        model: M,
        hears: impl FnOnce(&Done<'_>),
    ) {
        let watched = Watched { request, requested, names, server: self, model };
        let change = |places: &[At<'_>]| self.engine.on(self).change(places, &watched);
        if let Some(done) = self.executes(client, &watched, change) {
            self.state.borrow_mut().tally.requested(&done, &names);
            hears(&done);
        }
    }

    /// A client's command, from its first look to its last write.
    fn executes<'r, R: Decide, M: Fn(&mut Model, u64)>(
        &self,
        client: Client,
        watched: &'r Watched<'_, R, M>,
        change: impl FnOnce(&[At<'_>]) -> Result<Done<'r>, Error>,
    ) -> Option<Done<'r>> {
        self.begins(&watched.names, watched.owner().expect("an owner"));
        let places: Vec<_> = watched.names.iter().map(|&name| self.at(name)).collect();
        let outcome = change(&places);
        let state = &mut *self.state.borrow_mut();
        state.assert_settled();
        assert!(!state.must_settle(&watched.names), "{:?} were not settled", state.to_settle);
        (state.requested, state.half, state.in_command) = (None, Vec::new(), false);
        match outcome {
            Ok(done) => Some(done),
            Err(error) => {
                state.is_refused(client, error, &watched.names, &watched.model);
                None
            }
        }
    }

    /// A command that may change locks first applies what has happened to them.
    pub(super) fn begins(&self, names: &Names, asker: Owner<'_>) {
        let is_dirty =
            |&&name: &&LockName| self.engine.with_queues(|queues| queues.is_marked(lock(name)));
        let state = &mut *self.state.borrow_mut();
        state.to_settle = names.iter().filter(is_dirty).copied().collect();
        state.in_command = true;
        let now = state.now().micros();
        for &name in names.iter().filter(|_| state.role == Role::Primary) {
            if !state.is_in_use(name) {
                state.model.part_pending(name, owner_named(asker.as_bytes()), now);
            }
        }
    }

    pub(super) fn acquire(&self, client: Client, asked: Asked) {
        let Asked { names, owner: asker, ttl, share, bind, waits } = asked;
        let mut words = vec![String::new(), names[0].1.into(), asker.into(), ttl.to_string()];
        let mut option = |name: &str, value: &dyn ToString| {
            words.extend([name.to_owned(), value.to_string()]);
        };
        if share != 1 {
            option("SHARE", &share);
        }
        match waits {
            None => {}
            Some(Waits::Block(millis)) => option("BLOCK", &millis),
            Some(Waits::Ticket(lasts, channel)) => {
                option("TICKET", &lasts);
                channel.iter().for_each(|channel| option("NOTIFY", channel));
            }
        }
        let mut state = self.state.borrow_mut();
        state.asking = Some(client);
        if let Some((connection, grace)) = bind {
            option("EPHEMERAL", &grace);
            state.connection = Some(connection);
            state.connection_of.insert(client, connection);
        }
        drop(state);
        also(&mut words, &names);
        let page = acquire::Request::parse(&bytes(&words), &LIMITS, || panic!("it has an owner"))
            .expect("a good request");
        let waits = Cell::new(waits);
        // A ticket whose turn has come at once is asked for once more.
        let model = |model: &mut Model, now| {
            model.acquire(client, Asked { waits: waits.take(), ..asked }, now);
        };
        let requested = Requested::Acquire(asked);
        let watched = Watched { request: &page, requested, names, server: self, model };
        let done = self.executes(client, &watched, |places| {
            self.engine.on(self).change_or_wait(places, &watched)
        });
        self.state.borrow_mut().connection = None;
        let Some(done) = done else { return };
        let Some(reply) = page.reply(&done.decision).expect("a reply") else { return };
        if matches!(done.decision, Decision::Wait(_)) {
            let model = &mut self.state.borrow_mut().model;
            // If the ticket is over, the model has answered already.
            if model.waiter_of(client).is_some() {
                model.answer(client, Reply::Nil);
            }
        } else {
            self.state.borrow_mut().tally.requested(&done, &names);
        }
        self.hears(client, &names, reply);
    }

    pub(super) fn release(&self, client: Client, claim: Claim) {
        let words = shown(claim, None);
        let page = release::Request::parse(&bytes(&words)).expect("a good request");
        let model = |model: &mut Model, now| model.release(client, claim, now);
        self.commands(client, &page, Requested::Release(claim), claim.names, model, |done| {
            self.hears_how_many(client, release::reply(done.released));
        });
    }

    pub(super) fn extend(&self, client: Client, claim: Claim, ttl: u64) {
        let words = shown(claim, Some(ttl));
        let page = extend::Request::parse(&bytes(&words), &LIMITS).expect("a good request");
        let model = |model: &mut Model, now| model.extend(client, claim, ttl, now);
        self.commands(client, &page, Requested::Extend(claim.owner), claim.names, model, |done| {
            self.hears_how_many(client, extend::reply(&done.decision));
        });
    }

    pub(super) fn raise(&self, client: Client, claim: Claim, asked: u64) {
        let words = shown(Claim { fence: Some(asked), ..claim }, None);
        let page = raise::Request::parse(&bytes(&words)).expect("a good request");
        let model = |model: &mut Model, now| model.raise_hold(client, claim, asked, now);
        self.commands(client, &page, Requested::Raise(claim.owner), claim.names, model, |done| {
            self.hears(client, &claim.names, raise::reply(&done.decision));
        });
    }

    pub(super) fn check(&self, client: Client, claim: Claim) {
        let Claim { names, owner: asker, .. } = claim;
        let name = names[0];
        let words = shown(claim, None);
        let proof = check::parse(&bytes(&words)).expect("a good request");
        let now = self.state.borrow().now().micros();
        let held = self.state.borrow().model.holders(name, now);
        let held = held.into_iter().rev().find(|(holder, _)| *holder == asker);
        let place = self.at(name);
        let is_undone = held.is_some_and(|(_, fence)| {
            self.engine.is_pending_release(place.name(), fence)
                || self.state.borrow().model.is_over((name, asker, fence))
        });
        let checked = self.engine.on(self).check(&place, &proof);
        let mut state = self.state.borrow_mut();
        let now = state.now().micros();
        state.model.check(client, claim, is_undone, now);
        match checked {
            Ok(checked) => {
                drop(state);
                self.hears(client, &names, check::reply(checked));
            }
            Err(error) => state.is_refused(client, error, &names, &|_, _| {}),
        }
    }

    /// Whoever looks sees no hold that is about to end, and every hold that is about to be put back.
    pub(super) fn look(&self, name: LockName) {
        let place = self.at(name);
        let shown = |holds: &mut dyn Iterator<Item = Hold<'_>>, waiters: usize, _| {
            let holds = holds.map(|hold| (owner_named(hold.owner), hold.fence_number()));
            (holds.collect::<Vec<_>>(), waiters)
        };
        let shown = self.engine.on(self).read(&place, shown);
        let state = &mut *self.state.borrow_mut();
        let now = state.now().micros();
        state.model.learn(state.model.content(name), now);
        let Some(live) = state.model.live(name, now) else {
            return assert_eq!(shown, Err(Error::WrongType));
        };
        let stays = |&(holder, fence): &Identity| {
            !self.engine.is_pending_release(place.name(), fence)
                && !state.model.is_over((name, holder, fence))
        };
        let holds: Vec<_> = live.iter().map(Held::identity).filter(stays).collect();
        assert_eq!(shown, Ok((holds, state.model.waiters_for(name).count())));
    }

    /// The connection of a waiter ends, or its wait is interrupted.
    pub(super) fn leaves(&self, client: Client) {
        let mut state = self.state.borrow_mut();
        let id = state.parked.remove(&client).expect("it waits");
        state.model.leave(client);
        drop(state);
        assert_eq!(self.engine.on(self).leave(id), Some(client));
    }

    /// The connection of a client ends before the client hears of its grant.
    pub(super) fn dies_unheard(&self, at: usize) {
        let mut state = self.state.borrow_mut();
        let (_, grant) = state.in_flight.remove(at);
        state.left_unheard(&grant);
        drop(state);
        self.engine.on(self).mark_undeliverable(grant);
    }

    /// Delivers all grants so far to the clients that waited for them.
    pub(super) fn deliver(&self) {
        let in_flight = std::mem::take(&mut self.state.borrow_mut().in_flight);
        for (_, WaiterGrant { names, fence, .. }) in in_flight {
            self.engine.mark_delivered(fence.number());
            for name in names.iter().map(|name| lock_name(name.as_name())) {
                self.state.borrow_mut().history.told(name, fence.number(), true);
            }
        }
    }

    /// A reply that is a fence if the client holds the locks.
    fn hears(&self, client: Client, names: &Names, reply: command::Reply<'_>) {
        let state = &mut *self.state.borrow_mut();
        match reply {
            command::Reply::Integer(fence) => {
                let fence = u64::try_from(fence).expect("a fence");
                state.answers.push((client, Reply::Fence(fence)));
                names.iter().for_each(|name| state.told(*name, fence));
            }
            command::Reply::Nil => state.answers.push((client, Reply::Nil)),
            other => panic!("{client} was told {other:?}"),
        }
    }

    fn hears_how_many(&self, client: Client, reply: command::Reply<'_>) {
        let command::Reply::Integer(count) = reply else { panic!("{client} was told {reply:?}") };
        let reply = Reply::Count(usize::try_from(count).expect("a few"));
        self.state.borrow_mut().answers.push((client, reply));
    }
}

impl State {
    /// Whether some of the locks must still be settled. Several are settled for as long as one may be.
    fn must_settle(&self, names: &Names) -> bool {
        !self.to_settle.is_empty() && (names.is_one() || self.at_once == EVERYTHING)
    }

    /// A request is about to be decided.
    pub(super) fn decides(&mut self, names: &Names) {
        self.assert_settled();
        self.restores_nothing();
        assert!(!self.must_settle(names), "decided before {:?}", self.to_settle);
        self.written.clear();
    }

    fn is_refused(
        &mut self,
        client: Client,
        error: Error,
        names: &Names,
        model: &impl Fn(&mut Model, u64),
    ) {
        let now = self.now().micros();
        let reply = match error {
            // The engine has looked at the locks before.
            Error::NotNow => {
                self.assert_settled();
                let is_open = |name: &&LockName| !self.is_in_use(**name);
                let looked_at: Vec<_> = names.iter().take_while(is_open).copied().collect();
                looked_at.into_iter().for_each(|name| drop(self.model.look(name, now)));
                self.model.answer(client, Reply::NotNow);
                Reply::NotNow
            }
            // Nothing is decided about a key that is no lock.
            Error::WrongType => {
                self.assert_settled();
                model(&mut self.model, now);
                Reply::WrongType
            }
            Error::NotReplicated => {
                self.model.answer(client, Reply::NotReplicated);
                Reply::NotReplicated
            }
            Error::QueueFull | Error::LockQueueFull | Error::TicketsFull => {
                self.tally.queue_full += 1;
                Reply::QueueFull
            }
            Error::NoFenceLeft => Reply::NoFenceLeft,
            Error::FenceTooFarAhead => Reply::TooFarAhead,
            other => panic!("{client} was refused: {other}"),
        };
        self.answers.push((client, reply));
    }
}

/// The words of a request that proves a hold.
fn shown(claim: Claim, ttl: Option<u64>) -> Vec<String> {
    let mut words = vec![String::new(), claim.names[0].1.into(), claim.owner.into()];
    words.extend(ttl.map(|ttl| ttl.to_string()));
    words.extend(claim.fence.map(|fence| fence.to_string()));
    also(&mut words, &claim.names);
    words
}

pub(super) fn bytes(words: &[String]) -> Vec<&[u8]> {
    words.iter().map(String::as_bytes).collect()
}

fn also(words: &mut Vec<String>, names: &Names) {
    if !names.is_one() {
        words.extend(["ALSO".to_owned(), (names.len() - 1).to_string()]);
        words.extend(names[1..].iter().map(|name| name.1.to_owned()));
    }
}

pub(super) fn owner(name: &'static str) -> Owner<'static> {
    Owner::new(name.as_bytes()).expect("a short name")
}
