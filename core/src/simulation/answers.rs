//! What waiters on connections are told.

use super::host::lock_name;
use super::model::{Client, Reply};
use super::world::Server;
use crate::command::Error;
use crate::engine::{Answer, WaiterGrant};
use crate::lock::KeptOwner;

impl Server {
    pub(super) fn tell(&self, client: Client, owner: KeptOwner, answer: Answer) {
        let mut borrowed = self.state.borrow_mut();
        let state = &mut *borrowed;
        state.parked.remove(&client);
        match answer {
            Answer::Granted { names, fence, .. } => {
                state.answers.push((client, Reply::Fence(fence.number())));
                let grant = WaiterGrant { names, owner, fence };
                state.assert_is_written(&grant);
                if std::mem::take(&mut state.dies_at_once) {
                    state.left_unheard(&grant);
                    drop(borrowed);
                    return self.engine.mark_undeliverable(self, grant);
                }
                state.in_flight.push((client, grant));
            }
            Answer::Again { names, fence_number, .. } => {
                state.answers.push((client, Reply::Fence(fence_number)));
                state.history.left(client);
                for name in names.iter() {
                    state.told(lock_name(name.as_name()), fence_number);
                }
            }
            Answer::GaveUp => {
                state.answers.push((client, Reply::Nil));
                state.history.left(client);
                // Unless its turn came after its patience had ended, which the model knows by itself.
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
}
