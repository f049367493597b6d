//! A wall clock that a test can step while the server runs.
//!
//! libfaketime would be the usual tool, but servers with jemalloc hang under it. So there is a shim of our own,
//! preloaded into the server: see `clock_shim.rs`. Linux only.

use std::env;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Command};
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
    SHIM.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let source = folder.join("clock_shim.rs");
        let library = folder.join("clock_shim.so");
        // Another run may be using the same folder: each file appears whole or not at all.
        let partial = folder.join(format!("clock_shim.{}", process::id()));
        fs::write(&partial, include_str!("clock_shim.rs")).unwrap();
        fs::rename(&partial, &source).unwrap();
        let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let status = Command::new(rustc)
            .args(["--edition=2024", "--crate-type=cdylib", "-Cpanic=abort", "-O", "-o"])
            .arg(&partial)
            .arg(&source)
            .status();
        assert!(status.expect("rustc cannot be run").success(), "the clock shim does not compile");
        fs::rename(&partial, &library).unwrap();
        library
    })
}
