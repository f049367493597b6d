//! Tickets that end, whose clients are told only of a grant, and channels without subscribers.

use super::model::{Asked, Client, Model, Waiting};
use super::names::Names;
use super::world::MICROS_PER_MILLI;

pub(super) const CHANNELS: [&str; 2] = ["one", "two"];

pub(super) fn channel_named(name: &[u8]) -> &'static str {
    let channel = CHANNELS.into_iter().find(|channel| channel.as_bytes() == name);
    channel.expect("a channel that there is")
}

/// A grant that was published on a channel without subscribers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unheard {
    pub(super) names: Names,
    pub(super) fence: u64,
    channel: &'static str,
    due: u64,
}

impl Model {
    /// This waiter was granted the lock. If the channel has no subscriber, the lease is short.
    pub(super) fn announce(&mut self, waiting: &Waiting, fence: u64, now: u64) {
        let Some(channel) = waiting.channel.filter(|channel| self.deaf.contains(channel)) else {
            return;
        };
        let Asked { names, owner, ttl, .. } = waiting.asked;
        let left = ttl.min(self.window_millis);
        for &name in names.iter().filter(|_| left < ttl) {
            self.give_end((name, owner, fence), Some(now / MICROS_PER_MILLI + left), now);
        }
        let due = self.elapsed + left * MICROS_PER_MILLI;
        self.unheard.push(Unheard { names, fence, channel, due });
    }

    pub(super) fn claim(&mut self, fence: u64) {
        self.unheard.retain(|unheard| unheard.fence != fence);
    }

    /// Drops the grants that nobody has claimed in time. Returns the other grants on their channels, which are taken
    /// back. Waiters with these channels must leave.
    pub(super) fn give_up_unheard(&mut self) -> Vec<Unheard> {
        let mut others = Vec::new();
        let first_due = |model: &Self| {
            let due = model.unheard.iter().filter(|unheard| unheard.due <= model.elapsed);
            due.min_by_key(|unheard| (unheard.due, unheard.fence)).copied()
        };
        while let Some(Unheard { fence, channel, .. }) = first_due(self) {
            self.claim(fence);
            self.found_deaf.insert(channel, self.elapsed);
            let is_other = |unheard: &Unheard| unheard.channel == channel;
            others.extend(self.unheard.iter().copied().filter(is_other));
            self.unheard.retain(|unheard| !is_other(unheard));
        }
        others
    }

    pub(super) fn is_found_deaf(&self, unheard: &Unheard) -> bool {
        self.found_deaf.contains_key(unheard.channel)
    }

    pub(super) fn is_deaf(&self, client: Client) -> bool {
        let channel = self.waiter_of(client).and_then(|waiting| waiting.channel);
        channel.is_some_and(|channel| self.found_deaf.contains_key(channel))
    }

    /// If the engine has done everything that was due, all waiters that had to leave are gone.
    pub(super) fn assert_deaf_are_gone(&mut self) {
        for (&channel, &since) in &self.found_deaf {
            let is_left =
                |waiting: &&Waiting| waiting.channel == Some(channel) && waiting.asked_at < since;
            let left = self.waiters.iter().find(is_left);
            assert!(left.is_none(), "nobody hears on {channel}: {left:?}");
        }
        self.found_deaf.clear();
    }
}
