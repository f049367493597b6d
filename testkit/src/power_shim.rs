//! Preloaded into a server: notes beside each append-only file how much of it was forced to disk.
//!
//! A power failure leaves that much. What happens to the rest is unknown.

use std::ffi::{c_int, c_long};
use std::fs;

#[cfg(target_arch = "x86_64")]
const SYS_FDATASYNC: c_long = 75;
#[cfg(target_arch = "aarch64")]
const SYS_FDATASYNC: c_long = 83;

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

/// The only call with which servers force this file to disk on Linux.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(file: c_int) -> c_int {
    let open = format!("/proc/self/fd/{file}");
    // Measured before the call, because bytes appended during the call may not be forced to disk.
    let length = fs::metadata(&open).map_or(0, |metadata| metadata.len());
    // SAFETY: the system call of this name, with what the caller passed.
    let outcome = unsafe { syscall(SYS_FDATASYNC, c_long::from(file)) };
    if outcome == 0
        && let Ok(path) = fs::read_link(&open)
        && path.extension().is_some_and(|extension| extension == "aof")
    {
        // Replaced in one step, because the server may be killed at any moment.
        let partial = path.with_extension("partial");
        let _ = fs::write(&partial, length.to_string());
        let _ = fs::rename(&partial, path.with_extension("synced"));
    }
    if outcome == 0 { 0 } else { -1 }
}
