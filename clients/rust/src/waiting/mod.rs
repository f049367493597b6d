//! Waiting for a lock that others have: in the server's queue, by a ticket or on a connection; where there is no queue, by
//! asking again and again.

mod on_connection;
mod places;
mod subscription;
mod tickets;

pub(crate) use places::Places;

use crate::Error;
use crate::attempt::{Attempt, Granted};
use crate::backoff::{POLL, RETRY};
use crate::clock::Moment;
use crate::question::Question;
use crate::remote::{Answer, Limits, Remote};
use crate::validity::{patience_for_answer, valid_until};
use crate::verdict::is_silence;
use std::time::Duration;
use tokio::time::sleep;

/// Tickets that were refused are asked for again after so long.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// For how long a request waits, and for what.
#[derive(Clone, Copy, Debug)]
struct Patience {
    until: Moment,
    /// For each answer.
    each: Duration,
    unreachable_after: Duration,
}

/// What became of a wait.
enum Waited {
    Granted(Granted),
    /// Patience has ended.
    Ended,
    NoTickets,
    /// The server keeps none.
    NoQueue,
}

/// None: somebody else has it, and patience has ended.
pub(crate) async fn acquire(attempt: &mut Attempt, remote: &Remote) -> Result<Option<Granted>, Error> {
    let (wanted, core) = (attempt.wanted, std::sync::Arc::clone(&attempt.core));
    let settings = &core.settings;
    let is_try = wanted.wait.is_some_and(|wait| wait.is_zero());
    let until = match wanted.wait {
        Some(_) if is_try => Moment::now().later(settings.retry_for),
        Some(wait) => Moment::now().later(wait),
        None => Moment::now().later(Duration::MAX),
    };
    let each = patience_for_answer(settings.response_timeout, wanted.ttl);
    let patience = Patience { until, each, unreachable_after: settings.unreachable_after };
    let mut tries = 0_u32;
    loop {
        let may_queue = !is_try && !remote.is_plain() && core.may_take_tickets();
        let waited = if may_queue { tickets::wait(attempt, remote, patience).await? } else { Waited::NoTickets };
        let granted = match waited {
            Waited::Granted(granted) => Some(granted),
            Waited::Ended => return Ok(None),
            Waited::NoQueue => None,
            Waited::NoTickets => {
                if may_queue {
                    core.refuse_tickets_until(Moment::now().later(REFUSED_FOR));
                }
                let granted = try_once(attempt, remote, patience, tries).await?;
                let is_over = granted.is_some() || is_try || Moment::now() >= until;
                if is_over || remote.is_plain() {
                    granted
                } else {
                    on_connection::wait(attempt, remote, patience).await?
                }
            }
        };
        let left = || until.since(Moment::now());
        match granted {
            Some(granted) if Moment::now() < valid_until(granted.asked, granted.lasts) => return Ok(Some(granted)),
            // The answer took longer than the lease. Asked again, it is the same grant, or over.
            Some(_) if left().is_zero() => return Err(Error::TooLate { lock: attempt.name.to_string() }),
            Some(_) => sleep(RETRY.random_rest(tries).min(left())).await,
            None if is_try || left().is_zero() => return Ok(None),
            None if remote.is_plain() => sleep(POLL.random_rest(tries).min(left())).await,
            None => {}
        }
        if granted.is_none() && left().is_zero() {
            return Ok(None);
        }
        tries = tries.saturating_add(1);
    }
}

/// Without a ticket.
async fn try_once(
    attempt: &mut Attempt,
    remote: &Remote,
    Patience { until, each, unreachable_after }: Patience,
    tries: u32,
) -> Result<Option<Granted>, Error> {
    let limits = Limits { each, until: until.min(Moment::now().later(unreachable_after)) };
    let is_last = tries > 0 && until.since(Moment::now()) < each;
    let held_before = std::mem::replace(&mut attempt.may_hold, true);
    let question = Question::Try { ttl: attempt.wanted.ttl };
    match remote.ask(&attempt.claim, question, limits, &attempt.trail).await {
        Ok(Answer { number: Some(fence), asked, .. }) => {
            Ok(Some(Granted { fence, asked, lasts: attempt.wanted.ttl, is_unclaimed: false }))
        }
        Ok(Answer { number: None, repeated, .. }) => {
            attempt.may_hold = held_before || repeated;
            Ok(None)
        }
        // It was busy when the server had time to answer.
        Err(error) if is_last && is_silence(&error) => Ok(None),
        Err(error) => {
            attempt.may_hold = held_before || is_silence(&error);
            Err(error)
        }
    }
}
