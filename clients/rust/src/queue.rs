//! Waiting in the server's queue, on a connection that does nothing else meanwhile.
//!
//! ```text
//!   connection to wait on   ACQUIRE … BLOCK ┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈ granted
//!   shared connection                       │ a slice later   │ a slice later
//!                                           WAITERS: queued   WAITERS: queued
//! ```
//!
//! A connection may die without a word, on either side. So every slice the server is asked, over the connection that
//! all share, whether the request still stands in the queue. If it does not, the server says whether it has granted the
//! lock meanwhile; if not, the request is made again. A dead connection has cost no more than a slice then.
//!
//! Whoever drops this half-way leaves the connection in `parked`, with the request under way on it.

use crate::Error;
use crate::backoff::RETRY;
use crate::clock::Moment;
use crate::dialect::native::Place;
use crate::dialect::{Dialect, Question};
use crate::link::{Link, Sent};
use crate::measure;
use crate::node::Node;
use crate::room::Room;
use crate::share::Share;
use crate::validity::later;
use crate::verdict::Verdict;
use crate::wire::{Limits, Wire};
use futures_util::future::BoxFuture;
use redis::RedisError;
use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// How long a server has to say that patience has ended.
const GRACE: Duration = Duration::from_secs(1);

pub(crate) struct Queue<'a> {
    pub(crate) wire: &'a Arc<Wire>,
    pub(crate) room: &'a Room,
    pub(crate) key: &'a str,
    /// The keys of other locks that are to be had with it.
    pub(crate) also: &'a [String],
    pub(crate) owner: &'a str,
    pub(crate) share: Share,
    pub(crate) ttl: Duration,
    pub(crate) slice: Duration,
    /// For connecting, and for each look.
    pub(crate) each: Duration,
    /// The end of the caller's patience.
    pub(crate) until: Option<Instant>,
    /// For how long the server may be silent.
    pub(crate) unreachable_after: Duration,
}

/// A connection on which a request waits.
pub(crate) struct Parked {
    pub(crate) node: Arc<Node>,
    pub(crate) link: Link,
}

/// What waiting came to.
#[derive(Clone, Debug)]
pub(crate) enum Waited {
    Granted {
        fence: u64,
        asked: Moment,
        /// Fires when the connection ends on which a ticket was granted.
        ended: Option<CancellationToken>,
    },
    /// Patience has ended, and no request is under way.
    Over,
    /// Patience has ended, and the server has not answered: it may have granted the lock.
    Unanswered,
    /// This server keeps no queue.
    NoQueue,
    /// It keeps one, and gives no tickets.
    NoTickets,
    /// The server does not know of the request, which is parked still.
    Gone,
    /// This server takes no more clients.
    Crowded,
}

/// What became of one request.
enum Told {
    Answer {
        fence: Option<u64>,
        asked: Moment,
    },
    /// The server says that it is not in the queue.
    Gone,
    /// This server keeps no queue.
    NoQueue,
    /// Patience has ended.
    Unanswered,
    /// The server has been silent for too long.
    Silent(Error),
    /// The connection was lost while the request waited.
    Cut(RedisError),
    Failed(Verdict, RedisError),
}

/// What a look at the queue came to.
enum Seen {
    Queued,
    Held { fence: u64, asked: Moment },
    Gone,
}

impl Queue<'_> {
    pub(crate) async fn wait(&self, parked: &mut Option<Parked>) -> Result<Waited, Error> {
        let (mut tries, mut redirected, mut last, mut was_cut) = (0_u32, None, None, false);
        let mut silent_since = None;
        loop {
            let now = Instant::now();
            let left = self.until.map(|until| until.saturating_duration_since(now));
            if left.is_some_and(|left| left.is_zero()) {
                return last.map_or(Ok(Waited::Over), Err);
            }
            let asked = self.ask(left, redirected.take(), parked, &mut silent_since, &mut was_cut);
            let told = asked.await;
            let (rest, error) = match told {
                Told::Answer { fence: Some(fence), asked } => {
                    return Ok(Waited::Granted { fence, asked, ended: None });
                }
                // Its patience has ended, or somebody has ended it.
                Told::Answer { fence: None, .. } => (RETRY.random_rest(tries), None),
                Told::Gone => return Ok(Waited::Gone),
                Told::Unanswered => return Ok(Waited::Unanswered),
                Told::Silent(error) => return Err(error),
                Told::NoQueue | Told::Failed(Verdict::UnknownCommand, _) => {
                    return Ok(Waited::NoQueue);
                }
                Told::Failed(Verdict::Crowded, _) => return Ok(Waited::Crowded),
                // That is one which this client has given up by now. Or else somebody else uses the same owner.
                Told::Failed(Verdict::Replaced, _) if tries < 5 => (RETRY.random_rest(tries), None),
                Told::Failed(Verdict::Refused | Verdict::Replaced, error) => {
                    return Err(Error::refused(&error));
                }
                Told::Failed(Verdict::Ask { to }, error) if tries < 5 => {
                    redirected = Some(to);
                    (Duration::ZERO, Some(error))
                }
                Told::Failed(Verdict::Moved { .. }, error) if tries < 5 => {
                    (Duration::ZERO, Some(error))
                }
                Told::Cut(error) => {
                    was_cut = true;
                    (self.room.rest(fastrand::f64()), Some(error))
                }
                Told::Failed(_, error) => (RETRY.random_rest(tries), Some(error)),
            };
            tries = tries.saturating_add(1);
            let is_answer = error.as_ref().is_none_or(says_something);
            if is_answer {
                silent_since = None;
            }
            last = error.map(|error| match error.code() {
                Some("QUEUEFULL") => Error::refused(&error),
                _ => Error::unreachable(&error),
            });
            if !is_answer && self.is_silent(&mut silent_since) {
                return last.map_or(Ok(Waited::Unanswered), Err);
            }
            let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
            sleep(left.map_or(rest, |left| rest.min(left))).await;
        }
    }

    /// Makes the request, and looks after it.
    async fn ask(
        &self,
        patience: Option<Duration>,
        redirected: Option<String>,
        parked: &mut Option<Parked>,
        silent_since: &mut Option<Instant>,
        was_cut: &mut bool,
    ) -> Told {
        let sent = if redirected.is_some() { Sent::ByAnotherNode } else { Sent::ByItself };
        let (node, link) = match self.wire.place(self.key, self.each, redirected).await {
            Ok(place) => place,
            Err((verdict, error)) => return Told::Failed(verdict, error),
        };
        if std::mem::take(was_cut) {
            measure::reconnected();
        }
        if link.server.dialect() == Dialect::Plain {
            node.give_back(link);
            return Told::NoQueue;
        }
        let asked = Moment::now();
        *parked = Some(Parked { node: Arc::clone(&node), link: link.clone() });
        let Self { owner, also, share, ttl, .. } = *self;
        let question = Question::Wait { owner, share, ttl, patience, also };
        let mut answer = pin!(link.ask(self.key, question, sent));
        let mut look_at = later(Instant::now(), self.slice);
        let mut look: Option<BoxFuture<'_, Result<Seen, Error>>> = None;
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => {
                    drop(look);
                    let Some(Parked { node, link }) = parked.take() else { return Told::Gone };
                    return match answer {
                        Ok(fence) => {
                            node.give_back(link);
                            Told::Answer { fence, asked }
                        }
                        Err(error) => self.failed(error, &node, link),
                    };
                }
                () = moment(self.until.map(|until| later(until, GRACE))) => {
                    return Told::Unanswered;
                }
                seen = outcome(&mut look) => {
                    (look, look_at) = (None, later(Instant::now(), self.slice));
                    match seen {
                        Ok(Seen::Queued) => *silent_since = None,
                        // The request was heard, and what was said of it is lost.
                        Ok(Seen::Held { fence, asked }) => {
                            *parked = None;
                            return Told::Answer { fence: Some(fence), asked };
                        }
                        Ok(Seen::Gone) => return Told::Gone,
                        Err(error) if self.is_silent(silent_since) => {
                            return Told::Silent(error);
                        }
                        Err(_) => {}
                    }
                }
                () = sleep_until(look_at.into()), if look.is_none() => {
                    look = Some(Box::pin(self.look()));
                }
            }
        }
    }

    /// Puts the connection back if it can be used again.
    fn failed(&self, error: RedisError, node: &Arc<Node>, link: Link) -> Told {
        let verdict = self.wire.learn(&error, node, &link);
        match verdict {
            Verdict::Broken => Told::Cut(error),
            Verdict::Elsewhere => Told::Failed(verdict, error),
            _ => {
                node.give_back(link);
                Told::Failed(verdict, error)
            }
        }
    }

    /// Whether no server has answered for too long, now that one has not answered again.
    fn is_silent(&self, since: &mut Option<Instant>) -> bool {
        since.get_or_insert_with(Instant::now).elapsed() >= self.unreachable_after
    }

    /// Whether the request still stands in the queue.
    async fn look(&self) -> Result<Seen, Error> {
        let (wire, key, owner) = (self.wire, self.key, self.owner);
        let place = wire.look_at_queue(key, owner, self.each).await?;
        if matches!(place, Some(Place::Queued | Place::TooFarBack)) {
            return Ok(Seen::Queued);
        }
        // Asking for the lock would not tell whether the request has been heard: it might be granted
        // for this.
        let is_held = wire.is_held(key, owner, self.each).await?;
        if is_held != Some(true) {
            // Whoever may see nothing of it has to trust the connection.
            let is_blind = place.is_none() || is_held.is_none();
            return Ok(if is_blind { Seen::Queued } else { Seen::Gone });
        }
        let limits = Limits { each: self.each, until: Some(later(Instant::now(), self.each)) };
        let (also, share, ttl, grace) = (self.also, self.share, self.ttl, None);
        let question = Question::Acquire { owner, share, ttl, grace, also };
        let answer = wire.ask(key, question, limits).await?;
        Ok(match answer.number {
            Some(fence) => Seen::Held { fence, asked: answer.asked },
            None => Seen::Gone,
        })
    }
}

/// Errors with which a server says that it serves others, and this request later or elsewhere.
fn says_something(error: &RedisError) -> bool {
    matches!(error.code(), Some("QUEUEFULL" | "TRYAGAIN" | "ASK" | "MOVED" | "BUSY"))
}

/// Never, if there is none.
async fn moment(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at.into()).await,
        None => pending().await,
    }
}

/// Never, if there is none.
async fn outcome<F: Future + Unpin>(request: &mut Option<F>) -> F::Output {
    match request {
        Some(request) => request.await,
        None => pending().await,
    }
}
