//! Logs that a server does not answer: at once, every ten seconds, and when it answers again.

use crate::clock::Moment;
use crate::locked::locked;
use crate::question::millis;
use redis::RedisError;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tracing::{info, warn};

const TELL_EVERY: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct Trouble {
    /// Checked first, because a failing server is rare.
    exists: AtomicBool,
    since: Mutex<Option<Since>>,
}

#[derive(Clone, Copy)]
struct Since {
    begun: Moment,
    told: Moment,
}

impl Trouble {
    pub(crate) fn failed(&self, error: &RedisError) {
        self.exists.store(true, Relaxed);
        let (mut since, now) = (locked(&self.since), Moment::now());
        if let Some(Since { told, .. }) = *since
            && now.since(told) < TELL_EVERY
        {
            return;
        }
        let begun = since.map_or(now, |since| since.begun);
        *since = Some(Since { begun, told: now });
        let for_ms = millis(now.since(begun));
        warn!(target: "leasehold", for_ms, %error, "unreachable");
    }

    pub(crate) fn answered(&self) {
        if !self.exists.swap(false, Relaxed) {
            return;
        }
        let since = locked(&self.since).take();
        if let Some(Since { begun, .. }) = since {
            let for_ms = millis(Moment::now().since(begun));
            info!(target: "leasehold", for_ms, "reachable again");
        }
    }
}
