//! A request that may have been heard: whoever drops it gives back what it may have been granted.

use crate::guard::Hold;
use crate::home::Home;
use crate::orders::{Abandoned, Orders};
use crate::queue::Parked;
use std::sync::Weak;
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;

pub(crate) struct Pending {
    pub(crate) orders: Orders,
    /// Where it was made.
    pub(crate) home: Home,
    pub(crate) key: String,
    pub(crate) owner: String,
    pub(crate) ttl: Duration,
    /// Where others of the same owner wait for this one, if the caller chose the owner.
    pub(crate) place: Option<OwnedMutexGuard<Weak<Hold>>>,
    pub(crate) unknown: bool,
    /// The connection on which it waits.
    pub(crate) parked: Option<Parked>,
}

impl Pending {
    /// It is known what became of it.
    pub(crate) fn known(mut self) -> Option<OwnedMutexGuard<Weak<Hold>>> {
        self.unknown = false;
        self.place.take()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.unknown {
            let (key, owner) = (std::mem::take(&mut self.key), std::mem::take(&mut self.owner));
            let (ttl, place, parked) =
                (self.ttl, self.place.take(), self.parked.take().map(Box::new));
            self.orders.abandon(Abandoned { key, owner, ttl, place, parked }, self.home);
        }
    }
}
