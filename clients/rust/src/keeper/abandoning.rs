//! Giving back what may have been granted to a request that nobody waits for any more.

use crate::Error;
use crate::clock::Moment;
use crate::dialect::Question;
use crate::link::Left;
use crate::orders::Abandoned;
use crate::releases::Outcome;
use crate::same_owner::Slot;
use crate::tickets::leave_queue;
use crate::unanswered::LONGEST_WAY;
use crate::validity::later;
use crate::wire::{Limits, Wire};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// When it is asked again for what may have been granted to somebody who is gone: the server hears of the end of a
/// connection and of this in either order.
const RELEASES_AFTER: [Duration; 3] =
    [Duration::ZERO, Duration::from_millis(50), Duration::from_millis(500)];

/// How long a server may take at least to close a connection that is left.
const LEAVING: Duration = Duration::from_secs(5);

/// The same where the owner may come back: what is on its way may be granted after the release.
const LEAVING_FOR_GOOD: Duration = LONGEST_WAY;

pub(super) async fn abandon(wire: Arc<Wire>, abandoned: Abandoned) -> Outcome {
    let Abandoned { key, also, owner, share, ttl, place, parked, asked_on, stray } = abandoned;
    if place.is_none() {
        stray.release(&key, &owner, &also);
    }
    let question = Question::ReleaseAny { owner: &owner, also: &also };
    if let (Some(asked_on), None) = (asked_on, &parked) {
        let limits = wire.limits(ttl, Some(later(Instant::now(), ttl)));
        let is_left = match &place {
            // What arrives later is a ticket that nobody asks for, and runs out.
            Some(_) => {
                let left = leave_queue(&wire, &key, &owner, share, limits).await;
                left.is_ok_and(|fence| fence.is_none())
            }
            None => asked_on.release(&key, question, limits.each).await,
        };
        if is_left {
            return Outcome::Done;
        }
    }
    let left = match parked {
        Some(parked) => {
            // An owner that may come back is released by its fence, and only then: what named the
            // owner alone could release a later grant.
            let (last, limit) = match &place {
                Some(_) => (None, LEAVING_FOR_GOOD),
                None => (Some(question), ttl.max(LEAVING)),
            };
            parked.link.leave(&key, last, limit).await
        }
        None => Left::Unknown,
    };
    let mut outcome = Outcome::Failed;
    // One release is enough where nothing can come after it. An owner that the caller chose may come
    // back at any time: it is kept from that for one release.
    let is_once = place.is_some() || left == Left::NothingComes;
    let times = if is_once { 1 } else { RELEASES_AFTER.len() };
    for rest in RELEASES_AFTER.into_iter().take(times) {
        sleep(rest).await;
        let limits = wire.limits(ttl, Some(later(Instant::now(), ttl)));
        let answer = match &place {
            Some(place) => release_by_fence(&wire, &key, &owner, place.slot(), limits).await,
            None => wire.ask(&key, question, limits).await.map(|answer| answer.number),
        };
        outcome = if answer.is_ok() { Outcome::Done } else { Outcome::Failed };
        if answer.is_ok_and(|number| number > Some(0)) {
            break;
        }
    }
    drop(place);
    outcome
}

/// Of an owner that may come back: a try that reaches the server late, after another one was
/// answered, must not release what the owner was granted meanwhile. That has another fence.
async fn release_by_fence(
    wire: &Wire,
    key: &str,
    owner: &str,
    slot: &Slot,
    limits: Limits,
) -> Result<Option<u64>, Error> {
    let Some(seen) = wire.fence_of(key, owner, limits).await? else {
        let answer = wire.ask(key, Question::ReleaseAny { owner, also: &[] }, limits).await?;
        return Ok(answer.number);
    };
    let Some(fence) = seen else { return Ok(None) };
    let left = limits.until.map(|until| until.saturating_duration_since(Instant::now()));
    slot.about_to_release(fence, None, Moment::now().later(left.unwrap_or_default()));
    let answer = wire.ask(key, Question::Release { owner, fence }, limits).await?;
    slot.released(fence);
    Ok(answer.number)
}
