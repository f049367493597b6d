//! What clients were told while locks changed their server, and what can be wrong with it.

use std::collections::HashMap;
use std::time::Instant;

/// Somebody held a lock at least from one moment to the other.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) lock: String,
    pub(super) worker: usize,
    pub(super) fence: u64,
    /// When it sent the request that was granted.
    pub(super) asked: Instant,
    pub(super) told: Instant,
    pub(super) let_go: Instant,
}

/// L1 and L2, as far as clients can see them. Sorts the history.
pub(super) fn wrongs(history: &mut [Held]) -> Vec<String> {
    history.sort_unstable_by_key(|held| held.told);
    let mut locks = HashMap::<_, Vec<&Held>>::new();
    for held in &*history {
        locks.entry(&held.lock).or_default().push(held);
    }
    locks.values().flat_map(|history| wrongs_of_a_lock(history)).collect()
}

fn wrongs_of_a_lock(history: &[&Held]) -> Vec<String> {
    let mut wrong = Vec::new();
    // Those with the last end, and with the highest fence, of all that were told by then.
    let mut last_to_let_go = None::<&Held>;
    let mut highest = Vec::<&Held>::new();
    for held in history {
        if let Some(before) = last_to_let_go.filter(|before| held.told < before.let_go) {
            wrong.push(format!("{held:?} overlaps {before:?}"));
        }
        let told_before = highest.partition_point(|before| before.told < held.asked);
        let before = told_before.checked_sub(1).map(|last| highest[last]);
        if let Some(before) = before.filter(|before| held.fence <= before.fence) {
            wrong.push(format!("{held:?} is not above {before:?}"));
        }
        last_to_let_go = last_to_let_go.into_iter().chain([*held]).max_by_key(|held| held.let_go);
        let above = highest.last().filter(|highest| highest.fence >= held.fence);
        highest.push(above.unwrap_or(held));
    }
    wrong
}
