//! The process that ends the command when this program cannot.
//!
//! The watchdog reads from a pipe that only this program and the beginning of the command write to. The end of the pipe
//! means that this program was killed. Then the watchdog ends the whole process group of the command;
//! `PR_SET_PDEATHSIG` signals only the first process. It has at most the rest of the lease for that. This program also
//! tells the watchdog how long the lock is held. If that time is over and the watchdog has heard nothing since, this
//! program stands still and cannot end the command itself.
//!
//! This program may be killed or stopped at any moment, even while it starts the command. So the watchdog learns how
//! long the lock is held before the command begins, and the beginning of the command itself tells the watchdog its
//! process group:
//!
//! ```text
//! this program             the beginning                the watchdog
//!      |--- starts ------------------------------------------>|
//!      |--- held until ------------------------------------->-|
//!      |--- starts ------------>|                             |
//!      |                        |--- group ------------------>|
//!      |                        |--- is it an orphan, or      |
//!      |                        |    the lease over? no:      |
//!      |                        |    becomes the command      |
//!      |--- held until, again and again -------------------->-|
//! ```
//!
//! Messages contain moments, not durations, because a busy machine may delay their reading.
//!
//! While the job is stopped (Ctrl-Z), this program cannot send messages. Somebody may continue the command alone. So
//! from the end of the lease on, the watchdog stops it again and again.

use super::moment::Moment;
use super::this_program::this_program;
use super::{BETWEEN_LOOKS, LONGEST_SILENCE};
use crate::duration::in_millis;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::{Pid, close, dup, getpid};
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, BufRead, PipeWriter, Write};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, sleep};
use std::time::Duration;

/// Where a process finds its open file descriptors. `/dev/fd` may be missing in a container.
const OPEN_FILES: &str = if cfg!(target_os = "linux") { "/proc/self/fd" } else { "/dev/fd" };

/// The watchdog acts twice this long after the time at which this program should have acted.
const LATER: Duration = Duration::from_millis(100);

/// A watchdog that is killed each time is not restarted more often than this.
const BETWEEN_STARTS: Duration = Duration::from_secs(1);

/// The argument that makes this program a watchdog.
pub(super) const WATCH: &str = "__watch";

const GROUP: &str = "group";
const HELD: &str = "held";
const RESTS: &str = "rests";
const ENDING: &str = "ending";

/// How long the group may take to end.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// If this program stands still: the grace that it would have given.
    pub(super) grace: Duration,
    /// If this program is killed. The group gets less time if less is left of the lease.
    pub(super) kill_after: Duration,
}

pub(super) struct Watchdog {
    limits: Limits,
    process: Child,
    started: Moment,
    told: PipeWriter,
    last_word: String,
}

impl Watchdog {
    pub(super) fn start(limits: Limits) -> io::Result<Self> {
        Self::of(None, limits)
    }

    /// Starts a watchdog. A group that already exists is known to it from its start.
    fn of(group: Option<Pid>, limits: Limits) -> io::Result<Self> {
        let (hears, told) = io::pipe()?;
        // Nonblocking: a watchdog that stands still must not stop this program.
        fcntl(&told, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let mut watchdog = this_program()?;
        watchdog.process_group(0).arg(WATCH);
        let Limits { grace, kill_after } = limits;
        watchdog.args([grace, kill_after].map(|duration| in_millis(duration).to_string()));
        watchdog.args(group.map(|group| group.to_string()));
        watchdog.stdin(hears).stdout(Stdio::null()).stderr(Stdio::null());
        // A working directory would keep its file system from being unmounted.
        let process = watchdog.current_dir("/").spawn()?;
        Ok(Self { limits, process, started: Moment::now(), told, last_word: String::new() })
    }

    /// A duplicate of the pipe's end for the beginning of the command. It stays open across exec.
    pub(super) fn for_the_beginning(&self) -> io::Result<OwnedFd> {
        Ok(dup(&self.told)?)
    }

    /// Must be called again before `end`.
    pub(super) fn holds_until(&mut self, end: Moment) {
        self.say(format!("{HELD} {end}"));
    }

    /// This program and the group stop together and renew nothing.
    pub(super) fn rests(&mut self) {
        self.say(RESTS.to_owned());
    }

    /// This program has sent TERM to the group, and will kill the group at `moment`.
    pub(super) fn kills_at(&mut self, moment: Moment) {
        self.say(format!("{ENDING} {moment}"));
    }

    /// Restarts a watchdog that was killed or has failed. A watchdog that ended by itself has done its work.
    pub(super) fn start_again_if_failed(&mut self, group: Pid) -> io::Result<()> {
        let has_failed = self.process.try_wait()?.is_some_and(|ended| !ended.success());
        if has_failed && self.started.plus(BETWEEN_STARTS).left().is_zero() {
            self.started = Moment::now();
            let last_word = self.last_word.clone();
            *self = Self::of(Some(group), self.limits)?;
            self.say(last_word);
        }
        Ok(())
    }

    /// The group has ended, or may go on.
    pub(super) fn dismiss(mut self) {
        // Kill instead of a message: a stopped watchdog would not read it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    fn say(&mut self, word: String) {
        let told = tell(&mut self.told, &word);
        self.last_word = word;
        if told.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            // The pipe is full, so the watchdog has stood still for long and would act on old messages. Another one
            // replaces it, as if it had been killed.
            let _ = self.process.kill();
        }
    }
}

/// A line is written whole or not at all, even with other writers: it is far shorter than `PIPE_BUF`.
fn tell(told: &mut impl Write, line: &str) -> io::Result<()> {
    told.write_all(format!("{line}\n").as_bytes())
}

/// Tells the watchdog the group, through the file descriptor with this number, from the beginning of the command. Then
/// closes the descriptor: if the command kept the pipe open, the watchdog would not notice the death of this program.
pub(super) fn tell_own_group(number: &OsStr) -> io::Result<()> {
    let number: Option<RawFd> = number.to_str().and_then(|number| number.parse().ok());
    let number = number.ok_or(io::ErrorKind::InvalidInput)?;
    let mut told = OpenOptions::new().write(true).open(format!("{OPEN_FILES}/{number}"))?;
    close(number)?;
    tell(&mut told, &format!("{GROUP} {}", getpid()))
}

/// What the watchdog was told.
#[derive(Default)]
struct Watched {
    group: Option<Pid>,
    /// When the lock may be lost, or when a group that got TERM is killed.
    ends_at: Option<Moment>,
    stage: Stage,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    Held,
    Resting,
    Ending,
}

impl Watched {
    fn hear(&mut self, line: &str) {
        let (word, number) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            GROUP => self.group = number.parse().ok().map(Pid::from_raw),
            HELD => (self.ends_at, self.stage) = (Moment::parse(number), Stage::Held),
            RESTS => self.stage = Stage::Resting,
            ENDING => (self.ends_at, self.stage) = (Moment::parse(number), Stage::Ending),
            _ => {}
        }
    }

    /// When to assume that this program stands still, unless a message comes before. None until a group is known: the
    /// command has not begun, and there is nothing to end.
    fn overdue_at(&self) -> Option<Moment> {
        self.ends_at.filter(|_| self.group.is_some()).map(|at| at.plus(LATER))
    }

    /// The next message. An error if this program was killed, or is overdue.
    fn next(&self, lines: &Receiver<String>) -> Result<String, RecvTimeoutError> {
        let Some(at) = self.overdue_at() else {
            return lines.recv().map_err(|_| RecvTimeoutError::Disconnected);
        };
        loop {
            let left = at.left();
            // Waits in short steps: this timeout may not count the time while the machine sleeps.
            match lines.recv_timeout(left.min(LONGEST_SILENCE)) {
                Err(RecvTimeoutError::Timeout) if left.is_zero() => break,
                Err(RecvTimeoutError::Timeout) => {}
                heard => return heard,
            }
        }
        // The watchdog may have stood still itself. Then it reads old messages first, and waits this long for the
        // newest.
        let stood_still = at.plus(LONGEST_SILENCE).left().is_zero();
        let again = if stood_still { LONGEST_SILENCE } else { Duration::ZERO };
        lines.recv_timeout(again.saturating_add(LATER))
    }

    fn stop(&self) {
        if let Some(group) = self.group {
            let _ = killpg(group, Signal::SIGSTOP);
        }
    }

    /// Reads messages until the group must be ended. Returns how long that may take.
    fn listen(&mut self, lines: &Receiver<String>, limits: Limits) -> Duration {
        loop {
            match self.next(lines) {
                Ok(line) => self.hear(&line),
                Err(RecvTimeoutError::Timeout) => match self.stage {
                    Stage::Held => return limits.grace,
                    Stage::Resting => self.stop(),
                    Stage::Ending => return Duration::ZERO,
                },
                Err(RecvTimeoutError::Disconnected) => {
                    let left = self.ends_at.map(Moment::left);
                    return limits.kill_after.min(left.unwrap_or(limits.kill_after));
                }
            }
        }
    }
}

/// Runs the watchdog. None if the arguments are not those from `Watchdog::of`.
pub(super) fn run(words: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let mut numbers = words.map(|word| word.to_str()?.parse().ok());
    let mut duration = || numbers.next()?.map(Duration::from_millis);
    let limits = Limits { grace: duration()?, kill_after: duration()? };
    let group = numbers.next().flatten().and_then(|group| i32::try_from(group).ok());
    watch(limits, group.map(Pid::from_raw));
    Some(ExitCode::SUCCESS)
}

fn watch(limits: Limits, group: Option<Pid>) {
    // Signals for this program or the command must not end the watchdog.
    let _ = SigSet::all().thread_block();
    // `pkill` and `killall` with the name of this program must not hit the watchdog.
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_name(c"lock-watchdog");
    let (tell, lines) = channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    let mut watched = Watched { group, ..Watched::default() };
    let within = watched.listen(&lines, limits);
    if let Some(group) = watched.group {
        end(group, within);
    }
}

fn end(group: Pid, within: Duration) {
    let kill_at = Moment::now().plus(within);
    // Without time left, a stopped process must not be continued even for a moment.
    if !within.is_zero() {
        let _ = killpg(group, Signal::SIGTERM);
        let _ = killpg(group, Signal::SIGCONT);
    }
    while killpg(group, None) != Err(Errno::ESRCH) {
        let left = kill_at.left();
        if left.is_zero() {
            let _ = killpg(group, Signal::SIGKILL);
            return;
        }
        sleep(BETWEEN_LOOKS.min(left));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::Sender;

    const LIMITS: Limits =
        Limits { grace: Duration::from_secs(9), kill_after: Duration::from_secs(3) };

    fn told(words: &[&str]) -> (Watched, Sender<String>, Receiver<String>) {
        let (tell, lines) = channel();
        words.iter().for_each(|word| tell.send((*word).to_owned()).unwrap());
        (Watched::default(), tell, lines)
    }

    fn held_for(time: Duration) -> String {
        format!("{HELD} {}", Moment::now().plus(time))
    }

    #[test]
    fn a_moment_is_read_as_it_is_written() {
        let moment = Moment::parse("1234567").unwrap();
        assert_eq!(moment.to_string(), "1234567");
        assert_eq!(Moment::parse(""), None);
    }

    #[test]
    fn the_group_of_who_stands_still_has_the_grace() {
        let (mut watched, _tell, lines) = told(&["group 4711", &held_for(Duration::ZERO)]);
        assert_eq!(watched.listen(&lines, LIMITS), LIMITS.grace);
        assert_eq!(watched.group, Some(Pid::from_raw(4711)));
    }

    #[test]
    fn a_group_that_was_asked_to_end_is_killed_at_once() {
        let ending = format!("{ENDING} {}", Moment::now());
        let hour = held_for(Duration::from_secs(3_600));
        let (mut watched, _tell, lines) = told(&["group 4711", &hour, &ending]);
        assert_eq!(watched.listen(&lines, LIMITS), Duration::ZERO);
    }

    #[test]
    fn the_group_of_who_was_killed_has_what_is_left_of_the_lease() {
        let minute = Duration::from_secs(60);
        let limits = Limits { kill_after: 10 * minute, ..LIMITS };
        for (held, rests, expected) in [
            (Duration::ZERO, "", Duration::ZERO),
            (minute, "", minute),
            (minute, RESTS, minute),
            (60 * minute, "", limits.kill_after),
        ] {
            let (mut watched, tell, lines) = told(&["group 4711", &held_for(held), rests]);
            drop(tell);
            let within = watched.listen(&lines, limits);
            let range = expected.saturating_sub(minute / 2)..=expected;
            assert!(range.contains(&within), "{within:?} of {expected:?}");
        }
    }

    #[test]
    fn old_words_are_no_reason_to_end_the_group() {
        let (mut watched, tell, lines) = told(&["group 4711", "held 1"]);
        let teller = thread::spawn(move || {
            for word in ["held 2", "held 3", &held_for(Duration::from_secs(3_600))] {
                sleep(BETWEEN_LOOKS);
                tell.send(word.to_owned()).unwrap();
            }
        });
        // The end of the pipe is the end of this program.
        assert_eq!(watched.listen(&lines, LIMITS), LIMITS.kill_after);
        teller.join().unwrap();
    }

    #[test]
    fn nothing_is_overdue_before_there_is_a_group() {
        let mut watched = Watched::default();
        watched.hear(&held_for(Duration::ZERO));
        assert_eq!(watched.overdue_at(), None);
        watched.hear("group 4711");
        assert!(watched.overdue_at().is_some());
    }
}
