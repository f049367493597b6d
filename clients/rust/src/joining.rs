//! A lock that this client has already, asked for once more by the same owner: another guard of the
//! same grant.

use crate::Error;
use crate::clock::Moment;
use crate::guard::{Guard, Hold};
use crate::request::Wanted;
use crate::validity::later;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Joins the grant if there is one still. It lasts at least as long as was asked for now, it is
/// renewed if anybody wants that, and replicas are asked if they are to be: what was asked for
/// before is not undone.
pub(crate) async fn join(
    hold: Option<Arc<Hold>>,
    wanted: &Wanted,
    within: Duration,
) -> Result<Option<Guard>, Error> {
    // Counted from here on, so that it is not released meanwhile.
    let Some(guard) = hold.and_then(Hold::another) else { return Ok(None) };
    if guard.hold.share != wanted.share {
        let reason = "this owner holds the lock for another number of holders: release that guard \
                      first, or ask as another owner";
        return Err(Error::setting("owner", reason));
    }
    if guard.hold.lease.bond.as_ref().map(|bond| bond.grace) != wanted.grace {
        let reason = "this owner holds the lock with another grace, or without: release that guard \
                      first, or ask as another owner";
        return Err(Error::setting("ephemeral", reason));
    }
    let (lease, begun) = (&guard.hold.lease, Moment::now());
    let ttl = match (lease.ttl_to_join(wanted.ttl, begun), wanted.replicas) {
        (Some(ttl), _) => Some(ttl),
        // Replicas acknowledge what is written: so something is.
        (None, Some(_)) => Some(lease.left(begun)),
        (None, None) => None,
    };
    if let Some(ttl) = ttl {
        let until = wanted.wait.map(|patience| later(Instant::now(), patience.max(within)));
        let Some(answer) = guard.extend_heard(ttl, wanted.replicas, until).await? else {
            return Ok(None);
        };
        if let Some(replicas) = wanted.replicas.filter(|replicas| answer.heard < replicas.count) {
            return Err(Error::TooFewReplicas {
                name: guard.name().to_owned(),
                acknowledged: answer.heard,
                wanted: replicas.count,
            });
        }
    }
    lease.joined(wanted.ttl, wanted.renew, begun);
    wanted.hold(lease);
    // It may have been granted on another runtime. Without a keeper nobody renews it, and it is
    // lost already.
    let _ = guard.hold.orders.keep(lease);
    Ok(Some(guard))
}
