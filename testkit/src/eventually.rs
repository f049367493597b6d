//! Waits for a condition, with a deadline.

use std::fmt::Debug;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longer than anything takes on a loaded machine, so that reaching it means "never". Sentinels may
/// need three attempts at a failover there, ten seconds apart.
pub const PATIENCE: Duration = Duration::from_secs(60);

const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// Calls `probe` until it gives `Ok`. Panics at the deadline, and says what was seen last.
pub fn eventually<T, E: Debug>(what: &str, probe: impl FnMut() -> Result<T, E>) -> T {
    patiently(PATIENCE, probe)
        .unwrap_or_else(|seen| panic!("never happened: {what}; last seen: {seen:?}"))
}

/// Calls `probe` until it gives `Ok`, or until patience has ended. The error is what was seen last.
pub(crate) fn patiently<T, E>(
    patience: Duration,
    mut probe: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let deadline = Instant::now() + patience;
    loop {
        match probe() {
            Err(_) if Instant::now() <= deadline => sleep(BETWEEN_LOOKS),
            seen => return seen,
        }
    }
}
