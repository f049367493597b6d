//! Waiting without guessing how long.

use std::fmt::Debug;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longer than anything here takes on a loaded machine. Reaching it means "never".
/// On such a machine, Sentinels may need three attempts at a failover, ten seconds apart.
pub const PATIENCE: Duration = Duration::from_secs(60);

const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// Looks until `probe` gives `Ok`. Gives up at the deadline, and says what was seen last.
pub fn eventually<T, E: Debug>(what: &str, probe: impl FnMut() -> Result<T, E>) -> T {
    patiently(PATIENCE, probe)
        .unwrap_or_else(|seen| panic!("never happened: {what}; last seen: {seen:?}"))
}

/// The same for those to whom "never" is an answer, and who say when that is. The error is what was
/// seen last.
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
