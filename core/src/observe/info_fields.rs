//! The rows of `INFO leasehold`.

use super::observer::Observer;
use crate::lock::Moment;
use std::ffi::CStr;

/// Values that other parts count, read on request.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerGauges {
    /// The module's version, as the server shows it in MODULE LIST.
    pub version: u64,
    /// The version of the server from which on its known weaknesses are mended, likewise. 0 if it has that.
    pub server_patched_from: u64,
    /// How many clients wait now, each on its connection.
    pub waiters: u64,
    pub tickets: u64,
    pub effective_max_waiters: u64,
    pub longest_wait_us: u64,
    pub bindings: u64,
    /// Locks that were evicted and are not written again yet.
    pub evictions_pending: u64,
    pub quarantine_left_us: u64,
    /// Panics turned into error replies. Each is a defect of the module.
    pub panics_caught: u64,
    /// Fences in values that were too far ahead of the clock to be learned.
    pub fences_refused: u64,
    pub fence_ahead_us: u64,
}

type Row = (&'static CStr, fn(&Observer, &ServerGauges, Moment) -> u64);

/// The row of a counter, or of a gauge, of this name.
macro_rules! counter {
    ($name:ident) => {
        (named(concat!(stringify!($name), "\0")), |observer, _, _| observer.counters.$name)
    };
}

macro_rules! gauge {
    ($name:ident) => {
        (named(concat!(stringify!($name), "\0")), |_, gauges, _| gauges.$name)
    };
}

const fn named(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => c"",
    }
}

/// The only list of the rows: what runs, what is held, what is waited for, what is given back, what went wrong.
static ROWS: [Row; 44] = [
    gauge!(version),
    gauge!(server_patched_from),
    (c"held", |observer, _, now| observer.recent.held(now)),
    counter!(grants),
    counter!(retries),
    counter!(tries_refused),
    gauge!(waiters),
    gauge!(tickets),
    gauge!(effective_max_waiters),
    counter!(waiters_most),
    gauge!(longest_wait_us),
    counter!(waits_started),
    counter!(waits_started_after_try),
    counter!(waits_granted),
    counter!(waits_timed_out),
    counter!(waits_abandoned),
    counter!(waits_refused),
    counter!(queue_full),
    counter!(hand_offs),
    (c"wait_us_p50", |observer, _, _| observer.waits.percentile(500)),
    (c"wait_us_p95", |observer, _, _| observer.waits.percentile(950)),
    (c"wait_us_p99", |observer, _, _| observer.waits.percentile(990)),
    (c"wait_us_max", |observer, _, _| observer.waits.max()),
    counter!(releases),
    counter!(releases_refused),
    counter!(releases_late),
    counter!(extends),
    counter!(extends_refused),
    counter!(extends_late),
    counter!(raises),
    (c"hold_us_p50", |observer, _, _| observer.holds.percentile(500)),
    (c"hold_us_p95", |observer, _, _| observer.holds.percentile(950)),
    (c"hold_us_p99", |observer, _, _| observer.holds.percentile(990)),
    (c"hold_us_max", |observer, _, _| observer.holds.max()),
    counter!(expiries_with_waiters),
    gauge!(bindings),
    counter!(bindings_ended),
    counter!(evictions_restored),
    gauge!(evictions_pending),
    (c"log_len", |observer, _, _| u64::try_from(observer.log.len()).unwrap_or(u64::MAX)),
    gauge!(quarantine_left_us),
    gauge!(panics_caught),
    gauge!(fences_refused),
    gauge!(fence_ahead_us),
];

impl Observer {
    /// The fields of INFO, names and values, in the order in which they are shown. Allocates nothing, because a crash
    /// report needs them too.
    pub fn rows(
        &self,
        gauges: ServerGauges,
        now: Moment,
    ) -> impl Iterator<Item = (&'static CStr, u64)> {
        ROWS.iter().map(move |&(name, value)| (name, value(self, &gauges, now)))
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
}
