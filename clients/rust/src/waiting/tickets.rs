//! Waiting by a ticket: a place in the server's queue without a blocked connection.

use super::patience::{Patience, Waited};
use super::places::{Place, Places, Told};
use crate::attempt::Attempt;
use crate::backoff::{RETRY, ROOM};
use crate::clock::{Moment, within};
use crate::error::Error;
use crate::limits::Limits;
use crate::story;
use crate::verdict::{Verdict, told, verdict};
use redis::RedisError;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// How often to ask without a subscription, unless there are many waiters.
const UNHEARD: Duration = Duration::from_millis(250);

/// Failures since the server's last answer.
#[derive(Default)]
struct Failures {
    count: u32,
    silent_since: Option<Moment>,
    refusal: Option<RedisError>,
    /// The server has answered at least once.
    is_queued: bool,
}

pub(super) async fn wait(
    places: &Arc<Places>,
    attempt: &mut Attempt,
    patience: &Patience,
) -> Result<Waited, Error> {
    let place = places.take(attempt);
    let (mut failures, mut was_queued) = (Failures::default(), false);
    loop {
        if patience.is_over() {
            return failures.ended();
        }
        let limits = Limits { each: patience.each, until: patience.until };
        let held_before = std::mem::replace(&mut attempt.may_hold, true);
        // Boxed and limited, so that a sleeping waiter reserves no room for the request.
        let turn = within(patience.until.since(Moment::now()), places.turns.acquire()).await;
        let asked = Moment::now();
        let came = Box::pin(place.ask(limits)).await;
        drop(turn);
        match came {
            Ok(Some(granted)) => return Ok(Waited::Granted(granted)),
            Ok(None) if attempt.remote.is_plain() => return Ok(Waited::NoQueue),
            Ok(None) => {
                if !was_queued {
                    story::queued(attempt);
                }
                was_queued = true;
                failures = Failures { is_queued: true, ..Failures::default() };
            }
            Err(error) => {
                let means = verdict(&error);
                // A refused request has no place.
                attempt.may_hold = held_before || means == Verdict::Broken;
                match means {
                    Verdict::NoTickets => return Ok(Waited::NoTickets),
                    Verdict::KeepsFor(longest) if places.keeps_for(longest) => continue,
                    _ => match Box::pin(failures.rest(error, means, patience, asked)).await? {
                        Rested::AskAgain => continue,
                        Rested::Ended => return Ok(Waited::Ended),
                    },
                }
            }
        }
        if !place.is_heard() {
            match Box::pin(place.listen(half(patience))).await {
                Ok(true) => continue, // Grants before the subscription had no message.
                Ok(false) => {}
                Err(error) if verdict(&error) == Verdict::Broken => {}
                Err(_) => return Ok(Waited::NoTickets),
            }
        }
        match place.sleep(sleeps_until(&place, patience)).await {
            Some(Told::Granted(granted)) => return Ok(Waited::Granted(granted)),
            // Messages may be lost, so all waiters ask, spread over time.
            Some(Told::Cut) => {
                let crowd = u64::try_from(places.count()).unwrap_or(u64::MAX);
                let rest = Duration::from_millis(crowd).mul_f64(fastrand::f64());
                let until = patience.until.min(Moment::now().later(rest));
                // Another waiter may have reopened the subscription, and the message may come there.
                if let Some(Told::Granted(granted)) = place.sleep(until).await {
                    return Ok(Waited::Granted(granted));
                }
            }
            Some(Told::Ask) | None => {}
        }
    }
}

fn sleeps_until(place: &Place, patience: &Patience) -> Moment {
    if place.is_heard() {
        return patience.until;
    }
    let crowd = Duration::from_millis(u64::try_from(place.crowd()).unwrap_or(u64::MAX));
    patience.until.min(Moment::now().later(UNHEARD.max(crowd)))
}

/// The other half is for asking.
fn half(patience: &Patience) -> Duration {
    patience.each.min(patience.until.since(Moment::now())).checked_div(2).unwrap_or_default()
}

enum Rested {
    AskAgain,
    /// The time is over, and the lock was busy.
    Ended,
}

impl Failures {
    /// The patience ended: the lock was busy, unless the server refused a place.
    fn ended(self) -> Result<Waited, Error> {
        self.refusal.map_or(Ok(Waited::Ended), |refusal| Err(told(refusal)))
    }

    async fn rest(
        &mut self,
        error: RedisError,
        means: Verdict,
        &Patience { until, each, unreachable_after }: &Patience,
        asked: Moment,
    ) -> Result<Rested, Error> {
        match means {
            Verdict::Broken => {
                self.refusal = None;
                let since = *self.silent_since.get_or_insert(asked);
                if Moment::now().since(since) >= unreachable_after {
                    return Err(told(error));
                }
            }
            Verdict::Elsewhere | Verdict::Again | Verdict::HasModule | Verdict::Replaced => {
                self.silent_since = None;
                self.refusal = Some(error.clone());
            }
            _ => return Err(told(error)),
        }
        let is_full = error.code() == Some("QUEUEFULL");
        let rest = if is_full { ROOM } else { RETRY }.random_rest(self.count);
        self.count = self.count.saturating_add(1);
        if Moment::now().later(rest) < until {
            sleep(rest).await;
            return Ok(Rested::AskAgain);
        }
        sleep(until.since(Moment::now())).await;
        // The last complete answer said that the lock was busy.
        let is_busy = self.is_queued && means == Verdict::Broken && until.since(asked) < each;
        if is_busy { Ok(Rested::Ended) } else { Err(told(error)) }
    }
}
