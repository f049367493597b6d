//! Which channel each ticket's grant will be published on. If a channel has no subscriber, all its tickets are given
//! up.

use super::{Departed, Queues, WaiterId};
use std::collections::BTreeSet;
use std::rc::Rc;

#[derive(Debug, Default)]
pub(super) struct Channels(BTreeSet<(Rc<[u8]>, WaiterId)>);

impl Channels {
    pub(super) fn add(&mut self, id: WaiterId, channel: Option<&Rc<[u8]>>) {
        self.0.extend(channel.map(|channel| (Rc::clone(channel), id)));
    }

    pub(super) fn remove(&mut self, id: WaiterId, channel: Option<&Rc<[u8]>>) {
        if let Some(channel) = channel {
            self.0.remove(&(Rc::clone(channel), id));
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
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
