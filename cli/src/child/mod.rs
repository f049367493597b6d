//! A command that runs while a lock is held.
//!
//! The command has its own process group, so that this program can end it and everything that it started without ending
//! itself. That brings three duties:
//!
//! * **The terminal.** A process group in the background cannot read the terminal. So this program gives the command
//!   the foreground, as a shell does for a job: at once if both input and output are the terminal, otherwise when the
//!   command first uses it. Beside a pager in the same pipeline, the command must not take the keyboard away. When the
//!   command stops (Ctrl-Z), this program takes the foreground back and stops too, because its shell waits for it. `fg`
//!   continues both. A stopped program cannot renew the lease: if the lease has ended by then, the command is ended, not
//!   continued.
//! * **Signals.** This program passes the signals that it gets on to the group.
//! * **The end.** When the lock is lost, this program sends TERM to the group, and KILL after the grace. If this
//!   program is killed, or stopped for longer than its lease, a watchdog does the same: see `watchdog.rs`.

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

/// How often to check whether the group that got TERM is gone.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// How many times in a lease the watchdog is told how long the lock is held.
const TOLD_IN_A_LEASE: u32 = 12;
const LONGEST_SILENCE: Duration = Duration::from_secs(1);

/// How long a killed process may still be visible. In a container whose PID 1 does not reap orphans, it stays visible
/// for ever.
const SEEN_WHEN_KILLED: Duration = Duration::from_secs(2);

pub(crate) struct Order<'o> {
    pub(crate) command: &'o [OsString],
    pub(crate) environment: Vec<(&'static str, String)>,
    /// The time between TERM and KILL.
    pub(crate) grace: Duration,
    /// The first lease, whether `--ttl` or the client's settings set it. The watchdog may use half of it to end the
    /// command.
    pub(crate) lease: Duration,
}

/// How the command ended.
#[must_use = "its work may be half done"]
pub(crate) enum Ended {
    ByItself(Code),
    /// The lock was lost, and the command was ended.
    WithTheLock,
    /// The lock was lost, and this program was told to end too: the command must not run again.
    ForGood,
}

/// Runs the command to its end.
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
                // Other signals may have another meaning for the command, which goes on.
                is_told |= signal == SIGTERM;
                // The signal may stop this program. What the watchdog was told may be older than the last renewal.
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
            // A renewal may still succeed at the very end of the lease.
            () = sleep(tell_after.min(held.guard.valid_for()).max(BETWEEN_LOOKS)) => {}
        }
    }
}

/// Sends TERM to the group, says why, and kills what is left after the grace. Returns whether this program was told to
/// end meanwhile.
async fn end(group: &mut Group, grace: Duration, why: &str, signals: &mut Signals) -> bool {
    group.ask_to_end(grace);
    let kill_at = Instant::now().checked_add(grace);
    // After TERM, because writing may block while nobody reads standard error.
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
