//! A wall clock that a test can step while the server runs.
//!
//! libfaketime would be the usual tool, but servers with jemalloc hang under it. So there is a shim of our own,
//! preloaded into the server: see `clock_shim.rs`. Linux only.

use super::library;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use tempfile::NamedTempFile;

pub(super) const PRELOAD: &str = "LD_PRELOAD";
pub(super) const OFFSET_FILE: &str = "LEASEHOLD_CLOCK_OFFSET";

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// Shared by any number of servers, which then agree on the time.
pub(crate) struct Clock {
    file: NamedTempFile,
    offset_micros: i64,
}

impl Clock {
    /// A clock that is right, so far.
    pub(crate) fn new() -> Self {
        let mut clock = Self { file: NamedTempFile::new().unwrap(), offset_micros: 0 };
        clock.write();
        clock
    }

    pub(crate) fn step_back(&mut self, by: Duration) {
        self.offset_micros -= micros(by);
        self.write();
    }

    pub(crate) fn step_forward(&mut self, by: Duration) {
        self.offset_micros += micros(by);
        self.write();
    }

    pub(super) fn file(&self) -> &Path {
        self.file.path()
    }

    /// In place: servers have the file mapped, and read it as one aligned word.
    fn write(&mut self) {
        let file: &mut File = self.file.as_file_mut();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(&self.offset_micros.to_ne_bytes()).unwrap();
    }
}

fn micros(span: Duration) -> i64 {
    span.as_micros().try_into().unwrap()
}

/// The shim as a library, compiled once per run.
pub(super) fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| library::compiled("clock_shim", include_str!("clock_shim.rs")))
}
