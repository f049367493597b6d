//! Asks one server a question until it answers or the time is over.
//!
//! Repetition is safe: the same owner gets the same grant, and requests of others than the holder change nothing.
//!
//! An unanswered request may still arrive, from a connection that a proxy or a frozen server has not read yet. It must not
//! get the lock after its caller has gone. So the client remembers connections with such requests as *strays* and sends the
//! release on them too. The release then arrives after the request, however late that is.

use crate::backoff::RETRY;
use crate::bare;
use crate::clock::{Moment, within};
use crate::error::Error;
use crate::error::unanswered;
use crate::home::Home;
use crate::ledger::Entry;
use crate::limits::Limits;
use crate::link::{Bound, Line, Link, Node};
use crate::locked::locked;
use crate::plain::{Call, Known};
use crate::question::{Claim, Question};
use crate::server::Place;
use crate::settings::Settings;
use crate::trouble::Trouble;
use crate::verdict::{Verdict, number, told, verdict};
use futures_util::FutureExt;
use redis::{Cmd, ErrorKind, RedisError, Value};
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::sleep;
use tracing::warn;

/// How long a server without the module counts as one. Another server may replace it.
const PLAIN_FOR: Duration = Duration::from_secs(10);

const MOST_STRAYS: usize = 16;

/// A shorter wait says nothing about the line, which may only be slow: it must not cost others the line.
const SLOW: Duration = Duration::from_millis(100);

/// How long an unanswered request may still arrive.
const STRAYS_FOR: Duration = Duration::from_secs(60);

/// How late a server may notice that a waiting connection was closed.
const CUT_IS_READ_WITHIN: Duration = Duration::from_millis(250);

pub(crate) struct Remote {
    pub(crate) link: Link,
    plain_until: Mutex<Option<Moment>>,
    scripts: Known,
    /// This user may not run scripts.
    is_bare: AtomicBool,
    trouble: Trouble,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) number: Option<u64>,
    /// When the answered try was sent.
    pub(crate) asked: Moment,
    /// An earlier try may have reached the server too.
    pub(crate) repeated: bool,
}

#[derive(Default)]
pub(crate) struct Trail {
    strays: Mutex<Vec<Line>>,
    /// The connection of the last answer, for a hold that is bound to it.
    bond: Mutex<Option<Arc<Node>>>,
    /// Nobody wants a grant for this owner any more.
    is_over: AtomicBool,
    /// How many releases were sent, or are about to be.
    releases: AtomicUsize,
}

/// A request under way. If it is dropped without an answer, its connection becomes a stray.
struct UnderWay<'t> {
    trail: &'t Trail,
    line: Option<Line>,
}

impl Remote {
    pub(crate) fn of(place: &Place, settings: &Settings) -> Self {
        let link = Link::to(place, settings);
        Self {
            link,
            plain_until: Mutex::default(),
            scripts: Known::default(),
            is_bare: AtomicBool::new(false),
            trouble: Trouble::default(),
        }
    }

    /// Whether the server lacks the module, as far as known.
    pub(crate) fn is_plain(&self) -> bool {
        self.plain().is_some_and(|until| Moment::now() < until)
    }

    pub(crate) async fn ask(
        &self,
        claim: &Claim,
        question: Question<'_>,
        limits: Limits,
        trail: &Trail,
    ) -> Result<Answer, Error> {
        let (mut tries, mut repeated, mut earlier) = (0_u32, false, None);
        loop {
            let asked = Moment::now();
            let error = match self.ask_once(claim, question, limits, trail).await {
                Ok(number) => return Ok(Answer { number, asked, repeated }),
                Err(error) => error,
            };
            match verdict(&error) {
                Verdict::Broken => repeated = true,
                Verdict::Elsewhere | Verdict::Again | Verdict::HasModule => {}
                _ => return Err(told(error)),
            }
            let error = telling(earlier, error, asked, limits);
            let rest = RETRY.random_rest(tries);
            if Moment::now().later(rest) >= limits.until {
                return Err(told(error));
            }
            earlier = Some(error);
            sleep(rest).await;
            tries = tries.saturating_add(1);
        }
    }

    pub(crate) async fn ask_once(
        &self,
        claim: &Claim,
        question: Question<'_>,
        Limits { each, until }: Limits,
        trail: &Trail,
    ) -> Result<Option<u64>, RedisError> {
        let bound = match question {
            Question::Try { .. } | Question::Ticket { .. } if claim.grace.is_some() => Bound::Yes,
            _ => Bound::No,
        };
        let limit = each.min(until.since(Moment::now()));
        let mut under_way = UnderWay { trail, line: None };
        let asking = async {
            let line = self.link.line(claim.key(), bound).await?;
            let line = under_way.line.insert(line);
            self.say(&mut line.clone(), claim, question).await
        };
        let came = within(limit, asking).await;
        let (mut error, is_silent) = match came {
            Some(Ok(number)) => {
                let line = under_way.line.take();
                if bound == Bound::Yes {
                    trail.bind(line.as_ref().and_then(Line::node).cloned());
                }
                self.trouble.answered();
                return Ok(number);
            }
            Some(Err(error)) => (error, true),
            // A shorter limit says nothing about the line.
            None => (unanswered(), limit >= each && limit >= SLOW),
        };
        let has_moved = error.code() == Some("MOVED");
        if has_moved && !self.link.is_cluster() {
            // The single connection cannot follow the redirection.
            let why = "the server is a node of a cluster: give a ClusterClient";
            error = (ErrorKind::InvalidClientConfig, why).into();
        } else if has_moved && bound == Bound::Yes {
            // The redis crate learns about the move only from its own requests.
            self.link.doubt(claim.key()).await;
        }
        let verdict = verdict(&error);
        let is_of_no_use =
            (verdict == Verdict::Broken && is_silent) || verdict == Verdict::Elsewhere;
        if let (Some(line), true) = (&under_way.line, is_of_no_use) {
            self.link.give_up(line);
            if bound == Bound::Yes {
                self.link.doubt(claim.key()).await;
            }
        }
        match verdict {
            Verdict::Broken => self.trouble.failed(&error),
            _ => under_way.line = None,
        }
        Err(error)
    }

    /// Retries a read-only command until the server answers.
    pub(crate) async fn read(
        &self,
        key: &[u8],
        command: &Cmd,
        limits: Limits,
    ) -> Result<Value, RedisError> {
        let (mut tries, mut earlier) = (0_u32, None);
        loop {
            let asked = Moment::now();
            let limit = limits.each.min(limits.until.since(asked));
            let mut asked_on = None;
            let reading = async {
                let line = asked_on.insert(self.link.line(key, Bound::No).await?);
                line.send(key, command).await
            };
            let error = match within(limit, reading).await.unwrap_or_else(|| Err(unanswered())) {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            let verdict = verdict(&error);
            if let (Some(line), Verdict::Broken) = (&asked_on, verdict) {
                self.link.give_up(line);
            }
            let rest = RETRY.random_rest(tries);
            let is_over = Moment::now().later(rest) >= limits.until;
            if is_over || !matches!(verdict, Verdict::Broken | Verdict::Elsewhere | Verdict::Again)
            {
                return Err(telling(earlier, error, asked, limits));
            }
            earlier = Some(telling(earlier, error, asked, limits));
            sleep(rest).await;
            tries = tries.saturating_add(1);
        }
    }

    /// Releases every hold of the owner, and its place in the queue.
    pub(crate) async fn give_back(
        &self,
        claim: &Claim,
        limits: Limits,
        trail: &Trail,
    ) -> Result<(), Error> {
        self.release(claim, Question::Release { fence: None }, limits, trail).await.map(drop)
    }

    pub(crate) async fn release(
        &self,
        claim: &Claim,
        question: Question<'_>,
        limits: Limits,
        trail: &Trail,
    ) -> Result<Answer, Error> {
        trail.releases.fetch_add(1, Relaxed);
        // A release on a stray, or of another caller, may arrive first.
        let has_strays = self.release_strays(claim, trail);
        let answer = self.ask(claim, question, limits, trail).await?;
        let has_others = has_strays || trail.releases.load(Relaxed) > 1;
        Ok(Answer { repeated: answer.repeated || has_others, ..answer })
    }

    /// Releases in the background. `entry` names the lock meanwhile.
    pub(crate) async fn take_back(
        &self,
        home: &Home,
        claim: &Claim,
        trail: &Trail,
        was_cut: bool,
        entry: Entry,
    ) {
        let mut came = self.give_back(claim, home.limits(), trail).await;
        if was_cut {
            // The server may notice the closed connection only after this release, and grant the lock in between.
            sleep(CUT_IS_READ_WITHIN).await;
            came = self.give_back(claim, home.limits(), trail).await;
        }
        if let Err(error) = came {
            let (lock, owner) = (entry.name(), &*claim.owner);
            warn!(target: "leasehold", lock, owner, %error, "not given back: what was granted stays until its lease ends");
            entry.stays(Moment::now().later(home.settings.ttl));
        }
    }

    /// Sends a release after each unanswered request. Returns whether there were any.
    fn release_strays(&self, claim: &Claim, trail: &Trail) -> bool {
        let strays = trail.take();
        let has_strays = !strays.is_empty();
        for mut line in strays {
            let (question, key) = (Question::Release { fence: None }, claim.key().to_vec());
            let command = match Call::of(claim, question) {
                Ok(call) if self.is_plain() => call.in_full(),
                _ => question.command(claim),
            };
            let sending = async move { within(STRAYS_FOR, line.send(&key, &command)).await };
            let mut sending = Box::pin(sending);
            // Write at once, so that later requests come after the release.
            if sending.as_mut().now_or_never().is_none() {
                tokio::spawn(sending);
            }
        }
        has_strays
    }

    pub(crate) async fn say(
        &self,
        line: &mut Line,
        claim: &Claim,
        question: Question<'_>,
    ) -> Result<Option<u64>, RedisError> {
        if !self.is_plain() {
            match line.send(claim.key(), &question.command(claim)).await {
                Err(error) if verdict(&error) == Verdict::UnknownCommand => {
                    *self.plain() = Some(Moment::now().later(PLAIN_FOR));
                    self.scripts.forget();
                    self.is_bare.store(false, Relaxed);
                }
                came => return number(&came?),
            }
        }
        // Boxed, so that waiters on servers with the module do not reserve room for it.
        Box::pin(self.say_by_script(line, claim, question)).await
    }

    async fn say_by_script(
        &self,
        line: &mut Line,
        claim: &Claim,
        question: Question<'_>,
    ) -> Result<Option<u64>, RedisError> {
        if self.is_bare.load(Relaxed) {
            return bare::ask(line, claim, question).await;
        }
        let (key, call) = (claim.key(), Call::of(claim, question)?);
        match self.run(line, key, &call).await {
            Err(error) if bare::is_without_scripts(&error) => {
                bare::probe(line, key).await.map_err(|_| error)?;
                self.is_bare.store(true, Relaxed);
                bare::ask(line, claim, question).await
            }
            Err(error) if verdict(&error) == Verdict::HasModule => {
                *self.plain() = None;
                number(&line.send(key, &question.command(claim)).await?)
            }
            came => number(&came?),
        }
    }

    async fn run(&self, line: &mut Line, key: &[u8], call: &Call) -> Result<Value, RedisError> {
        if self.scripts.knows(call) {
            match line.send(key, &call.by_digest()).await {
                Err(error) if verdict(&error) == Verdict::UnknownScript => {}
                came => return came,
            }
        }
        let reply = line.send(key, &call.in_full()).await?;
        self.scripts.learn(call);
        Ok(reply)
    }

    fn plain(&self) -> MutexGuard<'_, Option<Moment>> {
        locked(&self.plain_until)
    }
}

/// Prefers the earlier error if the last try had too little time to tell more.
fn telling(
    earlier: Option<RedisError>,
    error: RedisError,
    asked: Moment,
    Limits { each, until }: Limits,
) -> RedisError {
    let was_short = error.is_timeout() && until.since(asked) < each;
    match earlier.filter(|earlier| verdict(earlier) == Verdict::Broken) {
        Some(earlier) if was_short => earlier,
        _ => error,
    }
}

impl Trail {
    pub(crate) fn end(&self) {
        self.is_over.store(true, Release);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Acquire)
    }

    pub(crate) fn bond(&self) -> Option<Arc<Node>> {
        locked(&self.bond).clone()
    }

    fn bind(&self, node: Option<Arc<Node>>) {
        *locked(&self.bond) = node;
    }

    fn take(&self) -> Vec<Line> {
        std::mem::take(&mut *locked(&self.strays))
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let Some(line) = self.line.take() else { return };
        let mut lines = locked(&self.trail.strays);
        let is_known = |known: &Line| match (known.node(), line.node()) {
            (Some(known), Some(node)) => known.id == node.id,
            // Requests arrive in order, even if the redis crate has reconnected meanwhile.
            _ => known.node().is_none() && line.node().is_none(),
        };
        if lines.len() < MOST_STRAYS && !lines.iter().any(is_known) {
            lines.push(line);
        }
    }
}
