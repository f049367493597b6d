//! What all copies of a client and all its guards share, and the order in which things happen to a lock: it is asked for,
//! kept, extended and released.

use crate::asked::{Asked, Granted, Won};
use crate::attempt::Attempt;
use crate::backoff::RETRY;
use crate::clock::{Moment, within};
use crate::copies::{Copies, Reached};
use crate::error::{Error, unanswered};
use crate::home::Home;
use crate::keeper::Keeper;
use crate::lease::{Lease, Next};
use crate::limits::Limits;
use crate::link::Line;
use crate::outcome::{Loss, Released};
use crate::question::{Claim, Question, Share};
use crate::quorum::{self, Quorum};
use crate::remote::{Answer, Remote};
use crate::server::Server;
use crate::settings::Settings;
use crate::story;
use crate::validity::valid_until;
use crate::verdict::told;
use crate::waiting::Waiting;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

pub(crate) struct Core {
    pub(crate) home: Arc<Home>,
    backend: Backend,
    pub(crate) keeper: Keeper,
}

enum Backend {
    One(Arc<Remote>, Waiting),
    Most(Quorum),
}

/// What an extension came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Extension {
    Extended,
    Lost,
}

impl Core {
    pub(crate) fn new(server: &Server, settings: Settings) -> Arc<Self> {
        let home = Arc::new(Home::new(settings));
        let backend = match server.places.as_slice() {
            [place] if !server.is_quorum => {
                let remote = Arc::new(Remote::of(place, &home.settings));
                let waiting = Waiting::new(&home, &remote);
                Backend::One(remote, waiting)
            }
            places => Backend::Most(Quorum::of(places, &home)),
        };
        Arc::new(Self { home, backend, keeper: Keeper::default() })
    }

    /// The only server. A quorum has several.
    pub(crate) fn remote(&self) -> Result<&Remote, Error> {
        match &self.backend {
            Backend::One(remote, _) => Ok(remote),
            Backend::Most(_) => {
                Err(Error::setting("server", "a quorum has several servers: ask one of these"))
            }
        }
    }

    /// None: somebody else has the lock, and patience has ended.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        asked: Box<Asked>,
    ) -> Result<Option<Arc<Lease>>, Error> {
        self.home.enter()?;
        let begun = Moment::now();
        story::begun(&asked);
        // In a box, because it is handed on: each hand would have room for it.
        let granting = Box::pin(self.granted(&asked));
        let closed = &self.home.closed;
        let came = closed.run_until_cancelled(granting).await.unwrap_or(Err(Error::Closed));
        story::asked(&asked, begun, &came);
        // The lock is named until it is kept: whoever closes the client meanwhile finds it in one place or the other.
        let Some((held, _entry)) = came? else { return Ok(None) };
        let (granted, ..) = held;
        let Asked { name, wanted, terms, correlation, .. } = *asked;
        let lease = Lease::new(name, held, wanted.ttl, terms, correlation);
        story::acquired(&lease, begun);
        let lease = Arc::new(lease);
        self.keep(&lease, lease.next(granted.asked, granted.lasts));
        if self.home.closed.is_cancelled() {
            let _ = Box::pin(self.release(&lease, Loss::Closed)).await;
            return Err(Error::Closed);
        }
        Ok(Some(lease))
    }

    async fn granted(&self, asked: &Asked) -> Result<Option<Won>, Error> {
        let (remote, waiting) = match &self.backend {
            Backend::One(remote, waiting) => (remote, waiting),
            Backend::Most(quorum) => return Box::pin(quorum.acquire(asked)).await,
        };
        if asked.wanted.confirm {
            self.home.has_given_back(&asked.claim).await;
        }
        let mut attempt = Attempt::new(&self.home, remote, asked);
        let Some(mut granted) = waiting.acquire(&mut attempt).await? else { return Ok(None) };
        if let Some(copies) = asked.copies {
            granted = Box::pin(self.acknowledged(&mut attempt, granted, copies)).await?;
        }
        Ok(Some(attempt.succeeded(granted)))
    }

    /// Has replicas acknowledge a grant. They are waited for on a connection beside the line: `WAIT` stops all that comes
    /// behind it, and counts what was written on its own connection. So the grant is written once more there.
    async fn acknowledged(
        &self,
        attempt: &mut Attempt,
        granted: Granted,
        copies: Copies,
    ) -> Result<Granted, Error> {
        let (claim, remote) = (Arc::clone(&attempt.claim), Arc::clone(&attempt.remote));
        let (ttl, asked) = (attempt.wanted.ttl, Moment::now());
        let waiting = async {
            let node = remote.link.node(claim.key()).await?;
            let mut line = Line::Own(node.dedicated().await?, node);
            let question = Question::Extend { ttl, fence: granted.fence };
            let extended = remote.say(&mut line, &claim, question).await?;
            let reached = Reached::read(&line.send(claim.key(), &copies.wait()).await?)?;
            Ok((extended, reached))
        };
        let longest = copies.within.saturating_add(self.home.settings.response_timeout);
        let came = within(longest, waiting).await.unwrap_or_else(|| Err(unanswered()));
        let lock = attempt.name.to_string();
        let error = match came {
            Ok((Some(1), reached)) if !copies.are_made(reached) => Error::TooFewReplicas {
                lock,
                acknowledged: reached.replicas,
                wanted: copies.replicas,
            },
            // Nobody renews it meanwhile.
            Ok((Some(1), _)) if Moment::now() >= valid_until(asked, ttl) => Error::TooLate { lock },
            Ok((Some(1), _)) => {
                return Ok(Granted { asked, lasts: ttl, is_unclaimed: false, ..granted });
            }
            Ok(_) => Error::Lost { lock, loss: Loss::Taken },
            Err(error) => told(error),
        };
        if remote.give_back(&claim, self.home.limits(), &attempt.trail).await.is_ok() {
            attempt.may_hold = false;
        }
        Err(error)
    }

    /// Takes no longer than until then.
    pub(crate) async fn extend(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        ttl: Duration,
        until: Moment,
    ) -> Result<Extension, Error> {
        if !lease.is_held() {
            return Ok(Extension::Lost);
        }
        let (before, number) = (lease.ttl(), lease.about_to_extend(ttl));
        if ttl != before {
            // Whoever asks for that may not go on with it.
            self.keep(lease, lease.next(Moment::now(), lease.valid_for()));
        }
        let limits = Limits { each: self.home.each(ttl), until };
        let fence = lease.fence().into();
        let asking = self.ask(lease, Question::Extend { ttl, fence }, limits);
        let Some(came) = lease.over.run_until_cancelled(asking).await else {
            return Ok(Extension::Lost);
        };
        let answer = match came {
            Ok(answer) => answer,
            Err(_) if !lease.is_held() => return Ok(Extension::Lost),
            Err(error) => return Err(error),
        };
        if answer.number != Some(1) {
            if !lease.is_by(fence) {
                return Err(told(unanswered()));
            }
            self.lose(lease, Loss::Taken);
            return Ok(Extension::Lost);
        }
        lease.extended(number, ttl, answer);
        if !lease.is_held() {
            return Ok(Extension::Lost);
        }
        story::extended(lease);
        // It may count for less than its ttl.
        self.keep(lease, lease.next(answer.asked, lease.valid_until().since(answer.asked)));
        Ok(Extension::Extended)
    }

    /// Has it tolerate so many holders at a time. False: those who hold it beside it do not let it.
    pub(crate) async fn change(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        share: Share,
    ) -> Result<bool, Error> {
        let remote = self.remote()?;
        if !lease.begins_to_change() {
            return Err(Error::setting("share", "it is being changed already"));
        }
        let claim = Claim { share, ..Claim::clone(&lease.claim) };
        let (ttl, number) = (lease.ttl(), lease.about_to_extend(lease.ttl()));
        let limits = Limits { until: lease.valid_until(), ..self.home.limits_for(ttl) };
        let asking = remote.ask(&claim, Question::Try { ttl }, limits, &lease.trail);
        let came = lease.over.run_until_cancelled(asking).await;
        let granted = match &came {
            Some(Ok(Answer { number: Some(fence), .. })) => Some((share, *fence)),
            _ => None,
        };
        lease.changed(granted);
        let answer = came.ok_or_else(|| lease.lost_error())??;
        if granted.is_some() {
            lease.extended(number, ttl, answer);
            self.keep(lease, lease.next(answer.asked, lease.valid_until().since(answer.asked)));
        }
        if lease.is_held() { Ok(granted.is_some()) } else { Err(lease.lost_error()) }
    }

    /// Renews it until the server has agreed, or it is over.
    pub(crate) async fn renew(self: Arc<Self>, lease: Arc<Lease>) {
        let (ttl, mut tries) = (lease.ttl(), 0_u32);
        while lease.is_held() && lease.ttl() == ttl {
            let error = match self.extend(&lease, ttl, lease.valid_until()).await {
                Ok(Extension::Extended | Extension::Lost) => return,
                Err(error) => error,
            };
            lease.failed(&error);
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
        let (core, lease, entry) =
            (Arc::clone(self), Arc::clone(lease), self.home.ledger.begin(&lease.name));
        self.home.spawn(async move {
            let (ttl, limits) = (lease.ttl(), core.home.limits());
            let question = Question::Extend { ttl, fence: lease.fence().into() };
            if let Err(error) = core.ask(&lease, question, limits).await {
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

    pub(crate) async fn release(
        self: &Arc<Self>,
        lease: &Lease,
        why: Loss,
    ) -> Result<Released, Error> {
        // Before it is ended: whoever closes the client leaves to others what is ended.
        let entry = self.home.ledger.begin(&lease.name);
        let (was_held, end) = (lease.end(why), lease.valid_until());
        self.forget(lease);
        lease.trail.end();
        if lease.loss() == Some(Loss::Taken) {
            story::released(lease, Released::Late);
            return Ok(Released::Late);
        }
        let came = self.leave(lease, was_held, end).await;
        match &came {
            Ok(released) => story::released(lease, *released),
            Err(error) => {
                story::not_released(lease, error);
                entry.stays(end);
            }
        }
        came
    }

    async fn leave(
        self: &Arc<Self>,
        lease: &Lease,
        was_held: bool,
        end: Moment,
    ) -> Result<Released, Error> {
        let limits = self.home.limits_for(lease.ttl());
        let left = lease.hold_until.map(|until| until.since(Moment::now())).unwrap_or_default();
        let is_in_time = |answer: Answer, all: u64| {
            answer.number == Some(all) || (answer.repeated && answer.asked < end)
        };
        if !left.is_zero() && was_held {
            let question = Question::Extend { ttl: left, fence: lease.fence().into() };
            let answer = self.ask(lease, question, limits).await?;
            return Ok(if is_in_time(answer, 1) { Released::Later } else { Released::Late });
        }
        // A message may have been forged: then the owner has a place in the queue, which only this gives back.
        let fence = Some(lease.fence().into()).filter(|_| !lease.is_unclaimed());
        let answer = self.ask(lease, Question::Release { fence }, limits).await?;
        let all = u64::try_from(lease.claim.keys.len()).unwrap_or(u64::MAX);
        // An earlier try may have been heard and its answer lost. Before the end of the lease nobody else can have had it.
        Ok(if was_held && is_in_time(answer, all) { Released::InTime } else { Released::Late })
    }

    async fn ask(
        &self,
        lease: &Lease,
        question: Question<'_>,
        limits: Limits,
    ) -> Result<Answer, Error> {
        let Lease { claim, trail, .. } = lease;
        match &self.backend {
            Backend::One(remote, _) => {
                if let Question::Release { .. } = question {
                    return remote.release(claim, question, limits, trail).await;
                }
                remote.ask(claim, question, limits, trail).await
            }
            Backend::Most(quorum) => {
                let limits =
                    Limits { each: quorum::limit(lease.ttl(), &self.home.settings), ..limits };
                // What it goes on with when most have answered is named until it is done.
                let under_way = self.home.ledger.begin(&lease.name);
                Box::pin(quorum.ask(claim, question, limits, trail, under_way)).await
            }
        }
    }

    /// Asks for a hold again that was bound to a connection that is lost, until it ends or is bound to another one.
    pub(crate) async fn bind_again(self: &Arc<Self>, lease: &Arc<Lease>, grace: Duration) {
        let Ok(remote) = self.remote() else { return };
        let now = Moment::now();
        // One that is not renewed is no longer for having been bound again.
        let left = lease.valid_until().since(now);
        let ttl = if lease.is_renewed_now() { lease.ttl() } else { left };
        lease.ends_by(valid_until(now, grace));
        self.keep(lease, Next::Watch(lease.valid_until()));
        let number = lease.about_to_extend(ttl);
        let limits = Limits { each: self.home.each(ttl), until: lease.valid_until() };
        let claim = Claim { share: lease.share(), ..Claim::clone(&lease.claim) };
        let asking = remote.ask(&claim, Question::Try { ttl }, limits, &lease.trail);
        match lease.over.run_until_cancelled(asking).await {
            Some(Ok(answer)) if answer.number == Some(lease.fence().into()) => {
                lease.extended(number, ttl, answer);
                if lease.is_held() {
                    let lasts = lease.valid_until().since(answer.asked);
                    self.keep(lease, lease.next(answer.asked, lasts));
                }
            }
            Some(Ok(answer)) => {
                self.lose(lease, Loss::Taken);
                if answer.number.is_some() {
                    // A later grant of the same owner, which nobody wants.
                    let entry = self.home.ledger.begin(&lease.name);
                    remote.take_back(&self.home, &lease.claim, &lease.trail, false, entry).await;
                }
            }
            Some(Err(error)) => {
                lease.failed(&error);
                // Whoever is refused is refused at once.
                lease.over.run_until_cancelled(sleep(RETRY.random_rest(u32::MAX))).await;
            }
            None => {}
        }
    }

    /// Ends all waits, releases what is held, and closes what was opened. The names of the locks that stay.
    pub(crate) async fn close(self: &Arc<Self>, limit: Duration) -> Vec<String> {
        self.home.close();
        let is_left = |lease: &Arc<Lease>| lease.loss() == Some(Loss::Released);
        for lease in self.keeper.all().into_iter().filter(|lease| !is_left(lease)) {
            // From now on it is named, until it is released.
            let (core, entry) = (Arc::clone(self), self.home.ledger.begin_task(&lease.name));
            self.home.spawn(async move {
                let _ = core.release(&lease, Loss::Closed).await;
                entry.done();
            });
        }
        within(limit, self.home.ledger.settled()).await;
        let left = self.home.ledger.names();
        match &self.backend {
            Backend::One(remote, waiting) => {
                waiting.close();
                remote.link.close();
            }
            Backend::Most(quorum) => quorum.close(),
        }
        left
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.keeper.wake();
        // What is still being given back needs its connection, which ends with that.
        if let Backend::One(_, waiting) = &self.backend {
            waiting.close();
        }
    }
}
