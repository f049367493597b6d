//! Processes that this program starts of itself, by words that nobody else uses.
//!
//! **The beginning of the command.** What a command needs from its first moment on, the foreground of the terminal and
//! word of the death of its parent, a process has to ask for itself, before it becomes the command. In Rust nothing safe
//! runs between fork and exec. So this program is run once more, asks, and is replaced by the command.
//!
//! **The watchdog.** It reads from a socket that only this program writes to. When that ends without a word, this
//! program was killed: then the watchdog ends the group of the command, all of it, which the kernel's own word to the
//! first process (`PR_SET_PDEATHSIG`) does not. It has less time for that than the lease has left. It is also told for
//! how long the lock is held: when that is over and it has heard nothing since, this program stands still, and cannot
//! end the command itself.
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
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

const BEGIN: &str = "__begin";
const WATCH: &str = "__watch";
const END: &str = "__end";
const WITH_TERMINAL: &str = "terminal";
const WITHOUT_TERMINAL: &str = "-";

/// What a shell says of a command that it does not find, and of one that it cannot run.
const NOT_FOUND: u8 = 127;
const NOT_RUN: u8 = 126;

/// How much later than this program the watchdog sees the lock lost.
const LATER: Duration = Duration::from_millis(200);

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
        let mut duration = || words.next()?.to_str()?.parse().ok().map(Duration::from_millis);
        watch(duration()?, duration()?);
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
    crate::writer::finish();
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

/// The process that looks after the group when this one is killed, or stands still.
pub(super) struct Watchdog {
    process: Child,
    told: UnixStream,
}

impl Watchdog {
    /// If this program is killed, the group has less time to end than the grace: the lease may be over sooner.
    pub(super) fn start(kill_after: Duration, grace: Duration) -> io::Result<Self> {
        let (told, hears) = UnixStream::pair()?;
        // A watchdog that stands still must not stop this program.
        told.set_nonblocking(true)?;
        let mut watchdog = this_program()?;
        watchdog.process_group(0).arg(WATCH);
        watchdog.args([kill_after, grace].map(|duration| duration.as_millis().to_string()));
        let hears = Stdio::from(OwnedFd::from(hears));
        watchdog.stdin(hears).stdout(Stdio::null()).stderr(Stdio::null());
        // It must keep no file system from being unmounted.
        let process = watchdog.current_dir("/").spawn()?;
        Ok(Self { process, told })
    }

    pub(super) fn watch(&mut self, group: Pid) {
        self.tell(&format!("{GROUP} {group}"));
    }

    /// The lock is held for so long from now on. This has to be said again before that is over.
    pub(super) fn holds_for(&mut self, left: Duration) {
        self.tell(&format!("{HELD} {}", left.as_millis()));
    }

    /// This program sees to the group, or both are stopped: it need not be told for how long the lock is held.
    pub(super) fn rests(&mut self) {
        self.tell(RESTS);
    }

    /// The group has ended, or may go on.
    pub(super) fn dismiss(mut self) {
        let _ = self.told.set_nonblocking(false);
        self.tell(DONE);
        let Self { mut process, told } = self;
        drop(told);
        let _ = process.wait();
    }

    fn tell(&mut self, line: &str) {
        // A watchdog that was killed cannot be helped: the kernel's word to the command is left. Of the line before this
        // one there may be only a part.
        let _ = self.told.write_all(format!("\n{line}\n").as_bytes());
    }
}

const GROUP: &str = "group";
const HELD: &str = "held";
const RESTS: &str = "rests";
const DONE: &str = "done";

/// What the watchdog was told.
#[derive(Default)]
struct Watched {
    group: Option<Pid>,
    /// When the lock may be lost without a word.
    lost_at: Option<Instant>,
}

/// Why the group is to be ended.
enum Why {
    Killed,
    StandsStill,
}

impl Watched {
    fn hear(&mut self, line: &str) {
        let (word, number) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            GROUP => self.group = number.parse().ok().map(Pid::from_raw),
            HELD => {
                let left = number.parse().ok().map(Duration::from_millis);
                let lost_at = |left| Instant::now().checked_add(LATER.saturating_add(left));
                self.lost_at = left.and_then(lost_at);
            }
            RESTS => self.lost_at = None,
            DONE => *self = Self::default(),
            _ => {}
        }
    }

    fn left(&self) -> Option<Duration> {
        self.lost_at.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Hears what there is to hear, until the group is to be ended.
    fn listen(&mut self, lines: &Receiver<String>) -> Why {
        loop {
            let heard = match self.left() {
                Some(left) => lines.recv_timeout(left),
                None => lines.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match heard {
                Ok(line) => self.hear(&line),
                Err(RecvTimeoutError::Timeout) => return Why::StandsStill,
                Err(RecvTimeoutError::Disconnected) => return Why::Killed,
            }
        }
    }
}

fn watch(kill_after: Duration, grace: Duration) {
    // What is meant for the others must not end the one that looks after them.
    let _ = SigSet::all().thread_block();
    let (tell, lines) = channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    let mut watched = Watched::default();
    let grace = match watched.listen(&lines) {
        Why::Killed => kill_after.min(watched.left().unwrap_or(kill_after)),
        Why::StandsStill => grace,
    };
    if let Some(group) = watched.group {
        end(group, grace);
    }
}

fn end(group: Pid, grace: Duration) {
    let begun = Instant::now();
    let _ = killpg(group, Signal::SIGTERM);
    let _ = killpg(group, Signal::SIGCONT);
    while killpg(group, None) != Err(Errno::ESRCH) {
        if begun.elapsed() >= grace {
            let _ = killpg(group, Signal::SIGKILL);
            return;
        }
        sleep(BETWEEN_LOOKS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_word_counts_and_parts_of_one_do_not() {
        let mut watched = Watched::default();
        watched.hear("group 4711");
        watched.hear("held 60000");
        let left = watched.left().unwrap();
        assert!(left > Duration::from_secs(59), "{left:?}");
        for line in ["", "hel", "60000", "rest"] {
            watched.hear(line);
            assert!(watched.left().is_some(), "{line}");
        }
        watched.hear("rests");
        assert_eq!((watched.left(), watched.group), (None, Some(Pid::from_raw(4711))));
        watched.hear("done");
        assert_eq!(watched.group, None);
    }
}
