//! The time of day, which servers use to end leases and number grants.

use std::process::Command;
use std::time::UNIX_EPOCH;

/// Microseconds since 1970.
pub fn unix_micros() -> u64 {
    UNIX_EPOCH.elapsed().unwrap().as_micros().try_into().unwrap()
}

/// The date, such as `2026-11-21`.
pub fn today() -> String {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d"]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
