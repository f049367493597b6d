//! Extensions that are being asked for.

use super::Lease;
use crate::clock::Moment;
use crate::validity::valid_until;
use std::collections::BTreeSet;
use std::time::Duration;

/// An extension that is being asked for. When this is dropped, those servers are noted that have
/// not answered: it may still reach them.
#[must_use = "dropped, it says that nobody has answered"]
pub(crate) struct Asking<'l> {
    lease: &'l Lease,
    ttl: Duration,
    silent: BTreeSet<usize>,
}

impl Asking<'_> {
    /// Nothing more of it can reach this server.
    pub(crate) fn answered(&mut self, server: usize) {
        if self.silent.remove(&server) {
            self.lease.unanswered().answered(server, self.ttl);
        }
    }

    pub(super) fn give_up(&mut self, now: Moment) {
        for server in std::mem::take(&mut self.silent) {
            self.lease.unanswered().given_up(server, self.ttl, now);
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.give_up(Moment::now());
    }
}

impl Lease {
    /// From now on these servers may have this ttl in force, which may be shorter than what is
    /// left.
    pub(crate) fn about_to_extend(
        &self,
        servers: impl IntoIterator<Item = usize>,
        ttl: Duration,
        now: Moment,
    ) -> Asking<'_> {
        let silent: BTreeSet<_> = servers.into_iter().collect();
        for server in &silent {
            self.unanswered().begin(*server, ttl);
        }
        let mut state = self.state();
        // As if it were granted with this ttl: so it is renewed in time, whoever else hears of it.
        if valid_until(now, ttl) < state.valid_until {
            (state.valid_until, state.asked, state.counted) = (valid_until(now, ttl), now, ttl);
        }
        state.last_asked = now;
        drop(state);
        self.sooner.notify_waiters();
        Asking { lease: self, ttl, silent }
    }
}
