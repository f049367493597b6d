//! Libraries that are loaded into servers: compiled once per run, from a source that is here.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) fn compiled(name: &str, text: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let library = folder.join(format!("{name}.so"));
    // Another run may be using the same folder, and the compiler has files of its own beside what it makes.
    let workshop = tempfile::tempdir_in(folder).unwrap();
    let (source, partial) = (workshop.path().join("source.rs"), workshop.path().join("partial"));
    fs::write(&source, text).unwrap();
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let status = Command::new(rustc)
        .args(["--edition=2024", "--crate-type=cdylib", "--crate-name", name])
        .args(["-Cpanic=abort", "-O", "-o"])
        .arg(&partial)
        .arg(&source)
        .status();
    assert!(status.expect("rustc cannot be run").success(), "{name} does not compile");
    fs::rename(&partial, &library).unwrap();
    library
}
