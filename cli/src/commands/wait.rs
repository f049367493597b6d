//! `leasehold wait`: waits until a lock is free, without taking it.

use super::waiting::show_waiting;
use crate::child::Signals;
use crate::connecting::{Connection, Place, is_silence};
use crate::duration::show;
use crate::exit_code::{Code, Failure};
use crate::output::{self, printable};
use clap::Args;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// As often as requests that poll for a lock.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long a server may be silent.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(30);

/// Waits until a lock is free, and does not take it: somebody else may have it by then.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// How long to wait; without it, for ever. Then it ends with 75
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse)]
    wait: Option<Duration>,
    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
    /// The lock
    #[arg(value_parser = crate::arguments::not_empty)]
    name: String,
}

const EXAMPLES: &str = "\
Examples:
  leasehold wait migration && ./start-server
  leasehold wait --wait 0 nightly || echo \"it runs\"";

pub(crate) async fn run(connection: &Connection, arguments: Arguments) -> Result<Code, Failure> {
    if arguments.quiet {
        output::be_quiet();
    }
    let mut signals = Signals::that_end()?;
    let place = connection.open()?;
    let begun = Instant::now();
    let patience_ends = async {
        match arguments.wait.and_then(|patience| begun.checked_add(patience)) {
            Some(end) => sleep_until(end).await,
            None => std::future::pending().await,
        }
    };
    // The first check is made even if the patience is very short.
    let first = tokio::select! {
        first = place.locks.info(&arguments.name) => first,
        signal = signals.next_that_ends() => return Ok(Code::of_signal(signal)),
    };
    match first {
        Ok(None) => return Ok(Code::Done),
        // Asking again does not help against a refusal.
        Err(error) if !is_silence(&error) => return Err(place.failure(error)),
        Ok(Some(_)) | Err(_) => {}
    }
    let names = [arguments.name.clone()];
    let ended = tokio::select! {
        ended = until_free(&place, &arguments.name) => ended,
        signal = signals.next_that_ends() => Ok(Code::of_signal(signal)),
        () = show_waiting(&place, &names, None) => Ok(Code::Internal),
        () = patience_ends => Ok(Code::NotObtained),
    };
    output::clear_line();
    if matches!(ended, Ok(Code::NotObtained)) {
        if let Err(error) = first {
            return Err(place.failure(error));
        }
        let name = printable(&arguments.name);
        let waited = show(begun.elapsed());
        output::tell(&format!("{name} was not free within {waited}"));
    }
    ended
}

/// Looks after the first rest, and again until the lock is free.
pub(super) async fn until_free(place: &Place, name: &str) -> Result<Code, Failure> {
    let mut answered = Instant::now();
    loop {
        sleep(LOOK_EVERY).await;
        match place.locks.info(name).await {
            Ok(None) => return Ok(Code::Done),
            Ok(Some(_)) => answered = Instant::now(),
            Err(error) if answered.elapsed() < UNREACHABLE_AFTER && is_silence(&error) => {}
            Err(error) => return Err(place.failure(error)),
        }
    }
}
