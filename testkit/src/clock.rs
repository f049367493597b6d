//! A wall clock that a test can set while the server runs, and a simulated suspend for one process.
//!
//! libfaketime is the usual tool, but servers with jemalloc hang under it. So a shim of this crate
//! is preloaded into the server: see `clock_shim.rs`. Linux only.

use super::{Client, eventually, library, unix_micros};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;
use tempfile::NamedTempFile;

pub(crate) const PRELOAD: &str = "LD_PRELOAD";
pub(crate) const OFFSET_FILE: &str = "LEASEHOLD_CLOCK_OFFSET";

/// Longer than any lease or margin in a test.
pub const HOUR: Duration = Duration::from_secs(3_600);

/// A clock for any number of servers, which then agree on the time.
pub struct Clock {
    file: NamedTempFile,
    /// The file, mapped as in the servers. A file is written byte by byte, and a server that read
    /// half of a step would be years ahead.
    words: &'static Words,
}

/// The layout in `clock_shim.rs`.
#[repr(C)]
struct Words {
    offset: AtomicI64,
    reads: AtomicI64,
    step: AtomicI64,
    suspended: AtomicI64,
}

impl Clock {
    /// A clock that shows the right time until it is set.
    #[allow(clippy::new_without_default, reason = "it makes a file")]
    pub fn new() -> Self {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(&[0; size_of::<Words>()]).unwrap();
        let (length, access) = (size_of::<Words>(), libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: maps the file that was just written, for its whole length. The mapping stays until this process ends.
        let words = unsafe {
            libc::mmap(ptr::null_mut(), length, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(words, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        // SAFETY: page-aligned, large enough, and only ever used as these words.
        Self { file, words: unsafe { &*words.cast() } }
    }

    /// Sets the clock back.
    pub fn step_back(&mut self, by: Duration) {
        self.words.offset.fetch_sub(micros(by), SeqCst);
    }

    /// Sets the clock forward.
    pub fn step_forward(&mut self, by: Duration) {
        self.words.offset.fetch_add(micros(by), SeqCst);
    }

    /// Simulates a suspend of the machine: only the clock that counts suspends advances.
    pub fn suspend(&mut self, by: Duration) {
        self.words.suspended.fetch_add(micros(by), SeqCst);
    }

    /// Makes a process use this clock.
    pub fn preload<'a>(&self, process: &'a mut Command) -> &'a mut Command {
        process.env(PRELOAD, &*library::CLOCK_SHIM).env(OFFSET_FILE, self.file())
    }

    /// Waits until the server uses the new time: Valkey 9.1 reads the clock only once in a millisecond.
    pub fn wait_until_known(&self, client: &mut Client) {
        eventually("the server knows the time", || {
            let before = self.now();
            let told = client.now();
            let after = self.now();
            if (before..=after).contains(&told) { Ok(()) } else { Err((before, told, after)) }
        });
    }

    /// The time in Unix milliseconds.
    fn now(&self) -> i64 {
        let since = unix_micros().cast_signed();
        (since + self.words.offset.load(SeqCst)) / 1_000
    }

    /// Sets the clock back after this many reads by a server.
    pub fn step_back_after(&mut self, reads: i64, by: Duration) {
        self.words.step.store(-micros(by), SeqCst);
        self.words.reads.store(reads, SeqCst);
    }

    /// Whether that step has not happened yet.
    pub fn is_to_step(&self) -> bool {
        self.words.reads.load(SeqCst) > 0
    }

    pub(crate) fn file(&self) -> &Path {
        self.file.path()
    }
}

fn micros(span: Duration) -> i64 {
    span.as_micros().try_into().unwrap()
}
