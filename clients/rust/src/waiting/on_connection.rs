//! Waiting in the server's queue on a blocked connection, for servers without tickets.
//!
//! ```text
//!   connection that waits       ACQUIRE … BLOCK ┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈ granted
//!   line                                        │ `check_every`   │ `check_every`
//!                                               WAITERS: queued   WAITERS: queued
//! ```
//!
//! A connection may die silently, on either side. So the client checks from time to time whether its request is still in the
//! queue, and repeats the request if it is not. The answer shows whether the lock was granted meanwhile.

use super::patience::Patience;
use crate::asked::Granted;
use crate::attempt::Attempt;
use crate::backoff::{RETRY, ROOM};
use crate::clock::{Moment, within};
use crate::error::{Error, unanswered};
use crate::limits::Limits;
use crate::listed::{Listed, lists};
use crate::measure;
use crate::question::Question;
use crate::validity::is_fresh;
use crate::verdict::{Verdict, number, told, verdict};
use redis::{RedisError, cmd};
use tokio::sync::Semaphore;
use tokio::time::sleep;

const LISTED: usize = 100;

pub(super) struct Room(Semaphore);

impl Room {
    pub(super) fn of(most: usize) -> Self {
        Self(Semaphore::new(most.min(Semaphore::MAX_PERMITS)))
    }
}

struct Counted;

impl Counted {
    fn waits() -> Self {
        measure::one_more_waits();
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        measure::one_less_waits();
    }
}

/// None if the caller has to ask again, because a grant is too old to count on.
pub(super) async fn wait(
    room: &Room,
    attempt: &mut Attempt,
    patience: Patience,
) -> Result<Option<Granted>, Error> {
    let until = patience.until;
    // All waiting connections may be busy with other locks while this lock becomes free, so do not wait for room too long.
    let resting = ROOM.random_rest(3).min(until.since(Moment::now()));
    let Some(Ok(_room)) = within(resting, room.0.acquire()).await else { return Ok(None) };
    let asked = Moment::now();
    let counted = Counted::waits();
    let came = block(attempt, patience).await;
    drop(counted);
    match came {
        Ok(fence) => {
            let ttl = attempt.wanted.ttl;
            // A hold from this connection is not bound to the connection for bound holds.
            let is_bound = attempt.claim.grace.is_none();
            let fresh = fence.filter(|_| is_bound && is_fresh(asked, ttl, Moment::now()));
            Ok(fresh.map(|fence| Granted { fence, asked, lasts: ttl, is_unclaimed: false }))
        }
        Err(error) => {
            let means = verdict(&error);
            if !matches!(
                means,
                Verdict::Broken | Verdict::Elsewhere | Verdict::Again | Verdict::Replaced
            ) {
                return Err(told(error));
            }
            let rest = if means == Verdict::Again { ROOM } else { RETRY }.random_rest(0);
            if Moment::now().later(rest) >= until {
                sleep(until.since(Moment::now())).await;
                return Err(told(error));
            }
            sleep(rest).await;
            Ok(None)
        }
    }
}

async fn block(attempt: &mut Attempt, patience: Patience) -> Result<Option<u64>, RedisError> {
    let Patience { until, each, .. } = patience;
    let key = attempt.claim.key().to_vec();
    let opening = async { attempt.remote.link.node(&key).await?.dedicated().await };
    let opened = within(each.min(until.since(Moment::now())), opening).await;
    let mut connection = opened.unwrap_or_else(|| Err(unanswered()))?;
    let left = until.since(Moment::now());
    let is_limited = attempt.wanted.wait.is_some();
    let question =
        Question::Block { ttl: attempt.wanted.ttl, patience: is_limited.then_some(left) };
    let command = question.command(&attempt.claim);
    (attempt.may_hold, attempt.was_cut) = (true, true);
    let answer = async { number(&command.query_async(&mut connection).await?) };
    let watch = is_gone(attempt, patience);
    let came = tokio::select! {
        biased;
        answer = answer => answer,
        gone = watch => return gone.map(|()| None),
    };
    attempt.was_cut = false;
    came
}

/// Ends when the request has left the queue, or the time is over.
async fn is_gone(
    attempt: &Attempt,
    Patience { until, each, .. }: Patience,
) -> Result<(), RedisError> {
    let claim = &attempt.claim;
    let command = cmd("LOCK.WAITERS").arg(claim.key()).arg("COUNT").arg(LISTED).take();
    loop {
        let left = until.since(Moment::now());
        if left.is_zero() {
            return Ok(());
        }
        sleep(attempt.home.settings.check_every.min(left)).await;
        let limits = Limits { each, until: Moment::now().later(each) };
        // Without permission or an answer, trust the connection until the next check.
        let listed = attempt.remote.read(claim.key(), &command, limits).await;
        if listed.is_ok_and(|listed| lists(&listed, &claim.owner, LISTED) == Listed::No) {
            return Err(unanswered());
        }
    }
}
