//! A request for locks, and its grant.

use crate::clock::Moment;
use crate::copies::Copies;
use crate::ledger::Entry;
use crate::question::Claim;
use crate::remote::Trail;
use crate::settings::Renew;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Asked {
    pub(crate) name: Arc<str>,
    pub(crate) claim: Arc<Claim>,
    pub(crate) wanted: Wanted,
    pub(crate) terms: Terms,
    pub(crate) copies: Option<Copies>,
    pub(crate) correlation: String,
}

/// The options of a request, without its owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) ttl: Duration,
    /// None waits without limit, zero does not wait.
    pub(crate) wait: Option<Duration>,
    /// Confirm the grant with the server before the work begins.
    pub(crate) confirm: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) fence: u64,
    /// Taken before the request was sent.
    pub(crate) asked: Moment,
    /// The lease, counted from `asked`.
    pub(crate) lasts: Duration,
    /// The client knows of the grant by a message alone, and the server has not heard that the message arrived.
    pub(crate) is_unclaimed: bool,
}

/// A grant, its owner, and the state of the owner's requests.
pub(crate) type Held = (Granted, Arc<Claim>, Arc<Trail>);

/// A grant, and the ledger entry that names the lock until the keeper does.
pub(crate) type Won = (Held, Option<Entry>);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) renew: Renew,
    pub(crate) hold_at_least: Option<Duration>,
}

impl Wanted {
    /// Servers wait for whole milliseconds, so less than one is no wait.
    pub(crate) fn is_try(&self) -> bool {
        self.wait.is_some_and(|wait| wait < Duration::from_millis(1))
    }
}
