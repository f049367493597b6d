//! Another module, through which a test calls commands as modules do: see `caller_module.rs`.

use super::library;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The module as a library, compiled once per run.
pub fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| library::compiled("caller_module", include_str!("caller_module.rs")))
}
