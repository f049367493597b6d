//! Waiting without guessing how long.

use std::fmt::Debug;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longer than anything here takes on a loaded machine. Reaching it means "never".
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// Looks until `probe` gives `Ok`. Gives up at the deadline, and says what was seen last.
pub(crate) fn eventually<T, E: Debug>(what: &str, mut probe: impl FnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match probe() {
            Ok(seen) => return seen,
            Err(seen) if Instant::now() > deadline => {
                panic!("never happened: {what}; last seen: {seen:?}")
            }
            Err(_) => sleep(BETWEEN_LOOKS),
        }
    }
}
