//! A request that may have been heard: whoever drops it gives back what it may have been granted.

use crate::dialect::Question;
use crate::home::Home;
use crate::orders::{Abandoned, Orders};
use crate::poison::locked;
use crate::queue::Parked;
use crate::same_owner::Place;
use crate::share::Share;
use crate::stray::Stray;
use crate::tickets::AskedOn;
use std::sync::Mutex;
use std::time::Duration;

pub(crate) struct Pending {
    pub(crate) orders: Orders,
    /// Where it was made.
    pub(crate) home: Home,
    pub(crate) key: String,
    /// The keys of other locks that are to be had with it.
    pub(crate) also: Vec<String>,
    pub(crate) owner: String,
    pub(crate) share: Share,
    pub(crate) ttl: Duration,
    /// If the caller chose the owner: others of the same owner wait for it.
    pub(crate) place: Option<Place>,
    /// The connection on which it waits.
    pub(crate) parked: Option<Parked>,
    /// The one on which its ticket was asked for.
    pub(crate) asked_on: Mutex<Option<AskedOn>>,
    /// Whether it may be granted, and the connections on which it was not answered.
    pub(crate) stray: Stray,
}

impl Pending {
    /// Whether it is to be had now.
    pub(crate) fn question(&self, grace: Option<Duration>) -> Question<'_> {
        let Self { owner, also, share, ttl, .. } = self;
        Question::Acquire { owner, share: *share, ttl: *ttl, grace, also }
    }

    /// It is known what became of it.
    pub(crate) fn known(mut self) -> Option<Place> {
        self.stray.known();
        self.place.take()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.stray.may_be_granted() {
            let (key, owner) = (std::mem::take(&mut self.key), std::mem::take(&mut self.owner));
            let (place, parked) = (self.place.take(), self.parked.take().map(Box::new));
            let asked_on = locked(&self.asked_on).take().map(Box::new);
            let (also, share, ttl) = (std::mem::take(&mut self.also), self.share, self.ttl);
            let stray = self.stray.take();
            let abandoned =
                Abandoned { key, also, owner, share, ttl, place, parked, asked_on, stray };
            self.orders.abandon(abandoned, self.home);
        }
    }
}
