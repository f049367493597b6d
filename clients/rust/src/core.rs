//! What all copies of a client and all its guards share, and the order in which things happen to a lock: it is asked for,
//! kept, extended and released.

use crate::attempt::{Attempt, Granted, Wanted};
use crate::backoff::RETRY;
use crate::clock::{Moment, within};
use crate::keeper::Keeper;
use crate::lease::{Lease, Terms};
use crate::ledger::{Entry, Ledger};
use crate::link::Line;
use crate::locked::locked;
use crate::question::{Claim, Question};
use crate::quorum::{self, Quorum};
use crate::remote::{Answer, Limits, Remote, Trail};
use crate::validity::{patience_for_answer, valid_until};
use crate::verdict::{number, told};
use crate::waiting::{self, Places};
use crate::{Error, Loss, Released, Server, Settings, story};
use redis::cmd;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

pub(crate) struct Core {
    pub(crate) settings: Settings,
    backend: Backend,
    pub(crate) places: Arc<Places>,
    /// For connections that wait.
    pub(crate) room: Semaphore,
    pub(crate) keeper: Keeper,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) closed: CancellationToken,
    /// On which the client was used first.
    runtime: OnceLock<Handle>,
    no_tickets_until: Mutex<Option<Moment>>,
}

enum Backend {
    One(Box<Remote>),
    Most(Quorum),
}

/// A request in full.
pub(crate) struct Asked {
    pub(crate) name: Arc<str>,
    pub(crate) claim: Claim,
    pub(crate) wanted: Wanted,
    pub(crate) terms: Terms,
    /// How many replicas have to acknowledge the grant, and how long they may take.
    pub(crate) replicas: Option<(u64, Duration)>,
    pub(crate) correlation: String,
}

/// What an extension came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Extension {
    Extended,
    Lost,
}

/// A connection that was closed while a request waited on it may be read by the server so much later.
const CUT_IS_READ_WITHIN: Duration = Duration::from_millis(250);

impl Core {
    pub(crate) fn new(server: &Server, settings: Settings) -> Arc<Self> {
        let backend = match server.places.as_slice() {
            [place] if !server.is_quorum => Backend::One(Box::new(Remote::of(place, &settings))),
            places => Backend::Most(Quorum::of(places, &settings)),
        };
        Arc::new(Self {
            backend,
            places: Arc::new(Places::new(&settings)),
            room: Semaphore::new(settings.wait_connections.min(Semaphore::MAX_PERMITS)),
            keeper: Keeper::default(),
            ledger: Arc::default(),
            closed: CancellationToken::new(),
            runtime: OnceLock::new(),
            no_tickets_until: Mutex::default(),
            settings,
        })
    }

    /// Whether the client may be used here.
    pub(crate) fn enter(&self) -> Result<(), Error> {
        let here = Handle::try_current().map_err(|_| Error::OtherRuntime)?;
        if self.closed.is_cancelled() {
            return Err(Error::Closed);
        }
        let home = self.runtime.get_or_init(|| here.clone());
        if home.id() == here.id() { Ok(()) } else { Err(Error::OtherRuntime) }
    }

    /// On the client's own runtime, wherever this is called.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(home) = self.runtime.get() {
            home.spawn(task);
        }
    }

    /// The only server. A quorum has several.
    pub(crate) fn remote(&self) -> Result<&Remote, Error> {
        match &self.backend {
            Backend::One(remote) => Ok(remote),
            Backend::Most(_) => Err(Error::setting("server", "a quorum has several servers: ask one of these")),
        }
    }

    pub(crate) fn may_take_tickets(&self) -> bool {
        locked(&self.no_tickets_until).is_none_or(|until| Moment::now() >= until)
    }

    pub(crate) fn refuse_tickets_until(&self, moment: Moment) {
        *locked(&self.no_tickets_until) = Some(moment);
    }

    /// For what is done at once, or not at all.
    pub(crate) fn limits(&self, each: Duration) -> Limits {
        Limits { each, until: Moment::now().later(self.settings.retry_for) }
    }

    fn each(&self, ttl: Duration) -> Duration {
        patience_for_answer(self.settings.response_timeout, ttl)
    }

    /// None: somebody else has the lock, and patience has ended.
    pub(crate) async fn acquire(self: &Arc<Self>, asked: Asked) -> Result<Option<Arc<Lease>>, Error> {
        self.enter()?;
        let begun = Moment::now();
        // In a box, because it is handed on: each hand would have room for it.
        let granting = Box::pin(self.granted(&asked));
        let came = self.closed.run_until_cancelled(granting).await.unwrap_or(Err(Error::Closed));
        story::asked(&asked, begun, &came);
        let Some((granted, held)) = came? else { return Ok(None) };
        let Asked { name, wanted, terms, correlation, .. } = asked;
        let lease = Lease::new(name, held, granted, wanted.ttl, terms, correlation);
        story::acquired(&lease, begun);
        let lease = Arc::new(lease);
        self.keep(&lease, lease.next(granted.asked, granted.lasts));
        if self.closed.is_cancelled() {
            let _ = self.release(&lease, Loss::Closed).await;
            return Err(Error::Closed);
        }
        Ok(Some(lease))
    }

    async fn granted(self: &Arc<Self>, asked: &Asked) -> Result<Option<(Granted, (Arc<Claim>, Arc<Trail>))>, Error> {
        let Asked { name, claim, wanted, replicas, .. } = asked;
        let remote = match &self.backend {
            Backend::One(remote) => remote,
            Backend::Most(quorum) => return quorum.acquire(self, claim, *wanted, name).await,
        };
        let mut attempt = Attempt::new(self, Arc::new(claim.clone()), *wanted, name);
        let Some(mut granted) = waiting::acquire(&mut attempt, remote).await? else { return Ok(None) };
        if let Some((count, limit)) = *replicas {
            granted = self.acknowledged(&mut attempt, remote, granted, count, limit).await?;
        }
        Ok(Some((granted, attempt.succeeded())))
    }

    /// Has replicas acknowledge a grant. They are waited for on a connection beside the line: `WAIT` stops all that comes
    /// behind it, and counts what was written on its own connection. So the grant is written once more there.
    async fn acknowledged(
        &self,
        attempt: &mut Attempt,
        remote: &Remote,
        granted: Granted,
        wanted: u64,
        limit: Duration,
    ) -> Result<Granted, Error> {
        let (claim, ttl, asked) = (Arc::clone(&attempt.claim), attempt.wanted.ttl, Moment::now());
        let waiting = async {
            let node = remote.link.node(claim.key()).await?;
            let mut line = Line::Own(node.dedicated().await?, node);
            let extended = remote.say(&mut line, &claim, Question::Extend { ttl, fence: granted.fence }).await?;
            let wait = cmd("WAIT").arg(wanted).arg(crate::question::millis(limit)).take();
            let acknowledged = number(&line.send(claim.key(), &wait).await?)?;
            Ok((extended, acknowledged))
        };
        let each = self.settings.response_timeout;
        let came = within(limit.saturating_add(each), waiting).await;
        let came = came.unwrap_or_else(|| Err(crate::error::unanswered())).map_err(told);
        let lock = attempt.name.to_string();
        let error = match came {
            Ok((Some(1), Some(acknowledged))) if acknowledged >= wanted => {
                return Ok(Granted { asked, lasts: ttl, is_unclaimed: false, ..granted });
            }
            Ok((Some(1), acknowledged)) => {
                Error::TooFewReplicas { lock, acknowledged: acknowledged.unwrap_or_default(), wanted }
            }
            Ok(_) => Error::Lost { lock, loss: Loss::Taken },
            Err(error) => error,
        };
        if remote.give_back(&claim, self.limits(each), &attempt.trail).await.is_ok() {
            attempt.may_hold = false;
        }
        Err(error)
    }

    /// Gives back what a request may have been granted that nobody wants any more.
    pub(crate) async fn give_back(&self, claim: &Claim, trail: &Trail, was_cut: bool, entry: Entry) {
        let Backend::One(remote) = &self.backend else { return };
        let each = self.settings.response_timeout;
        let mut came = remote.give_back(claim, self.limits(each), trail).await;
        if was_cut {
            // The server may read the end of that connection after it has read this, and grant the lock in between.
            sleep(CUT_IS_READ_WITHIN).await;
            came = remote.give_back(claim, self.limits(each), trail).await;
        }
        if let Err(error) = came {
            story::not_given_back(&entry, claim, &error);
            entry.stays(Moment::now().later(self.settings.ttl));
        }
    }

    /// Takes no longer than until then.
    pub(crate) async fn extend(self: &Arc<Self>, lease: &Arc<Lease>, ttl: Duration, until: Moment) -> Result<Extension, Error> {
        if !lease.is_held() {
            return Ok(Extension::Lost);
        }
        let number = lease.about_to_extend(ttl);
        let limits = Limits { each: self.each(ttl), until };
        let asking = self.ask(lease, Question::Extend { ttl, fence: lease.fence }, limits, None);
        let Some(came) = lease.over.run_until_cancelled(asking).await else { return Ok(Extension::Lost) };
        let answer = match came {
            Ok(answer) => answer,
            Err(_) if !lease.is_held() => return Ok(Extension::Lost),
            Err(error) => return Err(error),
        };
        if answer.number != Some(1) {
            self.lose(lease, Loss::Taken);
            return Ok(Extension::Lost);
        }
        lease.extended(number, ttl, answer);
        if !lease.is_held() {
            return Ok(Extension::Lost);
        }
        story::extended(lease);
        self.keep(lease, lease.next(answer.asked, lease.ttl()));
        Ok(Extension::Extended)
    }

    /// Renews it until the server has agreed, or it is over.
    pub(crate) async fn renew(self: Arc<Self>, lease: Arc<Lease>) {
        let (ttl, mut tries) = (lease.ttl(), 0_u32);
        while lease.is_held() && lease.ttl() == ttl {
            let error = match self.extend(&lease, ttl, lease.valid_until()).await {
                Ok(Extension::Extended | Extension::Lost) => return,
                Err(error) => error,
            };
            if let Error::Unreachable { source } | Error::Refused { source } = &error {
                lease.failed(source);
            }
            if !matches!(error, Error::Unreachable { .. }) {
                // Each further one would come to the same. The program may need what is left of the lease.
                return story::renewal_refused(&lease, &error);
            }
            lease.over.run_until_cancelled(sleep(RETRY.random_rest(tries))).await;
            tries = tries.saturating_add(1);
        }
    }

    /// Has the server know that somebody heard of the grant, for a lock that is left held.
    pub(crate) fn claim_in_background(self: &Arc<Self>, lease: &Arc<Lease>) {
        let (core, lease, entry) = (Arc::clone(self), Arc::clone(lease), self.ledger.begin(&lease.name));
        self.spawn(async move {
            let (ttl, limits) = (lease.ttl(), core.limits(core.settings.response_timeout));
            let question = Question::Extend { ttl, fence: lease.fence };
            if let Err(error) = core.ask(&lease, question, limits, None).await {
                story::renewal_refused(&lease, &error);
            }
            drop(entry);
        });
    }

    /// It is held no more, and the server says so.
    pub(crate) fn lose(&self, lease: &Lease, loss: Loss) {
        lease.end(loss);
        self.forget(lease);
    }

    pub(crate) async fn release(self: &Arc<Self>, lease: &Lease, why: Loss) -> Result<Released, Error> {
        let (was_held, end) = (lease.end(why), lease.valid_until());
        self.forget(lease);
        if lease.loss() == Some(Loss::Taken) {
            return Ok(Released::Late);
        }
        let entry = self.ledger.begin(&lease.name);
        let came = self.give_up(lease, was_held, end).await;
        match &came {
            Ok(released) => story::released(lease, *released),
            Err(error) => {
                story::not_released(lease, error);
                entry.stays(end);
            }
        }
        came
    }

    async fn give_up(self: &Arc<Self>, lease: &Lease, was_held: bool, end: Moment) -> Result<Released, Error> {
        let limits = self.limits(self.each(lease.ttl()));
        let left = lease.hold_until.map(|until| until.since(Moment::now())).unwrap_or_default();
        let is_in_time = |answer: Answer, all: u64| answer.number == Some(all) || (answer.repeated && answer.asked < end);
        if !left.is_zero() && was_held {
            let question = Question::Extend { ttl: left, fence: lease.fence };
            let answer = self.ask(lease, question, limits, None).await?;
            return Ok(if is_in_time(answer, 1) { Released::Later } else { Released::Late });
        }
        // A message may have been forged: then the owner has a place in the queue, which only this gives back.
        let fence = Some(lease.fence).filter(|_| !lease.is_unclaimed());
        let under_way = self.ledger.begin(&lease.name);
        let answer = self.ask(lease, Question::Release { fence }, limits, Some(under_way)).await?;
        let all = u64::try_from(lease.claim.keys.len()).unwrap_or(u64::MAX);
        // An earlier try may have been heard and its answer lost. Before the end of the lease nobody else can have had it.
        Ok(if was_held && is_in_time(answer, all) { Released::InTime } else { Released::Late })
    }

    /// `under_way` stands for what a quorum goes on with when most have answered.
    async fn ask(
        self: &Arc<Self>,
        lease: &Lease,
        question: Question<'_>,
        limits: Limits,
        under_way: Option<Entry>,
    ) -> Result<Answer, Error> {
        let Lease { claim, trail, .. } = lease;
        match &self.backend {
            Backend::One(remote) => {
                if let Question::Release { .. } = question {
                    remote.release_strays(claim, trail);
                }
                remote.ask(claim, question, limits, trail).await
            }
            Backend::Most(quorum) => {
                let each = quorum::limit(lease.ttl(), &self.settings);
                quorum.ask(self, claim, question, Limits { each, ..limits }, trail, under_way).await
            }
        }
    }

    /// Asks for a hold again that was bound to a connection that is lost, until it ends or is bound to another one.
    pub(crate) async fn bind_again(self: &Arc<Self>, lease: &Arc<Lease>, grace: Duration) {
        let Ok(remote) = self.remote() else { return };
        let now = Moment::now();
        lease.ends_by(valid_until(now, grace));
        self.keep(lease, crate::lease::Next::Watch(lease.valid_until()));
        let ttl = lease.ttl();
        let number = lease.about_to_extend(ttl);
        let limits = Limits { each: self.each(ttl), until: lease.valid_until() };
        let asking = remote.ask(&lease.claim, Question::Try { ttl }, limits, &lease.trail);
        match lease.over.run_until_cancelled(asking).await {
            Some(Ok(answer)) if answer.number == Some(lease.fence) => {
                lease.extended(number, ttl, answer);
                if lease.is_held() {
                    self.keep(lease, lease.next(answer.asked, ttl));
                }
            }
            Some(Ok(answer)) => {
                self.lose(lease, Loss::Taken);
                if answer.number.is_some() {
                    // A later grant of the same owner, which nobody wants.
                    let entry = self.ledger.begin(&lease.name);
                    self.give_back(&lease.claim, &lease.trail, false, entry).await;
                }
            }
            Some(Err(error)) => {
                if let Error::Unreachable { source } | Error::Refused { source } = &error {
                    lease.failed(source);
                }
            }
            None => {}
        }
    }

    /// Ends all waits, releases what is held, and closes what was opened. The names of the locks that stay.
    pub(crate) async fn close(self: &Arc<Self>, limit: Duration) -> Vec<String> {
        self.closed.cancel();
        if Handle::try_current().is_ok() {
            let _ = self.runtime.get_or_init(Handle::current);
        }
        for lease in self.keeper.all() {
            // From now on it is named, until it is released.
            let (core, entry) = (Arc::clone(self), self.ledger.begin(&lease.name));
            self.spawn(async move {
                let released = core.release(&lease, Loss::Closed).await;
                drop((released, entry));
            });
        }
        within(limit, self.ledger.settled()).await;
        let left = self.ledger.names();
        self.places.close();
        match &self.backend {
            Backend::One(remote) => remote.link.close(),
            Backend::Most(quorum) => quorum.close(),
        }
        left
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.keeper.wake();
        self.places.close();
    }
}
