//! `leasehold elect`: a command that runs on one of several machines, the leader.

use super::holding::{Finished, Held, Running, run_under, this_process};
use super::waiting::show_waiting;
use crate::child::Signals;
use crate::connecting::Connection;
use crate::exit_code::{Code, Failure};
use crate::output::{self, printable};
use clap::Args;
use leasehold_client::Error;
use std::time::Duration;
use tokio::time::sleep;

/// How long to wait before standing again after a server was silent.
const STAND_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Runs a command whenever this candidate leads.
///
/// It stands until it leads, and starts the command. If it leads no more, the command is ended, and it stands again: also
/// when no server answers, for as long as that takes. It ends when the command ends by itself, with its exit code, or with 79
/// if the lock had been lost by then; and with 79 if it gets TERM and loses the lead before the command has ended.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// What others see of the one who leads; without it, this machine and process
    #[arg(long, value_parser = crate::arguments::not_empty)]
    candidate: Option<String>,
    /// The election
    #[arg(value_parser = crate::arguments::not_empty)]
    name: String,
    #[command(flatten)]
    running: Running,
}

const EXAMPLES: &str = "\
Examples:
  leasehold elect scheduler -- ./scheduler            on each of several machines: one runs it
  leasehold elect --ttl 5s --grace 2s lb -- ./announce-address";

pub(crate) async fn run(connection: &Connection, arguments: Arguments) -> Result<Code, Failure> {
    arguments.running.begin(connection);
    let mut signals = Signals::that_end()?;
    let place = connection.open()?;
    let candidate = arguments.candidate.clone().unwrap_or_else(this_process);
    let election = place.locks.election(&arguments.name, candidate);
    let ttl = arguments.running.ttl.unwrap_or(place.locks.settings().ttl);
    let names = [arguments.name.clone()];
    let code = loop {
        let leads = tokio::select! {
            leads = election.campaign().ttl(ttl) => leads,
            signal = signals.next_that_ends() => break Ok(Code::of_signal(signal)),
            () = show_waiting(&place, &names, None) => continue,
        };
        output::clear_line();
        match leads {
            Ok(guard) => {
                let held = Held { guard, name: arguments.name.clone() };
                match run_under(&place, held, &arguments.running, &mut signals).await {
                    Ok(Finished::WithTheLock) => {}
                    Ok(Finished::ForGood(code)) => break Ok(code),
                    Err(failure) => break Err(failure),
                }
            }
            Err(
                error @ (Error::Unreachable { .. } | Error::TooLate { .. } | Error::Lost { .. }),
            ) => {
                let name = printable(&arguments.name);
                let failure = place.failure(error);
                output::tell(&format!("{} Standing for {name} again.", failure.text));
            }
            Err(error) => break Err(place.failure(error)),
        }
        tokio::select! {
            signal = signals.next_that_ends() => break Ok(Code::of_signal(signal)),
            () = sleep(STAND_AGAIN_AFTER) => {}
        }
    };
    place.close().await;
    code
}
