//! Scenario `aged`: locks whose queues are older than two seconds. No fault disturbs them: one that frees every lock would keep
//! queues from growing old.

use super::guarded::converse;
use crate::probes::handed_on_when_old;
use crate::runner::Totals;
use std::time::Duration;
use testkit::Server;

/// Locks become free in different ways.
pub(crate) fn aged(seed: u64, length: Duration) -> Totals {
    let server = Server::builder().tcp().start();
    let (mut totals, conversations) = converse(&server, seed, length, handed_on_when_old);
    totals.grants = conversations;
    totals.waited = conversations;
    totals.faults = conversations;
    totals
}
