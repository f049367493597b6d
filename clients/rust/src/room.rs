//! How many connections of a client may wait at a time, and how those spread that have lost theirs.

use crate::measure;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Whoever has lost a connection comes back within this time, …
const SPREAD: Duration = Duration::from_millis(500);

/// … and no more than about this many come back in each millisecond.
const COMERS_EACH_MILLI: u32 = 2;

pub(crate) struct Room {
    places: Arc<Semaphore>,
    taken: Arc<AtomicU32>,
}

/// The right to wait on a connection, until it is dropped.
pub(crate) struct Place {
    taken: Arc<AtomicU32>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Room {
    pub(crate) fn new(connections: usize) -> Self {
        let places = connections.min(Semaphore::MAX_PERMITS);
        Self { places: Arc::new(Semaphore::new(places)), taken: Arc::default() }
    }

    /// Waits for its turn, first come, first served.
    pub(crate) async fn enter(&self) -> Place {
        // The semaphore is never closed.
        let permit = Arc::clone(&self.places).acquire_owned().await.ok();
        self.taken.fetch_add(1, Relaxed);
        measure::one_more_waits();
        Place { taken: Arc::clone(&self.taken), _permit: permit }
    }

    /// How long to rest before coming back after a connection was lost: `chance` is from 0 to 1.
    pub(crate) fn rest(&self, chance: f64) -> Duration {
        spread(self.taken.load(Relaxed)).mul_f64(chance.clamp(0.0, 1.0))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Relaxed);
        measure::one_less_waits();
    }
}

/// Within what time so many come back.
pub(crate) fn spread(waiting: u32) -> Duration {
    SPREAD.max(Duration::from_millis(u64::from(waiting.div_ceil(COMERS_EACH_MILLI))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    #[test]
    fn the_more_wait_the_longer_they_take_to_come_back() {
        assert_eq!(spread(1), Duration::from_millis(500));
        assert_eq!(spread(1_000), Duration::from_millis(500));
        assert_eq!(spread(10_000), Duration::from_secs(5));
    }

    #[tokio::test]
    async fn no_more_wait_than_there_is_room_for() {
        let room = Room::new(1);
        let first = room.enter().await;
        assert!(timeout(Duration::from_millis(5), room.enter()).await.is_err());
        drop(first);
        drop(room.enter().await);
        assert_eq!(room.taken.load(Relaxed), 0);
    }
}
