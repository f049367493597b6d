//! A lock on most of several servers that know nothing of each other: Redlock, with fences. `docs/redlock.md` has the
//! argument.
//!
//! ```text
//!   a  ACQUIRE ► 17   RAISE 18 ► 18        The lock is held once most servers have granted it, and the fence is the
//!   b  ACQUIRE ► 18   RAISE 18 ► 18        largest of theirs. Most are raised to it: any later majority has one of
//!   c  ACQUIRE ┈ no answer                 these among it, so its fence is larger.
//! ```
//!
//! Each server is asked by a task of its own, which goes on when most have answered: what a slow server grants late is given
//! back, and what it has not released yet is released.

use crate::attempt::{Granted, Wanted};
use crate::backoff::POLL;
use crate::clock::{Moment, within};
use crate::core::Core;
use crate::error::{surprise, unanswered};
use crate::ledger::Entry;
use crate::locked::locked;
use crate::question::{Claim, EXCLUSIVE, Question};
use crate::remote::{Answer, Limits, Remote, Trail};
use crate::verdict::{is_silence, told};
use crate::server::Place;
use crate::{Error, Settings};
use redis::{Value, cmd};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::sleep;
use uuid::Uuid;

/// How long one server may take to answer at the most.
const LONGEST_LIMIT: Duration = Duration::from_millis(500);

/// Those who are a little slower than most are waited for.
const LEAST_GRACE: Duration = Duration::from_millis(10);

pub(crate) struct Quorum {
    peers: Vec<Arc<Peer>>,
    run_ids: Arc<Mutex<Vec<Option<String>>>>,
}

struct Peer {
    number: usize,
    remote: Remote,
}

/// What one of the servers came to.
type Came = (usize, Result<Answer, Error>);

/// A lock that may be granted to somebody who does not want it any more.
struct Candidate<'q> {
    quorum: &'q Quorum,
    core: Arc<Core>,
    claim: Arc<Claim>,
    trail: Arc<Trail>,
    entry: Option<Entry>,
}

impl Quorum {
    pub(crate) fn of(places: &[Place], settings: &Settings) -> Self {
        let peer = |(number, place)| Arc::new(Peer { number, remote: Remote::of(place, settings) });
        let peers: Vec<_> = places.iter().enumerate().map(peer).collect();
        let run_ids = Arc::new(Mutex::new(vec![None; peers.len()]));
        Self { peers, run_ids }
    }

    fn majority(&self) -> usize {
        self.peers.len().div_euclid(2).saturating_add(1)
    }

    pub(crate) fn close(&self) {
        self.peers.iter().for_each(|peer| peer.remote.link.close());
    }

    /// Where there is no queue that all servers share, whoever waits asks again.
    pub(crate) async fn acquire(
        &self,
        core: &Arc<Core>,
        claim: &Claim,
        wanted: Wanted,
        name: &Arc<str>,
    ) -> Result<Option<(Granted, (Arc<Claim>, Arc<Trail>))>, Error> {
        if claim.share != EXCLUSIVE || claim.keys.len() > 1 || claim.grace.is_some() {
            return Err(Error::setting("server", "a quorum has exclusive locks of one name, which no connection ends"));
        }
        let until = wanted.wait.map(|wait| Moment::now().later(wait));
        let mut tries = 0_u32;
        loop {
            // A new owner each time: what is still to be released for an earlier try does not hit this one.
            let owner = Uuid::new_v4().to_string();
            let claim = Arc::new(Claim { owner, ..claim.clone() });
            let (trail, entry) = (Arc::default(), Some(core.ledger.begin(name)));
            let candidate = Candidate { quorum: self, core: Arc::clone(core), claim, trail, entry };
            let came = candidate.stand(wanted.ttl).await;
            let left = until.map(|until| until.since(Moment::now()));
            match came {
                Ok(None) if left.is_some_and(|left| left.is_zero()) => return Ok(None),
                Err(error) if !is_silence(&error) || left.is_some_and(|left| left.is_zero()) => return Err(error),
                Ok(None) | Err(_) => {}
                granted => return granted,
            }
            // At random, or those who split the servers between them would do so again.
            let rest = POLL.random_rest(tries);
            sleep(left.map_or(rest, |left| rest.min(left))).await;
            tries = tries.saturating_add(1);
        }
    }

    /// What most of them say to it: 1 if most did it, 0 if too many said that it is not held.
    pub(crate) async fn ask(
        &self,
        core: &Arc<Core>,
        claim: &Arc<Claim>,
        question: Question<'_>,
        limits: Limits,
        trail: &Arc<Trail>,
        entry: Option<Entry>,
    ) -> Result<Answer, Error> {
        let asked = Moment::now();
        let answers = self.ask_all(core, self.all(), claim, question, limits, trail, entry).await;
        let said = |wanted: bool| {
            let is_it = |answer: &Answer| (answer.number == Some(1)) == wanted;
            answers.iter().filter(|(_, came)| came.as_ref().is_ok_and(is_it)).count()
        };
        let (agreed, refused) = (said(true), said(false));
        let repeated = answers.iter().any(|(_, came)| came.as_ref().is_ok_and(|answer| answer.repeated));
        let is_held_by_most = self.peers.len().saturating_sub(refused) >= self.majority();
        let is_release = matches!(question, Question::Release { .. });
        if agreed >= self.majority() || (is_release && is_held_by_most && agreed > 0) {
            return Ok(Answer { number: Some(1), asked, repeated });
        }
        if !is_held_by_most {
            return Ok(Answer { number: Some(0), asked, repeated });
        }
        Err(self.too_few(answers).unwrap_or_else(|| told(unanswered())))
    }

    fn all(&self) -> Vec<usize> {
        (0..self.peers.len()).collect()
    }

    /// Those who have answered in time. Nobody is waited for who cannot change what most have said.
    async fn ask_all(
        &self,
        core: &Arc<Core>,
        whom: Vec<usize>,
        claim: &Arc<Claim>,
        question: Question<'_>,
        limits: Limits,
        trail: &Arc<Trail>,
        entry: Option<Entry>,
    ) -> Vec<Came> {
        let asked = Moment::now();
        let (answer, mut answers) = unbounded_channel();
        let (question, asking) = (Ask::of(question), whom.len());
        let entry = entry.map(Arc::new);
        for peer in whom.into_iter().filter_map(|number| self.peers.get(number)) {
            let (peer, claim, trail) = (Arc::clone(peer), Arc::clone(claim), Arc::clone(trail));
            let (answer, run_ids, entry) = (answer.clone(), Arc::clone(&self.run_ids), entry.clone());
            core.spawn(async move {
                let came = peer.ask(&claim, question, limits, &trail, &run_ids).await;
                let was_late = answer.send((peer.number, came)).is_err();
                if was_late && matches!(question, Ask::Try { .. }) {
                    // It may have been granted, and nobody heard of it.
                    let _ = peer.remote.give_back(&claim, limits.from_now(), &trail).await;
                }
                drop(entry);
            });
        }
        drop(answer);
        let (mut heard, mut until) = (Vec::new(), asked.later(limits.each));
        let (mut agreed, mut others) = (0_usize, 0_usize);
        while let Some(Some(came)) = within(until.since(Moment::now()), answers.recv()).await {
            match &came {
                (_, Ok(answer)) if question.is_agreed(answer.number) => agreed = agreed.saturating_add(1),
                _ => others = others.saturating_add(1),
            }
            heard.push(came);
            let is_out = asking.saturating_sub(others) < self.majority();
            if agreed >= self.majority() || is_out {
                let grace = Moment::now().since(asked).max(LEAST_GRACE);
                until = until.min(Moment::now().later(grace));
                if let (Ask::Release, Some(entry)) = (question, &entry) {
                    entry.is_of_no_matter();
                }
            }
        }
        // From here on each answer has either been heard or is late, and its task knows.
        answers.close();
        while let Ok(came) = answers.try_recv() {
            heard.push(came);
        }
        heard
    }

    /// What it comes to that not enough of them agreed: none if most of them have answered.
    fn too_few(&self, answers: Vec<Came>) -> Option<Error> {
        let said = answers.iter().filter(|(_, came)| came.is_ok()).count();
        if said >= self.majority() {
            return None;
        }
        let (mut last, all) = (None, self.peers.len());
        for (_, came) in answers {
            match came {
                Err(error) if !is_silence(&error) => return Some(error),
                Err(error) => last = Some(error),
                Ok(_) => {}
            }
        }
        let because = last.map(|error| format!(": {error}")).unwrap_or_default();
        let reason = format!("{said} of {all} servers answered in time{because}");
        Some(told(std::io::Error::new(std::io::ErrorKind::TimedOut, reason).into()))
    }
}

/// What each server is asked: a question that outlives whoever asks it.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Try { ttl: Duration },
    Raise { fence: u64 },
    Extend { ttl: Duration, fence: u64 },
    Release,
}

impl Ask {
    fn of(question: Question<'_>) -> Self {
        match question {
            Question::Try { ttl } | Question::Block { ttl, .. } | Question::Ticket { ttl, .. } => Self::Try { ttl },
            Question::Raise { fence } => Self::Raise { fence },
            Question::Extend { ttl, fence } => Self::Extend { ttl, fence },
            // Each server has granted it by a fence of its own, before that was raised.
            Question::Release { .. } => Self::Release,
        }
    }

    fn question(self) -> Question<'static> {
        match self {
            Self::Try { ttl } => Question::Try { ttl },
            Self::Raise { fence } => Question::Raise { fence },
            Self::Extend { ttl, fence } => Question::Extend { ttl, fence },
            Self::Release => Question::Release { fence: None },
        }
    }

    fn is_agreed(self, number: Option<u64>) -> bool {
        match self {
            Self::Try { .. } => number.is_some(),
            Self::Raise { fence } => number == Some(fence),
            Self::Extend { .. } | Self::Release => number == Some(1),
        }
    }
}

impl Peer {
    async fn ask(
        &self,
        claim: &Claim,
        ask: Ask,
        limits: Limits,
        trail: &Trail,
        run_ids: &Mutex<Vec<Option<String>>>,
    ) -> Result<Answer, Error> {
        let Self { number, remote } = self;
        let is_known = locked(run_ids).get(*number).is_some_and(Option::is_some);
        if let (Ask::Try { .. }, false) = (ask, is_known) {
            self.learn(claim.key(), limits, run_ids).await?;
        }
        let answer = match ask {
            // Once only: a second try could overtake an extension that was asked for later, and end the lease sooner.
            Ask::Extend { .. } => {
                let asked = Moment::now();
                let came = remote.ask_once(claim, ask.question(), limits, trail).await;
                came.map(|number| Answer { number, asked, repeated: false }).map_err(told)
            }
            Ask::Release => {
                remote.release_strays(claim, trail);
                remote.ask(claim, ask.question(), limits, trail).await
            }
            Ask::Try { .. } | Ask::Raise { .. } => remote.ask(claim, ask.question(), limits.for_each(), trail).await,
        };
        // After a new connection there may be another server at this address.
        if answer.as_ref().map_or(true, |answer| answer.repeated)
            && let Some(known) = locked(run_ids).get_mut(*number)
        {
            *known = None;
        }
        answer
    }

    /// Which server it is. One that is named twice would count twice: two majorities could then have no server in common.
    async fn learn(&self, key: &[u8], limits: Limits, run_ids: &Mutex<Vec<Option<String>>>) -> Result<(), Error> {
        let info = self.remote.read(key, &cmd("INFO").arg("server").take(), limits.for_each()).await.map_err(told)?;
        let run_id = run_id(&info).ok_or_else(surprise)?;
        let mut known = locked(run_ids);
        let is_other = |(number, known): &(usize, &Option<String>)| {
            *number != self.number && known.as_deref() == Some(run_id.as_str())
        };
        if let Some((other, _)) = known.iter().enumerate().find(is_other) {
            let [first, second] = [other.min(self.number), other.max(self.number)].map(|number| number.saturating_add(1));
            let reason = format!("the addresses {first} and {second} lead to one server, which has the run id {run_id}");
            return Err(Error::setting("server", reason));
        }
        if let Some(known) = known.get_mut(self.number) {
            *known = Some(run_id);
        }
        Ok(())
    }
}

impl Candidate<'_> {
    async fn stand(mut self, ttl: Duration) -> Result<Option<(Granted, (Arc<Claim>, Arc<Trail>))>, Error> {
        let Self { quorum, core, claim, trail, .. } = &self;
        let asked = Moment::now();
        let limits = Limits { each: limit(ttl, &core.settings), until: asked.later(core.settings.retry_for) };
        let answers = quorum.ask_all(core, quorum.all(), claim, Question::Try { ttl }, limits, trail, None).await;
        let fence = self.fence(&answers, limits).await;
        let came = match fence {
            Ok(Some(fence)) => {
                self.entry = None;
                let granted = Granted { fence, asked, lasts: ttl, is_unclaimed: false };
                return Ok(Some((granted, (Arc::clone(&self.claim), Arc::clone(&self.trail)))));
            }
            Ok(None) => quorum.too_few(answers).map_or(Ok(None), Err),
            Err(error) => Err(error),
        };
        self.give_back().await;
        came
    }

    /// The fence that most of them have now; none if not enough have granted the lock.
    async fn fence(&self, answers: &[Came], limits: Limits) -> Result<Option<u64>, Error> {
        let Self { quorum, core, claim, trail, .. } = self;
        let number = |(peer, came): &Came| Some((*peer, came.as_ref().ok()?.number?));
        let mut granted: Vec<_> = answers.iter().filter_map(number).collect();
        while granted.len() >= quorum.majority() {
            let Some(fence) = granted.iter().map(|(_, fence)| *fence).max() else { break };
            let whom = granted.iter().map(|(peer, _)| *peer).collect();
            let raised = quorum.ask_all(core, whom, claim, Question::Raise { fence }, limits, trail, None).await;
            let is_raised = |(_, came): &&Came| came.as_ref().is_ok_and(|answer| answer.number == Some(fence));
            if raised.iter().filter(is_raised).count() >= quorum.majority() {
                return Ok(Some(fence));
            }
            match quorum.too_few(raised) {
                // A clock that is far ahead of most is left out, and its server does not count: any majority will do.
                Some(Error::Refused { .. }) if granted.len() > quorum.majority() => {
                    granted.retain(|(_, theirs)| *theirs < fence);
                }
                Some(error) => return Err(error),
                None => break,
            }
        }
        Ok(None)
    }

    /// Everywhere: it may have been granted by a server that was not heard.
    async fn give_back(&mut self) {
        let entry = self.entry.take();
        let Self { quorum, core, claim, trail, .. } = &*self;
        let each = limit(core.settings.ttl, &core.settings);
        let limits = Limits { each, until: Moment::now().later(core.settings.retry_for) };
        let question = Question::Release { fence: None };
        quorum.ask_all(core, quorum.all(), claim, question, limits, trail, entry).await;
    }
}

impl Drop for Candidate<'_> {
    fn drop(&mut self) {
        // It was granted, or given back, unless whoever asked has gone.
        let Some(entry) = self.entry.take() else { return };
        let entry = Arc::new(entry);
        for peer in &self.quorum.peers {
            let (peer, claim, trail) = (Arc::clone(peer), Arc::clone(&self.claim), Arc::clone(&self.trail));
            let (entry, limits) = (Arc::clone(&entry), self.core.limits(self.core.settings.response_timeout));
            self.core.spawn(async move {
                let _ = peer.remote.give_back(&claim, limits, &trail).await;
                drop(entry);
            });
        }
    }
}

/// How long one server may take to answer.
pub(crate) fn limit(ttl: Duration, settings: &Settings) -> Duration {
    let tenth = ttl.checked_div(10).unwrap_or_default();
    tenth.min(LONGEST_LIMIT).min(settings.response_timeout).max(Duration::from_millis(1))
}

/// What a server makes up when it starts.
fn run_id(info: &Value) -> Option<String> {
    let text = match info {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?,
        Value::VerbatimString { text, .. } => text,
        _ => return None,
    };
    text.lines().find_map(|line| line.strip_prefix("run_id:")).map(|id| id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_its_run_id() {
        let info = Value::BulkString(b"# Server\r\nredis_version:7\r\nrun_id:abc\r\n".to_vec());
        assert_eq!(run_id(&info).as_deref(), Some("abc"));
        assert_eq!(run_id(&Value::Nil), None);
    }
}
