//! Signals to processes. Not every system has the program `kill`.

use std::io;

/// Sends a signal, by its name such as `STOP`, to a process that the caller started and has not waited
/// for, or to a descendant of one. Otherwise the id may already belong to another process.
///
/// # Errors
///
/// There is no such process, or it belongs to another user.
pub fn signal(process: u32, name: &str) -> io::Result<()> {
    let signal = match name {
        "CONT" => libc::SIGCONT,
        "HUP" => libc::SIGHUP,
        "INT" => libc::SIGINT,
        "KILL" => libc::SIGKILL,
        "QUIT" => libc::SIGQUIT,
        "STOP" => libc::SIGSTOP,
        "TERM" => libc::SIGTERM,
        "TSTP" => libc::SIGTSTP,
        "USR1" => libc::SIGUSR1,
        "USR2" => libc::SIGUSR2,
        "WINCH" => libc::SIGWINCH,
        other => panic!("no signal is named {other}"),
    };
    let process = process.try_into().unwrap();
    assert!(
        process > 1,
        "process 0 stands for all in the group of the caller, and 1 is the system's"
    );
    // SAFETY: takes two numbers, and touches no memory of this process.
    match unsafe { libc::kill(process, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
