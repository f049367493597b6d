//! Waiting for a lock: in the server's queue by a ticket or a blocked connection, or by polling if there is no queue.

mod on_connection;
mod patience;
mod places;
mod subscription;
mod tickets;

use crate::asked::Granted;
use crate::attempt::Attempt;
use crate::backoff::{POLL, RETRY};
use crate::clock::Moment;
use crate::error::Error;
use crate::home::Home;
use crate::limits::Limits;
use crate::locked::locked;
use crate::question::Question;
use crate::remote::{Answer, Remote};
use crate::validity::valid_until;
use crate::verdict::is_silence;
use on_connection::Room;
use patience::{Patience, Waited};
use places::Places;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::sleep;

/// How long the client does without tickets after a refusal.
const REFUSED_FOR: Duration = Duration::from_secs(60);

pub(crate) struct Waiting {
    places: Arc<Places>,
    room: Room,
    no_tickets_until: Mutex<Option<Moment>>,
}

impl Waiting {
    pub(crate) fn new(home: &Arc<Home>, remote: &Arc<Remote>) -> Self {
        Self {
            places: Arc::new(Places::new(home, remote)),
            room: Room::of(home.settings.wait_connections),
            no_tickets_until: Mutex::default(),
        }
    }

    /// None if others held the lock until the patience ended.
    pub(crate) async fn acquire(&self, attempt: &mut Attempt) -> Result<Option<Granted>, Error> {
        let remote = Arc::clone(&attempt.remote);
        let patience = Patience::of(attempt.wanted, &attempt.home);
        let (is_try, until) = (attempt.wanted.is_try(), patience.until);
        let queues = attempt.home.settings.queue;
        let polls = || !queues || remote.is_plain();
        let mut tries = 0_u32;
        loop {
            let may_queue = !is_try && !polls() && self.may_take_tickets();
            let waited = if may_queue {
                tickets::wait(&self.places, attempt, &patience).await?
            } else {
                Waited::NoTickets
            };
            let granted = match waited {
                Waited::Granted(granted) => Some(granted),
                Waited::Ended => return Ok(None),
                Waited::NoQueue => None,
                Waited::NoTickets => {
                    if may_queue {
                        *locked(&self.no_tickets_until) = Some(Moment::now().later(REFUSED_FOR));
                    }
                    let granted = Box::pin(try_once(attempt, patience, tries)).await?;
                    let is_over = granted.is_some() || is_try || patience.is_over();
                    if is_over || polls() {
                        granted
                    } else {
                        Box::pin(on_connection::wait(&self.room, attempt, patience)).await?
                    }
                }
            };
            let left = || until.since(Moment::now());
            match granted {
                Some(granted) if Moment::now() < valid_until(granted.asked, granted.lasts) => {
                    return Ok(Some(granted));
                }
                // The answer came after the end of the lease. Another try gets the same grant again, or finds it gone.
                Some(_) if patience.is_over() => {
                    return Err(Error::TooLate { lock: attempt.name.to_string() });
                }
                Some(_) => sleep(RETRY.random_rest(tries).min(left())).await,
                None if is_try || patience.is_over() => return Ok(None),
                None if polls() => {
                    sleep(POLL.random_rest(tries).min(left())).await;
                    if patience.is_over() {
                        return Ok(None);
                    }
                }
                None => {}
            }
            tries = tries.saturating_add(1);
        }
    }

    fn may_take_tickets(&self) -> bool {
        locked(&self.no_tickets_until).is_none_or(|until| Moment::now() >= until)
    }

    pub(crate) fn close(&self) {
        self.places.close();
    }
}

async fn try_once(
    attempt: &mut Attempt,
    patience: Patience,
    tries: u32,
) -> Result<Option<Granted>, Error> {
    let Patience { until, each, unreachable_after } = patience;
    let limits = Limits { each, until: until.min(Moment::now().later(unreachable_after)) };
    let is_last = tries > 0 && until.since(Moment::now()) < each;
    let held_before = std::mem::replace(&mut attempt.may_hold, true);
    let question = Question::Try { ttl: attempt.wanted.ttl };
    match attempt.remote.ask(&attempt.claim, question, limits, &attempt.trail).await {
        Ok(Answer { number: Some(fence), asked, .. }) => {
            Ok(Some(Granted { fence, asked, lasts: attempt.wanted.ttl, is_unclaimed: false }))
        }
        Ok(Answer { number: None, repeated, .. }) => {
            attempt.may_hold = held_before || repeated;
            Ok(None)
        }
        // The last complete answer said that the lock was busy.
        Err(error) if is_last && is_silence(&error) => Ok(None),
        Err(error) => {
            attempt.may_hold = held_before || is_silence(&error);
            Err(error)
        }
    }
}
