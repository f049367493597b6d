//! Waiting in the server's queue, on connections of its own, without losing the place.
//!
//! ```text
//!   first connection    ACQUIRE … BLOCK ┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈ REPLACED: alive, and idle again
//!                                        │ a slice later
//!   second connection                    ACQUIRE … BLOCK ┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈ granted
//! ```
//!
//! A connection may die without a word. So each request is sent again after a slice, on another connection, by the same
//! owner: the server gives it the place of the former one, which is told so. If it says nothing, it was dead, and has
//! cost no more than a slice. A grant on either counts.

use crate::Error;
use crate::backoff::RETRY;
use crate::clock::Moment;
use crate::dialect::{Dialect, Question};
use crate::node::{Link, Node, Sent};
use crate::validity::later;
use crate::verdict::Verdict;
use crate::wire::Wire;
use futures_util::future::BoxFuture;
use redis::RedisError;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::sleep_until;

/// How long a former request has to say that it was replaced, and one whose patience has ended to say that.
const GRACE: Duration = Duration::from_secs(1);

/// The longest patience that a server is told: it must end some day if this client is gone.
const SLICES_OF_PATIENCE: u32 = 2;

pub(crate) struct Queue<'a> {
    pub(crate) wire: &'a Arc<Wire>,
    pub(crate) key: &'a str,
    pub(crate) owner: &'a str,
    pub(crate) ttl: Duration,
    pub(crate) slice: Duration,
    /// For connecting.
    pub(crate) each: Duration,
    /// The end of the caller's patience.
    pub(crate) until: Option<Instant>,
}

/// What waiting came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    Granted {
        fence: u64,
        asked: Moment,
    },
    /// Patience has ended, and the server has said so.
    Over,
    /// Patience has ended, and the server has not answered: it may have granted the lock.
    Unanswered,
    /// This server keeps no queue.
    NoQueue,
}

/// A request, and what it came to.
type Request = BoxFuture<'static, Told>;

struct Told {
    asked: Moment,
    verdict: Result<Option<u64>, (Verdict, RedisError)>,
}

impl Queue<'_> {
    pub(crate) async fn wait(&self) -> Result<Waited, Error> {
        let (mut current, mut former): (Option<Request>, Option<Request>) = (None, None);
        let (mut tries, mut redirected, mut last) = (0_u32, None, None);
        let mut ask_at = Instant::now();
        let mut former_until = ask_at;
        loop {
            let (told, is_current) = tokio::select! {
                biased;
                told = answer_of(&mut former) => (told, false),
                told = answer_of(&mut current) => (told, true),
                () = sleep_until(former_until.into()), if former.is_some() => {
                    former = None;
                    continue;
                }
                () = sleep_until(ask_at.into()) => {
                    let now = Instant::now();
                    let left = self.until.map(|until| until.saturating_duration_since(now));
                    if left.is_some_and(|left| left.is_zero()) {
                        return match (last, current.is_some()) {
                            (Some(error), false) => Err(error),
                            _ => Ok(Waited::Unanswered),
                        };
                    }
                    if current.is_some() && former.is_some() {
                        // The server has not come to read either: a third would be no better, and giving up the first may
                        // cost the place.
                        ask_at = former_until.max(later(now, Duration::from_millis(1)));
                        continue;
                    }
                    if current.is_some() {
                        former = current.take();
                        former_until = later(now, self.each.saturating_mul(2).saturating_add(GRACE));
                    }
                    let longest = self.slice.saturating_mul(SLICES_OF_PATIENCE);
                    let patience = left.unwrap_or(longest).min(longest);
                    // The last one is given the time to say that its patience has ended.
                    let rest = if patience <= self.slice {
                        patience.saturating_add(GRACE)
                    } else {
                        self.slice
                    };
                    ask_at = later(now, rest);
                    current = Some(self.request(patience, redirected.take()));
                    continue;
                }
            };
            if is_current {
                current = None;
            } else {
                former = None;
            }
            let now = Instant::now();
            match told.verdict {
                Ok(Some(fence)) => return Ok(Waited::Granted { fence, asked: told.asked }),
                Ok(None) | Err(_) if !is_current => {}
                Ok(None) => {
                    if self.until.is_some_and(|until| now >= until) {
                        return Ok(Waited::Over);
                    }
                    (tries, ask_at, last) = (0, now, None);
                }
                Err((Verdict::UnknownCommand, _)) => return Ok(Waited::NoQueue),
                // A server that hung has read its requests in another order than they were sent, and the former one
                // counts.
                Err((Verdict::Replaced, _)) if former.is_some() => current = former.take(),
                // That is one which this client has given up by now. Or else somebody else uses the same owner.
                Err((Verdict::Replaced, _)) if tries < 5 => {
                    tries = tries.saturating_add(1);
                    ask_at = later(now, RETRY.random_rest(tries));
                }
                Err((Verdict::Refused | Verdict::Replaced, error)) => {
                    return Err(Error::refused(&error));
                }
                Err((verdict, error)) => {
                    let mut rest = RETRY.random_rest(tries);
                    match verdict {
                        Verdict::Ask { to } if tries < 5 => {
                            redirected = Some(to);
                            rest = Duration::ZERO;
                        }
                        Verdict::Moved { .. } if tries < 5 => rest = Duration::ZERO,
                        _ => {}
                    }
                    last = Some(match error.code() {
                        Some("QUEUEFULL") => Error::refused(&error),
                        _ => Error::unreachable(&error),
                    });
                    tries = tries.saturating_add(1);
                    ask_at = later(now, rest);
                    ask_at = self.until.map_or(ask_at, |until| ask_at.min(until));
                }
            }
        }
    }

    fn request(&self, patience: Duration, redirected: Option<String>) -> Request {
        let (wire, each) = (Arc::clone(self.wire), self.each);
        let (key, owner, ttl) = (self.key.to_owned(), self.owner.to_owned(), self.ttl);
        Box::pin(async move {
            let sent = if redirected.is_some() { Sent::ByAnotherNode } else { Sent::ByItself };
            let mut redirected = redirected;
            let asked = Moment::now();
            let (node, link) = match wire.place(&key, each, &mut redirected).await {
                Ok(place) => place,
                Err(error) => return Told { asked, verdict: Err(error) },
            };
            let asked = Moment::now();
            if link.server.dialect() == Dialect::Plain {
                let error = RedisError::from((redis::ErrorKind::Client, "no queue"));
                return Told { asked, verdict: Err((Verdict::UnknownCommand, error)) };
            }
            let question = Question::Wait { owner: &owner, ttl, patience };
            let answer = link.ask(&key, question, sent).await;
            Told { asked, verdict: heard(&wire, &node, link, answer) }
        })
    }
}

/// Puts the connection back if it can be used again.
fn heard(
    wire: &Wire,
    node: &Node,
    link: Link,
    answer: Result<Option<u64>, RedisError>,
) -> Result<Option<u64>, (Verdict, RedisError)> {
    let error = match answer {
        Ok(number) => {
            node.give_back(link);
            return Ok(number);
        }
        Err(error) => error,
    };
    let verdict = wire.learn(&error, node, &link);
    if !matches!(verdict, Verdict::Broken | Verdict::Elsewhere) {
        node.give_back(link);
    }
    Err((verdict, error))
}

/// Never, if there is none.
async fn answer_of<F: Future + Unpin>(request: &mut Option<F>) -> F::Output {
    match request {
        Some(request) => request.await,
        None => pending().await,
    }
}
