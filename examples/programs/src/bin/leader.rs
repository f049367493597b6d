//! A scheduler that runs in several processes, of which only the leader acts. Start it several
//! times, and stop or kill any of them:
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1:6379 cargo run -p programs --bin leader -- scheduler-1
//! ```
//!
//! A process that was paused may not know yet that it is no longer the leader. So it asks the clock
//! before each act, and the database refuses an act with a smaller fence than it has seen.

use leasehold_client::{Election, Guard, Locks};
use rusqlite::{Connection, params};
use std::env;
use std::error::Error;
use std::time::Duration;
use tokio::select;
use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS acts (
        number INTEGER PRIMARY KEY,
        fence INTEGER NOT NULL,
        candidate TEXT NOT NULL
    )";

/// After a leader has died, the next one leads at the end of this lease. It is short here so that
/// the change is quick to see; your own program would use 10 seconds or more.
const TTL: Duration = Duration::from_millis(1_500);

/// How often a leader acts.
const BETWEEN_ACTS: Duration = Duration::from_millis(50);

struct Scheduler {
    name: String,
    election: Election,
    acts: Connection,
}

#[tokio::main]
async fn main() -> Outcome {
    let name = env::args().nth(1).unwrap_or_else(|| "scheduler".to_owned());
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let acts =
        Connection::open(env::var("DATABASE").unwrap_or_else(|_| "/tmp/acts.db".to_owned()))?;
    acts.execute_batch(TABLE)?;
    let locks = Locks::new(redis::Client::open(url)?);
    let election = locks.election("scheduler", &name);
    let scheduler = Scheduler { name, election, acts };

    let mut asked_to_stop = signal(SignalKind::terminate())?;
    let outcome = select! {
        outcome = scheduler.serve() => outcome,
        _ = asked_to_stop.recv() => Ok(()),
        _ = ctrl_c() => Ok(()),
    };
    // The campaign or the term has been dropped. This waits until its lock is released, so
    // that the next candidate leads at once.
    let left = locks.close(Duration::from_secs(5)).await;
    outcome?;
    if left.is_empty() { Ok(()) } else { Err(format!("not released: {left:?}").into()) }
}

impl Scheduler {
    /// One term after the other, until it is dropped.
    async fn serve(&self) -> Outcome {
        let name = &self.name;
        println!("{name}: is a candidate");
        loop {
            match self.election.campaign().ttl(TTL).await {
                Ok(term) => {
                    println!("{name}: leads, with fence {}", term.fence());
                    let end = self.lead(&term).await?;
                    println!("{name}: leads no more: {end}");
                }
                Err(error) => {
                    eprintln!("{name}: {error}");
                    sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    /// Acts for as long as it leads, and returns why it does no more.
    async fn lead(&self, term: &Guard) -> Outcome<String> {
        loop {
            if let Some(loss) = term.loss() {
                return Ok(loss.to_string());
            }
            if !self.act(term.fence().into())? {
                return Ok("a later leader has acted".to_owned());
            }
            select! {
                () = sleep(BETWEEN_ACTS) => {}
                _ = term.lost() => {}
            }
        }
    }

    /// Whether it was allowed to: not if a leader with a larger fence has acted.
    fn act(&self, fence: i64) -> rusqlite::Result<bool> {
        let sql = "INSERT INTO acts (fence, candidate)
            SELECT ?1, ?2 WHERE ?1 >= (SELECT coalesce(max(fence), 0) FROM acts)";
        Ok(self.acts.execute(sql, params![fence, self.name])? == 1)
    }
}
