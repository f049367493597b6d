//! The virtual server, as the host of the engine.
//!
//! The model is a step behind: it settles a lock when the engine looks at it, and takes a grant back when the engine
//! deletes the key on its own account. What the engine writes and whom it answers is told to the history.

use super::keyspace::Kept;
use super::model::{Client, LockName, Reply};
use super::requests::Requested;
use super::world::{KEYS, Role, Server, State, lock};
use crate::command::Error;
use crate::engine::{Answer, Authority, Host, Initiator, Key, Lock, Mode, WaiterGrant, Warning};
use crate::lock::{
    Deadline, Hold, KeptOwner, Lost, Moment, Monotonic, Name, Owner, Stored, Ttl, Value, Write,
};
use crate::observe::Event;

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
        match self.state.borrow().role {
            Role::Primary | Role::Refusing => Authority::Yes,
            Role::Paused => Authority::NotNow,
            Role::Replica => Authority::Replica,
        }
    }

    fn max_ttl(&self) -> Ttl {
        Ttl::LONGEST
    }

    fn batch(&self) -> usize {
        self.state.borrow().at_once
    }

    fn lock<'n>(&'n self, name: Name<'n>) -> Option<At<'n>> {
        Some(self.at(lock_name(name)))
    }

    fn answer(&self, client: Client, owner: KeptOwner, answer: Answer) {
        let mut borrowed = self.state.borrow_mut();
        let state = &mut *borrowed;
        state.parked.remove(&client);
        match answer {
            Answer::Granted { name, fence, .. } => {
                state.answers.push((client, Reply::Fence(fence.number())));
                let grant = WaiterGrant { name, owner, fence };
                state.assert_is_written(&grant);
                if std::mem::take(&mut state.dies_at_once) {
                    state.left_unheard(&grant);
                    drop(borrowed);
                    return self.engine.mark_undeliverable(self, grant);
                }
                state.in_flight.push((client, grant));
            }
            Answer::Again { name, fence_number, .. } => {
                state.answers.push((client, Reply::Fence(fence_number)));
                state.history.left(client);
                state.told(lock_name(name.as_name()), fence_number);
            }
            Answer::GaveUp => {
                state.answers.push((client, Reply::Nil));
                state.history.left(client);
                // Unless its turn came when its patience had ended, which the model knows by itself.
                if state.model.is_waiting(client) {
                    let is_first = state.model.is_first_to_give_up(client);
                    assert!(is_first, "{client} was sent away before its time, or its turn");
                    state.model.leave(client);
                    state.model.answers.push((client, Reply::Nil));
                }
            }
            Answer::Refused(Error::Replaced) => {
                state.answers.push((client, Reply::Replaced));
                let joining = state.joining.expect("somebody joins");
                state.history.took_over(joining, client);
            }
            Answer::Refused(Error::NoFenceLeft) => {
                state.answers.push((client, Reply::NoFenceLeft));
                state.history.left(client);
            }
            Answer::Refused(error @ (Error::GrantedElsewhere | Error::Demoted)) => {
                state.answers.push((client, Reply::SentAway));
                state.history.left(client);
                let gone = state.model.leave(client).expect("it waits");
                let in_turn = error == Error::Demoted || !state.model.waits_behind(&gone);
                assert!(in_turn, "who came first is sent away first");
                state.model.answers.push((client, Reply::SentAway));
            }
            Answer::Refused(error) => panic!("{client} was refused: {error}"),
        }
    }

    fn demoted(&self) -> Error {
        Error::Demoted
    }

    fn slot_has_gone(&self) {}

    fn warn(&self, _warning: Warning) {}
}

/// Where a lock is.
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

    fn prepare(&self) {}

    fn open(&self, mode: Mode) -> Opened<'_> {
        self.server.remove_if_expired(self.name);
        let state = &mut *self.server.state.borrow_mut();
        assert!(!state.is_open, "a key is opened while another is open");
        state.is_open = true;
        state.history.opened();
        let now = state.now().micros();
        match mode {
            Mode::Read => {}
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

    fn about_to_grant(&self) {}

    fn publish(&self, event: Event) {
        let state = &mut *self.server.state.borrow_mut();
        assert!(!state.is_open, "an event is published while a key is open");
        state.history.published(self.name, event);
    }

    fn note_loss(&self, lost: &Lost) {
        let state = self.server.state.borrow();
        state.history.lost(self.name, lost, state.now());
    }
}

/// A key that is open.
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
        // A real server dies of a module that writes while it may not.
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
            Write::Hold { owner, fence, deadline } => {
                state.writes_hold(self.name, requested, owner, fence, deadline);
            }
            Write::Expire(deadline) => state.moves_end(self.name, requested, deadline),
            Write::Restore(seen) => state.restores(self.name, &seen.value, seen.deadline),
            Write::Delete => state.deletes(self.name, requested),
        }
        self.content = state.keys.copy(self.name);
        Ok(())
    }
}

impl State {
    /// A client that is told of its grant before it is written may use the lock before it has it.
    fn assert_is_written(&self, grant: &WaiterGrant) {
        let name = lock_name(grant.name.as_name());
        let fence = match self.keys.stored(name) {
            Stored::Text { value, .. } => Hold::read(value, None).fence,
            Stored::Nothing | Stored::OtherType => None,
        };
        assert_eq!(fence, Some(grant.fence), "{name:?}: a grant is told before it is written");
    }

    pub(super) fn left_unheard(&mut self, grant: &WaiterGrant) {
        self.history.left_unheard(lock_name(grant.name.as_name()), grant.fence.number());
    }

    /// The model settles a lock when the engine looks at it.
    fn settles_the_model(&mut self, name: LockName, now: u64) {
        if self.model.anyone_waits_for(name) {
            self.puts_back(name, now);
        }
        self.model.settle(name, now);
    }

    fn writes_hold(
        &mut self,
        name: LockName,
        requested: Option<Requested>,
        owner: Owner<'_>,
        fence: crate::lock::Fence,
        deadline: Option<Deadline>,
    ) {
        let now = self.now();

        match requested {
            Some(Requested::Raise(asker)) => self.history.raised(name, asker, fence),
            _ => {
                let waiter = match requested {
                    Some(Requested::Acquire(_)) => None,
                    _ => Some(self.history.client_of(name, owner.as_bytes())),
                };
                let asker = match (requested, waiter) {
                    (Some(Requested::Acquire(asker)), _) => asker,
                    (_, Some(client)) => self.history.owner_of(client),
                    (other, None) => panic!("{other:?} came to a grant"),
                };
                let deadline = deadline.expect("a grant has an end");
                self.history.granted(name, asker, fence, deadline, waiter, now);
            }
        }
        let value = Value::new(fence, owner);
        self.keys.put(name, value.as_bytes(), deadline.map(Deadline::millis));
    }

    fn moves_end(&mut self, name: LockName, requested: Option<Requested>, deadline: Deadline) {
        let until = Some(deadline.millis());
        self.keys.expire_at(name, until);
        self.history.moved(name, until);
        if let Some(Requested::Extend(asker)) = requested {
            self.history.extended(name, asker);
        }
    }

    fn deletes(&mut self, name: LockName, requested: Option<Requested>) {
        match requested {
            Some(Requested::Release(asker, fence)) => self.history.released(name, asker, fence),
            _ => {
                let fence = match self.keys.stored(name) {
                    Stored::Text { value, .. } => Hold::read(value, None).fence_number(),
                    other => panic!("{other:?} was taken back"),
                };
                self.history.given_back(name, fence);
                let now = self.now().micros();
                self.model.take_back(name, fence, now);
            }
        }
        self.keys.remove(name);
    }
}

pub(super) fn lock_name(name: Name<'_>) -> LockName {
    let key = KEYS.into_iter().find(|key| key.as_bytes() == name.key);
    (name.db, key.expect("a key that there is"))
}
