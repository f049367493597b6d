//! A question, asked until it is answered or there is no more time.
//!
//! Every question may be asked twice: the same owner gets the same grant, and whoever is not the holder changes
//! nothing.

use crate::backoff::RETRY;
use crate::clock::Moment;
use crate::dialect::{Dialect, Question};
use crate::node::{Link, Node, Sent, within};
use crate::routes::Routes;
use crate::validity::later;
use crate::verdict::{Verdict, verdict};
use crate::{Error, Settings, Target};
use redis::RedisError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::time::sleep;

pub(crate) struct Wire {
    pub(crate) routes: Routes,
    response: Duration,
    native: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// Nil is none.
    pub(crate) number: Option<u64>,
    /// When the question was asked that was answered.
    pub(crate) asked: Moment,
    /// An earlier try may have been heard too.
    pub(crate) repeated: bool,
    /// In which dialect.
    pub(crate) dialect: Dialect,
    /// How many replicas have heard of the grant, if that was asked for.
    pub(crate) heard: u64,
}

/// How long a question may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// For each try.
    pub(crate) each: Duration,
    /// For all of them; none is without limit.
    pub(crate) until: Option<Instant>,
}

/// How many replicas must hear of a grant within how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replicas {
    pub(crate) count: u64,
    pub(crate) within: Duration,
}

/// One try that failed.
pub(crate) struct Failure {
    pub(crate) verdict: Verdict,
    pub(crate) error: RedisError,
}

impl Wire {
    pub(crate) fn unasked(target: &Target, settings: &Settings) -> Result<Self, Error> {
        let (routes, response) = (Routes::new(target, settings)?, settings.response);
        Ok(Self { routes, response, native: AtomicBool::new(false) })
    }

    /// Which dialect is spoken there. Any key will do.
    pub(crate) async fn find_out(&self, each: Duration, until: Instant) -> Result<(), Error> {
        let mut tries = 0_u32;
        loop {
            let Err(failure) = self.look(each).await else { return Ok(()) };
            let rest = RETRY.random_rest(tries);
            if failure.verdict == Verdict::Refused {
                return Err(Error::refused(&failure.error));
            }
            if later(Instant::now(), rest) >= until {
                return Err(Error::unreachable(&failure.error));
            }
            sleep(rest).await;
            tries = tries.saturating_add(1);
        }
    }

    async fn look(&self, each: Duration) -> Result<(), Failure> {
        let node = self.node("leasehold", each, None).await?;
        let link = node.shared(each).await;
        let link = link.map_err(|error| self.failed(error, Some((&node, None))))?;
        self.native.store(link.server.dialect() == Dialect::Native, Relaxed);
        Ok(())
    }

    pub(crate) fn dialect(&self) -> Dialect {
        if self.native.load(Relaxed) { Dialect::Native } else { Dialect::Plain }
    }

    /// Answers are waited for less long where the lease is short.
    pub(crate) fn limits(&self, ttl: Duration, until: Option<Instant>) -> Limits {
        let part = |parts| ttl.checked_div(parts).unwrap_or_default();
        let part = part(5).max(part(2).min(Duration::from_millis(100)));
        Limits { each: self.response.min(part), until }
    }

    pub(crate) async fn ask(
        &self,
        key: &str,
        question: Question<'_>,
        limits: Limits,
    ) -> Result<Answer, Error> {
        self.ask_heard(key, question, None, limits).await
    }

    /// The same; with replicas that are to hear of it, on a connection of its own, because that may take a while.
    pub(crate) async fn ask_heard(
        &self,
        key: &str,
        question: Question<'_>,
        replicas: Option<Replicas>,
        limits: Limits,
    ) -> Result<Answer, Error> {
        let (mut tries, mut repeated, mut redirected) = (0_u32, false, None);
        loop {
            let tried = self.try_once(key, question, replicas, limits.each, redirected.take());
            let failure = match tried.await {
                Ok(answer) => return Ok(Answer { repeated, ..answer }),
                Err(failure) => failure,
            };
            repeated |= failure.verdict == Verdict::Broken;
            match failure.verdict {
                Verdict::Refused | Verdict::Replaced | Verdict::UnknownScript => {
                    return Err(Error::refused(&failure.error));
                }
                Verdict::Ask { to } if tries < 5 => redirected = Some(to),
                // It has been learned where it is now.
                Verdict::Moved { .. } if tries < 5 => {}
                _ => {
                    let rest = RETRY.random_rest(tries);
                    if limits.until.is_some_and(|until| later(Instant::now(), rest) >= until) {
                        return Err(Error::unreachable(&failure.error));
                    }
                    sleep(rest).await;
                }
            }
            tries = tries.saturating_add(1);
        }
    }

    async fn try_once(
        &self,
        key: &str,
        question: Question<'_>,
        replicas: Option<Replicas>,
        each: Duration,
        redirected: Option<String>,
    ) -> Result<Answer, Failure> {
        let sent = if redirected.is_some() { Sent::ByAnotherNode } else { Sent::ByItself };
        let node = self.node(key, each, redirected).await?;
        let link = match replicas {
            None => node.shared(each).await,
            Some(_) => node.own(each).await,
        };
        let link = link.map_err(|error| self.failed(error, Some((&node, None))))?;
        self.native.store(link.server.dialect() == Dialect::Native, Relaxed);
        let asked = Moment::now();
        let answered = match replicas {
            None => within(each, link.ask(key, question, sent)).await.map(|number| (number, 0)),
            Some(Replicas { count, within: patience }) => {
                let asked = link.acquire_heard(key, question, sent, count, patience);
                within(each.saturating_add(patience), asked).await
            }
        };
        let (number, heard) =
            answered.map_err(|error| self.failed(error, Some((&node, Some(&link)))))?;
        let dialect = link.server.dialect();
        if replicas.is_some() {
            node.give_back(link);
        }
        Ok(Answer { number, asked, repeated: false, dialect, heard })
    }

    pub(crate) async fn node(
        &self,
        key: &str,
        each: Duration,
        redirected: Option<String>,
    ) -> Result<Arc<Node>, Failure> {
        let node = match redirected {
            Some(address) => self.routes.node_at(&address),
            None => within(each.saturating_mul(4), self.routes.node(key, each)).await,
        };
        node.map_err(|error| self.failed(error, None))
    }

    pub(crate) fn failed(
        &self,
        error: RedisError,
        asked: Option<(&Node, Option<&Link>)>,
    ) -> Failure {
        let verdict = verdict(&error);
        self.routes.learn(&verdict, asked);
        Failure { verdict, error }
    }

    /// A node and a connection of one's own, to wait on.
    pub(crate) async fn place(
        &self,
        key: &str,
        each: Duration,
        redirected: &mut Option<String>,
    ) -> Result<(Arc<Node>, Link), (Verdict, RedisError)> {
        let plain = |failure: Failure| (failure.verdict, failure.error);
        let node = self.node(key, each, redirected.take()).await.map_err(plain)?;
        let link = node.own(each).await;
        let link = link.map_err(|error| plain(self.failed(error, Some((&node, None)))))?;
        self.native.store(link.server.dialect() == Dialect::Native, Relaxed);
        Ok((node, link))
    }

    /// What a request came to that was sent on such a connection.
    pub(crate) fn learn(&self, error: &RedisError, node: &Node, link: &Link) -> Verdict {
        let verdict = verdict(error);
        self.routes.learn(&verdict, Some((node, Some(link))));
        verdict
    }
}
