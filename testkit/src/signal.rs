//! Signals to processes. Not every system has the program `kill`.

use std::io;

/// Sends a process a signal by its name, such as `STOP`.
///
/// # Errors
///
/// There is no such process.
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
    // SAFETY: takes two numbers. A test names only processes that it started, or that they did.
    match unsafe { libc::kill(process, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
