//! The scenarios: which servers each starts, and what it does to them. `docs/verification.md` says
//! what they promise all the same.

mod agreeing;
mod alone;
mod failing;
mod failover;
mod links;
mod quarantine;
mod several;
mod short;
mod storm;
mod strangers;

use crate::leaks;
use crate::runner::Totals;
use crate::shares::{ANY, SHARED};
use std::time::Duration;

/// What a replica that follows as fast as it can may not have received yet.
const LAG: Duration = Duration::from_millis(500);

fn millis(count: usize) -> Duration {
    Duration::from_millis(count as u64)
}

pub(crate) type Scenario = (&'static str, fn(u64, Duration) -> Totals);

pub(crate) const ALL: [Scenario; 18] = [
    ("alone", alone::run),
    ("links", links::links),
    ("restarts", failing::restarts),
    ("losing", failing::losing),
    ("quarantine", quarantine::quarantine),
    ("replica", |seed, length| failing::replica(ANY, seed, length)),
    ("sentinel", several::sentinel),
    ("cluster", |seed, length| several::cluster(ANY, seed, length)),
    ("shared-replica", |seed, length| failing::replica(SHARED, seed, length)),
    ("shared-cluster", |seed, length| several::cluster(SHARED, seed, length)),
    ("failover", failover::failover),
    ("clock", short::clock),
    ("memory", short::memory),
    ("disk", short::disk),
    ("disk-always", short::disk_always),
    ("mirror", agreeing::mirror),
    ("storm", storm::storm),
    ("leaks", leaks::run),
];
