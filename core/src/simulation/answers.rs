//! What waiters are told. Each is served here by the model, too, as of the moment of its grant.

use super::content::Content;
use super::history::fences_in;
use super::model::{Asked, Client, Model, Reply, Verdict, Waiting};
use super::names::lock_name;
use super::world::{MICROS_PER_MILLI, Server, State};
use crate::command::Error;
use crate::engine::{Answer, WaiterGrant};
use crate::lock::{Deadline, KeptNames, KeptOwner, WaitKind};

impl Server {
    pub(super) fn tell(&self, client: Client, owner: KeptOwner, answer: Answer) {
        let mut borrowed = self.state.borrow_mut();
        let state = &mut *borrowed;
        state.parked.remove(&client);
        state.wait_ends(client, WaitKind::Blocked, &answer);
        if let Answer::Granted { names, fence, .. } = answer {
            let grant = WaiterGrant { names, owner, fence };
            if std::mem::take(&mut state.dies_at_once) {
                state.left_unheard(&grant);
                drop(borrowed);
                return self.engine.on(self).mark_undeliverable(grant);
            }
            state.in_flight.push((client, grant));
        }
    }
}

impl State {
    pub(super) fn wait_ends(&mut self, client: Client, kind: WaitKind, answer: &Answer) {
        let reply = match answer {
            Answer::Granted { fence, .. } => Reply::Fence(fence.number()),
            Answer::Again { fence_number, .. } => Reply::Fence(*fence_number),
            Answer::GaveUp => Reply::Nil,
            Answer::Refused(Error::Replaced) => Reply::Replaced,
            Answer::Refused(Error::Dropped) => Reply::Dropped,
            Answer::Refused(Error::NoFenceLeft) => Reply::NoFenceLeft,
            Answer::Refused(Error::NotReplicated) => Reply::NotReplicated,
            Answer::Refused(Error::GrantedElsewhere | Error::Demoted) => Reply::SentAway,
            Answer::Refused(error) => panic!("{client} was refused: {error}"),
        };
        let told = match (kind, reply) {
            (WaitKind::Blocked, reply) => Some((client, reply)),
            (WaitKind::Ticket, Reply::Fence(fence)) => Some((client, Reply::Published(fence))),
            (WaitKind::Ticket, _) => None,
        };
        self.answers.extend(told);
        if reply == Reply::Replaced {
            // The model knows already.
            return;
        }
        let waiting = self.model.waiter_of(client).expect("it waits");
        let now = self.now().micros();
        match answer {
            Answer::Granted { names, fence, deadline } => {
                let fence = fence.number();
                self.assert_is_written(names, fence);
                assert!(is_for(&waiting, names), "{names:?} for {waiting:?}");
                let now = self.moment_of(&waiting.asked, fence, *deadline);
                let verdict = self.model.serve_waiter(&waiting, now);
                assert_eq!(verdict, Verdict::Granted, "{waiting:?}");
            }
            Answer::Again { names, fence_number, deadline } => {
                assert!(is_for(&waiting, names), "{names:?} for {waiting:?}");
                let now = (deadline.millis() - waiting.asked.ttl) * MICROS_PER_MILLI;
                let verdict = self.model.serve_waiter(&waiting, now);
                assert_eq!(verdict, Verdict::Again(*fence_number), "{waiting:?}");
                self.history.known(*fence_number);
                if kind == WaitKind::Blocked {
                    waiting.asked.names.iter().for_each(|name| self.told(*name, *fence_number));
                }
            }
            Answer::GaveUp => {
                let model = &mut self.model;
                let is_deaf = kind == WaitKind::Ticket && model.is_deaf(client);
                if is_deaf || model.is_first_to_give_up(client) {
                    model.leave(client);
                    model.answers.extend(told);
                } else {
                    let is_refused = |model: &mut Model, now| {
                        matches!(model.serve_waiter(&waiting, now), Verdict::Kept | Verdict::Busy)
                    };
                    // A moment at which the engine has asked for the time.
                    let refuses = |now: &u64| is_refused(&mut model.clone(), *now);
                    let moment = self.asked_at.iter().copied().rfind(refuses).unwrap_or(now);
                    let is_refused = is_refused(model, moment);
                    assert!(is_refused, "{waiting:?} was sent away before its time, or its turn");
                }
            }
            Answer::Refused(Error::Dropped) => {
                self.drops_place(client);
                self.model.answers.extend(told);
            }
            Answer::Refused(Error::NoFenceLeft) => drop(self.model.serve_waiter(&waiting, now)),
            Answer::Refused(Error::NotReplicated) => {
                self.model.leave(client);
                self.is_undone(waiting.asked);
                self.model.answers.extend(told);
            }
            Answer::Refused(error) => {
                // It has looked at the key, and remembers that this is no lock.
                if let Some((name, _)) = self.settling.take()
                    && self.model.keys.get(&name) == Some(&Content::OtherType)
                {
                    self.model.seen.remove(&name);
                }
                self.model.leave(client);
                let in_turn = *error == Error::Demoted || !self.model.waits_behind(&waiting);
                assert!(in_turn, "who came first is sent away first");
                self.model.answers.extend(told);
            }
        }
    }

    /// The moment as of which these locks were granted: one at which the engine has asked for the time.
    fn moment_of(&mut self, asked: &Asked, fence: u64, deadline: Deadline) -> u64 {
        let now = self.now().micros();
        let _live = self.model.look_at_all(&asked.names, now);
        let is_it = |moment: &u64| {
            moment / MICROS_PER_MILLI + asked.ttl == deadline.millis()
                && self.model.next_fence(*moment) == fence
        };
        let moment = self.asked_at.iter().copied().find(is_it);
        moment.unwrap_or_else(|| {
            let next = self.model.next_fence(now);
            panic!("{fence} until {deadline:?} for {asked:?}, now {now}, next {next}")
        })
    }

    /// The server has refused a write of this grant. What was written before must be taken back.
    pub(super) fn is_undone(&mut self, asked: Asked) {
        let fence = self.refused.take().expect("a write was refused");
        let _live = self.model.look_at_all(&asked.names, self.now().micros());
        self.model.last_fence = fence.max(self.model.last_fence);
        for (name, _) in self.written.extract_if(.., |(_, written)| *written == fence) {
            let content = Content::of(self.keys.stored(name)).expect("it was written");
            self.model.keys.insert(name, content);
            self.model.seen.remove(&name);
            self.history.left_unheard(name, fence);
        }
    }

    /// A client that is told of its grant before it is written may use a lock before holding it.
    fn assert_is_written(&self, names: &KeptNames, fence: u64) {
        for name in names.iter().map(|name| lock_name(name.as_name())) {
            let is_written = fences_in(&self.keys, name).contains(&fence);
            assert!(is_written, "{name:?}: a grant is told before it is written");
        }
    }

    pub(super) fn left_unheard(&mut self, grant: &WaiterGrant) {
        for name in grant.names.iter() {
            self.history.left_unheard(lock_name(name.as_name()), grant.fence.number());
        }
    }
}

fn is_for(waiting: &Waiting, names: &KeptNames) -> bool {
    let names: Vec<_> = names.iter().map(|name| lock_name(name.as_name())).collect();
    waiting.asked.names.are(&names)
}
