//! Waits for a condition, with a deadline.

use std::fmt::Debug;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longer than anything takes on a loaded machine, so a test that reaches it has failed. There,
/// sentinels may need three attempts at a failover, ten seconds apart.
pub const PATIENCE: Duration = Duration::from_secs(60);

const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// Calls `probe` until it returns `Ok`. Panics after `PATIENCE`, and shows the last error.
pub fn eventually<T, E: Debug>(what: &str, probe: impl FnMut() -> Result<T, E>) -> T {
    patiently(PATIENCE, probe)
        .unwrap_or_else(|seen| panic!("never happened: {what}; last seen: {seen:?}"))
}

/// Waits until `probe` returns this. Panics after `PATIENCE`, and shows what it returned last.
pub fn becomes<T: Debug + PartialEq<W>, W>(what: &str, wanted: W, probe: impl FnMut() -> T) {
    until(what, probe, |seen| *seen == wanted);
}

/// The same for whatever `fits`, which is returned.
pub fn until<T: Debug>(what: &str, mut probe: impl FnMut() -> T, fits: impl Fn(&T) -> bool) -> T {
    eventually(what, || {
        let seen = probe();
        if fits(&seen) { Ok(seen) } else { Err(seen) }
    })
}

/// Calls `probe` until it returns `Ok`, or until the patience has ended. Then returns the last error.
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
