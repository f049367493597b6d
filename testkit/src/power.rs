//! Simulates a power failure: a server dies, and data that it had not forced to disk is lost.
//!
//! Cuts the append-only file to the length that was last forced to disk. Renamed files count as
//! safe, so no file may be rewritten meanwhile. Linux only, like the clock.

use super::{Server, aof};
use std::fs::{self, OpenOptions};

/// Fails the power of a server that was started with `Setup::power_may_fail`.
pub fn fail(server: &mut Server) {
    server.kill();
    let file = aof::current_file(server);
    // Without a note, nothing was forced to disk.
    let note = fs::read_to_string(file.with_extension("synced")).unwrap_or_else(|_| "0".to_owned());
    let length = note.parse().unwrap();
    OpenOptions::new().write(true).open(file).unwrap().set_len(length).unwrap();
}
