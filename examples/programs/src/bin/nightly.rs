//! A nightly job that cron starts on three hosts at the same time of day, and that one of them
//! does.
//!
//! ```text
//! 0 3 * * *  REDIS_URL=redis://redis:6379 HOST=$(hostname) nightly
//! ```
//!
//! The clocks of the hosts differ. The first host may have finished the job before the clock of
//! another one strikes three, so the lock stays held for longer than the clocks can differ. The job
//! is begun at most once a night, also when the host that does it dies in the middle.

use leasehold_client::{Error, Guard, Locks};
use std::env;
use std::time::Duration;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// The clocks of the hosts differ by less than this. It is short here so that the end is quick to
/// see; your own program would use a few minutes.
const CLOCKS_DIFFER: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() -> Outcome {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
    let host = env::var("HOST").unwrap_or_else(|_| "localhost".to_owned());
    let locks = Locks::new(redis::Client::open(url)?);
    let tonight = tonight(&locks, &host).await;
    // Also when the job has failed: a lock that is not released when a program ends stays until its
    // lease ends.
    let left = locks.close(Duration::from_secs(5)).await;
    tonight?;
    if left.is_empty() { Ok(()) } else { Err(format!("not released: {left:?}").into()) }
}

async fn tonight(locks: &Locks, host: &str) -> Outcome {
    // A host that finds the lock taken has nothing to do, so it does not wait. If this host dies,
    // the lock is free when its lease ends, so the lease has to last for as long, too.
    let once = locks
        .lock("nightly")
        .wait(Duration::ZERO)
        .ttl(CLOCKS_DIFFER)
        .hold_at_least(CLOCKS_DIFFER)
        .correlation(host);
    match once.run(async |guard| job(host, guard).await).await {
        Ok(()) => Ok(()),
        Err(Error::Busy { .. }) => {
            println!("{host}: another host does the job tonight");
            Ok(())
        }
        // No server, or the lock was lost and the job was stopped: cron mails that.
        Err(error) => Err(format!("{host}: {error}").into()),
    }
}

/// The work. It may take longer than the lease, which is renewed meanwhile.
async fn job(host: &str, guard: &Guard) {
    println!("{host}: begins the job, with fence {}", guard.fence());
    tokio::time::sleep(Duration::from_millis(300)).await;
    println!("{host}: the job is done");
}
