//! Lifts of the fence clock, whenever grants may exist that this process does not know of.

use super::fence_broadcast;
use crate::engine::with_fences;
use crate::{clock, config};

/// Lifts the fence clock above every fence that a process with a clock close to ours may have issued until now (L2). A
/// server that lost its data, or took over from a primary whose last grants it never saw, knows no better bound.
pub(crate) fn lift() {
    let floor = clock::exactly().plus_millis(config::fence_margin_millis());
    with_fences(|fences| fences.raise(floor));
    fence_broadcast::request_after_lift();
}

/// Lifts the fence clock of a server that begins to grant locks, and starts the quarantine if an operator has set one:
/// unknown grants may still be in force, and end meanwhile (L1).
pub(crate) fn begin() {
    lift();
    quarantine();
}

/// Lifts the fence clock of a replica that takes over. It knows all fences of the old primary but the last.
pub(crate) fn take_over() {
    let margin = config::fence_margin_millis();
    with_fences(|fences| fences.raise_above_known(clock::now(), margin));
    fence_broadcast::request_after_lift();
    quarantine();
}

fn quarantine() {
    let millis = config::quarantine_millis();
    with_fences(|fences| fences.quarantine(clock::monotonic(), millis));
}
