//! Leaving: what is held is given back, and what goes on in the background is waited for.

use crate::Locks;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How long `settle` waits for servers that do not answer.
const SETTLES_WITHIN: Duration = Duration::from_secs(10);

/// How long is waited for what nobody may be looking at.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);

impl Locks {
    /// Ends the use of all copies of this client, and returns the names of the locks that could not
    /// be released within `limit`: each of them stays until its lease ends.
    ///
    /// Whoever waits for a lock gets [`Error::Closed`](crate::Error::Closed), and so does whoever
    /// asks later. Leases are no longer renewed. What guards hold is released, and they are told
    /// so: [`Loss::Closed`](crate::Loss::Closed). So let the work end before. That includes what
    /// was granted, or dropped, on other runtimes, whether they are driven, stand still, or have
    /// ended. Locks that are
    /// [kept](crate::Guard::keep) or [held at least](crate::Options::hold_at_least) for some time
    /// stay as they should.
    ///
    /// Its connections end with it, unless a lock could not be released.
    ///
    /// A program should end with it. Guards that are dropped are released in the background, which
    /// ends with the last runtime: a lock whose guard is dropped at the end of `main` may stay until
    /// its lease ends. That is traced as a warning that names the locks.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let guard = locks.lock("printer").await?;
    /// drop(guard);
    /// let left = locks.close(Duration::from_secs(5)).await;
    /// assert!(left.is_empty(), "not released: {left:?}");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "the locks that it names stay until their leases end"]
    pub async fn close(&self, limit: Duration) -> Vec<String> {
        let begun = Instant::now();
        let left = || limit.saturating_sub(begun.elapsed());
        // Those that do not end are released as soon as they are granted.
        let _ = timeout(at_most(limit, 4), self.gate().close()).await;
        self.orders().close();
        let mut settled = self.orders().settled();
        if timeout(at_most(left(), 2), &mut settled).await.is_err() {
            // Runtimes that nobody drives release nothing.
            self.orders().take_over();
            // Whoever has to wait for longer is told what is not done yet.
            let _ = timeout(left(), settled).await;
        }
        let keys = self.orders().undone();
        let prefix = self.settings().prefix.as_str();
        let name = |key: String| key.strip_prefix(prefix).map(str::to_owned).unwrap_or(key);
        let mut names: Vec<_> = keys.into_iter().map(name).collect();
        names.sort();
        names.dedup();
        if names.is_empty() {
            self.wire().routes.hang_up();
        }
        names
    }

    /// Waits until all that was released, dropped or given up before is released, for ten seconds
    /// at the most.
    ///
    /// What other tasks release meanwhile is not waited for. A program ends with
    /// [`close`](Locks::close).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// drop(locks.lock("printer").await?);
    /// locks.settle().await;
    /// assert!(locks.try_lock("printer").await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn settle(&self) {
        let _ = timeout(SETTLES_WITHIN, self.orders().settled()).await;
    }
}

/// A part of the limit, for what may take for ever on a runtime that nobody drives.
pub(crate) fn at_most(limit: Duration, parts: u32) -> Duration {
    limit.checked_div(parts).unwrap_or_default().min(LEAVE_WITHIN)
}
