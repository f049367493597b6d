//! Lifts of the fence clock, at the moments at which grants may have been made that this process does not know of.

use super::locks::{fences, with_fences};
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

/// Why fences could go back if this module were unloaded now and loaded again (L2). It would remember nothing, and begin a
/// margin above the clock, as any start does. So the fence clock may be no further ahead than that, as it is after
/// `LOCK.RAISE`, or once the clock was set back.
pub(super) fn obstacle_to_a_later_load() -> Option<String> {
    let ahead = fences().ahead_micros(clock::exactly());
    let margin_millis = config::fence_margin_after_a_load_millis();
    (ahead > margin_millis.saturating_mul(1_000)).then(|| {
        format!(
            "fences are {} ms ahead of the clock, and those after a load begin {margin_millis} ms ahead of it, \
             so they might go back",
            ahead.div_ceil(1_000)
        )
    })
}
