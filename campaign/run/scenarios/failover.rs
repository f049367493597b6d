//! Scenario `failover`: a cluster whose primaries hand over, hang or die. Clients follow redirections.

use super::{LAG, millis};
use crate::runner::{Plan, Shared, Totals, now};
use redis::Value;
use std::collections::HashMap;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Cluster, eventually, role_of, wait_until_in_sync};

/// Longer than the other nodes wait before they take a node for dead and let a replica take over.
const TOO_LONG: Duration = Duration::from_millis(1_500);

/// For so long after a replica was elected, servers may take the votes of then for votes of now, or
/// give it none: twice the time of an election, which is at least two seconds.
const ELECTION: Duration = Duration::from_millis(4_300);

/// Longer than a vote takes, or than a primary tries to hand over.
const VOTE: Duration = Duration::from_secs(8);

const TAKEOVER: &str = "CLUSTER FAILOVER TAKEOVER";

/// What becomes of the primary.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Lives,
    Dies,
    Hangs,
}

/// What makes the replica the primary: a command, or the votes of the others.
#[derive(Debug)]
struct Change {
    primary: Fate,
    asks: Option<&'static str>,
}

impl Change {
    fn asked(command: &'static str) -> Self {
        Self { primary: Fate::Lives, asks: Some(command) }
    }

    fn takes_votes(&self) -> bool {
        self.asks != Some(TAKEOVER)
    }

    /// Data may be lost unless the primary itself hands over.
    fn is_lossy(&self) -> bool {
        self.asks != Some("CLUSTER FAILOVER")
    }
}

/// Two nodes that are primary of all locks in turn, and two more primaries that vote.
struct Pair {
    cluster: Cluster,
    slot: u16,
    primary: usize,
    replica: usize,
    /// When each node was last elected.
    elected: HashMap<usize, Instant>,
}

pub(crate) fn failover(seed: u64, length: Duration) -> Totals {
    let cluster = Cluster::of(3, 1);
    let slot = cluster.slot_of(0);
    let mut pair =
        Pair { cluster, slot: slot.number, primary: 0, replica: 3, elected: HashMap::new() };
    let mut settled = now();
    let plan = Plan { prefix: slot.key("l"), ..Plan::at(pair.cluster.node(0).port()) };
    plan.run((seed, length), |faults, seed, shared| {
        shared.roams.store(true, SeqCst);
        thread::sleep(millis(50 + seed.below(300)));
        let led = pair.primary;
        if pair.settles(shared) != led {
            let span = faults.lost_unasked(settled, LAG);
            faults.rules.beside.push(span);
        }
        let (primary, replica) = (pair.primary, pair.replica);
        let change = match seed.below(9) {
            0 | 1 => Change::asked("CLUSTER FAILOVER"),
            2 => Change::asked("CLUSTER FAILOVER FORCE"),
            3 | 4 => Change::asked(TAKEOVER),
            // Before the other nodes know that it is dead.
            5 => Change { primary: Fate::Dies, asks: Some(TAKEOVER) },
            6 => Change { primary: Fate::Dies, asks: None },
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
            // It hears of its successor as soon as it goes on, but a client may have asked it something before.
            _ => Change { primary: Fate::Hangs, asks: None },
        };
        if change.takes_votes() {
            pair.may_be_elected(replica);
        }
        let (leads, span) = faults.note(&format!("{change:?}"), || {
            match change.primary {
                Fate::Lives => {}
                Fate::Dies => pair.cluster.node_mut(primary).kill(),
                Fate::Hangs => pair.cluster.node_mut(primary).freeze(),
            }
            if let Some(command) = change.asks {
                pair.cluster.node(replica).cmd(command);
            }
            if change.primary != Fate::Lives {
                shared.port.store(pair.cluster.node(replica).port(), SeqCst);
            }
            pair.wait_for(replica);
            match change.primary {
                Fate::Lives => {}
                Fate::Dies => pair.cluster.node_mut(primary).start_again(),
                Fate::Hangs => {
                    thread::sleep(TOO_LONG);
                    pair.cluster.node_mut(primary).thaw();
                }
            }
            pair.settles(shared)
        });
        // On a busy machine the nodes may have elected another node before or since.
        if change.is_lossy() || leads != replica {
            faults.lost(span, LAG);
            // The former primary may hear of it later.
            faults.rules.beside.push(span);
        } else {
            faults.stood_still(span);
        }
        settled = now();
    })
}

impl Pair {
    /// Waits until the replica may be elected again, and notes that it is.
    fn may_be_elected(&mut self, replica: usize) {
        if let Some(before) = self.elected.get(&replica) {
            thread::sleep(ELECTION.saturating_sub(before.elapsed()));
        }
        self.elected.insert(replica, Instant::now());
    }

    /// Waits until the replica leads, or until a vote would have ended.
    fn wait_for(&self, replica: usize) {
        let begin = Instant::now();
        while role_of(self.cluster.node(replica)).as_deref() != Some("master")
            && begin.elapsed() < VOTE
        {
            thread::sleep(millis(5));
        }
    }

    /// Waits until one of the two leads, the other follows, and all nodes know. Sends clients to the primary.
    fn settles(&mut self, shared: &Shared) -> usize {
        let both = [self.primary, self.replica];
        // A primary that was to hand over and still leads refuses writes until it has given that up.
        let probe = format!("SET {}probe x PX 1", shared.plan.prefix);
        let writes = |owner: usize| match self.cluster.node(owner).cmd(&*probe) {
            Value::Okay => Ok(owner),
            told => Err(format!("{owner} leads, and says {told:?}")),
        };
        let what = "one of the two leads, everybody knows, and it takes writes";
        let leads = eventually(what, || {
            let roles = both.map(|node| role_of(self.cluster.node(node)));
            let leads = match roles.each_ref().map(Option::as_deref) {
                [Some("master"), Some("slave")] => Some(both[0]),
                [Some("slave"), Some("master")] => Some(both[1]),
                _ => None,
            };
            match self.cluster.owner_of(self.slot) {
                Some(owner) if leads == Some(owner) => writes(owner),
                owner => Err(format!("{owner:?} of {both:?}, who are {roles:?}")),
            }
        });
        if leads == self.replica {
            std::mem::swap(&mut self.primary, &mut self.replica);
        }
        shared.goes_to(self.cluster.node(leads), leads);
        wait_until_in_sync(self.cluster.node(leads), self.cluster.node(self.replica));
        self.cluster.wait_until_ok();
        leads
    }
}
