//! Signals to processes. Not every system has the program `kill`.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io;

/// Sends a signal, by its name such as `STOP`, to a process that the caller started and has not waited
/// for, or to a descendant of one. Otherwise the id may already belong to another process.
///
/// # Errors
///
/// There is no such process, or it belongs to another user.
pub fn signal(process: u32, name: &str) -> io::Result<()> {
    let signal: Signal = format!("SIG{name}").parse().unwrap();
    let process = process.try_into().unwrap();
    assert!(
        process > 1,
        "process 0 stands for all in the group of the caller, and 1 is the system's"
    );
    Ok(kill(Pid::from_raw(process), signal)?)
}
