//! The virtual server, as the host of the engine. Every write of the engine, and everything that it tells waiters, is
//! compared with the model at once.

use super::model::{Client, Held, Key as KeyName, MOST_HOLDERS, is_same_set};
use super::requests::Waits;
use super::server::{Server, State, key_of, lock};
use crate::command::Error;
use crate::engine::{
    Announced, Answer, Authority, Host, Initiator, Key, Lock, Mode, WaiterGrant, Warning,
};
use crate::lock::{
    Deadline, KeptNames, KeptOwner, KeptTicket, Limits, Moment, Monotonic, Name, Owner, Room,
    Stored, Ttl, Value, WaitKind, WaiterId, Write,
};
use crate::observe::Event;
use crate::simulation::alike::Role;
use crate::simulation::keyspace::Kept;

pub(super) const LIMITS: Limits = Limits { max_ttl: Ttl::LONGEST, max_holders: MOST_HOLDERS };

impl Host for Server {
    type Client = Client;
    type Lock<'n> = At<'n>;

    fn now(&self) -> Moment {
        let mut state = self.state.borrow_mut();
        let passed = state.passed_for_the_engine;
        state.passed_for_the_engine += state.passes_when_asked;
        Moment::from_micros(state.wall + passed)
    }

    fn monotonic(&self) -> Monotonic {
        self.state.borrow().clocks().monotonic
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

    fn room(&self, kind: WaitKind) -> Room {
        let state = self.state.borrow();
        match kind {
            WaitKind::Blocked => state.room,
            WaitKind::Ticket => state.room_for_tickets,
        }
    }

    fn may_block(&self) -> bool {
        true
    }

    fn block(&self, _is_minted: bool) -> Result<Client, Error> {
        let state = self.state.borrow();
        assert_eq!(state.has_room, Some(true));
        Ok(state.may_wait.as_ref().expect("it is ready to wait").0)
    }

    fn waits(&self, id: WaiterId) {
        let state = &mut *self.state.borrow_mut();
        assert_eq!(state.has_room, Some(true));
        let (client, asked, waits) = state.may_wait.as_ref().expect("it is ready to wait");
        if let Waits::Block(_) = waits {
            state.parked.insert(*client, (id, asked.bind.map(|(connection, _)| connection)));
        }
    }

    fn client_id(&self) -> u64 {
        self.state.borrow().may_wait.as_ref().expect("it is ready to wait").0.into()
    }

    fn connection(&self) -> Option<u64> {
        self.state.borrow().connection
    }

    fn is_connected(&self, connection: u64) -> bool {
        self.state.borrow().connections.contains(&connection)
    }

    fn hear_of_connections(&self) {}

    fn lock<'n>(&'n self, name: Name<'n>) -> Option<At<'n>> {
        Some(self.at(key_of(name)))
    }

    fn beside<'n>(&'n self, name: Name<'n>) -> At<'n> {
        self.named.set(self.named.get() + 1);
        self.at(key_of(name))
    }

    fn answer(&self, name: Name<'_>, client: Client, owner: KeptOwner, answer: Answer) {
        let mut state = self.state.borrow_mut();
        state.parked.remove(&client);
        state.is_answered(name, client, &answer);
        if let Answer::Granted { names, fence, .. } = answer {
            let grant = WaiterGrant { names, owner, fence };
            if !std::mem::take(&mut state.dies_at_once) {
                return state.in_flight.push((client, grant));
            }
            state.model.unheard(fence.number());
            drop(state);
            self.engine.mark_undeliverable(self, grant);
        }
    }

    fn announce(
        &self,
        name: Name<'_>,
        ticket: &KeptTicket,
        _owner: Owner<'_>,
        answer: &Answer,
    ) -> Announced {
        let mut state = self.state.borrow_mut();
        let client = Client::try_from(ticket.client).expect("a small number");
        state.is_answered(name, client, answer);
        if let Answer::Granted { fence, .. } = answer {
            // In this simulation every owner hears of its grant.
            state.model.hear(fence.number());
        }
        Announced::Silently
    }

    fn demoted(&self) -> Error {
        Error::Demoted
    }

    fn slot_has_gone(&self) {}

    fn warn(&self, _warning: Warning) {}
}

impl State {
    /// All or nothing: the waiter is told of the locks that it waited for, and all of them are written.
    fn is_granted(&mut self, name: Name<'_>, client: Client, names: &KeptNames, fence: u64) {
        let plan = self.model.plan.take().expect("a grant is written before it is told");
        assert!(plan.to_do.is_empty() && !plan.has_failed, "it was told of a part: {plan:?}");
        assert_eq!(plan.fence, Some(fence));
        let waiting = plan.waiter.expect("one who waited is told");
        assert_eq!(waiting.client, client);
        let names: Vec<_> = names.iter().map(|name| key_of(name.as_name())).collect();
        assert!(is_same_set(&names, &waiting.asked.keys), "{names:?} for {waiting:?}");
        assert!(is_same_set(&plan.done, &waiting.asked.keys), "{:?} for {waiting:?}", plan.done);
        assert!(names.contains(&key_of(name)));
    }

    fn has_them_already(&mut self, client: Client, names: &KeptNames, fence: u64) {
        let waiting = self.model.leave(client).expect("it waits");
        let (asked, now) = (&waiting.asked, self.wall);
        let names: Vec<_> = names.iter().map(|name| key_of(name.as_name())).collect();
        assert!(is_same_set(&names, &asked.keys), "{names:?} for {waiting:?}");
        let common = self.model.common_fence(&asked.keys, asked.owner, now);
        assert_eq!(common, Some(fence), "{waiting:?} does not hold them all");
        self.model.may_be_gone(asked.bind);
        for &key in &asked.keys {
            self.model.bind(key, asked.owner, fence, asked.bind);
        }
        self.model.hear(fence);
    }

    fn gave_up(&mut self, client: Client) {
        let waiting = self.model.leave(client).expect("it waits");
        let (asked, now) = (&waiting.asked, self.wall);
        let is_late = waiting.gives_up.is_some_and(|end| end <= self.elapsed);
        // A waiter gets no fence beside a foreign hold of its own. A holder of a lock does not wait for a tighter hold
        // of it.
        let mut own = asked.keys.iter().filter_map(|key| self.model.own(key, asked.owner, now));
        let is_not_waited_for = own.any(|own| own.fence == 0 || asked.keys.len() == 1);
        assert!(is_late || is_not_waited_for, "{waiting:?} was sent away before its time");
    }
}

pub(super) struct At<'n> {
    server: &'n Server,
    key: KeyName,
}

impl Server {
    pub(super) fn at(&self, key: KeyName) -> At<'_> {
        At { server: self, key }
    }
}

impl Lock for At<'_> {
    type Key<'s>
        = Opened<'s>
    where
        Self: 's;

    fn name(&self) -> Name<'_> {
        lock(self.key)
    }

    fn may_read(&self) -> Authority {
        Authority::Yes
    }

    fn may_write(&self, _initiator: Initiator) -> Authority {
        let mut state = self.server.state.borrow_mut();
        state.tells_the_time();
        if state.role == Role::Refusing {
            return Authority::Refused;
        }
        drop(state);
        self.server.authority()
    }

    fn open(&self, _mode: Mode) -> Opened<'_> {
        self.server.remove_if_expired(self.key);
        let state = &mut *self.server.state.borrow_mut();
        state.tells_the_time();
        assert!(!state.is_open, "a key is opened while another is open");
        state.is_open = true;
        let content = state.keys.copy((0, self.key));
        Opened { server: self.server, key: self.key, content }
    }

    fn publish(&self, _event: Event) {
        let state = self.server.state.borrow();
        assert!(!state.is_open, "an event is published while a key is open");
        let is_half = state.model.plan.as_ref().is_some_and(|plan| !plan.to_do.is_empty());
        assert!(!is_half, "an event is published in the middle of {:?}", state.model.plan);
    }
}

pub(super) struct Opened<'s> {
    server: &'s Server,
    key: KeyName,
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
        let now = state.wall;
        if write == Write::Keep {
            state.model.kept(self.key, now);
            return Ok(());
        }
        let may_write = state.is_primary() || (state.role == Role::Paused && state.in_command);
        assert!(may_write, "L6: {write:?} on a server that is {:?}", state.role);
        let restores = matches!(write, Write::Restore(_));
        let is_anew = match &write {
            Write::Hold { .. } | Write::Delete => true,
            Write::Edit(edit) => edit.appended().is_some(),
            Write::Keep | Write::Expire(_) | Write::Restore(_) => false,
        };
        let before = live_in(self.content.as_ref(), now);
        let content = written(self.content.as_ref(), write);
        let after = live_in(content.as_ref(), now);
        let is_grant = after.iter().any(|held| before.iter().all(|old| old.fence != held.fence));
        if is_grant && !restores && state.refuses_this() {
            state.model.refused(self.key, &before, &after, now);
            return Err(Error::NotReplicated);
        }
        match &content {
            Some(kept) => drop(state.keys.kept.insert((0, self.key), kept.clone())),
            None => state.keys.remove((0, self.key)),
        }
        self.content = content;
        if !restores {
            state.model.written(self.key, &before, &after, now);
        }
        if is_anew {
            state.model.forgets_what_has_run_out(self.key, now);
        }
        state.model.assert_holds(self.key, &after, now);
        Ok(())
    }
}

impl State {
    fn is_answered(&mut self, name: Name<'_>, client: Client, answer: &Answer) {
        let state = self;
        match *answer {
            Answer::Granted { ref names, fence, .. } => {
                state.is_granted(name, client, names, fence.number());
            }
            Answer::Again { ref names, fence_number, .. } => {
                state.has_them_already(client, names, fence_number);
            }
            Answer::GaveUp => state.gave_up(client),
            Answer::Refused(Error::NotReplicated) => {
                let plan = state.model.plan.take().expect("its grant was refused");
                assert!(plan.has_failed, "{plan:?}");
                assert_eq!(plan.waiter.map(|waiting| waiting.client), Some(client));
            }
            Answer::Refused(Error::Replaced) => {
                let replaced = &mut state.model.replaced;
                let at = replaced.iter().position(|other| *other == client);
                replaced.remove(at.expect("another request has taken its place"));
            }
            Answer::Refused(Error::Demoted) => {
                state.model.leave(client).expect("it waits");
            }
            Answer::Refused(error) => panic!("{client} was refused: {error}"),
        }
    }

    fn refuses_this(&mut self) -> bool {
        let is_next = self.refuses == Some(0);
        self.refuses = self.refuses.and_then(|more| more.checked_sub(1));
        is_next
    }
}

/// What a key holds after this write.
fn written(content: Option<&Kept>, write: Write<'_>) -> Option<Kept> {
    let text = |value: &[u8], deadline: Option<Deadline>| Kept::Text {
        value: value.into(),
        deadline: deadline.map(Deadline::millis),
    };
    let former = match content.map(Kept::stored) {
        Some(Stored::Text { value, .. }) => value.to_vec(),
        _ => Vec::new(),
    };
    match write {
        Write::Keep => content.cloned(),
        Write::Delete => None,
        Write::Hold { owner, fence, deadline, share } => {
            Some(text(Value::of_hold(fence, owner, deadline, share).as_bytes(), deadline))
        }
        Write::Expire(deadline) => Some(text(&former, Some(deadline))),
        Write::Restore(seen) => Some(text(&seen.value, seen.deadline)),
        Write::Edit(edit) => {
            let rewritten = edit.rewritten(&former);
            let mut value = former;
            edit.patch(&mut value);
            value.extend(edit.appended().iter().flat_map(|line| line.as_bytes().to_vec()));
            Some(text(&rewritten.unwrap_or(value), Some(edit.expiry)))
        }
    }
}

/// The holds in force, as anyone who knows the value's format can read them.
pub(super) fn live_in(content: Option<&Kept>, now: u64) -> Vec<Held> {
    let Some(Kept::Text { value, deadline }) = content else { return Vec::new() };
    let text = str::from_utf8(value).expect("owners of letters and digits");
    let all: Vec<_> = if text.ends_with('\n') {
        text.lines().map(|line| line_of(line, *deadline)).collect()
    } else {
        let (fence, owner) = match text.split_once(':') {
            Some((fence, owner)) => (fence.parse().expect("a fence"), owner),
            None => (0, text),
        };
        vec![Held { owner: owner.to_owned(), fence, end: *deadline, share: 1 }]
    };
    all.into_iter().filter(|held| held.lasts(now)).collect()
}

fn line_of(line: &str, deadline: Option<u64>) -> Held {
    let number = |digits: &str| digits.parse::<u64>().expect("digits");
    let end = [Some(number(&line[17..31])), deadline].into_iter().flatten().min();
    Held {
        owner: line[42..].to_owned(),
        fence: number(&line[..16]),
        end,
        share: u32::try_from(number(&line[32..37])).expect("a share"),
    }
}
