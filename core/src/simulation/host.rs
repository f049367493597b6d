//! The virtual server, as the host of the engine.
//!
//! The model is a step behind: it settles a lock when the engine looks at it, and takes a grant back when the engine
//! deletes the key on its own account. The history is told what the engine writes, and which clients it answers.

use super::alike::Role;
use super::content::MOST_HOLDERS;
use super::history::Granted;
use super::keyspace::Kept;
use super::model::{Client, LockName};
use super::requests::Requested;
use super::tickets::channel_named;
use super::world::{KEYS, Server, State, lock};
use crate::command::Error;
use crate::engine::{
    Announced, Answer, Authority, Host, Initiator, Key, Lock, Mode, WaiterGrant, Warning,
};
use crate::lock::{
    Deadline, Edit, Fence, Holds, KeptOwner, KeptTicket, Limits, Moment, Monotonic, Name, Owner,
    Room, Share, Stored, Ttl, Value, WaitKind, WaiterId, Write,
};
use crate::observe::Event;

pub(super) const LIMITS: Limits = Limits { max_ttl: Ttl::LONGEST, max_holders: MOST_HOLDERS };

impl Host for Server {
    type Client = Client;
    type Lock<'n> = At<'n>;

    fn now(&self) -> Moment {
        self.state.borrow().now()
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
        let state = self.state.borrow();
        match kind {
            WaitKind::Blocked => state.room,
            WaitKind::Ticket => {
                let most = state.model.most_tickets;
                Room { for_all: most, per_lock: most, ..state.room }
            }
        }
    }

    fn may_block(&self) -> bool {
        self.state.borrow().may_block
    }

    fn block(&self, _is_minted: bool) -> Result<Client, Error> {
        Ok(self.state.borrow().joining.expect("the model has let it wait"))
    }

    fn waits(&self, id: WaiterId) {
        let is_blocked = self.engine.with_queues(|queues| {
            queues.waiter(id).is_some_and(|waiter| waiter.told.kind() == WaitKind::Blocked)
        });
        let mut state = self.state.borrow_mut();
        let client = state.joining.take().expect("a client that joins");
        if is_blocked {
            state.parked.insert(client, id);
        }
    }

    fn client_id(&self) -> u64 {
        self.state.borrow().may_wait.expect("a request that is ready to wait").0.into()
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
        self.at(lock_name(name))
    }

    fn answer(&self, _name: Name<'_>, client: Client, owner: KeptOwner, answer: Answer) {
        self.state.borrow_mut().tally.answered(WaitKind::Blocked, &answer);
        self.tell(client, owner, answer);
    }

    fn announce(
        &self,
        name: Name<'_>,
        ticket: &KeptTicket,
        _owner: Owner<'_>,
        answer: &Answer,
    ) -> Announced {
        self.state.borrow_mut().tally.answered(WaitKind::Ticket, answer);
        self.ticket_is_over(lock_name(name), ticket, answer);
        match (&ticket.channel, answer.fence_number()) {
            (Some(channel), Some(_)) => {
                let is_deaf = self.state.borrow().model.deaf.contains(channel_named(channel));
                Announced::To { hearers: usize::from(!is_deaf) }
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

/// The place of a lock.
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
    fn is_gone(&self) -> bool {
        self.server.state.borrow().gone == Some(self.name)
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
        if self.is_gone() { Authority::NotOurs } else { Authority::Yes }
    }

    fn may_write(&self, initiator: Initiator) -> Authority {
        let mut state = self.server.state.borrow_mut();
        state.settles(self.name);
        let role = state.role;
        drop(state);
        if self.is_gone() {
            return Authority::NotOurs;
        }
        if (role, initiator) == (Role::Primary, Initiator::Client) {
            let has_work = self.server.differs_from_the_model(self.name);
            assert!(has_work, "{:?}: asked whether it may write nothing", self.name);
        }
        if role == Role::Refusing { Authority::Refused } else { self.server.authority() }
    }

    fn open(&self, mode: Mode) -> Opened<'_> {
        self.server.remove_if_expired(self.name);
        let state = &mut *self.server.state.borrow_mut();
        assert!(!state.is_open, "a key is opened while another is open");
        state.is_open = true;
        state.history.opened();
        let now = state.now().micros();
        match mode {
            Mode::Read => {}
            Mode::Peek => state.model.peeks(self.name, now),
            Mode::Look => {
                state.settles(self.name);
                if state.model.rests(self.name, now) {
                    state.model.sees_nothing(self.name, now);
                } else if state.role == Role::Refusing && state.model.has_work(self.name, now) {
                    state.model.sees(self.name, now);
                } else {
                    state.settles_the_model(self.name, now);
                }
            }
            Mode::Write => state.puts_back(self.name, now),
        }
        let content = state.keys.copy(self.name);
        Opened { server: self.server, name: self.name, content }
    }

    fn publish(&self, event: Event) {
        let state = &mut *self.server.state.borrow_mut();
        assert!(!state.is_open, "an event is published while a key is open");
        // It is noted only if somebody waited for the lock.
        let lost = self.server.engine.with_observer(|observer| observer.last_lost.take());
        if let Some(lost) = lost {
            assert_eq!(event, Event::Lost);
            state.history.lost(self.name, &lost, state.now());
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
        self.server.state.borrow_mut().is_open = false;
    }
}

impl Key for Opened<'_> {
    fn stored(&self) -> Stored<'_> {
        self.content.as_ref().map_or(Stored::Nothing, Kept::stored)
    }

    fn write(&mut self, write: Write<'_>) -> Result<(), Error> {
        let state = &mut *self.server.state.borrow_mut();
        let requested = state.requested.take();
        if write == Write::Keep {
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
        match write {
            Write::Keep => {}
            Write::Hold { owner, fence, deadline, share } => {
                state.writes_hold(self.name, requested, owner, fence, deadline, share);
            }
            Write::Edit(edit) => state.edits(self.name, requested, &edit),
            Write::Expire(deadline) => state.moves_end(self.name, requested, deadline),
            Write::Restore(seen) => state.restores(self.name, &seen.value, seen.deadline),
            Write::Delete => state.deletes(self.name, requested),
        }
        self.content = state.keys.copy(self.name);
        Ok(())
    }
}

impl State {
    /// A client that is told of its grant before it is written may use the lock before holding it.
    pub(super) fn assert_is_written(&self, grant: &WaiterGrant) {
        for name in grant.names.iter().map(|name| lock_name(name.as_name())) {
            let mut fences = self.fences_in(name).into_iter();
            let is_written = fences.any(|fence| fence == grant.fence.number());
            assert!(is_written, "{name:?}: a grant is told before it is written");
        }
    }

    pub(super) fn left_unheard(&mut self, grant: &WaiterGrant) {
        for name in grant.names.iter() {
            self.history.left_unheard(lock_name(name.as_name()), grant.fence.number());
        }
    }

    /// The model settles a lock when the engine looks at it.
    fn settles_the_model(&mut self, name: LockName, now: u64) {
        if self.model.anyone_waits_for(name) {
            self.puts_back(name, now);
        }
        self.model.settle(name, self.at_once, now);
    }

    fn fences_in(&self, name: LockName) -> Vec<u64> {
        match self.keys.stored(name) {
            Stored::Text { value, .. } => {
                Holds::all(value).map(|hold| hold.fence_number()).collect()
            }
            Stored::Nothing | Stored::OtherType => Vec::new(),
        }
    }

    fn writes_hold(
        &mut self,
        name: LockName,
        requested: Option<Requested>,
        owner: Owner<'_>,
        fence: Fence,
        deadline: Option<Deadline>,
        share: Share,
    ) {
        let (now, until) = (self.now(), deadline.map(Deadline::millis));
        match requested {
            Some(Requested::Raise(asker)) => self.history.raised(name, asker, fence, now),
            _ if self.fences_in(name).contains(&fence.number()) => {
                let end = until.expect("a hold that tolerates others has an end");
                self.history.renewed(name, fence.number(), end, share.number());
            }
            _ => {
                let deadline = until.expect("a grant has an end");
                let (fence, share) = (fence.number(), share.number());
                let granted = Granted { fence, deadline, share, is_alone: true };
                self.grants(name, requested, owner.as_bytes(), granted);
            }
        }
        let value = Value::of_hold(fence, owner, deadline, share);
        self.keys.put(name, value.as_bytes(), until);
        self.history.moved(name, until);
    }

    fn grants(
        &mut self,
        name: LockName,
        requested: Option<Requested>,
        owner: &[u8],
        granted: Granted,
    ) {
        let now = self.now();
        let (asker, waiter) = match requested {
            Some(Requested::Acquire(asker)) => (asker, None),
            None => {
                let client = self.history.client_of(name, owner);
                (self.history.owner_of(client), Some(client))
            }
            other => panic!("{other:?} came to a grant"),
        };
        self.history.granted(name, asker, granted, waiter, now);
    }

    /// One of several holds changes.
    fn edits(&mut self, name: LockName, requested: Option<Requested>, edit: &Edit<'_>) {
        let Stored::Text { value, .. } = self.keys.stored(name) else { panic!("nothing to edit") };
        let (mut value, now) = (value.to_vec(), self.now());
        let rewritten = edit.rewritten(&value);
        if rewritten.is_some() {
            self.model.compact(name, now.micros());
            self.history.rewritten(name, now);
        }
        if edit.ends(&value).next().is_some() {
            self.model.end_run_out(name, now.micros());
            self.history.run_out_ended(name, now);
        }
        if let Some((at, patch)) = edit.over() {
            let bytes = patch.as_bytes();
            let line_at = at - if bytes.len() == Fence::DIGITS { 0 } else { 17 };
            let fence = number(&value[line_at..][..16]);
            match (requested, bytes.len()) {
                (Some(Requested::Raise(asker)), Fence::DIGITS) => {
                    let fence = Fence::new(number(bytes)).expect("a fence");
                    self.history.raised(name, asker, fence, now);
                }
                // In an upgrade the new hold replaces the old one.
                (_, 14) if edit.appended().is_some() => {}
                (Some(Requested::Release(asker, shown)), 14) => {
                    self.history.released(name, asker, shown, now);
                }
                (None, 14) => self.ends_by_itself(name, owner_at(&value, line_at), fence),
                (_, 20) => {
                    let share = u32::try_from(number(&bytes[15..])).expect("a share");
                    let end = number(&bytes[..14]);
                    self.history.renewed(name, fence, end, share);
                    if requested.is_none() {
                        self.shortens(name, fence, end);
                    }
                    if let Some(Requested::Extend(asker)) = requested {
                        self.history.extended(name, asker, now);
                    }
                }
                (other, len) => panic!("{other:?} overwrote {len} bytes"),
            }
        }
        edit.patch(&mut value);
        if let Some(line) = edit.appended() {
            value.extend_from_slice(line.as_bytes());
            let line = line.as_bytes();
            let granted = Granted {
                fence: number(&line[..16]),
                deadline: number(&line[17..31]),
                share: u32::try_from(number(&line[32..37])).expect("a share"),
                is_alone: false,
            };
            self.grants(name, requested, &line[42..line.len() - 1], granted);
        }
        let until = Some(edit.expiry.millis());
        self.keys.put(name, &rewritten.unwrap_or(value), until);
        self.history.moved(name, until);
    }

    /// The engine ends a hold on its own account: its connection has ended, or nobody has heard of the grant.
    fn ends_by_itself(&mut self, name: LockName, holder: &str, fence: u64) {
        let now = self.now().micros();
        if self.model.is_over(name, holder, fence) {
            self.history.parted(name, fence);
            self.model.part(name, holder, fence, now);
        } else {
            self.history.given_back(name, fence);
            self.model.take_back(name, fence, now);
        }
    }

    /// The engine gives a hold another end on its own account. If the new end is earlier, the hold's connection has
    /// ended.
    fn shortens(&mut self, name: LockName, fence: u64, end: u64) {
        let now = self.now().micros();
        if let Some(holder) = self.model.shortened(name, fence, end, now) {
            self.model.shorten(name, holder, fence, end, now);
        }
    }

    fn moves_end(&mut self, name: LockName, requested: Option<Requested>, deadline: Deadline) {
        let (now, until) = (self.now(), Some(deadline.millis()));
        if requested.is_none()
            && let [(_, fence)] = self.model.holders(name, now.micros())[..]
        {
            self.shortens(name, fence, deadline.millis());
        }
        self.keys.expire_at(name, until);
        self.history.moved(name, until);
        if let Some(Requested::Extend(asker)) = requested {
            self.history.extended(name, asker, now);
        }
    }

    fn deletes(&mut self, name: LockName, requested: Option<Requested>) {
        let now = self.now();
        match requested {
            Some(Requested::Release(asker, fence)) => {
                self.history.released(name, asker, fence, now)
            }
            _ => {
                let live = self.model.holders(name, now.micros());
                let [(holder, fence)] = live[..] else { panic!("{live:?} were taken back") };
                self.ends_by_itself(name, holder, fence);
            }
        }
        // Holds that have run out are gone too.
        self.history.over(name);
        self.keys.remove(name);
    }
}

pub(super) fn lock_name(name: Name<'_>) -> LockName {
    let key = KEYS.into_iter().find(|key| key.as_bytes() == name.key);
    (name.db, key.expect("a key that there is"))
}

/// The owner of the line that begins there.
fn owner_at(value: &[u8], line_at: usize) -> &str {
    let len = usize::try_from(number(&value[line_at + 38..][..3])).expect("a short name");
    str::from_utf8(&value[line_at + 42..][..len]).expect("letters and digits")
}

fn number(digits: &[u8]) -> u64 {
    str::from_utf8(digits).expect("digits").parse().expect("a number")
}
