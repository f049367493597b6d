//! The terminal, and which process group is in its foreground.

use crate::writer::what_stops_writers;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgrp, getpid, getppid, getsid, tcgetpgrp, tcsetpgrp};
use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, stdin, stdout};

pub(super) struct Terminal(File);

impl Terminal {
    /// None if this process has no terminal, as in cron.
    pub(super) fn open() -> Option<Self> {
        let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        // SIGTTOU would stop a process that changes the foreground group while in the background.
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
        // Fails if the group has ended. Then it needs no foreground.
        let _ = tcsetpgrp(&self.0, group);
    }
}

/// Unblocks what `Terminal::open` has blocked, for the command that this process becomes.
pub(super) fn unblock() {
    let _ = what_stops_writers().thread_unblock();
}

/// Whether the command both reads from and writes to the terminal, so that no other program in a pipeline does.
pub(super) fn is_for_one() -> bool {
    stdin().is_terminal() && stdout().is_terminal()
}

/// Stops this program and the others in its pipeline, as a terminal does, until a shell continues them. Calls
/// `before` first. Does nothing if no shell would continue them.
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
