//! The rows of `INFO leasehold`.

use super::observer::Observer;
use crate::lock::Moment;
use std::ffi::CStr;

/// Values that other parts count, read on request.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerGauges {
    /// The module's version, as the server shows it in MODULE LIST.
    pub version: u64,
    /// How many clients wait now, each on its connection.
    pub waiters: u64,
    /// How many owners wait by a ticket.
    pub tickets: u64,
    /// How many clients may wait at once.
    pub effective_max_waiters: u64,
    /// How long the longest current wait has lasted.
    pub longest_wait_us: u64,
    /// Holds that end with a connection.
    pub bindings: u64,
    /// Locks that were evicted and are not written again yet.
    pub evictions_pending: u64,
    /// How long the quarantine lasts from now on.
    pub quarantine_left_us: u64,
    /// Panics turned into error replies. Each is a defect of the module.
    pub panics_caught: u64,
    /// Fences in values that were too far ahead of the clock to be learned.
    pub fences_refused: u64,
    /// How many microseconds the next fence is ahead of the wall clock.
    pub fence_ahead_us: u64,
}

/// Everything that a row can show.
pub(super) struct InfoView<'o> {
    pub(super) observer: &'o Observer,
    pub(super) gauges: ServerGauges,
    pub(super) now: Moment,
}

type Row = (&'static CStr, fn(&InfoView<'_>) -> u64);

/// The only list of the rows: what runs, what is held, what is waited for, what is given back, what went wrong.
static ROWS: [Row; 43] = [
    (c"version", |view| view.gauges.version),
    (c"held", |view| view.observer.held(view.now)),
    (c"grants", |view| view.observer.counters.grants),
    (c"retries", |view| view.observer.counters.retries),
    (c"tries_refused", |view| view.observer.counters.tries_refused),
    (c"waiters", |view| view.gauges.waiters),
    (c"tickets", |view| view.gauges.tickets),
    (c"effective_max_waiters", |view| view.gauges.effective_max_waiters),
    (c"waiters_most", |view| view.observer.counters.waiters_most),
    (c"longest_wait_us", |view| view.gauges.longest_wait_us),
    (c"waits_started", |view| view.observer.counters.waits_started),
    (c"waits_started_after_try", |view| view.observer.counters.waits_started_after_try),
    (c"waits_granted", |view| view.observer.counters.waits_granted),
    (c"waits_timed_out", |view| view.observer.counters.waits_timed_out),
    (c"waits_abandoned", |view| view.observer.counters.waits_abandoned),
    (c"waits_refused", |view| view.observer.counters.waits_refused),
    (c"queue_full", |view| view.observer.counters.queue_full),
    (c"hand_offs", |view| view.observer.counters.hand_offs),
    (c"wait_us_p50", |view| view.observer.waits.percentile(500)),
    (c"wait_us_p95", |view| view.observer.waits.percentile(950)),
    (c"wait_us_p99", |view| view.observer.waits.percentile(990)),
    (c"wait_us_max", |view| view.observer.waits.max()),
    (c"releases", |view| view.observer.counters.releases),
    (c"releases_refused", |view| view.observer.counters.releases_refused),
    (c"releases_late", |view| view.observer.counters.releases_late),
    (c"extends", |view| view.observer.counters.extends),
    (c"extends_refused", |view| view.observer.counters.extends_refused),
    (c"extends_late", |view| view.observer.counters.extends_late),
    (c"raises", |view| view.observer.counters.raises),
    (c"hold_us_p50", |view| view.observer.holds.percentile(500)),
    (c"hold_us_p95", |view| view.observer.holds.percentile(950)),
    (c"hold_us_p99", |view| view.observer.holds.percentile(990)),
    (c"hold_us_max", |view| view.observer.holds.max()),
    (c"expiries_with_waiters", |view| view.observer.counters.expiries_with_waiters),
    (c"bindings", |view| view.gauges.bindings),
    (c"bindings_ended", |view| view.observer.counters.bindings_ended),
    (c"evictions_restored", |view| view.observer.counters.evictions_restored),
    (c"evictions_pending", |view| view.gauges.evictions_pending),
    (c"log_len", |view| u64::try_from(view.observer.log.len()).unwrap_or(u64::MAX)),
    (c"quarantine_left_us", |view| view.gauges.quarantine_left_us),
    (c"panics_caught", |view| view.gauges.panics_caught),
    (c"fences_refused", |view| view.gauges.fences_refused),
    (c"fence_ahead_us", |view| view.gauges.fence_ahead_us),
];

impl InfoView<'_> {
    /// Names and values, in the order in which they are shown.
    pub(super) fn rows(self) -> impl Iterator<Item = (&'static CStr, u64)> {
        ROWS.iter().map(move |&(name, value)| (name, value(&self)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_row_has_a_name_of_its_own_that_info_can_show() {
        let names: BTreeSet<_> = ROWS.iter().map(|(name, _)| name.to_bytes()).collect();
        assert_eq!(names.len(), ROWS.len());
        let is_plain = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == b'_';
        assert!(names.iter().all(|name| !name.is_empty() && name.iter().all(is_plain)));
    }

    #[test]
    fn every_counter_has_a_row_and_every_row_its_own_value() {
        let mut observer = Observer::new();
        let counters = &mut observer.counters;
        let named = [
            ("grants", &mut counters.grants),
            ("retries", &mut counters.retries),
            ("tries_refused", &mut counters.tries_refused),
            ("waits_started", &mut counters.waits_started),
            ("waits_started_after_try", &mut counters.waits_started_after_try),
            ("waits_granted", &mut counters.waits_granted),
            ("waits_timed_out", &mut counters.waits_timed_out),
            ("waits_abandoned", &mut counters.waits_abandoned),
            ("waits_refused", &mut counters.waits_refused),
            ("queue_full", &mut counters.queue_full),
            ("hand_offs", &mut counters.hand_offs),
            ("waiters_most", &mut counters.waiters_most),
            ("releases", &mut counters.releases),
            ("releases_refused", &mut counters.releases_refused),
            ("releases_late", &mut counters.releases_late),
            ("extends", &mut counters.extends),
            ("extends_refused", &mut counters.extends_refused),
            ("extends_late", &mut counters.extends_late),
            ("raises", &mut counters.raises),
            ("expiries_with_waiters", &mut counters.expiries_with_waiters),
            ("bindings_ended", &mut counters.bindings_ended),
            ("evictions_restored", &mut counters.evictions_restored),
        ];
        let mut expected = BTreeSet::new();
        for (value, (name, counter)) in (1..).zip(named) {
            *counter = value;
            expected.insert((name, value));
        }
        let shown: BTreeSet<_> = observer
            .rows(ServerGauges::default(), Moment::from_millis(0))
            .filter(|(_, value)| *value > 0)
            .map(|(name, value)| (name.to_str().unwrap(), value))
            .collect();
        assert_eq!(shown, expected);
    }
}
