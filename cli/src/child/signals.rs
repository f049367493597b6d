//! The signals that this program hears, in the order of their coming.

use crate::exit_code::Failure;
use nix::libc::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH,
};
use nix::sys::signal::{Signal, raise};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Those that end a program that does nothing about them.
const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];

/// Those that are of account once there is a command.
const OF_COMMAND: [i32; 6] = [SIGCHLD, SIGCONT, SIGTSTP, SIGWINCH, SIGUSR1, SIGUSR2];

pub(crate) struct Signals {
    tell: UnboundedSender<i32>,
    heard: UnboundedReceiver<i32>,
    /// As a mask: whoever started this program does not want it, or what it runs, to hear these.
    ignored: u64,
    hears_all: bool,
}

impl Signals {
    /// Those that end a program.
    pub(crate) fn that_end() -> Result<Self, Failure> {
        let (tell, heard) = unbounded_channel();
        let signals = Self { tell, heard, ignored: ignored(), hears_all: false };
        signals.hear(&ENDING)?;
        Ok(signals)
    }

    /// All that are passed on to a command, and those that tell of it.
    pub(super) fn hear_all(&mut self) -> Result<(), Failure> {
        if !std::mem::replace(&mut self.hears_all, true) {
            self.hear(&OF_COMMAND)?;
        }
        Ok(())
    }

    fn hear(&self, numbers: &[i32]) -> Result<(), Failure> {
        for &number in numbers {
            // What is ignored stays so for the command, as nohup wants it: a handler would undo that.
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

    /// The number of the next one that ends a program which runs no command at this time.
    pub(crate) async fn next_that_ends(&mut self) -> i32 {
        loop {
            match self.next().await {
                // Heard as long as a command was there that it could be for.
                SIGTSTP => {
                    let _ = raise(Signal::SIGSTOP);
                }
                SIGCHLD | SIGCONT | SIGWINCH => {}
                number => return number,
            }
        }
    }

    /// The number of the next one.
    pub(super) async fn next(&mut self) -> i32 {
        match self.heard.recv().await {
            Some(number) => number,
            // Not while the other end is in the same place.
            None => std::future::pending().await,
        }
    }
}

/// Whether it ends a program that does nothing about it.
pub(super) fn is_ending(number: i32) -> bool {
    ENDING.contains(&number)
}

/// As the kernel tells it: `SigIgn:` and a mask in hexadecimal digits. Where it does not, none are known.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}
