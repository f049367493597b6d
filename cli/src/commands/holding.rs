//! A command under a lock, from the grant to the release: what `run` and `elect` share.

use crate::child::{self, Ended, Order, Signals};
use crate::connecting::{Connection, Place};
use crate::duration::show;
use crate::exit_code::{Code, Failure};
use crate::output::{self, printable};
use crate::story;
use clap::{Args, ValueHint};
use leasehold_client::{Guard, Loss, Released};
use std::ffi::OsString;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::timeout;
use uuid::Uuid;

/// How long to try to release the lock. After that, the hold ends with its lease.
const RELEASE_WITHIN: Duration = Duration::from_secs(3);

/// What those who run a command may be told.
#[derive(Args)]
pub(crate) struct Running {
    /// How long the lease lasts unless it is renewed: after a crash the lock stays for so long
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse)]
    pub(crate) ttl: Option<Duration>,
    /// How long the command may take to end when the lock is lost, between TERM and KILL
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::parse, default_value = "10s")]
    pub(crate) grace: Duration,
    /// Say nothing but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Tell of every change: who holds it, how many are before us, each renewal
    #[arg(short, long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

impl Running {
    pub(crate) fn begin(&self, connection: &Connection) {
        if self.quiet {
            output::be_quiet();
        }
        story::listen(connection.name(), self.verbose);
    }
}

/// The host and process id, which show an operator whose lock it is.
pub(super) fn this_process() -> String {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let host: String = host.to_string_lossy().chars().take(64).collect();
    format!("{host}:{}", std::process::id())
}

/// An owner that nobody else has.
pub(super) fn new_owner() -> String {
    let random = Uuid::new_v4().simple().to_string();
    format!("{}:{}", this_process(), random.get(..12).unwrap_or(&random))
}

/// The hold under which the command runs.
pub(crate) struct Held {
    pub(crate) guard: Guard,
    /// With several locks, the one that the command's environment names.
    pub(crate) name: String,
}

impl Held {
    /// What to say about a loss before the command is ended.
    pub(crate) fn lost_text(&self, loss: Loss, grace: &Duration) -> String {
        let why = match (loss, story::silence()) {
            (Loss::Expired, Some(silence)) => {
                format!("its lease could not be renewed, because {silence}")
            }
            (Loss::Expired, None) => {
                "its lease could have ended: this machine slept or was too busy".to_owned()
            }
            (Loss::Taken, _) => {
                "the server says that it is not held: it was deleted or released by somebody, \
                 or the server has lost its data"
                    .to_owned()
            }
            (loss, _) => loss.to_string(),
        };
        let name = printable(&self.name);
        format!(
            "lost {name}: {why}. The command is told to end (TERM), and killed in {}.",
            show(*grace)
        )
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let deadline = now.saturating_add(self.guard.valid_for()).as_millis();
        vec![
            ("LEASEHOLD_NAME", self.name.clone()),
            ("LEASEHOLD_OWNER", self.guard.owner().to_owned()),
            ("LEASEHOLD_FENCE", self.guard.fence().to_string()),
            ("LEASEHOLD_DEADLINE", deadline.to_string()),
        ]
    }
}

/// How a command under a lock ended.
#[must_use = "its work may be half done"]
pub(crate) enum Finished {
    /// The command must not run again.
    ForGood(Code),
    /// The lock was lost, and the command was ended.
    WithTheLock,
}

impl From<Finished> for Code {
    fn from(finished: Finished) -> Self {
        match finished {
            Finished::ForGood(code) => code,
            Finished::WithTheLock => Self::Lost,
        }
    }
}

/// Runs the command and releases the lock.
pub(crate) async fn run_under(
    place: &Place,
    held: Held,
    running: &Running,
    signals: &mut Signals,
) -> Result<Finished, Failure> {
    let order = Order {
        command: &running.command,
        environment: held.environment(),
        grace: running.grace,
        lease: held.guard.valid_for(),
    };
    story::holding(true);
    let ended = child::run(order, &held, signals).await;
    story::holding(false);
    let name = printable(&held.name);
    let was_lost = held.guard.loss().is_some();
    let released = timeout(RELEASE_WITHIN, held.guard.release()).await;
    let code = match ended? {
        Ended::ByItself(code) => code,
        Ended::WithTheLock => return Ok(Finished::WithTheLock),
        Ended::ForGood => return Ok(Finished::ForGood(Code::Lost)),
    };
    Ok(Finished::ForGood(match released {
        Ok(Ok(Released::InTime | Released::Later)) if !was_lost => code,
        Ok(Ok(_)) => {
            output::say(&format!(
                "{name} was lost before the command ended: somebody else may have had it meanwhile"
            ));
            Code::Lost
        }
        Ok(Err(_)) | Err(_) => {
            let why = story::silence().map_or(String::new(), |why| format!(" ({why})"));
            output::say(&format!(
                "{name} could not be released at {}{why}: it is free when its lease ends",
                place.name
            ));
            code
        }
    }))
}
