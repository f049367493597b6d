//! A cluster whose primaries hand over, hang, or die. Clients go where they are sent.

use super::lossless;
use crate::fight::{Field, Fought, fight};
use crate::support::{Cluster, Server, eventually, wait_until_in_sync};
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

/// Longer than a vote takes, or than a primary tries to hand over.
const VOTE: Duration = Duration::from_secs(8);

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
        // What it takes until somebody else leads, and whether something is lost by it.
        let (what, is_lossy): (_, bool) = match fault {
            0 | 1 => ("CLUSTER FAILOVER", false),
            2 => ("CLUSTER FAILOVER FORCE", true),
            3 | 4 => ("CLUSTER FAILOVER TAKEOVER", true),
            5 => ("kill -9 of the primary, its replica takes over", true),
            6 => ("kill -9 of the primary, the others vote", true),
            7 => {
                let which = *seed.pick(&[primary, replica, 1]);
                let lasts = millis(seed.below(300));
                faults.still("a node is frozen for a while", || {
                    pair.cluster.node_mut(which).freeze();
                    thread::sleep(lasts);
                    pair.cluster.node_mut(which).thaw();
                });
                return;
            }
            // It hears of its successor as soon as it goes on, but may have been asked something first.
            _ => ("the primary is frozen until the others vote", true),
        };
        let (leads, span) = faults.note(what, || {
            let node = pair.cluster.node(replica);
            match fault {
                0..5 => drop(node.cmd(what)),
                8 => pair.cluster.node_mut(primary).freeze(),
                _ => pair.cluster.node_mut(primary).kill(),
            }
            if fault == 5 {
                // Before the others know that it is dead.
                pair.cluster.node(replica).cmd("CLUSTER FAILOVER TAKEOVER");
            }
            if fault >= 5 {
                field.port.store(pair.cluster.node(replica).port(), SeqCst);
            }
            pair.wait_for(replica);
            match fault {
                8 => {
                    thread::sleep(TOO_LONG);
                    pair.cluster.node_mut(primary).thaw();
                }
                5 | 6 => pair.cluster.node_mut(primary).start_again(),
                _ => {}
            }
            pair.settles(field)
        });
        // On a busy machine they may have voted for somebody else before, or since.
        if is_lossy || leads != replica {
            faults.lost(span, LAG);
        } else {
            faults.stood_still(span);
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

    /// Waits until it leads; in vain, if there was no majority in time.
    fn wait_for(&self, replica: usize) {
        let begin = Instant::now();
        while role(self.cluster.node(replica)).as_deref() != Some("master")
            && begin.elapsed() < VOTE
        {
            thread::sleep(millis(5));
        }
    }

    /// Waits until one of the two leads, the other follows, and everybody knows; and sends clients there.
    fn settles(&mut self, field: &Field) -> usize {
        let both = [self.primary, self.replica];
        let leads = eventually("one of the two leads, and everybody knows", || {
            let roles = both.map(|node| role(self.cluster.node(node)));
            match (self.cluster.owner_of(self.slot), roles.each_ref().map(Option::as_deref)) {
                (Some(owner), [Some("master"), Some("slave")]) if owner == both[0] => Ok(owner),
                (Some(owner), [Some("slave"), Some("master")]) if owner == both[1] => Ok(owner),
                (owner, _) => Err(format!("{owner:?} of {both:?}, who are {roles:?}")),
            }
        });
        if leads == self.replica {
            std::mem::swap(&mut self.primary, &mut self.replica);
        }
        field.port.store(self.cluster.node(leads).port(), SeqCst);
        field.server.store(u8::try_from(leads).unwrap(), SeqCst);
        wait_until_in_sync(self.cluster.node(leads), self.cluster.node(self.replica));
        self.cluster.wait_until_ok();
        leads
    }
}

fn role(server: &Server) -> Option<String> {
    server.client().info_field("replication", "role")
}
