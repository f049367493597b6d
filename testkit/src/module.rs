//! The build of the module under test: always the newest, never a stale one.

use super::version::{announce, version_line};
use std::env::{self, consts};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::SystemTime;

/// The default of `leasehold.fence-margin`, in milliseconds.
pub const USUAL_FENCE_MARGIN: u64 = 15_000;

/// The module's file. Cargo builds the cdylib for tests beside their executable. Only `cargo build`
/// refreshes the copy one folder up, so that copy may be older.
pub fn path() -> &'static Path {
    static PATH: LazyLock<PathBuf> = LazyLock::new(|| {
        let path = find();
        let built = modified(&path);
        refuse_if_stale(&path, built);
        let age = SystemTime::now().duration_since(built).unwrap_or_default().as_secs();
        announce(&format!("testing {} ({age} s old) on {}", path.display(), version_line()));
        path
    });
    &PATH
}

/// Whether this build panics at named places. Only debug builds do.
pub fn can_inject_panics() -> bool {
    let built_here_for_debugging =
        env::var_os("LEASEHOLD_MODULE").is_none() && cfg!(debug_assertions);
    if built_here_for_debugging {
        return true;
    }
    let variable = b"LEASEHOLD_PANIC_AT";
    let found = fs::read(path()).unwrap().windows(variable.len()).any(|bytes| bytes == variable);
    if !found {
        announce("skipped: a release build cannot be told to panic");
    }
    found
}

fn find() -> PathBuf {
    if let Some(chosen) = env::var_os("LEASEHOLD_MODULE") {
        let chosen = PathBuf::from(chosen);
        return chosen.canonicalize().unwrap_or_else(|error| panic!("{chosen:?}: {error}"));
    }
    let file = format!("{}leasehold{}", consts::DLL_PREFIX, consts::DLL_SUFFIX);
    env::current_exe().unwrap().with_file_name(file)
}

/// Fails if a source is newer than the build. Cargo compares the same dates of the same files, so
/// this never refuses what Cargo has just built.
fn refuse_if_stale(path: &Path, built: SystemTime) {
    let newer: Vec<_> =
        sources(path).into_iter().filter(|source| modified(source) > built).collect();
    assert!(newer.is_empty(), "{} is older than {newer:?}: build it again", path.display());
}

/// The sources of the module, from the compiler's note beside the module: `module: source source …`
fn sources(path: &Path) -> Vec<PathBuf> {
    let notes = ["leasehold.d", "libleasehold.d"].map(|name| path.with_file_name(name));
    let note = notes.iter().find_map(|note| fs::read_to_string(note).ok());
    let note = note
        .unwrap_or_else(|| panic!("nothing beside {} says of what it is built", path.display()));
    let (_, sources) = note.lines().next().unwrap().split_once(": ").unwrap();
    // The compiler ran in the folder of the workspace.
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .filter(|folder| folder.join("Cargo.lock").is_file());
    let root = root.last().expect("no Cargo.lock above the tests");
    sources.split(' ').map(|source| root.join(source)).collect()
}

fn modified(path: &Path) -> SystemTime {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    modified.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
