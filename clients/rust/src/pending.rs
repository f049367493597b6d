//! A request that may have been heard: whoever drops it gives back what it may have been granted.

use crate::home::Home;
use crate::orders::{Abandoned, Orders};
use crate::queue::Parked;
use crate::same_owner::Place;
use crate::share::Share;
use std::time::Duration;

pub(crate) struct Pending {
    pub(crate) orders: Orders,
    /// Where it was made.
    pub(crate) home: Home,
    pub(crate) key: String,
    pub(crate) owner: String,
    pub(crate) share: Share,
    pub(crate) ttl: Duration,
    /// If the caller chose the owner: others of the same owner wait for it.
    pub(crate) place: Option<Place>,
    pub(crate) unknown: bool,
    /// The connection on which it waits.
    pub(crate) parked: Option<Parked>,
}

impl Pending {
    /// It is known what became of it.
    pub(crate) fn known(mut self) -> Option<Place> {
        self.unknown = false;
        self.place.take()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.unknown {
            let (key, owner) = (std::mem::take(&mut self.key), std::mem::take(&mut self.owner));
            let (place, parked) = (self.place.take(), self.parked.take().map(Box::new));
            let abandoned = Abandoned { key, owner, ttl: self.ttl, place, parked };
            self.orders.abandon(abandoned, self.home);
        }
    }
}
