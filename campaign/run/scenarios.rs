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
use leasehold_campaign::Rules;
use std::time::Duration;

/// Rules where nothing is lost. A lease includes the millisecond of its deadline; the others are
/// for the server, which may look late.
fn lossless() -> Rules {
    Rules { late_millis: 3, ..Rules::default() }
}

/// What a replica that follows as fast as it can may not have received yet.
const LAG: Duration = Duration::from_millis(500);

fn millis(count: usize) -> Duration {
    Duration::from_millis(count as u64)
}

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) run: fn(u64, Duration) -> Totals,
}

pub(crate) const ALL: [Scenario; 18] = [
    Scenario { name: "alone", run: alone::run },
    Scenario { name: "links", run: links::links },
    Scenario { name: "restarts", run: failing::restarts },
    Scenario { name: "losing", run: failing::losing },
    Scenario { name: "quarantine", run: quarantine::quarantine },
    Scenario { name: "replica", run: failing::replica },
    Scenario { name: "sentinel", run: several::sentinel },
    Scenario { name: "cluster", run: several::cluster },
    Scenario { name: "shared-replica", run: failing::shared_replica },
    Scenario { name: "shared-cluster", run: several::shared_cluster },
    Scenario { name: "failover", run: failover::failover },
    Scenario { name: "clock", run: short::clock },
    Scenario { name: "memory", run: short::memory },
    Scenario { name: "disk", run: short::disk },
    Scenario { name: "disk-always", run: short::disk_always },
    Scenario { name: "mirror", run: agreeing::mirror },
    Scenario { name: "storm", run: storm::storm },
    Scenario { name: "leaks", run: leaks::run },
];
