//! Another module, through which a test calls commands as modules do: see `caller_module.rs`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::OnceLock;

/// The module as a library, compiled once per run.
pub(super) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let source = folder.join("caller_module.rs");
        let library = folder.join("caller_module.so");
        // Another run may be using the same folder: each file appears whole or not at all.
        let partial = folder.join(format!("caller_module.{}", process::id()));
        fs::write(&partial, include_str!("caller_module.rs")).unwrap();
        fs::rename(&partial, &source).unwrap();
        let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let status = Command::new(rustc)
            .args(["--edition=2024", "--crate-type=cdylib", "-Cpanic=abort", "-O", "-o"])
            .arg(&partial)
            .arg(&source)
            .status();
        assert!(status.expect("rustc cannot be run").success(), "the module does not compile");
        fs::rename(&partial, &library).unwrap();
        library
    })
}
