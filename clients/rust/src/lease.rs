//! The client's record of a held lock. The keeper renews the lease and notices its end.

use crate::asked::{Granted, Held, Terms};
use crate::clock::Moment;
use crate::error::Error;
use crate::extensions::Extensions;
use crate::locked::locked;
use crate::outcome::{Fence, Loss};
use crate::question::{Claim, Share};
use crate::remote::{Answer, Trail};
use crate::settings::Renew;
use crate::story;
use crate::validity::{renew_at, valid_until};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::Span;

pub(crate) struct Lease {
    pub(crate) id: u64,
    pub(crate) name: Arc<str>,
    pub(crate) claim: Arc<Claim>,
    fence: AtomicU64,
    pub(crate) correlation: String,
    pub(crate) trail: Arc<Trail>,
    /// The end of the renewals; none for no limit.
    renew_until: Option<Moment>,
    /// A release before this time keeps the lock held until then.
    pub(crate) hold_until: Option<Moment>,
    pub(crate) begun: Moment,
    pub(crate) over: CancellationToken,
    state: Mutex<State>,
}

struct State {
    ttl: Duration,
    /// The ttl of the last extension that the server granted.
    agreed: Duration,
    valid_until: Moment,
    /// The client knows of the grant by a message, and the server has not heard from the client since.
    is_unclaimed: bool,
    share: Share,
    /// A request for another share is under way, so the fence may have changed.
    is_changing: bool,
    loss: Option<Loss>,
    extensions: Extensions,
    /// The error of the last renewal.
    failure: Option<String>,
    /// The time of its entry in the keeper's book.
    due: Option<Moment>,
    hold: Span,
}

/// The keeper's next step for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Renew(Moment),
    Watch(Moment),
}

impl Lease {
    pub(crate) fn new(
        name: Arc<str>,
        (granted, claim, trail): Held,
        ttl: Duration,
        terms: Terms,
        correlation: String,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Granted { fence, asked, lasts, is_unclaimed } = granted;
        let (begun, share) = (Moment::now(), claim.share);
        let hold = story::hold(&name, &claim.owner, fence, &correlation);
        Self {
            id: NEXT.fetch_add(1, Relaxed),
            name,
            claim,
            fence: AtomicU64::new(fence),
            correlation,
            trail,
            renew_until: match terms.renew {
                Renew::Always => None,
                Renew::Never => Some(asked),
                Renew::For(longest) => Some(begun.later(longest)),
            },
            hold_until: terms.hold_at_least.map(|least| begun.later(least)),
            begun,
            over: CancellationToken::new(),
            state: Mutex::new(State {
                ttl,
                agreed: ttl,
                valid_until: valid_until(asked, lasts),
                is_unclaimed,
                share,
                is_changing: false,
                loss: None,
                extensions: Extensions::default(),
                failure: None,
                due: None,
                hold,
            }),
        }
    }

    pub(crate) fn fence(&self) -> Fence {
        Fence::new(self.fence.load(Relaxed))
    }

    /// Why the lease ended. Checks the clock.
    pub(crate) fn loss(&self) -> Option<Loss> {
        let mut state = self.state();
        if state.loss.is_none() && Moment::now() >= state.valid_until {
            self.end_in(&mut state, Loss::Expired);
        }
        state.loss
    }

    pub(crate) fn lost_error(&self) -> Error {
        Error::Lost { lock: self.name.to_string(), loss: self.loss().unwrap_or(Loss::Expired) }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.loss().is_none()
    }

    pub(crate) fn valid_for(&self) -> Duration {
        if self.is_held() { self.valid_until().since(Moment::now()) } else { Duration::ZERO }
    }

    pub(crate) fn valid_until(&self) -> Moment {
        self.state().valid_until
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.state().ttl
    }

    pub(crate) fn share(&self) -> Share {
        self.state().share
    }

    /// False if another change of the share is under way.
    pub(crate) fn begins_to_change(&self) -> bool {
        !std::mem::replace(&mut self.state().is_changing, true)
    }

    /// Ends a change of the share: with the new share and fence, or with none.
    pub(crate) fn changed(&self, to: Option<(Share, u64)>) {
        let mut state = self.state();
        state.is_changing = false;
        if let Some((share, fence)) = to {
            state.share = share;
            self.fence.store(fence, Relaxed);
        }
    }

    /// Whether "not the holder", in reply to this fence, means a loss.
    pub(crate) fn is_by(&self, fence: u64) -> bool {
        !self.state().is_changing && self.fence.load(Relaxed) == fence
    }

    pub(crate) fn is_unclaimed(&self) -> bool {
        self.state().is_unclaimed
    }

    /// Ends the lease. Returns whether it was held until a release, this one or an earlier one that still goes on.
    pub(crate) fn end(&self, loss: Loss) -> bool {
        let mut state = self.state();
        if state.loss.is_none() {
            let is_held = Moment::now() < state.valid_until;
            self.end_in(&mut state, if is_held { loss } else { Loss::Expired });
        }
        matches!(state.loss, Some(Loss::Released | Loss::Closed))
    }

    fn end_in(&self, state: &mut State, loss: Loss) {
        state.loss = Some(loss);
        // Its end is that of the hold, whoever still has the guard.
        let hold = mem::replace(&mut state.hold, Span::none());
        story::ended(self, loss, state.failure.as_deref(), &hold);
        self.over.cancel();
    }

    /// Records that an extension is about to be sent. The server may apply a shorter ttl without the client hearing of it,
    /// so the lease counts for no more from now on.
    pub(crate) fn about_to_extend(&self, ttl: Duration) -> u64 {
        let (mut state, now) = (self.state(), Moment::now());
        state.ttl = ttl;
        state.valid_until = state.valid_until.min(valid_until(now, ttl));
        state.extensions.begin(ttl, now)
    }

    pub(crate) fn extended(&self, number: u64, ttl: Duration, answer: Answer) {
        let mut state = self.state();
        // A lease that ended before the answer stays ended.
        if state.loss.is_some() || Moment::now() >= state.valid_until {
            return;
        }
        state.agreed = ttl;
        state.is_unclaimed = false;
        state.failure = None;
        if let Some(counted) = state.extensions.answered(number, ttl, answer.repeated) {
            state.valid_until = valid_until(answer.asked, counted);
        }
    }

    /// Returns to the last granted ttl, because the server would refuse each renewal by this one.
    pub(crate) fn refused(&self, ttl: Duration) {
        let mut state = self.state();
        if state.ttl == ttl {
            state.ttl = state.agreed;
        }
    }

    pub(crate) fn failed(&self, error: &Error) {
        self.state().failure = Some(error.to_string());
    }

    /// The bound connection is lost: the lease ends at this moment, unless it is bound anew.
    pub(crate) fn ends_by(&self, moment: Moment) {
        let mut state = self.state();
        state.valid_until = state.valid_until.min(moment);
    }

    /// The keeper's next step after a request at this moment.
    pub(crate) fn next(&self, asked: Moment, lasts: Duration) -> Next {
        let state = self.state();
        let at = renew_at(asked, lasts);
        // Without renewal, one claim is still needed to hold the lock for its full ttl.
        let is_renewed = self.renew_until.is_none_or(|until| at < until);
        match (is_renewed, state.is_unclaimed) {
            (true, _) => Next::Renew(at),
            (false, true) => Next::Renew(Moment::now()),
            (false, false) => Next::Watch(state.valid_until),
        }
    }

    pub(crate) fn is_renewed_now(&self) -> bool {
        self.renew_until.is_none_or(|until| Moment::now() < until) || self.is_unclaimed()
    }

    /// Sets the time in the keeper's book, and returns the former one.
    pub(crate) fn schedule(&self, due: Option<Moment>) -> Option<Moment> {
        std::mem::replace(&mut self.state().due, due)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}
