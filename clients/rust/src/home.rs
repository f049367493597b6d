//! State that all parts of a client share: settings, runtime, requests under way, and whether the client is closed.

use crate::clock::Moment;
use crate::error::Error;
use crate::ledger::Ledger;
use crate::limits::Limits;
use crate::locked::locked;
use crate::question::Claim;
use crate::settings::Settings;
use crate::validity::patience_for_answer;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub(crate) struct Home {
    pub(crate) settings: Settings,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) closed: CancellationToken,
    /// The number of releases under way for each owner.
    given_back: Mutex<HashMap<Arc<str>, usize>>,
    has_given_back: Notify,
    runtime: OnceLock<Handle>,
}

impl Home {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            ledger: Arc::default(),
            closed: CancellationToken::new(),
            given_back: Mutex::default(),
            has_given_back: Notify::new(),
            runtime: OnceLock::new(),
        }
    }

    pub(crate) fn key(&self, name: &[u8]) -> Vec<u8> {
        [self.settings.prefix.as_bytes(), name].concat()
    }

    /// Fails if the client is closed, or belongs to another runtime.
    pub(crate) fn enter(&self) -> Result<(), Error> {
        let here = Handle::try_current().map_err(|_| Error::OtherRuntime)?;
        if self.closed.is_cancelled() {
            return Err(Error::Closed);
        }
        let home = self.runtime.get_or_init(|| here.clone());
        if home.id() == here.id() { Ok(()) } else { Err(Error::OtherRuntime) }
    }

    /// Spawns on the client's runtime, from any thread.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(home) = self.runtime.get() {
            home.spawn(task);
        }
    }

    /// Holds back requests of this owner until the result is dropped.
    pub(crate) fn gives_back(self: &Arc<Self>, claim: &Arc<Claim>) -> GivingBack {
        let owner = Arc::clone(&claim.owner);
        let mut given_back = locked(&self.given_back);
        let count = given_back.entry(Arc::clone(&owner)).or_default();
        *count = count.saturating_add(1);
        GivingBack { home: Arc::clone(self), owner }
    }

    /// Waits until no release of this owner is under way, because it would also release what a new request gets.
    pub(crate) async fn has_given_back(&self, claim: &Claim) {
        loop {
            let changed = self.has_given_back.notified();
            if !locked(&self.given_back).contains_key(&claim.owner) {
                return;
            }
            changed.await;
        }
    }

    pub(crate) fn close(&self) {
        if let Ok(here) = Handle::try_current() {
            self.runtime.get_or_init(|| here);
        }
        self.closed.cancel();
    }

    /// The limits of requests that do not wait.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            each: self.settings.response_timeout,
            until: Moment::now().later(self.settings.retry_for),
        }
    }

    pub(crate) fn limits_for(&self, ttl: Duration) -> Limits {
        Limits { each: self.each(ttl), ..self.limits() }
    }

    pub(crate) fn each(&self, ttl: Duration) -> Duration {
        patience_for_answer(self.settings.response_timeout, ttl)
    }
}

/// A release without a fence ends every hold of its owner, also one requested after it.
pub(crate) struct GivingBack {
    home: Arc<Home>,
    owner: Arc<str>,
}

impl Drop for GivingBack {
    fn drop(&mut self) {
        let mut given_back = locked(&self.home.given_back);
        if let Entry::Occupied(mut count) = given_back.entry(Arc::clone(&self.owner)) {
            *count.get_mut() = count.get().saturating_sub(1);
            if *count.get() == 0 {
                count.remove();
            }
        }
        drop(given_back);
        self.home.has_given_back.notify_waiters();
    }
}
