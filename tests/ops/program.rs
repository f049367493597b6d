//! Programs of others that tests need: found, run with a deadline, and missed aloud.

use std::env;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use testkit::announce;

/// Longer than any of them takes.
const LONGEST: Duration = Duration::from_secs(60);

/// The same for those that fetch packages.
const LONGEST_INSTALLATION: Duration = Duration::from_secs(300);

pub(crate) struct Told {
    pub(crate) success: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// What is missing on this machine.
pub(crate) type Missing = String;

/// In PATH.
pub(crate) fn find(name: &str) -> Result<PathBuf, Missing> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    found.ok_or_else(|| format!("{name} in PATH"))
}

/// What is there; or says that the test is skipped, and why.
pub(crate) fn available<T, E: Display>(found: Result<T, E>) -> Option<T> {
    found.inspect_err(|missing| announce(&format!("skipped: there is no {missing}"))).ok()
}

pub(crate) fn run(command: &mut Command) -> Told {
    run_within(LONGEST, command)
}

pub(crate) fn install(command: &mut Command) -> Told {
    run_within(LONGEST_INSTALLATION, command)
}

/// Runs it to its end. Files take what it says, so that it never waits for a reader.
fn run_within(limit: Duration, command: &mut Command) -> Told {
    let [mut out, mut err] = [(); 2].map(|()| tempfile::tempfile().unwrap());
    let [to_out, to_err] = [&out, &err].map(|file| File::try_clone(file).unwrap());
    let child = command.stdin(Stdio::null()).stdout(to_out).stderr(to_err).spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{command:?} cannot be run: {error}"));
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > limit {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{command:?} never ends: {}{}", read(&mut out), read(&mut err));
        }
        sleep(Duration::from_millis(5));
    };
    Told { success: status.success(), out: read(&mut out), err: read(&mut err) }
}

fn read(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Told {
    /// What it printed, if all went well.
    #[track_caller]
    pub(crate) fn output(self) -> String {
        assert!(self.success && self.err.is_empty(), "{}{}", self.out, self.err);
        self.out
    }
}

/// A folder outside of the tree, for what is installed.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Another run may be using the same folder: each file appears whole or not at all.
pub(crate) fn write(file: &Path, text: &str) {
    let partial = file.with_extension(format!("partial-{}", process::id()));
    fs::write(&partial, text).unwrap();
    fs::rename(partial, file).unwrap();
}
