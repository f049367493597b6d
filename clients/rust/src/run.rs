//! Work under a lock, which is given back however the work ends.

use crate::{Error, Guard, Locks, Loss, Options, Request};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

impl Locks {
    /// Waits for the lock, does the work, and releases the lock. If the lock is lost meanwhile, the
    /// work is stopped: its future is dropped where it waits, and this is [`Error::Lost`].
    ///
    /// What the work has written until then stays written, and what it has sent may still arrive.
    /// So give the [fence](Guard::fence) to every store that can compare it.
    ///
    /// The result is that of the work, whatever becomes of the release: a release that fails, or
    /// comes too late, is traced. If no server answers, it goes on in the background.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks, Options};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let pages = locks.run("printer", Options::new(), async |guard| {
    ///     println!("printing, with fence {}", guard.fence());
    ///     17
    /// });
    /// assert_eq!(pages.await?, 17);
    ///
    /// // This work takes longer than its lease, which nobody renews.
    /// let short = Options::new().fixed_ttl(Duration::from_millis(50));
    /// let stopped = locks.run("printer", short, async |_guard| {
    ///     tokio::time::sleep(Duration::from_secs(60)).await;
    /// });
    /// assert!(matches!(stopped.await, Err(Error::Lost { .. })));
    /// # locks.settle().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When the lock was not to be had, and the work not begun; [`Error::Lost`] when it was begun
    /// and stopped.
    pub async fn run<T>(
        &self,
        name: &str,
        options: Options,
        work: impl AsyncFnOnce(&Guard) -> T,
    ) -> Result<T, Error> {
        self.lock(name).options(options).run(work).await
    }

    /// Does the work under the lock, and does not stop it when the lock is lost: that is traced,
    /// and the work goes on without the lock. [`run`](Locks::run) stops it.
    ///
    /// Waits for the lock, and releases it when the work is done, fails, panics, or is dropped
    /// half-way.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks, Options};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let options = Options::new().ttl(Duration::from_secs(5)).correlation("request 17");
    /// let printed = locks.with_lock("printer", options, async |guard| {
    ///     // Send the fence along with every write.
    ///     format!("page 1, fence {}", guard.fence())
    /// });
    /// assert!(printed.await?.starts_with("page 1"));
    /// # locks.settle().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When the lock was not to be had, and the work not begun.
    pub async fn with_lock<T>(
        &self,
        name: &str,
        options: Options,
        work: impl AsyncFnOnce(&Guard) -> T,
    ) -> Result<T, Error> {
        let guard = self.lock(name).options(options).await?;
        let done = work(&guard).await;
        // What is traced of a late one is all that can be done about it.
        let _ = guard.release().await;
        Ok(done)
    }
}

impl Request {
    /// Waits, does the work, and releases, as [`Locks::run`] does: for
    /// [readers](Locks::read) and [permits](Locks::semaphore).
    ///
    /// ```no_run
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let pages = locks.semaphore("printers", 3).run(async |_permit| 17);
    /// assert_eq!(pages.await?, 17);
    /// # locks.settle().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Locks::run`].
    pub async fn run<T>(self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Error> {
        let guard = self.await?;
        match until_lost(&guard, work(&guard)).await {
            Ok(done) => {
                let _ = guard.release().await;
                Ok(done)
            }
            Err(loss) => Err(Error::Lost { name: guard.name().to_owned(), loss }),
        }
    }
}

/// Before each step of the work the clock is asked, too: after a suspend of the machine it knows
/// sooner than any timer.
async fn until_lost<T>(guard: &Guard, work: impl Future<Output = T>) -> Result<T, Loss> {
    let (mut work, mut lost) = (pin!(work), pin!(guard.lost()));
    poll_fn(|context| match lost.as_mut().poll(context) {
        Poll::Ready(loss) => Poll::Ready(Err(loss)),
        Poll::Pending => match guard.loss() {
            Some(loss) => Poll::Ready(Err(loss)),
            None => work.as_mut().poll(context).map(Ok),
        },
    })
    .await
}
