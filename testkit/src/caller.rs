//! A second module, through which tests call commands as a module does: see `caller_module.rs`.

use super::library;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The compiled module, built once per run.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| library::compiled("caller_module", include_str!("caller_module.rs")))
}
