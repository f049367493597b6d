//! Processes that this program starts of itself, by words that nobody else uses.
//!
//! **The beginning of the command.** What a command needs from its first moment on, the foreground of the terminal and
//! word of the death of its parent, a process has to ask for itself, before it becomes the command. In Rust nothing safe
//! runs between fork and exec. So this program is run once more, asks, and is replaced by the command.
//!
//! **The watchdog** is in a file of its own, `watchdog.rs`.
//!
//! **The end by an interrupt.** It needs this program without its handler.

use super::moment::Moment;
use super::terminal::{self, Terminal};
use super::this_program::this_program;
use super::watchdog::{self, WATCH, Watchdog};
use crate::exit_code::Code;
use nix::libc::SIGINT;
use nix::sys::signal::{Signal, raise};
use nix::unistd::{Pid, getpid, getppid};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

const BEGIN: &str = "__begin";
const END: &str = "__end";
const WITH_TERMINAL: &str = "terminal";
const WITHOUT_TERMINAL: &str = "-";

/// What a shell says of a command that it does not find, and of one that it cannot run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// What this process ends with, if it was started to be one of these.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    let what = words.next()?;
    match what.to_str()? {
        BEGIN => begin(&words.collect::<Vec<_>>()),
        WATCH => watchdog::run(words),
        END => {
            let _ = raise(Signal::SIGINT);
            // It is ignored here.
            Some(Code::of_signal(SIGINT).into())
        }
        _ => None,
    }
}

/// Ends this process by the signal, and not by a code that says so: bash goes on with a script whose command has heard of Ctrl-C
/// and did not end of it. In Rust nothing safe takes a handler away, but what replaces this program has none.
pub(crate) fn end_by_interrupt() -> ExitCode {
    crate::writer::finish();
    if let Ok(mut end) = this_program() {
        let _ = end.arg(END).exec();
    }
    Code::of_signal(SIGINT).into()
}

/// Starts the command in a process group of its own, unless the lease is over before it begins.
pub(super) fn start(
    command: &[OsString],
    environment: &[(&'static str, String)],
    lease_ends: Moment,
    watchdog: &Watchdog,
    takes_terminal: bool,
) -> io::Result<Pid> {
    let terminal = if takes_terminal { WITH_TERMINAL } else { WITHOUT_TERMINAL };
    let told = watchdog.for_the_beginning()?;
    let mut beginning = this_program()?;
    beginning.process_group(0).arg(BEGIN).arg(getpid().to_string()).arg(lease_ends.to_string());
    beginning.arg(told.as_raw_fd().to_string()).arg(terminal).args(command);
    beginning.envs(environment.iter().map(|(name, value)| (name, value)));
    let child = beginning.spawn()?;
    i32::try_from(child.id()).map(Pid::from_raw).map_err(io::Error::other)
}

/// None if these are not the words of `start`.
fn begin(words: &[OsString]) -> Option<ExitCode> {
    let [parent, lease_ends, watchdog, terminal, program, arguments @ ..] = words else {
        return None;
    };
    let lease_ends = Moment::parse(lease_ends.to_str()?)?;
    // Another watchdog takes the place of one that was killed, and knows the group.
    if let Err(error) = watchdog::tell_own_group(watchdog)
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        crate::output::say(&format!("nothing would watch over the command: {error}"));
        return Some(ExitCode::from(NOT_RUN));
    }
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGTERM);
    // It may have died before that.
    if parent != OsStr::new(&getppid().to_string()) {
        return Some(ExitCode::from(NOT_RUN));
    }
    if terminal == OsStr::new(WITH_TERMINAL)
        && let Some(terminal) = Terminal::open()
    {
        terminal.give_to(getpid());
    }
    if lease_ends.left().is_zero() {
        crate::output::say("the command did not begin within its lease: it is not run");
        return Some(ExitCode::from(NOT_RUN));
    }
    // What a process blocks stays blocked for what it becomes.
    terminal::unblock();
    let error = Command::new(program).args(arguments).exec();
    let (code, why) = match error.kind() {
        io::ErrorKind::NotFound => (NOT_FOUND, "there is no such command".to_owned()),
        _ => (NOT_RUN, error.to_string()),
    };
    let program = crate::output::printable(&program.to_string_lossy());
    crate::output::say(&format!("{program} cannot be run: {why}"));
    Some(ExitCode::from(code))
}
