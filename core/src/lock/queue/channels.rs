//! Which channel each ticket's grant will be published on. If a channel has no subscriber, all its tickets are given
//! up.

use super::{Departed, Queues, SlabIndex, WaiterId};
use std::collections::BTreeSet;
use std::rc::Rc;

#[derive(Debug, Default)]
pub(super) struct Channels(BTreeSet<(Rc<[u8]>, WaiterId)>);

impl Channels {
    /// The tickets of a channel share its bytes.
    pub(super) fn add(&mut self, id: WaiterId, channel: Option<&mut Rc<[u8]>>) {
        let Some(channel) = channel else { return };
        if let Some((known, _)) = self.any_on(channel) {
            *channel = Rc::clone(known);
        }
        self.0.insert((Rc::clone(channel), id));
    }

    pub(super) fn remove(&mut self, id: WaiterId, channel: Option<&Rc<[u8]>>) {
        if let Some(channel) = channel {
            self.0.remove(&(Rc::clone(channel), id));
        }
    }

    fn any_on(&self, channel: &Rc<[u8]>) -> Option<&(Rc<[u8]>, WaiterId)> {
        let first = (Rc::clone(channel), WaiterId(SlabIndex::FIRST));
        self.0.range(first..).next().filter(|(of, _)| of == channel)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl<C> Queues<C> {
    /// Takes out a ticket whose grant would have been published on this channel.
    pub fn leave_by_channel(&mut self, channel: &Rc<[u8]>) -> Option<Departed<C>> {
        let &(_, id) = self.channels.any_on(channel)?;
        self.leave(id)
    }
}
