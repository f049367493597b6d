//! Scenarios `sentinel` and `cluster`: servers that know of each other.

use super::{LAG, millis};
use crate::clients::PATIENCE;
use crate::runner::{Faults, Plan, Shared, Totals, now};
use crate::shares::Shares;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;
use testkit::{Cluster, Sentinels, SlotMove, eventually, lacks_moves_at_once};

/// Failovers take seconds, so the first begins at once. What a primary that hung grants beside its successor until it is
/// demoted, `tests/beyond/both.rs` sees.
pub(crate) fn sentinel(seed: u64, length: Duration) -> Totals {
    let mut sentinels = Sentinels::start();
    let mut primary = 0;
    let mut settled = now();
    Plan::at(sentinels.server(primary).port()).run((seed, length), |faults, seed, shared| {
        thread::sleep(millis(200 + seed.below(800)));
        follow(&sentinels, &mut primary, settled, faults, shared);
        let former = primary;
        let hangs = seed.below(2) == 0;
        let what = if hangs { "the primary hangs" } else { "kill -9 of the primary" };
        faults.lossy(&format!("{what}, the sentinels choose"), LAG, || {
            if hangs {
                sentinels.server_mut(former).freeze();
            } else {
                sentinels.server_mut(former).kill();
            }
            primary = sentinels.wait_for_another_primary_than(former);
            shared.goes_to(sentinels.server(primary), primary);
            if hangs {
                // Every client of the former primary has given up by now, so what it says from here
                // on is not compared with its successor.
                thread::sleep(PATIENCE + millis(200));
                sentinels.server_mut(former).thaw();
            }
        });
        let ((), span) = faults.note("it comes back", || {
            if !hangs {
                sentinels.server_mut(former).start_again();
            }
        });
        follow(&sentinels, &mut primary, span.from, faults, shared);
        settled = now();
    })
}

/// Sends clients to another primary if the sentinels have chosen one since then without a fault.
fn follow(
    sentinels: &Sentinels,
    primary: &mut usize,
    since: u64,
    faults: &mut Faults,
    shared: &Shared,
) {
    let leads = sentinels.wait_until_one_leads();
    if leads != *primary {
        faults.lost_unasked(since, LAG);
        *primary = leads;
        shared.goes_to(sentinels.server(leads), leads);
    }
}

/// All locks are in one slot, which moves again and again. Clients follow redirections. Nothing is lost.
pub(crate) fn cluster(shares: Shares, seed: u64, length: Duration) -> Totals {
    let mut cluster = Cluster::of(2, 0);
    let slot = cluster.slot_of(0);
    let mut step = SlotMove { slot: slot.number, from: 0, to: 1 };
    let by_hand_only = lacks_moves_at_once();
    // A lock that is moved by hand is sent with what is left of its lease, and that takes a moment.
    let plan = Plan::at(cluster.node(0).port());
    let plan = Plan { prefix: slot.key("l"), shares, late_millis: 500, ..plan };
    plan.run((seed, length), |faults, seed, shared| {
        shared.roams.store(true, SeqCst);
        thread::sleep(millis(20 + seed.below(200)));
        shared.nobody_is_on_the_way();
        let meanwhile = millis(seed.below(100));
        match seed.below(if by_hand_only { 5 } else { 9 }) {
            0 => {
                let node = seed.below(2);
                faults.still("a node is frozen for a while", || {
                    cluster.node_mut(node).freeze();
                    thread::sleep(meanwhile);
                    cluster.node_mut(node).thaw();
                });
                return;
            }
            1..5 => {
                let (has_it, span) = faults.note("the slot moves by hand", || {
                    step.import(&cluster);
                    step.migrate(&cluster);
                    // Both nodes have some of the keys, and clients write at both.
                    thread::sleep(meanwhile);
                    step.move_keys(&cluster);
                    thread::sleep(meanwhile);
                    step.say_given(&cluster);
                    eventually("everybody knows who has the slot", || {
                        cluster.owner_of(step.slot).ok_or(())
                    })
                });
                if has_it != step.to {
                    // Both nodes had the same epoch, and the former owner has claimed the slot
                    // again in a later one. Grants of the other node are lost.
                    return faults.lost(span, LAG);
                }
                faults.stood_still(span);
            }
            _ => faults.still("the slot moves at once", || step.at_once(&cluster)),
        }
        shared.goes_to(cluster.node(step.to), step.to);
        step = step.back();
    })
}
