//! Simulates a power failure: a server dies, and data that it had not forced to disk is lost.
//!
//! Cuts the append-only file to the length that was last forced to disk. Renamed files count as
//! safe, so no file may be rewritten meanwhile. Linux only, like the clock.

use super::{Server, aof, library};
use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::sync::OnceLock;

/// The compiled shim.
pub(crate) fn shim() -> PathBuf {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| library::compiled("power_shim", include_str!("power_shim.rs"))).clone()
}

/// Fails the power of a server that was started with `Setup::power_may_fail`.
pub fn fail(server: &mut Server) {
    server.kill();
    let file = aof::current_file(server);
    // Without a note, nothing was forced to disk.
    let note = fs::read_to_string(file.with_extension("synced")).unwrap_or_else(|_| "0".to_owned());
    let length = note.parse().unwrap();
    OpenOptions::new().write(true).open(file).unwrap().set_len(length).unwrap();
}
