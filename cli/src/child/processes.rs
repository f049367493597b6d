//! Processes that this program starts of itself, by words that nobody else uses.
//!
//! **The beginning of the command.** What a command needs from its first moment on, the foreground of the terminal and
//! word of the death of its parent, a process has to ask for itself, before it becomes the command. In Rust nothing safe
//! runs between fork and exec. So this program is run once more, asks, and is replaced by the command.
//!
//! **The watchdog.** It reads from a pipe that only this program writes to. When that ends without a word, this
//! program was killed: then the watchdog ends the group of the command, all of it, which the kernel's own word to the
//! first process (`PR_SET_PDEATHSIG`) does not. It has less time for that than the lease has left.
//!
//! **The end by an interrupt.** It needs this program without its handler.

use super::BETWEEN_LOOKS;
use crate::exit_code::Code;
use nix::errno::Errno;
use nix::libc::SIGINT;
use nix::sys::signal::{SigSet, Signal, killpg, raise};
use nix::unistd::{Pid, getpid, getppid};
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const BEGIN: &str = "__begin";
const WATCH: &str = "__watch";
const END: &str = "__end";
const WITH_TERMINAL: &str = "terminal";
const WITHOUT_TERMINAL: &str = "-";

/// What a shell says of a command that it does not find, and of one that it cannot run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// What this process ends with, if it was started to be one of the two.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    let what = words.next()?;
    if what == OsStr::new(BEGIN) {
        let words: Vec<OsString> = words.collect();
        let [parent, terminal, program, arguments @ ..] = words.as_slice() else { return None };
        return Some(begin(parent, terminal, program, arguments));
    }
    if what == OsStr::new(WATCH) {
        let kill_after = words.next()?.to_str()?.parse().ok()?;
        watch(Duration::from_millis(kill_after));
        return Some(ExitCode::SUCCESS);
    }
    (what == OsStr::new(END)).then(|| {
        let _ = raise(Signal::SIGINT);
        // It is ignored here.
        Code::of_signal(SIGINT).into()
    })
}

/// Ends this process by the signal, and not by a code that says so: bash goes on with a script whose command has heard of Ctrl-C
/// and did not end of it. In Rust nothing safe takes a handler away, but what replaces this program has none.
pub(crate) fn end_by_interrupt() -> ExitCode {
    if let Ok(mut end) = this_program() {
        let _ = end.arg(END).exec();
    }
    Code::of_signal(SIGINT).into()
}

fn this_program() -> io::Result<Command> {
    let mut file = std::env::current_exe()?;
    // It was replaced while this program waited: the kernel still has the one that runs.
    if cfg!(target_os = "linux") && !file.exists() {
        file = "/proc/self/exe".into();
    }
    let mut command = Command::new(file);
    command.arg0("leasehold");
    Ok(command)
}

/// Starts the command in a process group of its own.
pub(super) fn start(
    command: &[OsString],
    environment: &[(&'static str, String)],
    takes_terminal: bool,
) -> io::Result<Pid> {
    let terminal = if takes_terminal { WITH_TERMINAL } else { WITHOUT_TERMINAL };
    let mut beginning = this_program()?;
    beginning.process_group(0).arg(BEGIN).arg(getpid().to_string()).arg(terminal).args(command);
    beginning.envs(environment.iter().map(|(name, value)| (name, value)));
    let child = beginning.spawn()?;
    i32::try_from(child.id()).map(Pid::from_raw).map_err(io::Error::other)
}

fn begin(parent: &OsStr, terminal: &OsStr, program: &OsStr, arguments: &[OsString]) -> ExitCode {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGTERM);
    // It may have died before that.
    if parent != OsStr::new(&getppid().to_string()) {
        return ExitCode::from(NOT_RUN);
    }
    if terminal == OsStr::new(WITH_TERMINAL)
        && let Some(terminal) = super::terminal::Terminal::open()
    {
        terminal.give_to(getpid());
    }
    // The signals that are blocked here are not for the command: the standard library sees to that.
    let error = Command::new(program).args(arguments).exec();
    let (code, why) = match error.kind() {
        io::ErrorKind::NotFound => (NOT_FOUND, "there is no such command".to_owned()),
        _ => (NOT_RUN, error.to_string()),
    };
    let program = crate::output::printable(&program.to_string_lossy());
    crate::output::say(&format!("{program} cannot be run: {why}"));
    ExitCode::from(code)
}

/// The process that looks after the group when this one is killed.
pub(super) struct Watchdog(Child);

impl Watchdog {
    pub(super) fn start(kill_after: Duration) -> io::Result<Self> {
        let mut watchdog = this_program()?;
        watchdog.process_group(0).arg(WATCH).arg(kill_after.as_millis().to_string());
        watchdog.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // It must keep no file system from being unmounted.
        watchdog.current_dir("/").spawn().map(Self)
    }

    pub(super) fn watch(&mut self, group: Pid) {
        self.write(&format!("{group}\n"));
    }

    /// The group has ended, or may go on.
    pub(super) fn dismiss(mut self) {
        self.write("done\n");
        let Self(mut process) = self;
        drop(process.stdin.take());
        let _ = process.wait();
    }

    fn write(&mut self, line: &str) {
        // A watchdog that was killed cannot be helped: the kernel's word to the command is left.
        let _ = self.0.stdin.as_mut().map(|pipe| pipe.write_all(line.as_bytes()));
    }
}

fn watch(kill_after: Duration) {
    // What is meant for the others must not end the one that looks after them.
    let _ = SigSet::all().thread_block();
    let mut group = None;
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        group = line.parse().ok().map(Pid::from_raw);
    }
    let Some(group) = group else { return };
    let begun = Instant::now();
    let _ = killpg(group, Signal::SIGTERM);
    let _ = killpg(group, Signal::SIGCONT);
    while killpg(group, None) != Err(Errno::ESRCH) {
        if begun.elapsed() >= kill_after {
            let _ = killpg(group, Signal::SIGKILL);
            return;
        }
        sleep(BETWEEN_LOOKS);
    }
}
