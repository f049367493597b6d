//! Tickets that come to their end, of which nobody is told but of a grant.

use super::model::{Client, LockName, Reply};
use super::world::Server;
use crate::engine::Answer;
use crate::lock::KeptTicket;

impl Server {
    /// A ticket has come to its end.
    pub(super) fn ticket_is_over(&self, name: LockName, ticket: &KeptTicket, answer: &Answer) {
        let client = Client::try_from(ticket.client).expect("a small number");
        let state = &mut *self.state.borrow_mut();
        match answer {
            Answer::Granted { fence, .. } => {
                state.answers.push((client, Reply::Published(fence.number())));
            }
            Answer::Again { fence_number, .. } => {
                state.answers.push((client, Reply::Published(*fence_number)));
                state.history.left(client);
            }
            Answer::GaveUp => {
                state.history.left(client);
                if state.model.is_waiting(client) {
                    let is_first = state.model.is_first_to_give_up(client);
                    assert!(is_first, "{client} lost its place in {name:?} before its time");
                    state.model.leave(client);
                }
            }
            Answer::Refused(_) => {
                state.history.left(client);
                state.model.leave(client);
            }
        }
    }
}
