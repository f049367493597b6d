//! Servers that do not answer are told of: at once, every ten seconds, and when they answer again.

use crate::poison::locked;
use crate::story::millis;
use redis::RedisError;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tracing::{info, warn};

const TELL_EVERY: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct Trouble {
    /// Looked at first: most of the time there is none.
    exists: AtomicBool,
    servers: Mutex<HashMap<String, Since>>,
}

#[derive(Clone, Copy)]
struct Since {
    begun: Instant,
    told: Instant,
}

impl Trouble {
    pub(crate) fn failed(&self, server: &str, error: &RedisError) {
        if let Some(lasting) = self.note_failure(server, Instant::now()) {
            let for_ms = millis(lasting);
            warn!(target: "leasehold", server, for_ms, %error, "unreachable");
        }
    }

    pub(crate) fn answered(&self, server: &str) {
        if let Some(lasted) = self.note_answer(server, Instant::now()) {
            let for_ms = millis(lasted);
            info!(target: "leasehold", server, for_ms, "reachable again");
        }
    }

    pub(crate) fn is_any(&self) -> bool {
        self.exists.load(Relaxed)
    }

    /// For how long this server has been failing.
    pub(crate) fn lasting(&self, server: &str) -> Option<Duration> {
        if !self.is_any() {
            return None;
        }
        self.servers().get(server).map(|since| since.begun.elapsed())
    }

    /// If that is to be told: for how long it has been failing.
    fn note_failure(&self, server: &str, now: Instant) -> Option<Duration> {
        self.exists.store(true, Relaxed);
        match self.servers().entry(server.to_owned()) {
            Entry::Vacant(vacant) => {
                vacant.insert(Since { begun: now, told: now });
                Some(Duration::ZERO)
            }
            Entry::Occupied(mut since) => {
                let since = since.get_mut();
                if now.saturating_duration_since(since.told) < TELL_EVERY {
                    return None;
                }
                since.told = now;
                Some(now.saturating_duration_since(since.begun))
            }
        }
    }

    /// If that is news: for how long it had been failing.
    fn note_answer(&self, server: &str, now: Instant) -> Option<Duration> {
        if !self.is_any() {
            return None;
        }
        let mut servers = self.servers();
        let since = servers.remove(server)?;
        self.exists.store(!servers.is_empty(), Relaxed);
        Some(now.saturating_duration_since(since.begun))
    }

    fn servers(&self) -> MutexGuard<'_, HashMap<String, Since>> {
        locked(&self.servers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_at_once_and_then_every_ten_seconds() {
        let (trouble, begun) = (Trouble::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        let tells = |seconds| trouble.note_failure("a", at(seconds));
        assert_eq!(trouble.note_answer("a", begun), None);
        assert_eq!(tells(0), Some(Duration::ZERO));
        assert_eq!(tells(9), None);
        assert_eq!(tells(10), Some(Duration::from_secs(10)));
        assert_eq!(tells(19), None);
        assert_eq!(trouble.note_failure("b", at(19)), Some(Duration::ZERO));
        assert_eq!(trouble.note_answer("a", at(21)), Some(Duration::from_secs(21)));
        assert_eq!(trouble.note_answer("a", at(22)), None);
        assert_eq!(trouble.note_answer("b", at(22)), Some(Duration::from_secs(3)));
    }
}
