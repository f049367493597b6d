//! `leasehold run`: runs a command while a lock is held.

use super::holding::{Held, Running, new_owner, run_under};
use super::waiting::show_waiting;
use crate::child::Signals;
use crate::connecting::{Connection, Place};
use crate::duration::show;
use crate::exit_code::{Code, Failure};
use crate::output::{self, printable};
use clap::Args;
use leasehold_client::Error;
use std::time::Duration;

/// How long replicas may take to confirm a grant.
const REPLICAS_WITHIN: Duration = Duration::from_secs(1);

/// Runs a command while a lock is held, and ends with its exit code.
///
/// The lock is renewed while the command runs, and released when it has ended. If it is lost meanwhile, the command is ended.
/// The command finds LEASEHOLD_NAME, LEASEHOLD_OWNER, LEASEHOLD_FENCE and LEASEHOLD_DEADLINE (Unix milliseconds, of the
/// first lease) in its environment.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// How long to wait while others have the lock: 0 tries once; without it, for ever
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse)]
    wait: Option<Duration>,
    /// Keep the lock for so long, also if the command ends sooner: a machine whose clock is late does not run it again.
    /// Then one tries once, unless --wait says otherwise
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse)]
    at_least: Option<Duration>,
    /// Share the lock with others that share it, as readers do
    #[arg(long, conflicts_with_all = ["limit", "also"])]
    shared: bool,
    /// Let so many have it at a time: a semaphore
    #[arg(long, value_name = "COUNT", conflicts_with = "also")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// As whom to hold it: 1 to 255 bytes that no other process uses, because all that ask as one owner have it together
    #[arg(long, value_parser = crate::arguments::not_empty)]
    owner: Option<String>,
    /// How many replicas must have heard of the grant
    #[arg(long, value_name = "COUNT")]
    replicas: Option<u64>,
    /// Another lock that is needed at the same time: all are taken, or none. May be repeated
    #[arg(long, value_name = "NAME", value_parser = crate::arguments::not_empty)]
    also: Vec<String>,
    /// The lock
    #[arg(value_parser = crate::arguments::not_empty)]
    name: String,
    #[command(flatten)]
    running: Running,
}

const EXAMPLES: &str = "\
Examples:
  leasehold run backup -- tar czf /backup/home.tgz /home
  leasehold run --wait 0 --quiet import -- ./import     gives up at once if it runs already
  leasehold run --at-least 50s nightly -- ./job         once, in the crontab of several machines
  leasehold run --limit 5 encoder -- ffmpeg …           at most five at a time
  leasehold run --also account:9 account:7 -- ./move    two locks, both or none
  leasehold run x -- sh -c 'psql -v fence=$LEASEHOLD_FENCE -f write.sql'";

pub(crate) async fn run(connection: &Connection, arguments: Arguments) -> Result<Code, Failure> {
    arguments.running.begin(connection);
    let mut signals = Signals::that_end()?;
    let place = connection.open()?;
    let owner = arguments.owner_to_ask_as();
    let names: Vec<_> = std::iter::once(&arguments.name).chain(&arguments.also).cloned().collect();
    let granted = tokio::select! {
        granted = arguments.ask(&place, owner.clone()) => Ok(granted),
        signal = signals.next_that_ends() => Err(signal),
        () = show_waiting(&place, &names, Some(&owner)) => Ok(Err(Error::Closed)),
    };
    output::clear_line();
    let code = match granted {
        Ok(Ok(held)) => {
            run_under(&place, held, &arguments.running, &mut signals).await.map(Code::from)
        }
        Ok(Err(error)) => Err(arguments.failure(&place, error).await),
        Err(signal) => Ok(Code::of_signal(signal)),
    };
    place.close().await;
    match code {
        // With --quiet, a lock that others hold is an expected result and needs no message.
        Err(Failure { code: Code::NotObtained, .. }) if output::is_quiet() => Ok(Code::NotObtained),
        code => code,
    }
}

impl Arguments {
    fn owner_to_ask_as(&self) -> String {
        self.owner.clone().unwrap_or_else(new_owner)
    }

    fn patience(&self) -> Option<Duration> {
        self.wait.or(self.at_least.map(|_| Duration::ZERO))
    }

    async fn ask(&self, place: &Place, owner: String) -> Result<Held, Error> {
        let (locks, name) = (&place.locks, &self.name);
        let mut request = match self.limit {
            Some(permits) => locks.semaphore(name, permits),
            None if self.shared => locks.read(name),
            None => locks.all(std::iter::once(name).chain(&self.also)),
        };
        request = request.owner(owner);
        if let Some(patience) = self.patience() {
            request = request.wait(patience);
        }
        if let Some(least) = self.at_least {
            request = request.hold_at_least(least);
        }
        // If this machine dies, the lock must stay held for at least `--at-least`.
        let usual = locks.settings().ttl;
        if let Some(ttl) = self.running.ttl.or(self.at_least.filter(|least| *least > usual)) {
            request = request.ttl(ttl);
        }
        if let Some(count) = self.replicas {
            request = request.replicas(count, REPLICAS_WITHIN);
        }
        Ok(Held { guard: request.await?, name: name.clone() })
    }

    async fn failure(&self, place: &Place, error: Error) -> Failure {
        let Error::Busy { waited, .. } = error else { return place.failure(error) };
        let mut holder = String::new();
        for name in std::iter::once(&self.name).chain(&self.also) {
            if let Ok(Some(info)) = place.locks.info(name).await {
                holder = format!(": {} is held by {}", printable(name), printable(&info.holder));
                break;
            }
        }
        let tried = if self.patience() == Some(Duration::ZERO) {
            "it was not free".to_owned()
        } else {
            format!("it was not free within {}", show(waited))
        };
        let name = printable(&self.name);
        let text = format!("{name} was not obtained, {tried}{holder}. Nothing was run.");
        Failure::new(Code::NotObtained, text)
    }
}
