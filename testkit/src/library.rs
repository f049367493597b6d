//! Libraries that servers load, compiled once per run from sources in this crate.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

/// A second module, through which tests call commands as a module does: see `caller_module.rs`.
pub static CALLER: LazyLock<PathBuf> =
    LazyLock::new(|| compiled("caller_module", include_str!("caller_module.rs")));

pub(crate) static CLOCK_SHIM: LazyLock<PathBuf> =
    LazyLock::new(|| compiled("clock_shim", include_str!("clock_shim.rs")));

pub(crate) static POWER_SHIM: LazyLock<PathBuf> =
    LazyLock::new(|| compiled("power_shim", include_str!("power_shim.rs")));

fn compiled(name: &str, text: &str) -> PathBuf {
    let folder = &folder();
    let library = folder.join(format!("{name}.so"));
    // A folder of its own: another run may use the same folder, and the compiler writes other files beside the library.
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

/// The folder for files of tests, `target/tmp`.
fn folder() -> PathBuf {
    let executable = env::current_exe().unwrap();
    let target = executable.ancestors().nth(3).expect("a test is not in target/*/deps");
    let folder = target.join("tmp");
    fs::create_dir_all(&folder).unwrap();
    folder
}
