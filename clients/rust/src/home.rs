//! What all parts of a client share: its settings, its runtime, what is under way, and whether it is closed.

use crate::clock::Moment;
use crate::error::Error;
use crate::ledger::Ledger;
use crate::limits::Limits;
use crate::settings::Settings;
use crate::validity::patience_for_answer;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

pub(crate) struct Home {
    pub(crate) settings: Settings,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) closed: CancellationToken,
    /// On which the client was used first.
    runtime: OnceLock<Handle>,
}

impl Home {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            ledger: Arc::default(),
            closed: CancellationToken::new(),
            runtime: OnceLock::new(),
        }
    }

    /// The key of a lock.
    pub(crate) fn key(&self, name: &[u8]) -> Vec<u8> {
        [self.settings.prefix.as_bytes(), name].concat()
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

    /// No request is made any more.
    pub(crate) fn close(&self) {
        if let Ok(here) = Handle::try_current() {
            self.runtime.get_or_init(|| here);
        }
        self.closed.cancel();
    }

    /// For what is done at once, or not at all.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            each: self.settings.response_timeout,
            until: Moment::now().later(self.settings.retry_for),
        }
    }

    /// The same about a lease of this ttl.
    pub(crate) fn limits_for(&self, ttl: Duration) -> Limits {
        Limits { each: self.each(ttl), ..self.limits() }
    }

    /// How long to wait for each answer.
    pub(crate) fn each(&self, ttl: Duration) -> Duration {
        patience_for_answer(self.settings.response_timeout, ttl)
    }
}
