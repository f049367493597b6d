//! What is told through `tracing` of each lock: one event for each step, with the lock, its owner, ttl and fence, and
//! what the caller goes by. What is counted of these steps is counted here, too.

use crate::clock::Moment;
use crate::lease::Lease;
use crate::measure::{self, Asked};
use crate::request::Wanted;
use crate::{Error, Loss, Released};
use std::time::{Duration, Instant};
use tracing::{Span, debug, debug_span, warn};

/// How many locks are named at a time.
const MOST_NAMED: usize = 20;

pub(crate) fn span(name: &str, correlation: &str) -> Span {
    debug_span!(target: "leasehold", "acquire", lock = name, correlation)
}

pub(crate) fn acquired(lease: &Lease, waited: Duration) {
    measure::waited(Asked::Acquired, waited);
    let (ttl_ms, waited_ms) = (millis(lease.ttl()), millis(waited));
    let Lease { name, owner, fence, correlation, .. } = lease;
    debug!(target: "leasehold", lock = name, fence, owner, ttl_ms, correlation, waited_ms, "acquired");
}

/// How a request ended that was granted nothing. A quorum asks as somebody new with each try, and names no owner.
pub(crate) fn not_acquired<T>(
    name: &str,
    owner: Option<&str>,
    wanted: &Wanted,
    begun: Instant,
    came: &Result<Option<T>, Error>,
) {
    let (ttl_ms, waited_ms) = (millis(wanted.ttl), millis(begun.elapsed()));
    let correlation = &wanted.correlation;
    match came {
        Ok(Some(_)) => {}
        Ok(None) => {
            measure::waited(Asked::Refused, begun.elapsed());
            debug!(target: "leasehold", lock = name, owner, ttl_ms, correlation, waited_ms, "refused");
        }
        Err(error) => {
            measure::waited(Asked::Failed, begun.elapsed());
            warn!(target: "leasehold", lock = name, owner, ttl_ms, correlation, waited_ms, %error, "failed");
        }
    }
}

pub(crate) fn extended(lease: &Lease, now: Moment) {
    let (ttl_ms, valid_ms) = (millis(lease.ttl()), millis(lease.valid_for(now)));
    let Lease { name, owner, fence, correlation, .. } = lease;
    debug!(target: "leasehold", lock = name, fence, owner, ttl_ms, correlation, valid_ms, "extended");
}

pub(crate) fn released(lease: &Lease, outcome: Released) {
    let ttl_ms = millis(lease.ttl());
    let Lease { name, owner, fence, correlation, .. } = lease;
    match outcome {
        Released::Released => {
            debug!(target: "leasehold", lock = name, fence, owner, ttl_ms, correlation, "released");
        }
        Released::Later => {
            debug!(target: "leasehold", lock = name, fence, owner, ttl_ms, correlation, "released later");
        }
        Released::Late => {
            measure::released_late();
            warn!(
                target: "leasehold", lock = name, fence, owner, ttl_ms, correlation,
                "released too late: the ttl is too short for the work, or the lock was deleted"
            );
        }
        Released::StillHeld => {}
    }
}

pub(crate) fn lost(lease: &Lease, loss: Loss) {
    let ttl_ms = millis(lease.ttl());
    let Lease { name, owner, fence, correlation, .. } = lease;
    let (label, why) = match loss {
        Loss::Expired => ("expired", "the lease could have ended"),
        Loss::Taken => ("taken", "the server says that it is not held"),
        Loss::Released | Loss::Closed => return,
    };
    measure::lost(label);
    warn!(target: "leasehold", lock = name, fence, owner, ttl_ms, correlation, why, "lost");
}

/// The runtime ends while these keys are held, or on their way to be released.
pub(crate) fn left_behind(mut keys: Vec<String>) {
    if keys.is_empty() {
        return;
    }
    keys.sort();
    keys.dedup();
    let count = keys.len();
    keys.truncate(MOST_NAMED);
    let locks = keys.join(" ");
    warn!(
        target: "leasehold", locks, count,
        "the runtime ended before these locks were released: they stay until their leases end; \
         Locks::close releases them in time"
    );
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
