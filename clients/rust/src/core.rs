//! The state that copies of a client and their guards share, and the life of a lock: acquire, keep, extend, release.

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

    /// Fails for a quorum, which has several servers.
    pub(crate) fn remote(&self) -> Result<&Remote, Error> {
        match &self.backend {
            Backend::One(remote, _) => Ok(remote),
            Backend::Most(_) => {
                Err(Error::setting("server", "a quorum has several servers: ask one of these"))
            }
        }
    }

    /// None if others held the lock until the patience ended.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        asked: Box<Asked>,
    ) -> Result<Option<Arc<Lease>>, Error> {
        self.home.enter()?;
        let begun = Moment::now();
        let wait = story::begun(&asked);
        // Boxed, because each caller up the stack would reserve room for this future.
        let granting = Box::pin(self.granted(&asked));
        let closed = &self.home.closed;
        let came = closed.run_until_cancelled(granting).await.unwrap_or(Err(Error::Closed));
        story::asked(&asked, begun, &came, &wait);
        // The ledger entry lives until the keeper has the lease, so `close` finds the lock in one of the two.
        let Some((held, _entry)) = came? else { return Ok(None) };
        let (granted, ..) = held;
        let Asked { name, wanted, terms, correlation, .. } = *asked;
        let lease = Lease::new(name, held, wanted.ttl, terms, correlation);
        story::acquired(&lease, begun, &wait);
        drop(wait);
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

    /// Waits until replicas have the grant. `WAIT` blocks the requests behind it, and counts only writes of its own
    /// connection. So this opens a connection and writes the grant there once more.
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
            // The keeper does not renew the lease yet.
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

    /// Returns by `until`.
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
            // The caller may drop this future, so the keeper watches the lease from now on.
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
        // The extension may count for less than its ttl.
        self.keep(lease, lease.next(answer.asked, lease.valid_until().since(answer.asked)));
        Ok(Extension::Extended)
    }

    /// Asks for the hold with another share. False if the other holders do not allow it.
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

    /// Retries until the server extends the lease, or the lease ends.
    pub(crate) async fn renew(self: Arc<Self>, lease: Arc<Lease>) {
        let (ttl, mut tries) = (lease.ttl(), 0_u32);
        while lease.is_held() && lease.ttl() == ttl {
            let error = match self.extend(&lease, ttl, lease.valid_until()).await {
                Ok(Extension::Extended | Extension::Lost) => return,
                Err(error) => error,
            };
            lease.failed(&error);
            if !matches!(error, Error::Unreachable { .. }) {
                // Retries would fail too, and the program may need the rest of its lease.
                return story::renewal_refused(&lease, &error);
            }
            lease.over.run_until_cancelled(sleep(RETRY.random_rest(tries))).await;
            tries = tries.saturating_add(1);
        }
    }

    /// Confirms a grant that came by message, for a lock that is left held.
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

    pub(crate) fn lose(&self, lease: &Lease, loss: Loss) {
        lease.end(loss);
        self.forget(lease);
    }

    pub(crate) async fn release(
        self: &Arc<Self>,
        lease: &Lease,
        why: Loss,
    ) -> Result<Released, Error> {
        // Begin before the lease ends, because `close` skips leases that have ended.
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
        // After a forged message the owner still has a place in the queue, which only a release without a fence removes.
        let fence = Some(lease.fence().into()).filter(|_| !lease.is_unclaimed());
        let answer = self.ask(lease, Question::Release { fence }, limits).await?;
        let all = u64::try_from(lease.claim.keys.len()).unwrap_or(u64::MAX);
        // An earlier try may have released the lock and lost its answer, unless the lease had ended by then.
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
                // The entry covers the requests that go on after a majority has answered.
                let under_way = self.home.ledger.begin(&lease.name);
                Box::pin(quorum.ask(claim, question, limits, trail, under_way)).await
            }
        }
    }

    /// Binds a hold to a new connection after its connection was lost.
    pub(crate) async fn bind_again(self: &Arc<Self>, lease: &Arc<Lease>, grace: Duration) {
        let Ok(remote) = self.remote() else { return };
        let now = Moment::now();
        // Rebinding must not lengthen a lease that is not renewed.
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
                    // The server granted the lock anew to this owner. Nobody uses that grant.
                    let entry = self.home.ledger.begin(&lease.name);
                    remote.take_back(&self.home, &lease.claim, &lease.trail, false, entry).await;
                }
            }
            Some(Err(error)) => {
                lease.failed(&error);
                // Refusals come at once, so pause here.
                lease.over.run_until_cancelled(sleep(RETRY.random_rest(u32::MAX))).await;
            }
            None => {}
        }
    }

    /// Ends waits, releases locks and closes connections. Returns the names of the locks that stay.
    pub(crate) async fn close(self: &Arc<Self>, limit: Duration) -> Vec<String> {
        self.home.close();
        let is_left = |lease: &Arc<Lease>| lease.loss() == Some(Loss::Released);
        for lease in self.keeper.all().into_iter().filter(|lease| !is_left(lease)) {
            // The entry names the lock until its release ends.
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
        // Releases under way still need the connection, which closes with the last of them.
        if let Backend::One(_, waiting) = &self.backend {
            waiting.close();
        }
    }
}
