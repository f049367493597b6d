//! How long a request waits, and how its wait ends.

use crate::asked::{Granted, Wanted};
use crate::clock::Moment;
use crate::home::Home;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) until: Moment,
    pub(super) each: Duration,
    pub(super) unreachable_after: Duration,
}

pub(super) enum Waited {
    Granted(Granted),
    /// The patience ended.
    Ended,
    NoTickets,
    /// The server has no queue.
    NoQueue,
}

impl Patience {
    pub(super) fn of(wanted: Wanted, home: &Home) -> Self {
        let wait = match wanted.wait {
            Some(_) if wanted.is_try() => home.settings.retry_for,
            Some(wait) => wait,
            None => Duration::MAX,
        };
        let (each, unreachable_after) = (home.each(wanted.ttl), home.settings.unreachable_after);
        Self { until: Moment::now().later(wait), each, unreachable_after }
    }

    pub(super) fn is_over(&self) -> bool {
        Moment::now() >= self.until
    }
}
