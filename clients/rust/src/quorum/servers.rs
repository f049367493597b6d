//! Asking all servers at once, without waiting for the slowest.
//!
//! ```text
//!   asked ──► server 1 ── answer ─┐
//!         ──► server 2 ── answer ─┤ most of them agree: the rest have as long again
//!         ──► server 3 ───────────┼─────────┤ too late: what it grants is released by its own task
//! ```

use super::held::Holdings;
use super::identity::Identities;
use crate::clock::Moment;
use crate::closing::at_most;
use crate::dialect::Question;
use crate::gate::Gate;
use crate::home::Home;
use crate::orders::{Abandoned, HoldOn};
use crate::poison::locked;
use crate::releases::{Done, Releases};
use crate::share::Share;
use crate::stray::Stray;
use crate::validity::later;
use crate::wire::{Answer, Limits};
use crate::{Error, Locks};
use futures_util::future::join_all;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::oneshot;
use tokio::time::{timeout, timeout_at};

/// A server that does not answer for longer is down, unless a setting says otherwise.
const LONGEST_LIMIT: Duration = Duration::from_millis(500);

/// What servers have at least that answer after most have.
const LEAST_GRACE: Duration = Duration::from_millis(10);

#[derive(Clone)]
pub(crate) struct Servers {
    pub(crate) all: Vec<Locks>,
    /// How long each may take to answer, if somebody has said so.
    pub(crate) limit: Option<Duration>,
    pub(crate) identities: Arc<Identities>,
    /// What requests go through.
    pub(crate) gate: Arc<Gate>,
    pub(crate) holdings: Arc<Holdings>,
    pub(crate) tasks: Arc<Tasks>,
}

/// The requests to each server that are under way, also those that nobody waits for any more.
pub(crate) struct Tasks {
    open: Vec<Mutex<Releases<String>>>,
}

/// One of them, until it is dropped.
pub(crate) struct UnderWay {
    tasks: Arc<Tasks>,
    server: usize,
    number: u64,
}

/// Whom it is about: one lock, and one owner of it, which no other attempt has.
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) owner: String,
    pub(crate) ttl: Duration,
    /// Where it was asked for.
    pub(crate) home: Home,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    Acquire,
    Raise {
        fence: u64,
    },
    Extend {
        fence: u64,
        ttl: Duration,
    },
    /// It may be held for so long if it is not released.
    Release {
        left: Duration,
    },
    /// The same, and it is to be free then, and no sooner.
    HoldOn {
        fence: u64,
        until: Moment,
        left: Duration,
    },
}

/// A server that is being asked. Dropped before its answer was heard, as when the runtime ends, it
/// is asked on in the background.
struct Asked {
    servers: Arc<Servers>,
    subject: Arc<Subject>,
    server: usize,
    ask: Ask,
    is_done: bool,
    /// Until what is left behind is ordered, too.
    _under_way: UnderWay,
}

/// Those who have answered in time, or failed, and where they are in the list.
pub(crate) type Answers = Vec<(usize, Result<Answer, Error>)>;

impl Servers {
    pub(crate) fn new(all: Vec<Locks>) -> Self {
        let identities = Arc::new(Identities::of(all.len()));
        let tasks = Arc::new(Tasks { open: all.iter().map(|_| Mutex::default()).collect() });
        let (gate, holdings) = (Arc::default(), Arc::default());
        Self { all, limit: None, identities, gate, holdings, tasks }
    }

    /// Closes the client of each server, once the requests to it that are under way have ended.
    /// Returns what may still be held there.
    pub(crate) async fn close(&self, limit: Duration) -> Vec<Vec<String>> {
        let begun = Instant::now();
        let left = || limit.saturating_sub(begun.elapsed());
        let close_one = async |(server, locks): (usize, &Locks)| {
            if !self.tasks.done(server, at_most(limit, 2)).await.is_empty() {
                // They may be on a runtime that nobody drives. The others need not wait for them.
                let _what_is_left = locks.close(left()).await;
            }
            let mut names = self.tasks.done(server, left()).await;
            names.extend(locks.close(left()).await);
            names.sort();
            names.dedup();
            names
        };
        join_all(self.all.iter().enumerate().map(close_one)).await
    }

    /// Makes sure that this one is none of the others.
    pub(crate) async fn identify(
        &self,
        server: usize,
        key: &str,
        limits: Limits,
    ) -> Result<(), Error> {
        if self.identities.is_known(server) {
            return Ok(());
        }
        let locks = self.all.get(server).ok_or(Error::Closed)?;
        let run_id = locks.wire().run_id(key, limits).await?.ok_or_else(|| {
            let reason = "servers of a quorum are told apart by the run id in INFO server, which \
                          this one does not tell this user";
            Error::Refused { reason: reason.to_owned() }
        })?;
        self.identities.learn(server, &run_id)
    }

    pub(crate) fn majority(&self) -> usize {
        self.all.len().div_euclid(2).saturating_add(1)
    }

    pub(crate) fn everybody(&self) -> Vec<usize> {
        (0..self.all.len()).collect()
    }

    /// For one answer.
    pub(crate) fn limit(&self, ttl: Duration) -> Duration {
        let tenth = ttl.checked_div(10).unwrap_or_default();
        self.limit.unwrap_or(tenth.min(LONGEST_LIMIT)).max(Duration::from_millis(1))
    }

    /// Each request is a task of its own, which ends as requests do: it finds out that a connection is dead also when
    /// nobody waits for it any more.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        whom: &[usize],
        subject: &Arc<Subject>,
        ask: Ask,
        agrees: impl Fn(Option<u64>) -> bool,
    ) -> Answers {
        let (asked, limit) = (Instant::now(), self.limit(subject.ttl));
        let (answer, mut answers) = unbounded_channel();
        for &server in whom {
            let (servers, subject, answer) =
                (Arc::clone(self), Arc::clone(subject), answer.clone());
            let _under_way = self.begin(server, &subject);
            let mut this = Asked { servers, subject, server, ask, is_done: false, _under_way };
            tokio::spawn(async move {
                let came = this.servers.ask_one(server, &this.subject, ask, asked, limit).await;
                let is_held_on = came.is_ok() && matches!(ask, Ask::HoldOn { .. });
                if answer.send((server, came)).is_ok() || is_held_on {
                    this.done();
                }
            });
        }
        drop(answer);
        let (mut heard, mut until) = (Answers::new(), later(asked, limit));
        let (mut agreed, mut others) = (0_usize, 0_usize);
        while let Ok(Some((server, answer))) = timeout_at(until.into(), answers.recv()).await {
            match &answer {
                Ok(answer) if agrees(answer.number) => agreed = agreed.saturating_add(1),
                _ => others = others.saturating_add(1),
            }
            heard.push((server, answer));
            let is_out = whom.len().saturating_sub(others) < self.majority();
            if agreed >= self.majority() || is_out {
                until = until.min(later(Instant::now(), asked.elapsed().max(LEAST_GRACE)));
            }
        }
        // From here on each answer has either been heard or is late, and its task knows.
        answers.close();
        while let Ok(answer) = answers.try_recv() {
            heard.push(answer);
        }
        heard
    }

    async fn ask_one(
        &self,
        server: usize,
        subject: &Subject,
        ask: Ask,
        asked: Instant,
        limit: Duration,
    ) -> Result<Answer, Error> {
        let locks = self.all.get(server).ok_or(Error::Closed)?;
        let owner = subject.owner.as_str();
        let question = |now| match ask {
            Ask::Acquire => {
                let (share, ttl, grace) = (Share::Exclusive, subject.ttl, None);
                Question::Acquire { owner, share, ttl, grace, also: &[] }
            }
            Ask::Raise { fence } => Question::Raise { owner, fence },
            Ask::Extend { fence, ttl } => Question::Extend { owner, fence, ttl },
            Ask::Release { .. } => Question::ReleaseAny { owner, also: &[] },
            Ask::HoldOn { fence, until, .. } => {
                Question::Extend { owner, fence, ttl: until.since(now) }
            }
        };
        let until = match ask {
            // Once only: a second try could overtake an extension that was asked for later, and end the lease sooner.
            Ask::Extend { .. } => asked,
            _ => later(asked, limit),
        };
        let limits = Limits { each: limit, until: Some(until) };
        let key = locks.key(&subject.name);
        if matches!(ask, Ask::Acquire) {
            self.identify(server, &key, limits).await?;
        }
        let answer = locks.wire().ask_anew(&key, question, limits).await;
        // After a new connection there may be another server at this address.
        if answer.as_ref().map_or(true, |answer| answer.repeated) {
            self.identities.forget(server);
        }
        answer
    }

    /// Whoever closes the quorum waits until this is dropped, or names the lock.
    pub(crate) fn begin(&self, server: usize, subject: &Subject) -> UnderWay {
        Tasks::begin(&self.tasks, server, &subject.name)
    }

    /// Has this one see in the background to what it was asked and may not have heard.
    pub(crate) fn leave(&self, server: usize, subject: &Subject, ask: Ask) {
        let Some(locks) = self.all.get(server) else { return };
        let Subject { name, owner, ttl, home } = subject;
        let (key, owner) = (locks.key(name), owner.clone());
        let ttl = match ask {
            Ask::Acquire => *ttl,
            // Whoever knows of no lease any more tries for one ttl all the same.
            Ask::Release { left } => left.max(*ttl),
            Ask::HoldOn { fence, until, left } => {
                let hold_on = HoldOn { key, owner, fence, until, left };
                return locks.orders().hold_on(hold_on, *home);
            }
            Ask::Raise { .. } | Ask::Extend { .. } => return,
        };
        let abandoned = Abandoned {
            key,
            owner,
            share: Share::Exclusive,
            ttl,
            place: None,
            parked: None,
            asked_on: None,
            stray: Stray::default(),
            also: Vec::new(),
        };
        locks.orders().abandon(abandoned, *home);
    }

    pub(crate) fn leave_everywhere(&self, subject: &Subject, ask: Ask) {
        self.everybody().into_iter().for_each(|server| self.leave(server, subject, ask));
    }

    /// What it comes to that not enough of them agreed: none if most of them have said so, or the error that kept them.
    pub(crate) fn too_few(&self, answers: &Answers) -> Result<(), Error> {
        let said = answers.iter().filter(|(_, answer)| answer.is_ok()).count();
        if said >= self.majority() {
            return Ok(());
        }
        let errors = || answers.iter().filter_map(|(_, answer)| answer.as_ref().err());
        let is_final =
            |error: &&Error| matches!(error, Error::Refused { .. } | Error::Setting { .. });
        let refused = errors().find(is_final);
        let last = errors().next_back().map(|error| format!(": {error}")).unwrap_or_default();
        let reason = format!("{said} of {} servers answered in time{last}", self.all.len());
        Err(refused.cloned().unwrap_or(Error::Unreachable { reason }))
    }
}

impl Tasks {
    fn begin(tasks: &Arc<Self>, server: usize, name: &str) -> UnderWay {
        let number = tasks.of(server).map(|mut open| open.begin(name.to_owned()));
        UnderWay { tasks: Arc::clone(tasks), server, number: number.unwrap_or_default() }
    }

    /// Waits until those have ended that have begun by now, and returns the names of the locks that
    /// the others are about.
    async fn done(&self, server: usize, limit: Duration) -> Vec<String> {
        let (done, ended) = oneshot::channel();
        let all_done = self.of(server).map(|mut open| open.tell_when_done(done));
        all_done.into_iter().for_each(Done::tell);
        // Whoever has not ended by then is named.
        let _ = timeout(limit, ended).await;
        self.of(server).map(|open| open.open().cloned().collect()).unwrap_or_default()
    }

    fn of(&self, server: usize) -> Option<MutexGuard<'_, Releases<String>>> {
        Some(locked(self.open.get(server)?))
    }
}

impl Asked {
    /// Nothing is left to be done in the background.
    fn done(&mut self) {
        self.is_done = true;
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.is_done {
            self.servers.leave(self.server, &self.subject, self.ask);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let ended = self.tasks.of(self.server).map(|mut open| open.end(self.number));
        if let Some((_, done)) = ended {
            done.tell();
        }
    }
}
