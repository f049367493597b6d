//! Which channel each ticket's grant will be published on. If a channel has no subscriber, all its tickets are given
//! up.

use super::{Departed, Queues, WaiterId};
use crate::lock::wait::{KeptTicket, KeptWait};
use std::collections::BTreeSet;
use std::rc::Rc;

#[derive(Debug, Default)]
pub(super) struct Channels(BTreeSet<(Rc<[u8]>, WaiterId)>);

impl Channels {
    pub(super) fn add<C>(&mut self, id: WaiterId, wait: &KeptWait<C>) {
        self.0.extend(entry(id, wait));
    }

    pub(super) fn remove<C>(&mut self, id: WaiterId, wait: &KeptWait<C>) {
        if let Some(entry) = entry(id, wait) {
            self.0.remove(&entry);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

fn entry<C>(id: WaiterId, wait: &KeptWait<C>) -> Option<(Rc<[u8]>, WaiterId)> {
    match wait {
        KeptWait::Ticket(KeptTicket { channel: Some(channel), .. }) => {
            Some((Rc::clone(channel), id))
        }
        KeptWait::Ticket(_) | KeptWait::Blocked(_) => None,
    }
}

impl<C> Queues<C> {
    /// Takes out a ticket whose grant would have been published on this channel.
    pub fn leave_by_channel(&mut self, channel: &Rc<[u8]>) -> Option<Departed<C>> {
        let first = (Rc::clone(channel), WaiterId(0));
        let &(_, id) = self.channels.0.range(first..).next().filter(|(of, _)| of == channel)?;
        self.leave(id)
    }
}
