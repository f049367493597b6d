//! Processes that this program starts by running itself again, with arguments that nobody else uses.
//!
//! **The beginning of the command.** A command needs two things from its start: the foreground of the terminal, and a
//! signal when its parent dies. Only the process itself can ask for them, before it becomes the command. Safe Rust
//! cannot run code between fork and exec. So this program runs itself again, and that process asks and then becomes the
//! command.
//!
//! **The watchdog** is in `watchdog.rs`.
//!
//! **The end by an interrupt.** It needs this program without its signal handler.

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

/// The exit codes that a shell uses for a command that it does not find, and for one that it cannot run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// Runs the helper process that the arguments ask for, and returns its exit code.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    let what = words.next()?;
    match what.to_str()? {
        BEGIN => begin(&words.collect::<Vec<_>>()),
        WATCH => watchdog::run(words),
        END => {
            let _ = raise(Signal::SIGINT);
            // Reached if SIGINT is ignored.
            Some(Code::of_signal(SIGINT).into())
        }
        _ => None,
    }
}

/// Ends this process by SIGINT itself instead of an exit code. bash continues a script if the command got Ctrl-C and
/// did not die of it. Safe Rust cannot remove a signal handler, but the program that replaces this one starts without
/// handlers.
pub(crate) fn end_by_interrupt() -> ExitCode {
    crate::writer::finish();
    if let Ok(mut end) = this_program() {
        let _ = end.arg(END).exec();
    }
    Code::of_signal(SIGINT).into()
}

/// Starts the command in its own process group, unless the lease ends before the command begins.
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

/// None if the arguments are not those from `start`.
fn begin(words: &[OsString]) -> Option<ExitCode> {
    let [parent, lease_ends, watchdog, terminal, program, arguments @ ..] = words else {
        return None;
    };
    let lease_ends = Moment::parse(lease_ends.to_str()?)?;
    // A broken pipe means that the watchdog was killed. Its replacement knows the group.
    if let Err(error) = watchdog::tell_own_group(watchdog)
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        crate::output::say(&format!("nothing would watch over the command: {error}"));
        return Some(ExitCode::from(NOT_RUN));
    }
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGTERM);
    // The parent may have died before the kernel was asked to signal its death.
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
    // Blocked signals stay blocked across exec.
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
