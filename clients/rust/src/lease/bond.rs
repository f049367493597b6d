//! What a lease is bound to that ends with a connection.

use super::Lease;
use crate::clock::Moment;
use crate::poison::locked;
use crate::same_owner::Slot;
use crate::share::Share;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

pub(crate) struct Bond {
    /// How long the hold outlives its connection.
    pub(crate) grace: Duration,
    pub(crate) share: Share,
    /// If the caller chose the owner.
    pub(crate) slot: Option<Arc<Slot>>,
    /// They fire when their connections end. The server knows one of them: the one that asked last. There are several if
    /// several runtimes have asked at the same time.
    connections: Mutex<Vec<CancellationToken>>,
}

impl Bond {
    pub(crate) fn new(
        grace: Duration,
        share: Share,
        slot: Option<Arc<Slot>>,
        connection: CancellationToken,
    ) -> Self {
        Self { grace, share, slot, connections: Mutex::new(vec![connection]) }
    }

    /// Ends when one of the connections has.
    pub(crate) async fn broken(&self) {
        let connections = locked(&self.connections).clone();
        let ended = connections.iter().map(|connection| Box::pin(connection.cancelled()));
        let mut ended = pin!(futures_util::future::select_all(ended));
        ended.as_mut().await;
    }

    pub(crate) fn bind_to(&self, connection: CancellationToken) {
        let mut connections = locked(&self.connections);
        connections.retain(|connection| !connection.is_cancelled());
        connections.push(connection);
    }
}

impl Lease {
    /// The connection has ended that it was bound to: the server holds it for no longer than the grace from now on.
    pub(crate) fn cut(&self, now: Moment) {
        let Some(bond) = &self.bond else { return };
        if now.later(bond.grace) >= self.valid_until() {
            return;
        }
        // As if that had been asked for, and answered by now.
        if let Some(mut cut) = self.about_to_extend([super::ONLY], bond.grace, now) {
            cut.answered(super::ONLY, now);
        }
    }

    /// What to ask for so that it ends no sooner than it would have.
    pub(crate) fn ttl_to_bind(&self, now: Moment) -> Duration {
        let state = self.state();
        let renewal = state.renewed_until.map(|_| state.renewal_ttl(now)).unwrap_or_default();
        drop(state);
        renewal.max(self.left(now))
    }
}
