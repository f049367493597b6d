//! What clients ask for, through the pages of the commands. The model says what each decision must be, at its moment.

use super::host::{At, LIMITS};
use super::model::{Asked, Client, Key, Verdict, Waiting};
use super::plan::{Effect, Plan};
use super::server::{Server, State};
use crate::command::{Decide, Error, Reply, acquire, extend, release};
use crate::lock::{
    Decision, FenceClock, Grace, Holders, Moment, Owner, Standing, WaitKind, Wanted,
};
use crate::simulation::alike::MICROS_PER_MILLI;

/// How a request is ready to wait, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waits {
    /// 0 means forever.
    Block(u64),
    Ticket(u64),
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) keys: Vec<Key>,
    pub(super) owner: &'static str,
    pub(super) ttl: u64,
    pub(super) share: u32,
    pub(super) waits: Option<Waits>,
    /// The connection of the request, and the grace.
    pub(super) ephemeral: Option<(usize, u64)>,
}

/// An owner, and the locks that it claims to hold.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) keys: Vec<Key>,
    pub(super) owner: &'static str,
    pub(super) fence: Option<u64>,
}

/// A request that the model watches.
struct Watched<'s, R> {
    request: &'s R,
    server: &'s Server,
    asks: Asks<'s>,
}

#[derive(Clone, Copy)]
enum Asks<'s> {
    Acquire(&'s Asked),
    Release(&'s Claim),
    Extend(&'s Claim, u64),
}

impl State {
    /// The engine has decided, with this fence. The model agrees, or the simulation fails.
    fn is_decided(&mut self, asks: Asks<'_>, verdict: &Verdict, fence: Option<u64>, now: u64) {
        let model = &mut self.model;
        let expected = match asks {
            Asks::Acquire(asked) => model.acquire(asked, now),
            Asks::Release(Claim { keys, owner, fence }) => model.release(keys, owner, *fence, now),
            Asks::Extend(Claim { keys, owner, fence }, _) => model.extend(keys, owner, *fence, now),
        };
        let is_same = match (&expected, verdict) {
            // A release is decided only when each lock is looked at.
            (Verdict::Released(_), Verdict::Released(_)) => true,
            (expected, verdict) => expected == verdict,
        };
        assert!(is_same, "decided: {verdict:?}, the model: {expected:?}");
        match asks {
            Asks::Acquire(asked) => model.plan_acquire(asked, verdict, fence, now),
            Asks::Release(Claim { keys, owner, fence }) => {
                if fence.is_none() {
                    model.gives_up_tickets(keys, owner);
                }
                if let Verdict::Released(released) = expected {
                    self.released = released.len();
                    let to_do = released.into_iter().map(|key| (key, Effect::Released)).collect();
                    model.plan = Some(Plan::new(owner, to_do));
                }
            }
            Asks::Extend(Claim { keys, owner, .. }, ttl) if expected == Verdict::Extended => {
                let end = now / MICROS_PER_MILLI + ttl;
                let to_do = keys.iter().map(|&key| (key, Effect::Extended { end })).collect();
                model.plan = Some(Plan::new(owner, to_do));
            }
            Asks::Extend(..) => {}
        }
    }
}

impl<R: Decide> Decide for Watched<'_, R> {
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
        let decision = self.request.decide(standings, now, fences)?;
        if let Decision::Wait(_) = decision {
            self.server.begins_to_wait();
        }
        let mut granted = None;
        let verdict = match decision {
            Decision::Granted(grant) => {
                granted = Some(grant.fence.number());
                Verdict::Granted
            }
            Decision::Again { fence_number, .. } => Verdict::Again(fence_number),
            Decision::NotUpgraded { .. } => Verdict::Kept,
            Decision::Busy { .. } | Decision::Wait(_) => Verdict::Busy,
            Decision::Released(_) => Verdict::Released(Vec::new()),
            Decision::Extended { .. } => Verdict::Extended,
            Decision::NotExtended { .. } => Verdict::NotExtended,
            Decision::NoFenceLeft | Decision::Raised(_) => panic!("decided: {decision:?}"),
        };
        self.server.state.borrow_mut().is_decided(self.asks, &verdict, granted, now.micros());
        Ok(decision)
    }
}

impl Server {
    fn places(&self, keys: &[Key]) -> Vec<At<'_>> {
        keys.iter().map(|&key| self.at(key)).collect()
    }

    /// A client's command, from its first look to its last write.
    fn commands<T>(&self, keys: &[Key], command: impl FnOnce() -> Result<T, Error>) -> Option<T> {
        self.state.borrow_mut().in_command = true;
        let outcome = command();
        let mut state = self.state.borrow_mut();
        state.in_command = false;
        let plan = state.model.plan.take();
        match outcome {
            Ok(done) => {
                let is_done = plan.as_ref().is_none_or(|plan| plan.to_do.is_empty());
                assert!(is_done, "not all was written: {plan:?}");
                Some(done)
            }
            Err(Error::WrongType) => {
                let now = state.wall;
                let is_any = keys.iter().any(|key| state.model.live(key, now).is_none());
                assert!(is_any && plan.is_none(), "each of {keys:?} is a lock");
                None
            }
            Err(Error::NotReplicated) => {
                assert!(plan.is_some_and(|plan| plan.has_failed), "no write was refused");
                None
            }
            Err(Error::QueueFull | Error::LockQueueFull | Error::TicketsFull) => {
                assert_eq!(state.has_room, Some(false));
                None
            }
            Err(error) => panic!("refused: {error}"),
        }
    }

    pub(super) fn acquire(&self, client: Client, request: &Request) {
        let Request { keys, owner, ttl, share, waits, ephemeral } = request;
        let connection = ephemeral.map(|(slot, _)| self.state.borrow().connections[slot]);
        self.state.borrow_mut().connection = connection;
        let grace = ephemeral.map(|(_, grace)| grace);
        let asked = Asked {
            keys: keys.clone(),
            owner,
            ttl: *ttl,
            share: *share,
            bind: connection.zip(grace),
        };
        let mut words = vec!["".to_owned(), keys[0].to_owned(), (*owner).to_owned()];
        words.push(ttl.to_string());
        let mut option = |name: &str, value: u64| words.extend([name.into(), value.to_string()]);
        if *share != 1 {
            option("SHARE", (*share).into());
        }
        match *waits {
            Some(Waits::Block(patience)) => option("BLOCK", patience),
            Some(Waits::Ticket(lasts)) => option("TICKET", lasts),
            None => {}
        }
        if let Some(grace) = grace {
            option("EPHEMERAL", grace);
        }
        also(&mut words, keys);
        let words: Vec<_> = words.iter().map(String::as_bytes).collect();
        let page = acquire::Request::parse(&words, &LIMITS, || panic!("nobody asks for an owner"))
            .expect("a good request");
        self.state.borrow_mut().may_wait = waits.map(|waits| (client, asked.clone(), waits));
        let watched = Watched { request: &page, server: self, asks: Asks::Acquire(&asked) };
        let places = self.places(&asked.keys);
        let change = || self.engine.change(self, &places, &watched);
        let decision = self.commands(&asked.keys, change).map(|done| done.decision);
        if let Some(decision) = decision
            && let Some(Reply::Integer(fence)) = page.reply(&decision).expect("a reply")
        {
            // A client that has no other source for the fence relies on it from now on.
            let fence = u64::try_from(fence).expect("a fence");
            self.state.borrow_mut().model.hear(fence);
            let state = self.state.borrow();
            let owns = |key: &Key| state.model.own(key, asked.owner, state.wall).is_some();
            assert!(asked.keys.iter().all(owns), "told {fence}, and it is not its own");
        }
        let mut state = self.state.borrow_mut();
        (state.connection, state.may_wait, state.has_room) = (None, None, None);
    }

    /// The model queues the client, if there is room.
    fn begins_to_wait(&self) {
        let state = &mut *self.state.borrow_mut();
        // Its ticket may be over already, and the request is made once more.
        if state.has_room.is_some() {
            return;
        }
        let (client, asked, waits) = state.may_wait.clone().expect("it is ready to wait");
        let (kind, room, patience, ttl) = match waits {
            Waits::Block(patience) => (
                WaitKind::Blocked,
                state.room,
                Some(patience).filter(|&millis| millis > 0),
                asked.ttl,
            ),
            Waits::Ticket(lasts) => {
                (WaitKind::Ticket, state.room_for_tickets, Some(lasts), asked.ttl.min(lasts))
            }
        };
        let has_room = state.model.has_room(&asked, kind, room.for_all, room.per_lock);
        state.has_room = Some(has_room);
        if has_room {
            let gives_up = patience.map(|millis| state.elapsed + millis * MICROS_PER_MILLI);
            state.model.join(Waiting { client, asked: Asked { ttl, ..asked }, kind, gives_up });
        }
    }

    pub(super) fn release(&self, claim: &Claim) {
        let mut words = vec!["".to_owned(), claim.keys[0].to_owned(), claim.owner.to_owned()];
        words.extend(claim.fence.map(|fence| fence.to_string()));
        also(&mut words, &claim.keys);
        let words: Vec<_> = words.iter().map(String::as_bytes).collect();
        let page = release::Request::parse(&words).expect("a good request");
        let watched = Watched { request: &page, server: self, asks: Asks::Release(claim) };
        let places = self.places(&claim.keys);
        let change = || self.engine.change(self, &places, &watched);
        let released = self.commands(&claim.keys, change).map(|done| done.released);
        let expected = self.state.borrow().released;
        assert!(released.is_none_or(|released| released == expected), "told of {released:?}");
    }

    pub(super) fn extend(&self, claim: &Claim, ttl: u64) {
        let mut words = vec!["".to_owned(), claim.keys[0].to_owned(), claim.owner.to_owned()];
        words.push(ttl.to_string());
        words.extend(claim.fence.map(|fence| fence.to_string()));
        also(&mut words, &claim.keys);
        let words: Vec<_> = words.iter().map(String::as_bytes).collect();
        let page = extend::Request::parse(&words, &LIMITS).expect("a good request");
        let watched = Watched { request: &page, server: self, asks: Asks::Extend(claim, ttl) };
        let places = self.places(&claim.keys);
        let change = || self.engine.change(self, &places, &watched);
        let _done = self.commands(&claim.keys, change);
    }
}

fn also(words: &mut Vec<String>, keys: &[Key]) {
    if let [_, also @ ..] = keys
        && !also.is_empty()
    {
        words.extend(["ALSO".to_owned(), also.len().to_string()]);
        words.extend(also.iter().map(|&key| key.to_owned()));
    }
}
