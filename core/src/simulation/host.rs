//! The virtual server, as the host of the engine.
//!
//! The model takes a grant back when the engine deletes the key on its own account, and serves a waiter when the engine
//! does (see [`answers`](super::answers)). The history is told what the engine writes, and which clients it answers.

use super::binding::HoldOf;
use super::content::{Content, Held, Lock as LockContent, MOST_HOLDERS, admit, others, own};
use super::keyspace::Kept;
use super::model::Client;
use super::names::{LockName, lock, lock_name};
use super::requests::Requested;
use super::tickets::channel_named;
use super::world::{Role, Server, State};
use crate::command::Error;
use crate::engine::{Announced, Answer, Authority, Host, Initiator, Key, Lock, Mode, Warning};
use crate::lock::{
    Deadline, KeptOwner, KeptTicket, Limits, Moment, Monotonic, Name, Owner, Room, Seen, Stored,
    Ttl, WaitKind, WaiterId, Write,
};
use crate::observe::Event;

pub(super) const LIMITS: Limits = Limits { max_ttl: Ttl::LONGEST, max_holders: MOST_HOLDERS };

impl Host for Server {
    type Client = Client;
    type Lock<'n> = At<'n>;

    fn now(&self) -> Moment {
        self.state.borrow_mut().tells_the_time()
    }

    fn monotonic(&self) -> Monotonic {
        self.state.borrow().monotonic()
    }

    fn authority(&self) -> Authority {
        self.state.borrow().role.authority()
    }

    fn limits(&self) -> Limits {
        LIMITS
    }

    fn batch(&self) -> usize {
        self.state.borrow().at_once
    }

    fn slice(&self) -> usize {
        self.batch()
    }

    fn window_millis(&self) -> u64 {
        self.state.borrow().model.window_millis
    }

    fn room(&self, kind: WaitKind) -> Room {
        self.state.borrow().model.room(kind)
    }

    fn may_block(&self) -> bool {
        self.state.borrow().may_block
    }

    fn block(&self, _is_minted: bool) -> Result<Client, Error> {
        Ok(self.state.borrow().asking.expect("a request that is ready to wait"))
    }

    fn waits(&self, id: WaiterId) {
        let is_blocked = self.engine.with_queues(|queues| {
            queues.waiter(id).is_some_and(|waiter| waiter.wait.kind() == WaitKind::Blocked)
        });
        let state = &mut *self.state.borrow_mut();
        state.parked.extend(state.asking.filter(|_| is_blocked).map(|client| (client, id)));
    }

    fn client_id(&self) -> u64 {
        self.state.borrow().asking.expect("a request that is ready to wait").into()
    }

    fn connection(&self) -> Option<u64> {
        let connection = self.state.borrow().connection;
        assert!(connection.is_some(), "asked for the connection of a command that needs none");
        connection
    }

    fn is_connected(&self, connection: u64) -> bool {
        self.state.borrow().connections.contains(&connection)
    }

    fn hear_of_connections(&self) {}

    fn lock<'n>(&'n self, name: Name<'n>) -> Option<At<'n>> {
        Some(self.at(lock_name(name)))
    }

    fn beside<'n>(&'n self, name: Name<'n>) -> At<'n> {
        self.state.borrow_mut().named += 1;
        self.at(lock_name(name))
    }

    fn answer(&self, _name: Name<'_>, client: Client, owner: KeptOwner, answer: Answer) {
        self.state.borrow_mut().tally.answered(WaitKind::Blocked, &answer);
        self.tell(client, owner, answer);
    }

    fn announce(
        &self,
        _name: Name<'_>,
        ticket: &KeptTicket,
        _owner: Owner<'_>,
        answer: &Answer,
    ) -> Announced {
        let client = Client::try_from(ticket.client).expect("a small number");
        let mut state = self.state.borrow_mut();
        state.tally.answered(WaitKind::Ticket, answer);
        state.wait_ends(client, WaitKind::Ticket, answer);
        drop(state);
        match (&ticket.channel, answer.fence_number()) {
            (Some(channel), Some(_)) => {
                let is_deaf = self.state.borrow().model.deaf.contains(channel_named(channel));
                Announced::To { receivers: usize::from(!is_deaf) }
            }
            _ => Announced::Silently,
        }
    }

    fn demoted(&self) -> Error {
        Error::Demoted
    }

    fn slot_has_gone(&self) {}

    fn warn(&self, warning: Warning) {
        let refused = self.engine.fences(|| self.monotonic()).refused();
        assert!(warning != Warning::FenceNotCredible || refused > 0, "no fence was refused");
    }
}

pub(super) struct At<'n> {
    server: &'n Server,
    pub(super) name: LockName,
}

impl Server {
    pub(super) fn at(&self, name: LockName) -> At<'_> {
        At { server: self, name }
    }
}

impl At<'_> {
    fn is_gone_in(&self, state: &State) -> bool {
        state.gone == Some(self.name)
    }
}

impl Lock for At<'_> {
    type Key<'s>
        = Opened<'s>
    where
        Self: 's;

    fn name(&self) -> Name<'_> {
        lock(self.name)
    }

    fn may_read(&self) -> Authority {
        let is_gone = self.is_gone_in(&self.server.state.borrow());
        if is_gone { Authority::NotOurs } else { Authority::Yes }
    }

    fn may_write(&self, initiator: Initiator) -> Authority {
        let state = &mut *self.server.state.borrow_mut();
        state.settles(self.name);
        let is_client = (state.role, initiator) == (Role::Primary, Initiator::Client);
        let authority = match state.role {
            _ if self.is_gone_in(state) => Authority::NotOurs,
            Role::Refusing => Authority::Refused,
            role => role.authority(),
        };
        if authority != Authority::Yes {
            state.settling = None;
        } else if is_client && !state.model.seen_by_several.contains(&self.name) {
            let has_work = state.model.has_work(self.name, state.now().micros());
            assert!(has_work, "{:?}: asked whether it may write nothing", self.name);
        }
        authority
    }

    fn open(&self, mode: Mode) -> Result<Opened<'_>, Error> {
        self.server.remove_if_expired(self.name);
        let state = &mut *self.server.state.borrow_mut();
        assert!(!state.is_open, "a key is opened while another is open");
        state.history.opened(&state.half);
        let now = state.now().micros();
        if mode != Mode::Write {
            state.assert_settled();
        }
        if mode != Mode::Read && state.is_in_use(self.name) {
            state.refuses_to_open(self.name);
            return Err(Error::NotNow);
        }
        state.is_open = true;
        match mode {
            Mode::Read => {}
            Mode::Peek => state.model.learn(state.model.content(self.name), now),
            Mode::Look => {
                state.settles(self.name);
                state.model.learn(state.model.keys.get(&self.name).cloned(), now);
                if state.model.is_quarantined() && state.model.is_free_now(self.name, now) {
                    state.model.seen.remove(&self.name);
                } else if state.role != Role::Refusing || !state.model.has_work(self.name, now) {
                    state.settling = Some((self.name, now));
                }
            }
            Mode::Write => {
                let is_evicted = state.model.evicted.contains_key(&self.name);
                state.returning = is_evicted.then_some(self.name);
                if state.settling.is_some() {
                    state.model.learn(state.model.keys.get(&self.name).cloned(), now);
                }
            }
        }
        let content = state.keys.kept.get(&self.name).cloned();
        Ok(Opened { server: self.server, name: self.name, content })
    }

    fn publish(&self, event: Event) {
        let state = &mut *self.server.state.borrow_mut();
        assert!(!state.is_open, "an event is published while a key is open");
        let left = &state.half;
        assert!(left.is_empty(), "{event:?} is published before {left:?} are written");
        // It is noted only if somebody waited for the lock.
        let lost = self.server.engine.with_observer(|observer| observer.last_lost.take());
        if let Some(lost) = lost {
            assert_eq!(event, Event::Lost);
            state.history.lost(self.name, &lost, &state.keys, state.now());
        }
        state.history.published(self.name, event);
    }
}

pub(super) struct Opened<'s> {
    server: &'s Server,
    name: LockName,
    content: Option<Kept>,
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        let state = &mut *self.server.state.borrow_mut();
        state.is_open = false;
        if !std::thread::panicking() {
            state.restores_nothing();
        }
    }
}

impl Key for Opened<'_> {
    fn stored(&self) -> Stored<'_> {
        self.content.as_ref().map_or(Stored::Nothing, Kept::stored)
    }

    fn write(&mut self, write: &Write<'_>) -> Result<(), Error> {
        let state = &mut *self.server.state.borrow_mut();
        if !matches!(write, Write::Restore(_)) {
            state.restores_nothing();
        }
        let requested = state.takes_requested(self.name);
        if *write == Write::Keep {
            return Ok(());
        }
        // A real server crashes if a module writes when it may not.
        let may_write = match state.role {
            Role::Primary => true,
            // The server has let the command in.
            Role::Paused => {
                let puts_back = matches!(write, Write::Restore(_));
                state.in_command && (requested.is_some() || puts_back)
            }
            Role::Refusing | Role::Replica => false,
        };
        assert!(may_write, "L6: {write:?} on a server that is {:?}", state.role);
        let (name, now) = (self.name, state.now().micros());
        state.in_use = state.in_use.filter(|used| *used != name);
        if let Write::Restore(seen) = *write {
            state.restores(name, &seen.value, seen.deadline);
            self.content = state.keys.kept.get(&name).cloned();
            return Ok(());
        }
        let (before, content) =
            (lock_in(self.content.as_ref()), written(self.content.as_ref(), write));
        let after = lock_in(content.as_ref());
        let is_grant = |held: &&Held| before.known_as(held.identity()).is_none();
        if let Some(grant) = after.holds.iter().find(is_grant)
            && !matches!(requested, Some(Requested::Raise(_)))
        {
            if state.refuses == Some(0) {
                state.refuses = None;
                state.refused = Some(grant.fence);
                if let Some(Requested::Acquire(asked)) = requested {
                    state.model = *state.undecided.take().expect("as it was before");
                    state.is_undone(asked);
                }
                state.half.clear();
                state.history.is_refused();
                return Err(Error::NotReplicated);
            }
            if requested.is_none() {
                state.is_handed_on(name, grant.holder);
            }
            state.refuses = state.refuses.map(|more| more - 1);
            state.written.push((name, grant.fence));
        }
        state.model.forgets_run_out(name, &before, &after, now);
        state.changes(name, requested, &before, &after);
        state.keys.kept.remove(&name);
        state.keys.kept.extend(content.clone().map(|kept| (name, kept)));
        self.content = content;
        Ok(())
    }
}

fn lock_in(content: Option<&Kept>) -> LockContent {
    match content.and_then(|kept| Content::of(kept.stored())) {
        Some(Content::Lock(lock)) => lock,
        Some(Content::OtherType) => panic!("it is no lock"),
        None => LockContent { holds: Vec::new(), expiry: None },
    }
}

fn written(content: Option<&Kept>, write: &Write<'_>) -> Option<Kept> {
    let former = match content.map(Kept::stored) {
        Some(Stored::Text { value, deadline }) => Some(Seen { value: value.into(), deadline }),
        _ => None,
    };
    let Seen { value, deadline } = write.applied_to(former)?;
    Some(Kept::Text { value, deadline: deadline.map(Deadline::millis) })
}

impl State {
    /// Judges what the engine has written: at a client's request, or on its own account.
    fn changes(
        &mut self,
        name: LockName,
        requested: Option<Requested>,
        before: &LockContent,
        after: &LockContent,
    ) {
        let now = self.now().micros();
        let granted = after.holds.iter().find(|held| before.known_as(held.identity()).is_none());
        if let Some(granted) = granted {
            self.grants(name, requested, before, after, granted);
        }
        for held in &before.holds {
            let Held { holder, fence, .. } = *held;
            let Some(kept) = after.known_as(held.identity()) else {
                match requested {
                    Some(Requested::Release(claim)) if before.lasts(held, now) => {
                        let is_shown = claim.fence.is_none_or(|shown| shown == fence);
                        let is_its_own = holder == claim.owner && is_shown;
                        assert!(is_its_own, "L3: {claim:?} released {name:?}: {held:?}");
                        self.history.released(name, fence);
                        self.history.known(fence);
                        self.history.changed_hands(name);
                    }
                    None if granted.is_none() && before.lasts(held, now) => {
                        self.ends_by_itself((name, holder, fence));
                    }
                    _ => {}
                }
                continue;
            };
            match requested {
                Some(Requested::Extend(asker)) if holder == asker => self.history.known(fence),
                Some(_) => {}
                None => self.may_shorten(name, before, held, after, kept),
            }
        }
    }

    /// One of the locks of a waiter is written, and the others must follow.
    fn is_handed_on(&mut self, name: LockName, owner: &str) {
        if self.half.is_empty() {
            let waiting = self.model.waits(name, owner);
            self.half = waiting.expect("L4: who is granted the lock waits").asked.names.to_vec();
        }
        self.half.retain(|other| *other != name);
    }

    /// L1 to L4, as of the key itself.
    fn grants(
        &mut self,
        name: LockName,
        requested: Option<Requested>,
        before: &LockContent,
        after: &LockContent,
        granted: &Held,
    ) {
        let Held { holder, fence, share, .. } = *granted;
        let live = before.live(self.now().micros());
        let former = own(&live, holder);
        match requested {
            Some(Requested::Raise(asker)) => {
                let former = former.filter(|former| holder == asker && fence > former.fence);
                let former = former.unwrap_or_else(|| panic!("L2 or L3: {asker} raised {name:?}"));
                return self.history.raised(name, former.fence, fence);
            }
            Some(Requested::Acquire(asked)) => {
                assert_eq!(asked.owner, holder, "L4: {name:?} is another owner's");
            }
            None => {}
            other => panic!("{other:?} came to a grant"),
        }
        let others = others(&live, holder);
        let is_kept = others.iter().all(|other| after.known_as(other.identity()).is_some());
        assert!(
            is_kept && admit(&others, share),
            "L1: {name:?} was granted to {holder}, who tolerates {share}, beside {others:?}"
        );
        let former = former.filter(|_| requested.is_some()).map(|former| former.fence);
        self.history.granted(name, fence, former);
    }

    /// The engine ends a hold on its own account: its connection has ended, or nobody has heard of the grant.
    fn ends_by_itself(&mut self, hold: HoldOf) {
        let (name, _, fence) = hold;
        self.history.changed_hands(name);
        if self.model.is_over(hold) {
            self.history.released(name, fence);
        } else {
            self.history.given_back(name, fence);
            self.model.claim(fence);
        }
        self.model.give_end(hold, None, self.now().micros());
    }

    /// The engine may give a hold another end on its own account. If the new end is earlier, the hold's connection has
    /// ended.
    fn may_shorten(
        &mut self,
        name: LockName,
        before: &LockContent,
        held: &Held,
        after: &LockContent,
        kept: &Held,
    ) {
        let now = self.now().micros();
        let end = after.end(kept);
        if end != before.end(held)
            && let Some(end) = end
            && let Some(hold) = self.model.shortened(name, held.fence, end, now)
        {
            self.model.shorten(hold, end, now);
        }
    }
}
