//! The signals that this program gets, in their order.

use crate::exit_code::Failure;
use nix::libc::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH,
};
use nix::sys::signal::{Signal, raise};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The signals that end a program by default.
const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// The signals that matter only while a command runs.
const OF_COMMAND: [i32; 6] = [SIGCHLD, SIGCONT, SIGTSTP, SIGWINCH, SIGUSR1, SIGUSR2];

pub(crate) struct Signals {
    tell: UnboundedSender<i32>,
    heard: UnboundedReceiver<i32>,
    /// A mask of ignored signals: the parent wants neither this program nor its command to get them.
    ignored: u64,
    hears_all: bool,
}

impl Signals {
    /// Listens for the signals that end a program.
    pub(crate) fn that_end() -> Result<Self, Failure> {
        let (tell, heard) = unbounded_channel();
        let signals = Self { tell, heard, ignored: ignored(), hears_all: false };
        signals.hear(&ENDING)?;
        Ok(signals)
    }

    /// Listens for all signals that are passed on to a command, and for SIGCHLD.
    pub(super) fn hear_all(&mut self) -> Result<(), Failure> {
        if !std::mem::replace(&mut self.hears_all, true) {
            self.hear(&OF_COMMAND)?;
        }
        Ok(())
    }

    fn hear(&self, numbers: &[i32]) -> Result<(), Failure> {
        for &number in numbers {
            // An ignored signal stays ignored for the command, as nohup wants. A handler would undo that.
            let bit = u32::try_from(number.saturating_sub(1)).unwrap_or_default();
            if self.ignored.checked_shr(bit).unwrap_or_default() & 1 == 1 && number != SIGCHLD {
                continue;
            }
            let stream = signal(SignalKind::from_raw(number));
            let mut stream =
                stream.map_err(|error| Failure::of_system("signals cannot be heard", &error))?;
            let tell = self.tell.clone();
            tokio::spawn(async move {
                while stream.recv().await.is_some() && tell.send(number).is_ok() {}
            });
        }
        Ok(())
    }

    /// The number of the next signal that ends a program while no command runs.
    pub(crate) async fn next_that_ends(&mut self) -> i32 {
        loop {
            match self.next().await {
                // A handler from an earlier command still catches SIGTSTP, so this program must stop
                // itself.
                SIGTSTP => {
                    let _ = raise(Signal::SIGSTOP);
                }
                SIGCHLD | SIGCONT | SIGWINCH => {}
                number => return number,
            }
        }
    }

    pub(super) async fn next(&mut self) -> i32 {
        match self.heard.recv().await {
            Some(number) => number,
            // Impossible: `self` owns a sender too.
            None => std::future::pending().await,
        }
    }
}

/// Whether the signal ends a program by default.
pub(super) fn is_ending(number: i32) -> bool {
    ENDING.contains(&number)
}

/// Reads the mask of ignored signals, `SigIgn:` and hexadecimal digits, from the kernel. Zero if it does
/// not provide one.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}
