//! A command that runs while a lock is held.
//!
//! It has a process group of its own, so that whatever it starts can be ended with it, and this program not. Around
//! that there are three duties:
//!
//! * **The terminal.** A process group that is not in the foreground may not read the terminal. So the command gets
//!   the foreground, as a shell gives it to a job, at once if both its input and its output are the terminal, and
//!   otherwise when it first reaches for it: beside a pager in the same pipeline it must not take the keyboard away.
//!   When the command stops (Ctrl-Z), this program takes the foreground back and stops too, for the shell that waits for it.
//!   `fg` continues both. Nothing renews the lease meanwhile: if it has ended by then, the command is ended, not continued.
//! * **Signals.** Those that are sent to this program are passed on to the group.
//! * **The end.** When the lock is lost the group is asked to end (TERM), and killed after the grace. If this program is
//!   killed, or stopped for longer than its lease, a watchdog does the same: see `watchdog.rs`.

mod group;
mod moment;
pub(crate) mod processes;
mod signals;
mod terminal;
mod this_program;
mod watchdog;

use crate::commands::holding::Held;
use crate::duration::show;
use crate::exit_code::{Code, Failure};
use crate::output;
use group::{Group, Step};
use nix::libc::SIGTERM;
pub(crate) use signals::Signals;
use std::ffi::OsString;
use std::time::Duration;
pub(crate) use terminal::stop_this_job;
use tokio::time::{Instant, sleep, sleep_until};

/// How often one looks whether a group is gone that was told to end.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// How often the watchdog is told until when the lock is held.
const TOLD_IN_A_LEASE: u32 = 12;
const LONGEST_SILENCE: Duration = Duration::from_secs(1);

/// How long what was killed may be seen. In a container whose first process hears of no orphan it is seen for ever.
const SEEN_WHEN_KILLED: Duration = Duration::from_secs(2);

/// What to run, and how.
pub(crate) struct Order<'o> {
    pub(crate) command: &'o [OsString],
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Between TERM and KILL.
    pub(crate) grace: Duration,
    /// As it is at the beginning, wherever its length was chosen. A watchdog may use half of it.
    pub(crate) lease: Duration,
}

/// How it ended.
#[must_use = "its work may be half done"]
pub(crate) enum Ended {
    ByItself(Code),
    /// The lock was lost, and the command was told to end.
    WithTheLock,
    /// The same, and so was this program: the command is not to be run again.
    ForGood,
}

/// Runs it to its end.
pub(crate) async fn run(
    order: Order<'_>,
    held: &Held,
    signals: &mut Signals,
) -> Result<Ended, Failure> {
    signals.hear_all()?;
    if held.guard.valid_for().is_zero() {
        output::say("the lock was lost before the command began: it is not run");
        return Ok(Ended::WithTheLock);
    }
    let mut group = Group::start(&order, held)?;
    let tell_after =
        order.lease.checked_div(TOLD_IN_A_LEASE).unwrap_or_default().min(LONGEST_SILENCE);
    let mut is_told = false;
    loop {
        group.is_held(held);
        tokio::select! {
            signal = signals.next() => {
                // The others may mean something else to the command, which goes on.
                is_told |= signal == SIGTERM;
                // It may stop this program, and what was told last is older than the last renewal.
                group.is_held(held);
                if let Step::Ended(code) = group.heard(signal, held.guard.loss().is_some()) {
                    group.done();
                    return Ok(Ended::ByItself(code));
                }
            }
            loss = held.guard.lost() => {
                let why = held.lost_text(loss, &order.grace);
                is_told |= end(&mut group, order.grace, &why, signals).await;
                group.done();
                return Ok(if is_told { Ended::ForGood } else { Ended::WithTheLock });
            }
            // It may be extended at the very end.
            () = sleep(tell_after.min(held.guard.valid_for()).max(BETWEEN_LOOKS)) => {}
        }
    }
}

/// Asks the group to end, says why, and kills what is left of it after the grace. Whether this program was told to end
/// meanwhile.
async fn end(group: &mut Group, grace: Duration, why: &str, signals: &mut Signals) -> bool {
    group.ask_to_end(grace);
    let kill_at = Instant::now().checked_add(grace);
    // Afterwards, as it may take its time where nobody reads.
    output::say(why);
    let (mut killed, mut is_told) = (None, false);
    while group.is_there() {
        group.see_to_watchdog();
        if !group.runs() && killed.is_some_and(|at: Instant| at.elapsed() > SEEN_WHEN_KILLED) {
            break;
        }
        let grace_ends = async {
            match kill_at {
                Some(at) if killed.is_none() => sleep_until(at).await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            signal = signals.next() => {
                is_told |= signals::is_ending(signal);
                let _ = group.heard(signal, true);
            }
            () = grace_ends => {
                killed = Some(Instant::now());
                let done = match group.kill() {
                    Ok(()) => "killed".to_owned(),
                    Err(error) => format!("it goes on, and cannot be killed: {}", error.desc()),
                };
                output::say(&format!("the command has not ended within {}: {done}", show(grace)));
            }
            () = sleep(BETWEEN_LOOKS) => {}
        }
    }
    is_told
}
