//! Holds that end with their connection: each is bound to the next connection when one has ended.
//!
//! ```text
//!   connection  ACQUIRE … EPHEMERAL grace ┈┈┈┈┈┈┈ ended
//!   the next one                                    ACQUIRE … EPHEMERAL grace: the same fence, or the lock is lost
//!   valid for   ├──────────────── ttl ──────────────┤ grace ┤
//! ```

use super::abandoning::abandon;
use super::{Done, ONLY};
use crate::Loss;
use crate::backoff::RETRY;
use crate::clock::Moment;
use crate::dialect::Question;
use crate::lease::{Bond, Counted, Lease};
use crate::orders::Abandoned;
use crate::story;
use crate::stray::Stray;
use crate::wire::{Limits, Wire};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Instant;
use tokio::time::sleep;

/// Ends when the connection has, or the lease is over. None if it is not bound to any.
pub(super) fn until_unbound(lease: &Arc<Lease>) -> Option<BoxFuture<'static, Done>> {
    lease.bond.as_ref()?;
    let lease = Arc::clone(lease);
    Some(Box::pin(async move {
        if let Some(bond) = &lease.bond {
            tokio::select! {
                biased;
                () = lease.over.cancelled() => return Done::Looked,
                () = bond.broken() => {}
            }
        }
        Done::Unbound { id: lease.id }
    }))
}

/// Asks on another connection, until the lease could have ended.
pub(super) fn bind_again(wire: Arc<Wire>, lease: Arc<Lease>) -> BoxFuture<'static, Done> {
    Box::pin(async move {
        let mut tries = 0;
        while let Some(bond) = &lease.bond
            && try_to_bind(&wire, &lease, bond).await == Tried::InVain
        {
            let rest = RETRY.random_rest(tries);
            tries = tries.saturating_add(1);
            tokio::select! {
                () = lease.over.cancelled() => break,
                () = sleep(rest) => {}
            }
        }
        Done::Bound { id: lease.id }
    })
}

#[derive(PartialEq, Eq)]
enum Tried {
    Done,
    InVain,
}

async fn try_to_bind(wire: &Arc<Wire>, lease: &Lease, bond: &Bond) -> Tried {
    let now = Moment::now();
    let ttl = lease.ttl_to_bind(now);
    if lease.ended().is_some() || now >= lease.valid_until() {
        return Tried::Done;
    }
    let Some(mut asking) = lease.about_to_extend([ONLY], ttl, now) else { return Tried::Done };
    let (owner, share, grace) = (lease.owner.as_str(), bond.share, Some(bond.grace));
    let question = Question::Acquire { owner, share, ttl, grace, also: &[] };
    let limits = Limits { until: Some(Instant::now()), ..wire.limits(ttl, None) };
    // The lease may end meanwhile. The answer is waited for all the same: it may be another grant.
    let Ok((answer, connection)) = wire.bind(&lease.key, question, limits, None).await else {
        return Tried::InVain;
    };
    let now = Moment::now();
    if answer.number == Some(lease.fence) {
        let counted = asking.extended(answer.asked, now);
        asking.answered(ONLY, now);
        bond.bind_to(connection);
        if counted != Counted::Over {
            story::extended(lease, now);
        }
        return Tried::Done;
    }
    asking.answered(ONLY, now);
    drop(asking);
    lease.lose(Loss::Taken);
    if answer.number.is_some() {
        give_back(wire, lease, bond).await;
    }
    Tried::Done
}

/// It was lost, and granted to the same owner once more. Nobody has a guard of that.
async fn give_back(wire: &Arc<Wire>, lease: &Lease, bond: &Bond) {
    let place = match &bond.slot {
        Some(slot) => Some(slot.take().await),
        None => None,
    };
    // Unless a later request of the owner has been told of the same grant.
    let is_wanted = place.as_ref().and_then(|place| place.hold());
    if is_wanted.is_some_and(|hold| hold.lease.id != lease.id) {
        return;
    }
    let (key, owner) = (lease.key.clone(), lease.owner.clone());
    let (share, ttl, parked, asked_on) = (bond.share, lease.ttl(), None, None);
    let also = Vec::new();
    let stray = Stray::default();
    let abandoned = Abandoned { key, also, owner, share, ttl, place, parked, asked_on, stray };
    let _ = abandon(Arc::clone(wire), abandoned).await;
}
