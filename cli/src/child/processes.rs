//! Processes that this program starts of itself, by words that nobody else uses.
//!
//! **The beginning of the command.** What a command needs from its first moment on, the foreground of the terminal and
//! word of the death of its parent, a process has to ask for itself, before it becomes the command. In Rust nothing safe
//! runs between fork and exec. So this program is run once more, asks, and is replaced by the command.
//!
//! **The watchdog.** It reads from a pipe that only this program and the beginning of the command write to. When that
//! ends without a word, this program was killed: then the watchdog ends the group of the command, all of it, which the
//! kernel's own word to the first process (`PR_SET_PDEATHSIG`) does not. It has less time for that than the lease has
//! left. It is also told for how long the lock is held: when that is over and it has heard nothing since, this program
//! stands still, and cannot end the command itself.
//!
//! This program may be killed or stopped at any moment, also while it starts the command. So the watchdog knows for how
//! long the lock is held before the command begins, and the beginning of the command itself says which group it is:
//!
//! ```text
//! this program             the beginning                the watchdog
//!      |--- starts ------------------------------------------>|
//!      |--- held ----------------------------------------->---|
//!      |--- starts ------------>|                             |
//!      |                        |--- group ------------------>|
//!      |                        |--- is it an orphan? no:     |
//!      |                        |    becomes the command      |
//!      |--- held, again and again ------------------------->--|
//! ```
//!
//! **The end by an interrupt.** It needs this program without its handler.

use super::BETWEEN_LOOKS;
use crate::exit_code::Code;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc::SIGINT;
use nix::sys::signal::{SigSet, Signal, killpg, raise};
use nix::unistd::{Pid, close, dup, getpid, getppid};
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, BufRead, PipeWriter, Write};
use std::os::fd::{AsRawFd, RawFd};
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

/// Where a process finds what it has open. `/dev/fd` may be missing in a container.
const OPEN_FILES: &str = if cfg!(target_os = "linux") { "/proc/self/fd" } else { "/dev/fd" };

/// How much later than this program the watchdog sees the lock lost.
const LATER: Duration = Duration::from_millis(200);

/// What this process ends with, if it was started to be one of the two.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    let what = words.next()?;
    if what == OsStr::new(BEGIN) {
        let words: Vec<OsString> = words.collect();
        let [parent, watchdog, terminal, program, arguments @ ..] = words.as_slice() else {
            return None;
        };
        return Some(begin(parent, watchdog, terminal, program, arguments));
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

fn begin(
    parent: &OsStr,
    watchdog: &OsStr,
    terminal: &OsStr,
    program: &OsStr,
    arguments: &[OsString],
) -> ExitCode {
    if let Err(error) = tell_own_group(watchdog) {
        crate::output::say(&format!("nothing would watch over the command: {error}"));
        return ExitCode::from(NOT_RUN);
    }
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

/// Says to the watchdog which group it looks after. Whatever the command had open of the pipe would keep the watchdog
/// from hearing of the death of the program that holds the lock.
fn tell_own_group(watchdog: &OsStr) -> io::Result<()> {
    let number: Option<RawFd> = watchdog.to_str().and_then(|number| number.parse().ok());
    let number = number.ok_or(io::ErrorKind::InvalidInput)?;
    let mut told = OpenOptions::new().write(true).open(format!("{OPEN_FILES}/{number}"))?;
    close(number)?;
    tell(&mut told, &format!("{GROUP} {}", getpid()))
}

/// A line is written whole or not at all, whoever else writes to the pipe: it is far shorter than `PIPE_BUF`.
fn tell(told: &mut impl Write, line: &str) -> io::Result<()> {
    told.write_all(format!("{line}\n").as_bytes())
}

/// The process that looks after the group when this one is killed, or stands still.
pub(super) struct Watchdog {
    process: Child,
    told: PipeWriter,
}

impl Watchdog {
    /// If this program is killed, the group has less time to end than the grace: the lease may be over sooner.
    pub(super) fn start(kill_after: Duration, grace: Duration) -> io::Result<Self> {
        let (hears, told) = io::pipe()?;
        // A watchdog that stands still must not stop this program.
        fcntl(&told, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let mut watchdog = this_program()?;
        watchdog.process_group(0).arg(WATCH);
        watchdog.args([kill_after, grace].map(|duration| duration.as_millis().to_string()));
        watchdog.stdin(hears).stdout(Stdio::null()).stderr(Stdio::null());
        // It must keep no file system from being unmounted.
        let process = watchdog.current_dir("/").spawn()?;
        Ok(Self { process, told })
    }

    /// Starts the command, in a process group of its own, which it tells to the watchdog.
    pub(super) fn start_watched(
        &self,
        command: &[OsString],
        environment: &[(&'static str, String)],
        takes_terminal: bool,
    ) -> io::Result<Pid> {
        let terminal = if takes_terminal { WITH_TERMINAL } else { WITHOUT_TERMINAL };
        // Unlike the one that is duplicated, it stays open in what is started.
        let told = dup(&self.told)?;
        let mut beginning = this_program()?;
        beginning.process_group(0).arg(BEGIN).arg(getpid().to_string());
        beginning.arg(told.as_raw_fd().to_string()).arg(terminal).args(command);
        beginning.envs(environment.iter().map(|(name, value)| (name, value)));
        let child = beginning.spawn()?;
        i32::try_from(child.id()).map(Pid::from_raw).map_err(io::Error::other)
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
        let _ = fcntl(&self.told, FcntlArg::F_SETFL(OFlag::empty()));
        self.tell(DONE);
        let Self { mut process, told } = self;
        drop(told);
        let _ = process.wait();
    }

    fn tell(&mut self, line: &str) {
        // A watchdog that was killed cannot be helped: the kernel's word to the command is left.
        let _ = tell(&mut self.told, line);
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

    /// Hears what there is to hear, until the group is to be ended. As long as it knows of no group, the command has not
    /// begun, though its lock may be lost.
    fn listen(&mut self, lines: &Receiver<String>) -> Why {
        loop {
            let heard = match self.left() {
                Some(left) if self.group.is_some() => lines.recv_timeout(left),
                _ => lines.recv().map_err(|_| RecvTimeoutError::Disconnected),
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
    fn only_the_last_word_counts() {
        let mut watched = Watched::default();
        watched.hear("group 4711");
        watched.hear("held 60000");
        let left = watched.left().unwrap();
        assert!(left > Duration::from_secs(59), "{left:?}");
        watched.hear("rests");
        assert_eq!((watched.left(), watched.group), (None, Some(Pid::from_raw(4711))));
        watched.hear("done");
        assert_eq!(watched.group, None);
    }

    #[test]
    fn a_group_that_is_known_only_when_the_lock_is_lost_is_ended_at_once() {
        let (tell, lines) = channel();
        let mut watched = Watched { group: None, lost_at: Some(Instant::now()) };
        let teller = thread::spawn(move || {
            sleep(BETWEEN_LOOKS);
            tell.send("group 4711".to_owned()).unwrap();
            tell
        });
        assert!(matches!(watched.listen(&lines), Why::StandsStill));
        assert_eq!(watched.group, Some(Pid::from_raw(4711)));
        teller.join().unwrap();
    }
}
