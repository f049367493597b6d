//! Lifts of the fence clock, at the moments at which grants may have been made that this process does not know of.

use super::locks::with_fences;
use super::{clock, config, fence_broadcast};

/// Lifts the fence clock above whatever a process with a clock close to ours may have given out until
/// now (L2). A server that lost its data, or took over from a primary whose last grants it never saw, has
/// nothing else to go by.
pub(super) fn lift() {
    let floor = clock::exactly().plus_millis(config::fence_margin_millis());
    with_fences(|fences| fences.raise(floor));
    fence_broadcast::request_after_lift();
}

/// The same for a server that begins to grant locks. Where an operator wants it so, nothing is granted for a while
/// either: grants that this server does not know of may still be in force, and run out meanwhile (L1).
pub(super) fn begin() {
    lift();
    quarantine();
}

/// The same for one that takes over from a primary, whose fences it knows except for the last.
pub(super) fn take_over() {
    let margin = config::fence_margin_millis();
    with_fences(|fences| fences.raise_above_known(clock::now(), margin));
    fence_broadcast::request_after_lift();
    quarantine();
}

fn quarantine() {
    let millis = config::quarantine_millis();
    with_fences(|fences| fences.quarantine(clock::monotonic(), millis));
}
