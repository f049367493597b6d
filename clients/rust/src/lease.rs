//! A lock that is held, from its grant until it is released, detached or lost: what is known of it here. The keeper renews
//! it, and sees it end.

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

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

pub(crate) struct Lease {
    pub(crate) id: u64,
    pub(crate) name: Arc<str>,
    pub(crate) claim: Arc<Claim>,
    fence: AtomicU64,
    /// What the caller goes by.
    pub(crate) correlation: String,
    pub(crate) trail: Arc<Trail>,
    /// Until when it is renewed; none is without limit.
    renew_until: Option<Moment>,
    /// A release before this leaves it held until then.
    pub(crate) hold_until: Option<Moment>,
    pub(crate) begun: Moment,
    pub(crate) over: CancellationToken,
    state: Mutex<State>,
}

struct State {
    /// The ttl to renew it by.
    ttl: Duration,
    /// The ttl that the server agreed to last.
    agreed: Duration,
    valid_until: Moment,
    /// A message told of the grant, and the server does not know that somebody heard it.
    is_unclaimed: bool,
    /// How many holders at a time it tolerates.
    share: Share,
    /// It is being asked for with another share, and may have another fence by now.
    is_changing: bool,
    loss: Option<Loss>,
    extensions: Extensions,
    /// What the last renewal failed with, if it did.
    failure: Option<String>,
    /// The key of its entry with the keeper.
    due: Option<Moment>,
}

/// What the keeper has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Renew(Moment),
    /// Sees it end.
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
            }),
        }
    }

    pub(crate) fn fence(&self) -> Fence {
        Fence::new(self.fence.load(Relaxed))
    }

    /// Why it is held no more. It looks at the clock.
    pub(crate) fn loss(&self) -> Option<Loss> {
        let mut state = self.state();
        if state.loss.is_none() && Moment::now() >= state.valid_until {
            self.end_in(&mut state, Loss::Expired);
        }
        state.loss
    }

    /// For whoever needs it held.
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

    /// It is asked for with another share. False: somebody does so already.
    pub(crate) fn begins_to_change(&self) -> bool {
        !std::mem::replace(&mut self.state().is_changing, true)
    }

    /// It has this share and this fence, or what it had before.
    pub(crate) fn changed(&self, to: Option<(Share, u64)>) {
        let mut state = self.state();
        state.is_changing = false;
        if let Some((share, fence)) = to {
            state.share = share;
            self.fence.store(fence, Relaxed);
        }
    }

    /// Whether a server that does not know this fence says that the lease is lost.
    pub(crate) fn is_by(&self, fence: u64) -> bool {
        !self.state().is_changing && self.fence.load(Relaxed) == fence
    }

    pub(crate) fn is_unclaimed(&self) -> bool {
        self.state().is_unclaimed
    }

    /// Whether it was held until it was given up, now or before: a release that was dropped goes on.
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
        story::ended(self, loss, state.failure.as_deref());
        self.over.cancel();
    }

    /// The ttl to renew it by from now on. The server may have it end as early as that, whether or not that is heard of.
    pub(crate) fn about_to_extend(&self, ttl: Duration) -> u64 {
        let (mut state, now) = (self.state(), Moment::now());
        state.ttl = ttl;
        state.valid_until = state.valid_until.min(valid_until(now, ttl));
        state.extensions.begin(ttl, now)
    }

    /// The server has agreed to an extension.
    pub(crate) fn extended(&self, number: u64, ttl: Duration, answer: Answer) {
        let mut state = self.state();
        // What was over when the answer came stays over.
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

    /// To renew it by this ttl would be refused each time.
    pub(crate) fn refused(&self, ttl: Duration) {
        let mut state = self.state();
        if state.ttl == ttl {
            state.ttl = state.agreed;
        }
    }

    /// A renewal came to this.
    pub(crate) fn failed(&self, error: &Error) {
        self.state().failure = Some(error.to_string());
    }

    /// The connection that it is bound to is lost: it ends at this moment, unless it is bound to another one.
    pub(crate) fn ends_by(&self, moment: Moment) {
        let mut state = self.state();
        state.valid_until = state.valid_until.min(moment);
    }

    /// What to do next after it was asked for at this moment.
    pub(crate) fn next(&self, asked: Moment, lasts: Duration) -> Next {
        let state = self.state();
        let at = renew_at(asked, lasts);
        // Who does not renew it claims it all the same, to have it for its ttl.
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

    /// The key of the entry that it had with the keeper.
    pub(crate) fn schedule(&self, due: Option<Moment>) -> Option<Moment> {
        std::mem::replace(&mut self.state().due, due)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}
