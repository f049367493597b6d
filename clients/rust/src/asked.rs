//! What is asked for, and what is granted.

use crate::clock::Moment;
use crate::copies::Copies;
use crate::ledger::Entry;
use crate::question::Claim;
use crate::remote::Trail;
use crate::settings::Renew;
use std::sync::Arc;
use std::time::Duration;

/// A request in full.
pub(crate) struct Asked {
    pub(crate) name: Arc<str>,
    pub(crate) claim: Arc<Claim>,
    pub(crate) wanted: Wanted,
    pub(crate) terms: Terms,
    pub(crate) copies: Option<Copies>,
    pub(crate) correlation: String,
}

/// What is asked for, apart from who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) ttl: Duration,
    /// None is without limit, and zero not at all.
    pub(crate) wait: Option<Duration>,
    /// Whether a grant is claimed before the work begins.
    pub(crate) confirm: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) fence: u64,
    /// Before the server was asked.
    pub(crate) asked: Moment,
    /// For how long from then.
    pub(crate) lasts: Duration,
    /// A message has told it, and the server does not know that somebody has heard it.
    pub(crate) is_unclaimed: bool,
}

/// What was granted: who holds it, and what became of the requests.
pub(crate) type Held = (Granted, Arc<Claim>, Arc<Trail>);

/// The same, and what names the lock until somebody looks after it.
pub(crate) type Won = (Held, Option<Entry>);

/// How the lease is to be renewed, and for how long it is to be held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) renew: Renew,
    pub(crate) hold_at_least: Option<Duration>,
}

impl Wanted {
    /// Servers wait for whole milliseconds: less is no wait.
    pub(crate) fn is_try(&self) -> bool {
        self.wait.is_some_and(|wait| wait < Duration::from_millis(1))
    }
}
