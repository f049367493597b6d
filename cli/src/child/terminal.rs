//! The terminal, and which process group is in its foreground.

use crate::writer::what_stops_writers;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgrp, getpid, getppid, getsid, tcgetpgrp, tcsetpgrp};
use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, stdin, stdout};

pub(super) struct Terminal(File);

impl Terminal {
    /// None where this process has none, as in cron.
    pub(super) fn open() -> Option<Self> {
        let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        // The same signal stops a process that is not in the foreground and changes which one is.
        what_stops_writers().thread_block().ok()?;
        Some(Self(terminal))
    }

    fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(&self.0).ok()
    }

    pub(super) fn is_of(&self, group: Pid) -> bool {
        self.foreground() == Some(group)
    }

    pub(super) fn is_ours(&self) -> bool {
        self.is_of(getpgrp())
    }

    pub(super) fn give_to(&self, group: Pid) {
        // A group that has ended needs none.
        let _ = tcsetpgrp(&self.0, group);
    }
}

/// Undoes what `Terminal::open` has blocked, for the command that this process becomes.
pub(super) fn unblock() {
    let _ = what_stops_writers().thread_unblock();
}

/// Whether a command reads and shows at the terminal, and nobody beside it in a pipeline does.
pub(super) fn is_for_one() -> bool {
    stdin().is_terminal() && stdout().is_terminal()
}

/// Stops this program and those beside it in a pipeline, as a terminal does it, until a shell continues them. Does
/// nothing if there is no shell that would; otherwise does this first.
pub(crate) fn stop_this_job(before: impl FnOnce()) -> Stopped {
    let session = |process| getsid(Some(process)).ok();
    let ours = session(getpid());
    if ours == Some(getpid()) || ours != session(getppid()) {
        return Stopped::NobodyWouldContinue;
    }
    before();
    let _ = killpg(getpgrp(), Signal::SIGSTOP);
    Stopped::AndContinued
}

#[must_use = "whoever is not continued goes on"]
pub(crate) enum Stopped {
    AndContinued,
    NobodyWouldContinue,
}
