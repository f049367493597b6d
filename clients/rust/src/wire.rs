//! A question, asked until it is answered or there is no more time.
//!
//! Every question may be asked twice: the same owner gets the same grant, and whoever is not the holder changes
//! nothing.

use crate::backoff::RETRY;
use crate::clock::Moment;
use crate::dialect::native::{self, Place};
use crate::dialect::{Dialect, Question, Server};
use crate::link::{Link, Sent};
use crate::node::{Node, within};
use crate::routes::Routes;
use crate::stray::Stray;
use crate::trouble::Trouble;
use crate::validity::later;
use crate::verdict::{Verdict, verdict};
use crate::{Error, Settings, Target};
use redis::{ErrorKind, RedisError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

pub(crate) struct Wire {
    pub(crate) routes: Routes,
    response: Duration,
    native: AtomicBool,
    /// This user may not see who waits.
    may_not_look: AtomicBool,
    /// Nor who holds.
    may_not_check: AtomicBool,
    trouble: Trouble,
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

/// One try of a question.
#[derive(Debug)]
pub(crate) struct Try {
    /// Where another node has sent it, for this once.
    pub(crate) redirected: Option<String>,
    /// An earlier one may have been heard too.
    repeated: bool,
}

impl Try {
    pub(crate) fn sent(&self) -> Sent {
        if self.redirected.is_some() { Sent::ByAnotherNode } else { Sent::ByItself }
    }
}

/// One try that failed.
pub(crate) struct Failure {
    pub(crate) verdict: Verdict,
    pub(crate) error: RedisError,
}

impl Wire {
    pub(crate) fn unasked(target: &Target, settings: &Settings) -> Result<Self, Error> {
        let (routes, response) = (Routes::new(target, settings)?, settings.response);
        Ok(Self {
            routes,
            response,
            native: AtomicBool::new(false),
            may_not_look: AtomicBool::new(false),
            may_not_check: AtomicBool::new(false),
            trouble: Trouble::default(),
        })
    }

    /// Which dialect is spoken there. Any key will do.
    pub(crate) async fn find_out(&self, each: Duration, until: Instant) -> Result<(), Error> {
        self.try_on(Limits { each, until: Some(until) }, |_| self.look(each)).await
    }

    /// Tries until it is answered or there is no more time, and goes where servers send it.
    pub(crate) async fn try_on<T, F>(
        &self,
        limits: Limits,
        once: impl Fn(Try) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let (mut tries, mut repeated, mut redirected) = (0_u32, false, None);
        loop {
            let Failure { verdict, error } =
                match once(Try { redirected: redirected.take(), repeated }).await {
                    Ok(came) => return Ok(came),
                    Err(failure) => failure,
                };
            repeated |= verdict == Verdict::Broken;
            let is_sent_on = match verdict {
                Verdict::Refused | Verdict::Replaced | Verdict::UnknownScript => {
                    return Err(Error::refused(&error));
                }
                Verdict::Ask { to } => {
                    redirected = Some(to);
                    true
                }
                // It has been learned where it is now, or that the server has other words for it.
                Verdict::Moved { .. } | Verdict::HasModule => true,
                _ => false,
            };
            // Servers may send it to and fro.
            if !is_sent_on || tries >= 5 {
                let rest = RETRY.random_rest(tries);
                if limits.until.is_some_and(|until| later(Instant::now(), rest) >= until) {
                    return Err(Error::unreachable(&error));
                }
                sleep(rest).await;
            }
            tries = tries.saturating_add(1);
        }
    }

    async fn look(&self, each: Duration) -> Result<(), Failure> {
        let node = self.node("leasehold", each, None).await?;
        self.shared(&node, each).await.map(drop)
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
        self.ask_anew(key, |_| question, limits).await
    }

    /// Asks for a hold that ends with its connection, and says which one that is: this fires when it has ended.
    pub(crate) async fn bind(
        &self,
        key: &str,
        question: Question<'_>,
        limits: Limits,
        stray: Option<&Stray>,
    ) -> Result<(Answer, CancellationToken), Error> {
        let each = limits.each;
        self.try_on(limits, |this| self.bind_once(key, question, each, stray, this)).await
    }

    async fn bind_once(
        &self,
        key: &str,
        question: Question<'_>,
        each: Duration,
        stray: Option<&Stray>,
        this: Try,
    ) -> Result<(Answer, CancellationToken), Failure> {
        let (sent, repeated) = (this.sent(), this.repeated);
        let node = self.node(key, each, this.redirected).await?;
        let link = self.shared(&node, each).await?;
        let asked = Moment::now();
        stray.inspect(|stray| stray.sending());
        let number = within(each, link.ask(key, question, sent)).await;
        let number = number.map_err(|error| {
            self.failed(lacks_option(question, error), Some((&node, Some(&link))))
        })?;
        self.answered(&node);
        let dialect = link.server.dialect();
        Ok((Answer { number, asked, repeated, dialect, heard: 0 }, link.ended()))
    }

    /// The same where the question depends on the moment of each try.
    pub(crate) async fn ask_anew<'q>(
        &self,
        key: &str,
        question: impl Fn(Moment) -> Question<'q>,
        limits: Limits,
    ) -> Result<Answer, Error> {
        let once = |this| self.ask_once(key, &question, None, limits.each, None, this);
        self.try_on(limits, once).await
    }

    /// The same as `ask`; with replicas that are to hear of it, on a connection of its own, because that may take a while.
    pub(crate) async fn ask_heard(
        &self,
        key: &str,
        question: Question<'_>,
        replicas: Option<Replicas>,
        limits: Limits,
    ) -> Result<Answer, Error> {
        let once = |this| self.ask_once(key, |_| question, replicas, limits.each, None, this);
        self.try_on(limits, once).await
    }

    /// The same, and the connections are noted on which it was not answered.
    pub(crate) async fn ask_noting(
        &self,
        key: &str,
        question: Question<'_>,
        replicas: Option<Replicas>,
        limits: Limits,
        stray: &Stray,
    ) -> Result<Answer, Error> {
        let (each, stray) = (limits.each, Some(stray));
        let once = |this| self.ask_once(key, |_| question, replicas, each, stray, this);
        self.try_on(limits, once).await
    }

    async fn ask_once<'q>(
        &self,
        key: &str,
        question: impl Fn(Moment) -> Question<'q>,
        replicas: Option<Replicas>,
        each: Duration,
        stray: Option<&Stray>,
        this: Try,
    ) -> Result<Answer, Failure> {
        let (sent, repeated) = (this.sent(), this.repeated);
        let node = self.node(key, each, this.redirected).await?;
        let link = match replicas {
            None => self.shared(&node, each).await?,
            Some(_) => self.own(&node, each).await?,
        };
        let asked = Moment::now();
        let question = question(asked);
        stray.inspect(|stray| stray.sending());
        let answered = match replicas {
            None => within(each, link.ask(key, question, sent)).await.map(|number| (number, 0)),
            Some(Replicas { count, within: patience }) => {
                let asked = link.acquire_heard(key, question, sent, count, patience);
                within(each.saturating_add(patience), asked).await
            }
        };
        let (number, heard) = answered.map_err(|error| {
            let failure = self.failed(error, Some((&node, Some(&link))));
            if let (Verdict::Broken, Some(stray)) = (&failure.verdict, stray) {
                stray.note(&link);
            }
            failure
        })?;
        self.answered(&node);
        let dialect = link.server.dialect();
        if replicas.is_some() {
            node.give_back(link);
        }
        Ok(Answer { number, asked, repeated, dialect, heard })
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

    pub(crate) async fn shared(&self, node: &Arc<Node>, each: Duration) -> Result<Link, Failure> {
        let link = node.shared(each).await;
        self.opened(node, link)
    }

    async fn own(&self, node: &Arc<Node>, each: Duration) -> Result<Link, Failure> {
        let link = node.own(each).await;
        if link.is_ok() && self.trouble.is_any() {
            self.trouble.answered(&to_wait_on(&node.address));
        }
        self.opened(node, link)
    }

    fn opened(&self, node: &Node, link: Result<Link, RedisError>) -> Result<Link, Failure> {
        let link = link.map_err(|error| self.failed(error, Some((node, None))))?;
        self.native.store(link.server.dialect() == Dialect::Native, Relaxed);
        Ok(link)
    }

    pub(crate) fn failed(
        &self,
        error: RedisError,
        asked: Option<(&Node, Option<&Link>)>,
    ) -> Failure {
        let verdict = verdict(&error);
        self.routes.learn(&verdict, asked);
        if let Some((node, Some(link))) = asked
            && error.kind() == ErrorKind::InvalidClientConfig
            && link.server.dialect() == Dialect::Plain
        {
            // It was refused here, for want of the module. The next connection finds out whether that has been loaded.
            node.forget(link);
        }
        self.tell_of(&verdict, &error, asked);
        Failure { verdict, error }
    }

    pub(crate) fn answered(&self, node: &Node) {
        self.trouble.answered(&node.address);
    }

    /// For how long the server of this lock has been failing.
    pub(crate) fn failing_for(&self, key: &str) -> Option<Duration> {
        let node = self.routes.known(key).ok().flatten();
        let of_node = node.and_then(|node| self.trouble.lasting(&node.address));
        of_node.or_else(|| self.trouble.lasting(self.routes.name()))
    }

    /// A connection that was closed is no trouble yet: the next try opens another.
    fn tell_of(
        &self,
        verdict: &Verdict,
        error: &RedisError,
        asked: Option<(&Node, Option<&Link>)>,
    ) {
        let is_closed = matches!(asked, Some((_, Some(_)))) && error.is_connection_dropped();
        let is_trouble = match verdict {
            Verdict::Broken => !is_closed,
            Verdict::Elsewhere | Verdict::Again => error.code() != Some("QUEUEFULL"),
            Verdict::Crowded => true,
            _ => false,
        };
        if is_trouble {
            let server = asked.map_or(self.routes.name(), |(node, _)| node.address.as_str());
            match verdict {
                Verdict::Crowded => self.trouble.failed(&to_wait_on(server), error),
                _ => self.trouble.failed(server, error),
            }
        }
    }

    /// A node and a connection of one's own, to wait on.
    pub(crate) async fn place(
        &self,
        key: &str,
        each: Duration,
        redirected: Option<String>,
    ) -> Result<(Arc<Node>, Link), (Verdict, RedisError)> {
        let plain = |failure: Failure| (failure.verdict, failure.error);
        let node = self.node(key, each, redirected).await.map_err(plain)?;
        let link = self.own(&node, each).await.map_err(plain)?;
        Ok((node, link))
    }

    /// What a request came to that was sent on such a connection.
    pub(crate) fn learn(&self, error: &RedisError, node: &Node, link: &Link) -> Verdict {
        let verdict = verdict(error);
        let asked = Some((node, Some(link)));
        self.routes.learn(&verdict, asked);
        self.tell_of(&verdict, error, asked);
        verdict
    }

    /// Where this owner stands in the queue of the lock; none if that cannot be seen.
    pub(crate) async fn look_at_queue(
        &self,
        key: &str,
        owner: &str,
        each: Duration,
    ) -> Result<Option<Place>, Error> {
        if self.may_not_look.load(Relaxed) {
            return Ok(None);
        }
        let asked = |server: Server| match server.dialect() {
            Dialect::Native => vec![native::waiters(key)],
            Dialect::Plain => Vec::new(),
        };
        let once = Limits { each, until: Some(Instant::now()) };
        match self.read(key, asked, once).await {
            Ok((_, replies)) => {
                let place = replies.first().map(|reply| native::place(reply, owner));
                Ok(Some(place.unwrap_or(Place::NotQueued)))
            }
            Err(Error::Refused { .. }) => {
                self.may_not_look.store(true, Relaxed);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The run id of the server that has this key; none if it does not tell this user.
    pub(crate) async fn run_id(&self, key: &str, limits: Limits) -> Result<Option<String>, Error> {
        let each = limits.each;
        let once = |this: Try| async move {
            let node = self.node(key, each, this.redirected).await?;
            Ok(self.shared(&node, each).await?.run_id().map(str::to_owned))
        };
        self.try_on(limits, once).await
    }

    /// Whether this owner has the lock; none if that cannot be seen.
    pub(crate) async fn is_held(
        &self,
        key: &str,
        owner: &str,
        each: Duration,
    ) -> Result<Option<bool>, Error> {
        let once = Limits { each, until: Some(Instant::now()) };
        let seen = self.fence_of(key, owner, once).await?;
        Ok(seen.map(|fence| fence.is_some()))
    }

    /// The fence with which this owner has the lock, if it has it. None if that cannot be seen.
    pub(crate) async fn fence_of(
        &self,
        key: &str,
        owner: &str,
        limits: Limits,
    ) -> Result<Option<Option<u64>>, Error> {
        if self.may_not_check.load(Relaxed) {
            return Ok(None);
        }
        let asked = |server: Server| vec![server.ask_holder(key, owner)];
        match self.read(key, asked, limits).await {
            Ok((server, replies)) => {
                Ok(Some(replies.first().and_then(|reply| server.fence_in(reply, owner))))
            }
            Err(Error::Refused { .. }) => {
                self.may_not_check.store(true, Relaxed);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// A server that takes no more connections to wait on answers others all the same: that is told apart.
fn to_wait_on(server: &str) -> String {
    format!("{server}, to wait on")
}

/// An older module does not know the option, and names those that it knows.
fn lacks_option(question: Question<'_>, error: RedisError) -> RedisError {
    let is_one = matches!(question, Question::Acquire { also: [], .. });
    if !is_one || error.detail().is_none_or(|detail| !detail.starts_with("unknown option")) {
        return error;
    }
    let reason = "an ephemeral hold needs a newer module than this server has";
    RedisError::from((ErrorKind::InvalidClientConfig, "EPHEMERAL", reason.to_owned()))
}
