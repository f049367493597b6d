//! A cluster whose primaries hand over, hang, or die. Clients go where they are sent.

use super::lossless;
use crate::fight::{Field, Fought, fight};
use crate::support::{Cluster, Takeover, wait_until_in_sync, wait_until_it_is};
use std::collections::HashMap;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

/// What a replica that follows as fast as it can may not have heard of yet.
const LAG: Duration = Duration::from_millis(500);

/// Longer than the others wait before they take a node for dead, and have a replica take over.
const TOO_LONG: Duration = Duration::from_millis(1_500);

fn millis(count: usize) -> Duration {
    Duration::from_millis(count as u64)
}

/// So long after a replica was elected, the servers take its votes of then for votes of now, or give it none: twice what
/// they allow for an election, which is two seconds at the least.
const ELECTION: Duration = Duration::from_millis(4_300);

/// Two nodes that are the primary of all locks in turn, and two more primaries, with whom the replica gets its votes.
struct Pair {
    cluster: Cluster,
    slot: u16,
    primary: usize,
    replica: usize,
    /// When each node was last elected.
    elected: HashMap<usize, Instant>,
}

pub(crate) fn failover(seed: u64, length: Duration) -> Fought {
    let cluster = Cluster::of(3, 1);
    let slot = cluster.slot_of(0);
    let mut pair =
        Pair { cluster, slot: slot.number, primary: 0, replica: 3, elected: HashMap::new() };
    let rules = lossless();
    let (port, prefix) = (pair.cluster.node(0).port(), slot.key("l"));
    fight((port, 10, &prefix), &rules, seed, length, |faults, seed, field| {
        field.roams.store(true, SeqCst);
        thread::sleep(millis(50 + seed.below(300)));
        let (primary, replica) = (pair.primary, pair.replica);
        let fault = seed.below(9);
        if matches!(fault, 0..3 | 6 | 8) {
            pair.may_be_elected(replica);
        }
        match fault {
            0 | 1 => faults.still("CLUSTER FAILOVER", || {
                pair.cluster.take_over(replica, Takeover::Agreed);
                pair.goes_on(field);
            }),
            2 => faults.lossy("CLUSTER FAILOVER FORCE", LAG, || {
                pair.cluster.take_over(replica, Takeover::Forced);
                pair.goes_on(field);
            }),
            3 | 4 => faults.lossy("CLUSTER FAILOVER TAKEOVER", LAG, || {
                pair.cluster.take_over(replica, Takeover::Unasked);
                pair.goes_on(field);
            }),
            5 => faults.lossy("kill -9 of the primary, its replica takes over", LAG, || {
                pair.cluster.node_mut(primary).kill();
                // Before the others know that it is dead.
                let node = pair.cluster.node(replica);
                node.cmd("CLUSTER FAILOVER TAKEOVER");
                wait_until_it_is(node, "master");
                field.port.store(node.port(), SeqCst);
                pair.cluster.node_mut(primary).start_again();
                pair.goes_on(field);
            }),
            6 => faults.lossy("kill -9 of the primary, the others vote", LAG, || {
                pair.cluster.node_mut(primary).kill();
                field.port.store(pair.cluster.node(replica).port(), SeqCst);
                wait_until_it_is(pair.cluster.node(replica), "master");
                pair.cluster.node_mut(primary).start_again();
                pair.goes_on(field);
            }),
            7 => {
                let which = *seed.pick(&[primary, replica, 1]);
                let lasts = millis(seed.below(300));
                faults.still("a node is frozen for a while", || {
                    pair.cluster.node_mut(which).freeze();
                    thread::sleep(lasts);
                    pair.cluster.node_mut(which).thaw();
                });
            }
            // It hears of its successor as soon as it goes on, but may have been asked something first.
            _ => faults.lossy("the primary is frozen until the others vote", LAG, || {
                pair.cluster.node_mut(primary).freeze();
                field.port.store(pair.cluster.node(replica).port(), SeqCst);
                wait_until_it_is(pair.cluster.node(replica), "master");
                thread::sleep(TOO_LONG);
                pair.cluster.node_mut(primary).thaw();
                pair.goes_on(field);
            }),
        }
    })
}

impl Pair {
    /// Waits until it may, and takes it that it is.
    fn may_be_elected(&mut self, replica: usize) {
        if let Some(before) = self.elected.get(&replica) {
            thread::sleep(ELECTION.saturating_sub(before.elapsed()));
        }
        self.elected.insert(replica, Instant::now());
    }

    /// Their roles have changed, and everybody knows.
    fn goes_on(&mut self, field: &Field) {
        std::mem::swap(&mut self.primary, &mut self.replica);
        let (primary, replica) = (self.cluster.node(self.primary), self.cluster.node(self.replica));
        field.port.store(primary.port(), SeqCst);
        field.server.store(u8::try_from(self.primary).unwrap(), SeqCst);
        wait_until_it_is(replica, "slave");
        self.cluster.wait_until_owned_by(self.slot, self.primary);
        wait_until_in_sync(primary, replica);
        self.cluster.wait_until_ok();
    }
}
