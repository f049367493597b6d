//! The scenarios: which servers each starts, what it does to them, and what they promise all the
//! same.
//!
//! ```text
//!   scenario     what is done                                             promised
//!   alone        keys deleted and moved; clients killed, unblocked and    all
//!                forbidden commands; writes paused; files written
//!   links        clients cut off, also one way, or slow                   all
//!   restarts     `kill -9`; every write is forced to disk                 all
//!   losing       `kill -9`; nothing is kept, or the last second is lost   all but L1; L2
//!   quarantine   `kill -9`; nothing is kept, and nothing granted until    all; holders may
//!                every forgotten lease has ended                          lose their locks
//!   replica      links cut, primaries killed, replicas promoted           L2; L1 in between
//!   sentinel     primaries killed or frozen; sentinels choose another     L2; L1 in between
//!   cluster      a slot moves to and fro, by hand and at once             all
//!   shared-replica  as `replica`, where no lock is always exclusive       the same
//!   shared-cluster  as `cluster`, where no lock is always exclusive       all
//!   failover     nodes hand over, hang, or die                            all by agreement; else
//!                                                                         L2, and L1 in between
//!   clock        the server's clock is set, by up to an hour either way   all, by that clock
//!   memory       no memory, with each policy of eviction                  L2; without eviction all
//!   disk         a disk that is full for a while                          all, unless killed
//!   disk-always  the same, and the server ends because of it              all
//!   mirror       databases flushed and swapped; a slow link to a replica  all; both hold the same
//!   storm        faults of `alone`, `links` and `restarts` at once, and   all
//!                clocks set forward
//!   leaks        many names, and waiters that come and go                 memory as before
//! ```

mod agreeing;
mod alone;
mod beside;
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
