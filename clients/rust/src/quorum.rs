//! A lock on a majority of independent servers: Redlock, with fences. `docs/redlock.md` has the argument.
//!
//! ```text
//!   a  ACQUIRE ► 17   RAISE 18 ► 18        The lock is held once most servers have granted it, and the fence is the
//!   b  ACQUIRE ► 18   RAISE 18 ► 18        largest of theirs. Most are raised to it: any later majority has one of
//!   c  ACQUIRE ┈ no answer                 these among it, so its fence is larger.
//! ```
//!
//! A task for each server goes on after a majority has answered, to release what a slow server grants too late.

use crate::asked::{Asked, Granted, Won};
use crate::backoff::POLL;
use crate::clock::{Moment, within};
use crate::error::{Error, surprise, unanswered};
use crate::home::Home;
use crate::ledger::Entry;
use crate::limits::Limits;
use crate::locked::locked;
use crate::question::{Claim, EXCLUSIVE, Question};
use crate::remote::{Answer, Remote, Trail};
use crate::server::Place;
use crate::settings::Settings;
use crate::verdict::{may_pass, told};
use redis::{Value, cmd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::sleep;
use uuid::Uuid;

/// The most time for one server to answer.
const LONGEST_LIMIT: Duration = Duration::from_millis(500);

/// The least time for servers slower than the majority.
const LEAST_GRACE: Duration = Duration::from_millis(10);

pub(crate) struct Quorum {
    home: Arc<Home>,
    peers: Vec<Arc<Peer>>,
    run_ids: Arc<RunIds>,
}

struct Peer {
    number: usize,
    remote: Remote,
}

/// By peer. The number of the connection that leads to the server tells whether it may be another one by now.
type RunIds = Mutex<Vec<Option<(Option<u64>, String)>>>;

type Came = (usize, Result<Answer, Error>);

/// The owner of a round, and the limits for each server.
#[derive(Clone)]
struct Ballot {
    claim: Arc<Claim>,
    trail: Arc<Trail>,
    limits: Limits,
}

/// An attempt. Its drop releases what the servers may have granted, unless the caller took the grant.
struct Candidate<'q> {
    quorum: &'q Quorum,
    ballot: Ballot,
    entry: Option<Entry>,
}

impl Quorum {
    pub(crate) fn of(places: &[Place], home: &Arc<Home>) -> Self {
        let peer =
            |(number, place)| Arc::new(Peer { number, remote: Remote::of(place, &home.settings) });
        let peers: Vec<_> = places.iter().enumerate().map(peer).collect();
        let run_ids = Arc::new(Mutex::new(vec![None; peers.len()]));
        Self { home: Arc::clone(home), peers, run_ids }
    }

    fn majority(&self) -> usize {
        self.peers.len().div_euclid(2).saturating_add(1)
    }

    pub(crate) fn close(&self) {
        self.peers.iter().for_each(|peer| peer.remote.link.close());
    }

    /// The servers share no queue, so waiting requests retry.
    pub(crate) async fn acquire(&self, asked: &Asked) -> Result<Option<Won>, Error> {
        let Asked { name, claim, wanted, .. } = asked;
        let is_simple = claim.share == EXCLUSIVE && claim.keys.len() == 1 && claim.grace.is_none();
        if !is_simple || asked.copies.is_some() {
            let reason = "a quorum has exclusive locks of one name, which no connection ends, and \
                          no replicas";
            return Err(Error::setting("server", reason));
        }
        if self.peers.is_empty() {
            return Err(Error::setting("server", "a quorum has at least one server"));
        }
        let until = wanted.wait.map(|wait| Moment::now().later(wait));
        let mut tries = 0_u32;
        loop {
            // A new owner for each try, so that pending releases of an earlier try do not affect this one.
            let owner = Uuid::new_v4().to_string().into();
            let ballot = Ballot {
                claim: Arc::new(Claim { owner, ..Claim::clone(claim) }),
                trail: Arc::default(),
                limits: self.limits(wanted.ttl),
            };
            let entry = Some(self.home.ledger.begin(name));
            let came = Candidate { quorum: self, ballot, entry }.stand(wanted.ttl).await;
            let left = until.map(|until| until.since(Moment::now()));
            let is_over = left.is_some_and(|left| left.is_zero());
            match came {
                Ok(None) if is_over => return Ok(None),
                Err(error) if is_over || !may_pass(&error) => return Err(error),
                Ok(None) | Err(_) => {}
                granted => return granted,
            }
            // A random pause, because clients that split the servers between them would do so again.
            let rest = POLL.random_rest(tries);
            sleep(left.map_or(rest, |left| rest.min(left))).await;
            tries = tries.saturating_add(1);
        }
    }

    fn limits(&self, ttl: Duration) -> Limits {
        Limits { each: limit(ttl, &self.home.settings), ..self.home.limits() }
    }

    /// The majority's answer: 1 if most servers did it, 0 if the lock cannot be held on a majority.
    pub(crate) async fn ask(
        &self,
        claim: &Arc<Claim>,
        question: Question<'_>,
        limits: Limits,
        trail: &Arc<Trail>,
        entry: Entry,
    ) -> Result<Answer, Error> {
        let (ask, asked) = (Ask::of(question), Moment::now());
        let ballot = Ballot { claim: Arc::clone(claim), trail: Arc::clone(trail), limits };
        let answers = self.ask_all(&ballot, self.all(), ask, Some(entry)).await;
        let said = |wanted: bool| {
            let is_it = |answer: &Answer| (answer.number == Some(1)) == wanted;
            answers.iter().filter(|(_, came)| came.as_ref().is_ok_and(is_it)).count()
        };
        let (agreed, refused) = (said(true), said(false));
        let was_repeated = |(_, came): &Came| came.as_ref().is_ok_and(|answer| answer.repeated);
        let repeated = answers.iter().any(was_repeated);
        let is_held_by_most = self.peers.len().saturating_sub(refused) >= self.majority();
        let is_release = matches!(ask, Ask::Release);
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

    /// Returns the answers in time. It does not wait for servers that cannot change the majority.
    async fn ask_all(
        &self,
        ballot: &Ballot,
        whom: Vec<usize>,
        ask: Ask,
        entry: Option<Entry>,
    ) -> Vec<Came> {
        let (asked, asking, entry) = (Moment::now(), whom.len(), entry.map(Arc::new));
        let (answer, mut answers) = unbounded_channel();
        for peer in whom.into_iter().filter_map(|number| self.peers.get(number)) {
            let (peer, ballot) = (Arc::clone(peer), ballot.clone());
            let (answer, entry, run_ids) =
                (answer.clone(), entry.clone(), Arc::clone(&self.run_ids));
            self.home.spawn(async move {
                let came = peer.ask(&ballot, ask, &run_ids).await;
                // What a server has granted by another address stays.
                let is_twice = matches!(came, Err(Error::Setting { .. }));
                let was_late = answer.send((peer.number, came)).is_err();
                if was_late && !is_twice && matches!(ask, Ask::Try { .. }) {
                    // The server may have granted the lock too late.
                    peer.take_back(&ballot).await;
                }
                drop(entry);
            });
        }
        drop(answer);
        let (mut heard, mut until) = (Vec::new(), asked.later(ballot.limits.each));
        let (mut agreed, mut others) = (0_usize, 0_usize);
        while let Some(Some(came)) = within(until.since(Moment::now()), answers.recv()).await {
            match &came {
                (_, Ok(answer)) if ask.is_agreed(answer.number) => {
                    agreed = agreed.saturating_add(1)
                }
                _ => others = others.saturating_add(1),
            }
            heard.push(came);
            let is_out = asking.saturating_sub(others) < self.majority();
            if agreed >= self.majority() || is_out {
                let grace = Moment::now().since(asked).max(LEAST_GRACE);
                until = until.min(Moment::now().later(grace));
                if let (Ask::Release, Some(entry)) = (ask, &entry) {
                    entry.is_of_no_matter();
                }
            }
        }
        // After this, each answer has been received, or its task knows that it is late.
        answers.close();
        while let Ok(came) = answers.try_recv() {
            heard.push(came);
        }
        heard
    }

    /// Why a majority is missing; none if a majority has answered.
    fn too_few(&self, answers: Vec<Came>) -> Option<Error> {
        let said = answers.iter().filter(|(_, came)| came.is_ok()).count();
        if said >= self.majority() {
            return None;
        }
        let (mut last, all) = (None, self.peers.len());
        for (_, came) in answers {
            match came {
                Err(error) if !may_pass(&error) => return Some(error),
                Err(error) => last = Some(error),
                Ok(_) => {}
            }
        }
        let because = last.map(|error| format!(": {error}")).unwrap_or_default();
        let reason = format!("{said} of {all} servers answered in time{because}");
        Some(told(std::io::Error::new(std::io::ErrorKind::TimedOut, reason).into()))
    }
}

/// A question without borrowed data, because the tasks outlive their caller.
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
            Question::Try { ttl } | Question::Block { ttl, .. } | Question::Ticket { ttl, .. } => {
                Self::Try { ttl }
            }
            Question::Raise { fence } => Self::Raise { fence },
            Question::Extend { ttl, fence } => Self::Extend { ttl, fence },
            // Without a fence, because each server first granted its own, before it was raised.
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
    async fn ask(&self, ballot: &Ballot, ask: Ask, run_ids: &RunIds) -> Result<Answer, Error> {
        let (Self { number, remote }, Ballot { claim, trail, limits }) = (self, ballot);
        if let Ask::Try { .. } = ask {
            self.learn(claim.key(), *limits, run_ids).await?;
        }
        let question = ask.question();
        let answer = match ask {
            // Only once, because a second try could overtake a later extension and shorten the lease.
            Ask::Extend { .. } => {
                let asked = Moment::now();
                let came = remote.ask_once(claim, question, *limits, trail).await;
                came.map(|number| Answer { number, asked, repeated: false }).map_err(told)
            }
            Ask::Release => remote.release(claim, question, *limits, trail).await,
            Ask::Try { .. } | Ask::Raise { .. } => {
                remote.ask(claim, question, limits.for_each(), trail).await
            }
        };
        let Ask::Try { .. } = ask else { return answer };
        // Without a connection of its own, the client does not learn that another one was opened, except by an error.
        if answer.as_ref().map_or(true, |answer| answer.repeated)
            && let Some(known) = locked(run_ids).get_mut(*number)
        {
            *known = None;
        }
        if answer.as_ref().is_ok_and(|answer| answer.number.is_some()) {
            // The connection may have been lost meanwhile.
            self.learn(claim.key(), *limits, run_ids).await?;
        }
        answer
    }

    /// Returns whether the server answered. A server that does not keeps the lock until the lease ends.
    async fn take_back(&self, Ballot { claim, trail, limits }: &Ballot) -> bool {
        self.remote.give_back(claim, limits.renewed(), trail).await.is_ok()
    }

    /// Learns the server's run id. A server named twice would count twice, so two majorities might share no server.
    /// A new connection may lead to another server at this address.
    async fn learn(&self, key: &[u8], limits: Limits, run_ids: &RunIds) -> Result<(), Error> {
        let connection = || self.remote.link.own_line()?.node().map(|node| node.id);
        let before = connection();
        let known = |known: &Option<(Option<u64>, String)>| {
            known.as_ref().is_some_and(|(of, _)| *of == before)
        };
        if locked(run_ids).get(self.number).is_some_and(known) {
            return Ok(());
        }
        let info = self
            .remote
            .read(key, &cmd("INFO").arg("server").take(), limits.for_each())
            .await
            .map_err(told)?;
        let run_id = run_id(&info).ok_or_else(surprise)?;
        let mut known = locked(run_ids);
        let is_other = |(number, known): &(usize, &Option<(Option<u64>, String)>)| {
            *number != self.number && known.as_ref().is_some_and(|(_, known)| *known == run_id)
        };
        if let Some((other, _)) = known.iter().enumerate().find(is_other) {
            let [first, second] = [other.min(self.number), other.max(self.number)]
                .map(|number| number.saturating_add(1));
            let reason = format!(
                "the addresses {first} and {second} lead to one server, which has the run id {run_id}"
            );
            return Err(Error::setting("server", reason));
        }
        if let Some(known) = known.get_mut(self.number) {
            *known = Some((connection(), run_id));
        }
        Ok(())
    }
}

impl Candidate<'_> {
    async fn stand(mut self, ttl: Duration) -> Result<Option<Won>, Error> {
        let Self { quorum, ballot, .. } = &self;
        let asked = Moment::now();
        // `close` also waits for tries whose caller has gone.
        let entry = self.entry.as_ref().map(Entry::also);
        entry.as_ref().inspect(|entry| entry.is_of_no_matter());
        let mut answers = quorum.ask_all(ballot, quorum.all(), Ask::Try { ttl }, entry).await;
        let is_wrong = |(_, came): &Came| matches!(came, Err(Error::Setting { .. }));
        let wrong = answers.iter().position(is_wrong).map(|at| answers.swap_remove(at));
        let fence = match wrong {
            Some((_, Err(error))) => Err(error),
            _ => self.fence(&answers).await,
        };
        let came = match fence {
            Ok(Some(fence)) => {
                let entry = self.entry.take();
                let granted = Granted { fence, asked, lasts: ttl, is_unclaimed: false };
                let Ballot { claim, trail, .. } = self.ballot.clone();
                return Ok(Some(((granted, claim, trail), entry)));
            }
            Ok(None) => quorum.too_few(answers).map_or(Ok(None), Err),
            Err(error) => Err(error),
        };
        // On all servers, because one may have granted the lock without an answer in time.
        let (quorum, entry) = (self.quorum, self.entry.take());
        quorum.ask_all(&self.ballot, quorum.all(), Ask::Release, entry).await;
        came
    }

    /// Raises the fence on a majority and returns it; none if too few servers have granted the lock.
    async fn fence(&self, answers: &[Came]) -> Result<Option<u64>, Error> {
        let Self { quorum, ballot, .. } = self;
        let number = |(peer, came): &Came| Some((*peer, came.as_ref().ok()?.number?));
        let mut granted: Vec<_> = answers.iter().filter_map(number).collect();
        while granted.len() >= quorum.majority() {
            let Some(fence) = granted.iter().map(|(_, fence)| *fence).max() else { break };
            let whom = granted.iter().map(|(peer, _)| *peer).collect();
            let raised = quorum.ask_all(ballot, whom, Ask::Raise { fence }, None).await;
            let is_raised = |answer: &Answer| answer.number == Some(fence);
            let count =
                raised.iter().filter(|(_, came)| came.as_ref().is_ok_and(is_raised)).count();
            if count >= quorum.majority() {
                return Ok(Some(fence));
            }
            match quorum.too_few(raised) {
                // Leave out a server whose clock is far ahead. It does not count; any majority will do.
                Some(Error::Refused { .. }) if granted.len() > quorum.majority() => {
                    granted.retain(|(_, theirs)| *theirs < fence);
                }
                Some(error) => return Err(error),
                None => break,
            }
        }
        Ok(None)
    }
}

impl Drop for Candidate<'_> {
    fn drop(&mut self) {
        // The entry is left only if the caller dropped the attempt half-way.
        let Some(entry) = self.entry.take() else { return };
        let (taken, majority) = (Arc::new((entry, AtomicUsize::new(0))), self.quorum.majority());
        for peer in &self.quorum.peers {
            let (peer, ballot) = (Arc::clone(peer), self.ballot.clone());
            let taken = Arc::clone(&taken);
            self.quorum.home.spawn(async move {
                let (entry, count) = &*taken;
                if peer.take_back(&ballot).await
                    && count.fetch_add(1, Relaxed).saturating_add(1) >= majority
                {
                    entry.is_of_no_matter();
                }
            });
        }
    }
}

pub(crate) fn limit(ttl: Duration, settings: &Settings) -> Duration {
    let tenth = ttl.checked_div(10).unwrap_or_default();
    tenth.min(LONGEST_LIMIT).min(settings.response_timeout).max(Duration::from_millis(1))
}

/// The random id that a server chooses when it starts.
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
