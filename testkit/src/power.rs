//! The power fails: a server dies, and what it had not forced to disk is gone.
//!
//! Files are cut off where they were when they were last forced to disk. Renamed files count as safe, so nothing may
//! rewrite them meanwhile. Linux only, as is the clock.

use super::{Server, aof, library};
use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::sync::OnceLock;

/// The shim as a library.
pub(crate) fn shim() -> PathBuf {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| library::compiled("power_shim", include_str!("power_shim.rs"))).clone()
}

/// Ends a server that was set up for it (`Setup::power_may_fail`).
pub fn fail(server: &mut Server) {
    server.kill();
    let file = aof::current_file(server);
    // Not once, or it would say so.
    let note = fs::read_to_string(file.with_extension("synced")).unwrap_or_else(|_| "0".to_owned());
    let length = note.parse().unwrap();
    OpenOptions::new().write(true).open(file).unwrap().set_len(length).unwrap();
}
