//! Trace events: one for each step of a lock, with the lock, its owner, ttl and fence, and the caller's correlation. And two
//! spans, of its wait and of its hold. Nobody enters them: they last as long as what they are of. The metrics of these steps
//! are recorded here too.

use crate::asked::Asked;
use crate::attempt::Attempt;
use crate::clock::Moment;
use crate::error::Error;
use crate::lease::Lease;
use crate::measure;
use crate::outcome::{Loss, Released};
use crate::question::millis;
use tracing::field::Empty;
use tracing::{Span, debug, info_span, warn};

const MOST_NAMED: usize = 20;

/// The span of the wait, which ends when it is dropped.
pub(crate) fn begun(asked: &Asked) -> Span {
    let Asked { name: lock, wanted, correlation, claim, .. } = asked;
    let (ttl_ms, owner) = (millis(wanted.ttl), &*claim.owner);
    debug!(target: "leasehold", %lock, owner, ttl_ms, correlation, "asked");
    info_span!(
        target: "leasehold", "leasehold.wait",
        leasehold.lock = %lock, leasehold.owner = owner, leasehold.correlation = correlation,
        leasehold.fence = Empty, leasehold.outcome = Empty, otel.status_code = Empty
    )
}

/// The span of a hold, which ends with it.
pub(crate) fn hold(lock: &str, owner: &str, fence: u64, correlation: &str) -> Span {
    info_span!(
        target: "leasehold", "leasehold.hold",
        leasehold.lock = lock, leasehold.owner = owner, leasehold.correlation = correlation,
        leasehold.fence = fence, leasehold.outcome = Empty, otel.status_code = Empty
    )
}

pub(crate) fn queued(attempt: &Attempt) {
    let (lock, owner) = (&attempt.name, &*attempt.claim.owner);
    debug!(target: "leasehold", %lock, owner, "queued");
}

pub(crate) fn asked<T>(asked: &Asked, begun: Moment, came: &Result<Option<T>, Error>, wait: &Span) {
    let Asked { name: lock, wanted, correlation, .. } = asked;
    let waited = Moment::now().since(begun);
    let (ttl_ms, waited_ms, owner) = (millis(wanted.ttl), millis(waited), &*asked.claim.owner);
    match came {
        Ok(Some(_)) => {}
        Ok(None) => {
            measure::waited("refused", waited);
            wait.record("leasehold.outcome", "refused");
            debug!(target: "leasehold", %lock, owner, ttl_ms, correlation, waited_ms, "refused");
        }
        Err(error) => {
            measure::waited("failed", waited);
            wait.record("leasehold.outcome", "failed").record("otel.status_code", "ERROR");
            warn!(target: "leasehold", %lock, owner, ttl_ms, correlation, waited_ms, %error, "failed");
        }
    }
}

pub(crate) fn acquired(lease: &Lease, begun: Moment, wait: &Span) {
    let Lease { name: lock, correlation, claim, .. } = lease;
    let fence = u64::from(lease.fence());
    let waited = Moment::now().since(begun);
    measure::waited("acquired", waited);
    wait.record("leasehold.outcome", "acquired").record("leasehold.fence", fence);
    let (owner, ttl_ms, waited_ms) = (&*claim.owner, millis(lease.ttl()), millis(waited));
    debug!(target: "leasehold", %lock, fence, owner, ttl_ms, correlation, waited_ms, "acquired");
}

pub(crate) fn extended(lease: &Lease) {
    let Lease { name: lock, correlation, claim, .. } = lease;
    let fence = u64::from(lease.fence());
    let (owner, ttl_ms) = (&*claim.owner, millis(lease.ttl()));
    debug!(target: "leasehold", %lock, fence, owner, ttl_ms, correlation, "extended");
}

pub(crate) fn released(lease: &Lease, outcome: Released) {
    let Lease { name: lock, correlation, claim, .. } = lease;
    let fence = u64::from(lease.fence());
    let (owner, ttl_ms) = (&*claim.owner, millis(lease.ttl()));
    match outcome {
        Released::InTime => {
            debug!(target: "leasehold", %lock, fence, owner, ttl_ms, correlation, "released")
        }
        Released::Later => {
            debug!(target: "leasehold", %lock, fence, owner, ttl_ms, correlation, "released later")
        }
        Released::Late => {
            measure::released_late();
            warn!(
                target: "leasehold", %lock, fence, owner, ttl_ms, correlation,
                "released too late: the ttl is too short for the work, or the lock was deleted"
            );
        }
    }
}

pub(crate) fn not_released(lease: &Lease, error: &Error) {
    let Lease { name: lock, correlation, claim, .. } = lease;
    let fence = u64::from(lease.fence());
    let owner = &*claim.owner;
    warn!(target: "leasehold", %lock, fence, owner, correlation, %error, "not released: it stays until its lease ends");
}

pub(crate) fn renewal_refused(lease: &Lease, error: &Error) {
    let Lease { name: lock, correlation, claim, .. } = lease;
    let fence = u64::from(lease.fence());
    let owner = &*claim.owner;
    warn!(target: "leasehold", %lock, fence, owner, correlation, %error, "renewal refused");
}

/// Called once for each lease. `failure` is the error of the last renewal.
pub(crate) fn ended(lease: &Lease, loss: Loss, failure: Option<&str>, hold: &Span) {
    let Lease { name: lock, correlation, claim, .. } = lease;
    let fence = u64::from(lease.fence());
    measure::held(Moment::now().since(lease.begun));
    let label = match loss {
        Loss::Expired => "expired",
        Loss::Taken => "taken",
        Loss::Released | Loss::Closed => {
            hold.record("leasehold.outcome", "released");
            return;
        }
    };
    hold.record("leasehold.outcome", label).record("otel.status_code", "ERROR");
    measure::lost(label);
    let (owner, why) = (&*claim.owner, loss.to_string());

    warn!(target: "leasehold", %lock, fence, owner, correlation, why, failure, "lost");
}

/// The runtime ends while these locks are held, or their releases are under way.
pub(crate) fn left_behind(mut names: Vec<String>) {
    if names.is_empty() {
        return;
    }
    names.sort();
    names.dedup();
    let count = names.len();
    names.truncate(MOST_NAMED);
    let locks = names.join(" ");
    warn!(
        target: "leasehold", locks, count,
        "the runtime ended before these locks were released: they stay until their leases end; \
         Locks::close releases them in time"
    );
}
