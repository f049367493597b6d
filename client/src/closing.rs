//! Leaving: what is held is given back, and what goes on in the background is waited for.

use crate::Locks;
use crate::orders::Order;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long `settle` waits for servers that do not answer.
const SETTLES_WITHIN: Duration = Duration::from_secs(10);

/// How long requests have to end that nobody looks at.
pub(crate) const LEAVE_WITHIN: Duration = Duration::from_secs(1);

impl Locks {
    /// Ends the use of all copies of this client, and returns the names of the locks that could not
    /// be released within `limit`: each of them stays until its lease ends.
    ///
    /// Whoever waits for a lock gets [`Error::Closed`](crate::Error::Closed), and so does whoever
    /// asks later. Leases are no longer renewed. What guards hold is released, and they are told
    /// so: [`Loss::Closed`](crate::Loss::Closed). So let the work end before. Locks that are
    /// [kept](crate::Guard::keep) or [held at least](crate::Options::hold_at_least) for some time
    /// stay as they should.
    ///
    /// A program should end with it. Guards that are dropped are released in the background, which
    /// ends with the runtime: a lock whose guard is dropped at the end of `main` may stay until its
    /// lease ends. That is traced as a warning that names the locks.
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
        // Those that do not end are released as soon as they are granted.
        let _ = timeout(limit.min(LEAVE_WITHIN), self.gate().close()).await;
        let (done, settled) = oneshot::channel();
        let (reply, undone) = oneshot::channel();
        let [close, settle] = [Order::Close, Order::Settle(done)];
        if self.orders().send(close).and_then(|()| self.orders().send(settle)).is_err() {
            return Vec::new();
        }
        // Whoever has to wait for longer is told what is not done yet.
        let _ = timeout(limit.saturating_sub(begun.elapsed()), settled).await;
        let keys = match self.orders().send(Order::Undone(reply)) {
            Ok(()) => match timeout(LEAVE_WITHIN, undone).await {
                Ok(undone) => undone.unwrap_or_default(),
                // Nobody drives the runtime that the keeper is on.
                Err(_) => Vec::new(),
            },
            Err(_) => Vec::new(),
        };
        let prefix = self.settings().prefix.as_str();
        let name = |key: String| key.strip_prefix(prefix).map(str::to_owned).unwrap_or(key);
        let mut names: Vec<_> = keys.into_iter().map(name).collect();
        names.sort();
        names.dedup();
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
        let (done, settled) = oneshot::channel();
        if self.orders().send(Order::Settle(done)).is_ok() {
            // It fails when the keeper ends, and then there is nothing to wait for.
            let _ = timeout(SETTLES_WITHIN, settled).await;
        }
    }
}
