//! Libraries that are loaded into servers: compiled once per run, from a source that is here.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

pub(super) fn compiled(name: &str, text: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join(format!("{name}.rs"));
    let library = folder.join(format!("{name}.so"));
    // Another run may be using the same folder: each file appears whole or not at all.
    let partial = folder.join(format!("{name}.{}", process::id()));
    fs::write(&partial, text).unwrap();
    fs::rename(&partial, &source).unwrap();
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let status = Command::new(rustc)
        .args(["--edition=2024", "--crate-type=cdylib", "-Cpanic=abort", "-O", "-o"])
        .arg(&partial)
        .arg(&source)
        .status();
    assert!(status.expect("rustc cannot be run").success(), "{name} does not compile");
    fs::rename(&partial, &library).unwrap();
    library
}
