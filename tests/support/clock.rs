//! A wall clock that a test can step while the server runs.
//!
//! libfaketime would be the usual tool, but servers with jemalloc hang under it. So there is a shim of our own,
//! preloaded into the server: see `clock_shim.rs`. Linux only.

use super::library;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;
use tempfile::NamedTempFile;

pub(super) const PRELOAD: &str = "LD_PRELOAD";
pub(super) const OFFSET_FILE: &str = "LEASEHOLD_CLOCK_OFFSET";

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// Shared by any number of servers, which then agree on the time.
pub(crate) struct Clock {
    file: NamedTempFile,
    /// The file, mapped here as it is in the servers: what is written to a file arrives byte by byte, and a server that
    /// reads half of a step would be years ahead.
    offset_micros: &'static AtomicI64,
}

impl Clock {
    /// A clock that is right, so far.
    pub(crate) fn new() -> Self {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(&0_i64.to_ne_bytes()).unwrap();
        let (length, access) = (size_of::<AtomicI64>(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: maps the word that was just written, and it stays mapped until this process ends.
        let word = unsafe {
            libc::mmap(ptr::null_mut(), length, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(word, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        // SAFETY: aligned to a page, and only ever used as this.
        Self { file, offset_micros: unsafe { &*word.cast() } }
    }

    pub(crate) fn step_back(&mut self, by: Duration) {
        self.offset_micros.fetch_sub(micros(by), SeqCst);
    }

    pub(crate) fn step_forward(&mut self, by: Duration) {
        self.offset_micros.fetch_add(micros(by), SeqCst);
    }

    pub(super) fn file(&self) -> &Path {
        self.file.path()
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
