//! The process group of the command.

use super::Order;
use super::moment::Moment;
use super::processes;
use super::terminal::{self, Stopped, Terminal};
use super::watchdog::{Limits, Watchdog};
use crate::commands::holding::Held;
use crate::exit_code::{Code, Failure};
use crate::output;
use nix::errno::Errno;
use nix::libc::{SIGCHLD, SIGCONT};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgrp};
use std::time::Duration;

pub(super) struct Group {
    /// The first process of the group. The group has its id.
    leader: Pid,
    /// None until the first process has ended.
    ended: Option<Code>,
    watchdog: Watchdog,
    terminal: Option<Terminal>,
    /// Whether the command gets the foreground whenever this job has it.
    wants_terminal: bool,
}

/// Whether the command still runs.
#[must_use = "it may have ended"]
pub(super) enum Step {
    On,
    Ended(Code),
}

impl Group {
    pub(super) fn start(order: &Order<'_>, held: &Held) -> Result<Self, Failure> {
        let terminal = Terminal::open();
        let is_ours = terminal.as_ref().is_some_and(Terminal::is_ours);
        let wants_terminal = terminal::is_for_one();
        let kill_after = order.grace.min(order.lease.checked_div(2).unwrap_or_default());
        let failed =
            |error| Failure::of_system("no process can be started for the command", &error);
        let limits = Limits { grace: order.grace, kill_after };
        let mut watchdog = Watchdog::start(limits).map_err(failed)?;
        let lease_ends = end_of_lease(held);
        watchdog.holds_until(lease_ends);
        let takes_terminal = wants_terminal && is_ours;
        let Order { command, environment, .. } = order;
        let leader = processes::start(command, environment, lease_ends, &watchdog, takes_terminal)
            .map_err(failed)?;
        Ok(Self { leader, ended: None, watchdog, terminal, wants_terminal })
    }

    /// Does what the signal asks for. After a loss, a stopped command must not go on with its work.
    pub(super) fn heard(&mut self, signal: i32, is_lost: bool) -> Step {
        match signal {
            SIGCHLD => return self.look(is_lost),
            SIGCONT if is_lost => {}
            SIGCONT => self.go_on(),
            number => {
                if let Ok(signal) = Signal::try_from(number) {
                    self.send(signal);
                }
            }
        }
        Step::On
    }

    /// Must be called again before the lease ends, because the watchdog ends the command after that.
    pub(super) fn is_held(&mut self, held: &Held) {
        self.see_to_watchdog();
        self.watchdog.holds_until(end_of_lease(held));
    }

    /// Sends TERM. The watchdog kills the group after the grace.
    pub(super) fn ask_to_end(&mut self, grace: Duration) {
        self.watchdog.kills_at(Moment::now().plus(grace));
        self.send(Signal::SIGTERM);
        // A stopped process does not act on TERM until it is continued.
        self.send(Signal::SIGCONT);
    }

    /// Fails if a process of the group belongs to another user, as behind sudo.
    pub(super) fn kill(&self) -> Result<(), Errno> {
        match killpg(self.leader, Signal::SIGKILL) {
            Err(Errno::ESRCH) => Ok(()),
            killed => killed,
        }
    }

    /// Whether the first process, a child of this one, still runs.
    pub(super) fn runs(&self) -> bool {
        self.ended.is_none()
    }

    /// Whether any process of the group still exists.
    pub(super) fn is_there(&self) -> bool {
        if self.ended.is_none() {
            return true;
        }
        // As PID 1 of a container, this process inherits orphans. They stay as zombies until it waits for them.
        let of_group = Pid::from_raw(self.leader.as_raw().saturating_neg());
        let heard_of_one = || waitpid(of_group, Some(WaitPidFlag::WNOHANG));
        while heard_of_one().is_ok_and(|status| status.pid().is_some()) {}
        killpg(self.leader, None) != Err(Errno::ESRCH)
    }

    /// Lets the watchdog go: nothing of the group has to be ended any more.
    pub(super) fn done(self) {
        self.take_terminal_back();
        self.watchdog.dismiss();
    }

    fn send(&self, signal: Signal) {
        // The group may just have ended.
        let _ = killpg(self.leader, signal);
    }

    fn look(&mut self, is_lost: bool) -> Step {
        while self.ended.is_none() {
            let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
            let code = match waitpid(self.leader, Some(flags)) {
                Ok(WaitStatus::Exited(_, code)) => {
                    Code::OfCommand(u8::try_from(code).unwrap_or(u8::MAX))
                }
                Ok(WaitStatus::Signaled(_, signal, _)) => {
                    self.pass_back(signal);
                    Code::of_signal(number_of(signal))
                }
                Ok(WaitStatus::Stopped(_, signal)) => {
                    if is_lost {
                        self.send(Signal::SIGCONT);
                    } else {
                        self.stopped(signal);
                    }
                    continue;
                }
                Ok(_) | Err(Errno::EINTR) => break,
                // Ended by a signal without a name, or something else has already waited for the process.
                Err(_) => Code::OfCommand(u8::MAX),
            };
            self.ended = Some(code);
        }
        self.ended.map_or(Step::On, Step::Ended)
    }

    fn stopped(&mut self, by: Signal) {
        let has_terminal = self.has_terminal();
        let reached = matches!(by, Signal::SIGTTIN | Signal::SIGTTOU);
        if reached && self.terminal.as_ref().is_some_and(Terminal::is_ours) {
            self.wants_terminal = true;
            return self.go_on();
        }
        // SIGSTOP from elsewhere, for the command alone: its sender will also continue the command.
        if by == Signal::SIGSTOP && !has_terminal {
            return;
        }
        self.wants_terminal |= reached || has_terminal;
        self.take_terminal_back();
        let before = || {
            // Processes that ignore the signal that stopped the first one would work on without the lock.
            let _ = killpg(self.leader, Signal::SIGSTOP);
            self.watchdog.rests();
        };
        match terminal::stop_this_job(before) {
            // SIGCONT, which continued this process, is the next signal.
            Stopped::AndContinued => {}
            Stopped::NobodyWouldContinue if reached => {}
            Stopped::NobodyWouldContinue => self.go_on(),
        }
    }

    /// Must be called regularly: restarts a watchdog that has failed.
    pub(super) fn see_to_watchdog(&mut self) {
        if let Err(error) = self.watchdog.start_again_if_failed(self.leader) {
            output::say(&format!("nothing watches over the command any more: {error}"));
        }
    }

    fn go_on(&self) {
        if let Some(terminal) = &self.terminal
            && self.wants_terminal
            && terminal.is_ours()
        {
            terminal.give_to(self.leader);
        }
        self.send(Signal::SIGCONT);
    }

    fn has_terminal(&self) -> bool {
        self.terminal.as_ref().is_some_and(|terminal| terminal.is_of(self.leader))
    }

    fn take_terminal_back(&self) {
        if let Some(terminal) = &self.terminal
            && self.has_terminal()
        {
            terminal.give_to(getpgrp());
        }
    }

    /// Ctrl-C is meant for the whole job: a script that runs this program must get the signal too.
    fn pass_back(&self, signal: Signal) {
        if matches!(signal, Signal::SIGINT | Signal::SIGQUIT) && self.has_terminal() {
            self.take_terminal_back();
            let _ = killpg(getpgrp(), signal);
        }
    }
}

/// Reads the clock first, so that an interruption makes the result earlier, never later.
fn end_of_lease(held: &Held) -> Moment {
    let now = Moment::now();
    now.plus(held.guard.valid_for())
}

fn number_of(signal: Signal) -> i32 {
    // nix offers no other way to the number of a signal.
    let mut numbers = 1..=64;
    numbers.find(|&number| Signal::try_from(number) == Ok(signal)).unwrap_or_default()
}
