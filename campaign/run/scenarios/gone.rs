//! Scenario `gone`: waiters that can no longer use a grant when they would hear of it.

use super::guarded::converse;
use crate::connection::Lost;
use crate::probes::{Probe, closed_in_any_way, over_when_told};
use crate::runner::Totals;
use std::fs;
use std::time::Duration;
use tempfile::NamedTempFile;
use testkit::Server;

/// The server closes their connections in the turn in which they are granted the lock, or is busy
/// until their lease has ended.
pub(crate) fn gone(seed: u64, length: Duration) -> Totals {
    let users = NamedTempFile::new().unwrap();
    fs::write(users.path(), "user default on nopass ~* &* +@all\n").unwrap();
    let file = users.path().to_str().unwrap().to_owned();
    let server = Server::builder().tcp().config("aclfile", &file).start();
    let (mut totals, conversations) = converse(&server, seed, length, one_of_them);
    totals.grants = 2 * conversations;
    totals.waited = conversations;
    totals.faults = conversations;
    totals
}

fn one_of_them(probe: &mut Probe<'_>) -> Result<(), Lost> {
    match probe.seed.below(4) {
        0 => over_when_told(probe),
        _ => closed_in_any_way(probe),
    }
}
