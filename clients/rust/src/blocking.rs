//! Locks for programs that have no asynchronous runtime.
//!
//! Each function waits on the thread that calls it. Renewals go on meanwhile, and while the program
//! does its work: they are made by a thread that all copies of a client share, and that ends with
//! the last of them and its guards.
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
//! use leasehold_client::{Options, blocking::Locks};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), leasehold_client::Error> {
//! # let server = Example::start();
//! # let url = server.url();
//! let locks = Locks::new(url)?; // such as "redis://127.0.0.1:6379"
//!
//! let guard = locks.lock("printer", Options::new().wait(Duration::from_secs(60)))?;
//! for page in ["one", "two"] {
//!     if guard.loss().is_some() {
//!         break; // Somebody else may have the lock.
//!     }
//!     println!("page {page}, with fence {}", guard.fence());
//! }
//! assert!(guard.release()?.in_time());
//!
//! // The last thing that a program does: it releases what is still held.
//! let left = locks.close(Duration::from_secs(5));
//! assert!(left.is_empty(), "not released: {left:?}");
//! # Ok(())
//! # }
//! ```
//!
//! On a runtime, these functions keep one of its threads from other tasks for as long as they wait:
//! use [`crate::Locks`] there.

#[cfg(feature = "redis")]
mod guarded_command;
mod sharing;

use crate::{Error, Extended, LockInfo, Loss, Options, Released, Request, Settings, Target};
use std::fmt;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// [`crate::Locks`], whose functions wait. Copies share everything.
#[derive(Clone)]
pub struct Locks {
    locks: crate::Locks,
    thread: Arc<Thread>,
}

/// A lock that is held: [`crate::Guard`], whose functions wait.
///
/// Dropped, it is released in the background; [`release`](Guard::release) also says whether that
/// was in time.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct Guard {
    guard: Arc<crate::Guard>,
    thread: Arc<Thread>,
}

/// The thread that connects, renews, and releases what is dropped.
struct Thread {
    runtime: Option<Runtime>,
}

impl Thread {
    fn start() -> Result<Self, Error> {
        let mut runtime = Builder::new_multi_thread();
        runtime.worker_threads(1).thread_name("leasehold").enable_all();
        let runtime = runtime.build().map_err(|error| {
            Error::setting("blocking", &format!("its thread cannot be started: {error}"))
        })?;
        Ok(Self { runtime: Some(runtime) })
    }

    /// What comes of it. The future runs on the thread: to run it here would panic if the caller is
    /// on a runtime.
    fn wait<T: Send + 'static>(
        &self,
        asked: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Error> {
        let (done, outcome) = mpsc::sync_channel(1);
        let runtime = self.runtime.as_ref().ok_or(Error::Closed)?;
        runtime.spawn(async move {
            // Whoever asked waits for it.
            let _ = done.send(asked.await);
        });
        outcome.recv().map_err(|_| Error::Closed)
    }
}

impl Drop for Thread {
    /// Waiting for its end would panic on a runtime.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Locks {
    /// A client with the default settings. It connects with its first request.
    ///
    /// ```
    /// use leasehold_client::blocking::Locks;
    ///
    /// # fn main() -> Result<(), leasehold_client::Error> {
    /// let locks = Locks::new("redis://127.0.0.1:6379")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When the address makes no sense, or no thread can be started.
    pub fn new(target: impl Into<Target>) -> Result<Self, Error> {
        Self::with_settings(target, Settings::default())
    }

    /// The same with these settings.
    ///
    /// ```
    /// use leasehold_client::{Settings, blocking::Locks};
    ///
    /// # fn main() -> Result<(), leasehold_client::Error> {
    /// let locks = Locks::with_settings("redis://127.0.0.1:6379", Settings::from_env()?)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When a setting or the address makes no sense, or no thread can be started.
    pub fn with_settings(target: impl Into<Target>, settings: Settings) -> Result<Self, Error> {
        let locks = crate::Locks::with_settings(target, settings)?;
        Ok(Self { locks, thread: Arc::new(Thread::start()?) })
    }

    /// Takes the lock if it is free: none if somebody else has it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, blocking::Locks};
    /// # fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::new(server.url())?;
    /// let guard = locks.try_lock("printer")?;
    /// assert!(guard.is_some());
    /// assert!(locks.try_lock("printer")?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When no server answers, or it refuses.
    pub fn try_lock(&self, name: &str) -> Result<Option<Guard>, Error> {
        let (locks, name) = (self.locks.clone(), name.to_owned());
        let guard = self.thread.wait(async move { locks.try_lock(&name).await })??;
        Ok(guard.map(|guard| self.guard(guard)))
    }

    /// Waits for the lock, no longer than [`Options::wait`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Options, blocking::Locks};
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::new(server.url())?;
    /// let guard = locks.lock("printer", Options::new())?;
    /// let busy = locks.lock("printer", Options::new().wait(Duration::from_millis(100)));
    /// assert!(matches!(busy, Err(Error::Busy { .. })));
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When patience ends before the lock is free; when no server answers, or it refuses.
    pub fn lock(&self, name: impl Into<String>, options: Options) -> Result<Guard, Error> {
        self.granted(self.locks.lock(name).options(options))
    }

    fn granted(&self, request: Request) -> Result<Guard, Error> {
        Ok(self.guard(self.thread.wait(request.into_future())??))
    }

    /// Does the work under the lock, which is released when the work is done, or panics.
    ///
    /// Work that does not wait for anything cannot be stopped from outside: where it is long, it
    /// should look at [`Guard::loss`] now and then. A release that fails, or comes too late, is
    /// traced, and the result is that of the work.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Options, blocking::Locks};
    /// # fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::new(server.url())?;
    /// let page = locks.with_lock("printer", Options::new(), |guard| {
    ///     format!("page 1, fence {}", guard.fence())
    /// })?;
    /// assert!(page.starts_with("page 1"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When the lock was not to be had, and the work not begun.
    pub fn with_lock<T>(
        &self,
        name: &str,
        options: Options,
        work: impl FnOnce(&Guard) -> T,
    ) -> Result<T, Error> {
        let guard = self.lock(name, options)?;
        let done = work(&guard);
        let within = self.locks.settings().within;
        // If no server answers, it goes on in the background.
        let _ = guard.leave(|guard| async move { timeout(within, guard.release()).await });
        Ok(done)
    }

    /// Who holds the lock: none if it is free.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Options, blocking::Locks};
    /// # fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::new(server.url())?;
    /// let guard = locks.lock("printer", Options::new())?;
    /// let info = locks.info("printer")?;
    /// assert_eq!(info.map(|info| info.holder).as_deref(), Some(guard.owner()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When no server answers, or it refuses.
    pub fn info(&self, name: &str) -> Result<Option<LockInfo>, Error> {
        let (locks, name) = (self.locks.clone(), name.to_owned());
        self.thread.wait(async move { locks.info(&name).await })?
    }

    /// Ends the use of all copies of this client, and returns the names of the locks that could not
    /// be released within `limit`: [`crate::Locks::close`].
    ///
    /// A program should end with it. What guards that were dropped before have not released yet
    /// stays until its lease ends otherwise.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Options, blocking::Locks};
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::new(server.url())?;
    /// drop(locks.lock("printer", Options::new())?);
    /// let left = locks.close(Duration::from_secs(5));
    /// assert!(left.is_empty(), "not released: {left:?}");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "the locks that it names stay until their leases end"]
    pub fn close(&self, limit: Duration) -> Vec<String> {
        let locks = self.locks.clone();
        // The thread ends after this client does.
        self.thread.wait(async move { locks.close(limit).await }).unwrap_or_default()
    }

    fn guard(&self, guard: crate::Guard) -> Guard {
        Guard { guard: Arc::new(guard), thread: Arc::clone(&self.thread) }
    }
}

impl Guard {
    /// The name, without the prefix.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Options, blocking::Locks};
    /// # fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::new(server.url())?;
    /// # let guard = locks.lock("printer", Options::new())?;
    /// assert_eq!(guard.name(), "printer");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        self.guard.name()
    }

    /// The number of the grant, to be sent along with every write: [`crate::Guard::fence`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Options, blocking::Locks};
    /// # fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::new(server.url())?;
    /// # let guard = locks.lock("printer", Options::new())?;
    /// println!("printing, with fence {}", guard.fence());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.guard.fence()
    }

    /// The same for stores that have no unsigned numbers: [`crate::Guard::fence_i64`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Options, blocking::Locks};
    /// # fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::new(server.url())?;
    /// # let guard = locks.lock("printer", Options::new())?;
    /// let parameter: i64 = guard.fence_i64(); // a `bigint`
    /// # assert!(parameter > 0);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fence_i64(&self) -> i64 {
        self.guard.fence_i64()
    }

    /// As whom it is held.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Options, blocking::Locks};
    /// # fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::new(server.url())?;
    /// # let guard = locks.lock("printer", Options::new())?;
    /// println!("held as {}", guard.owner());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn owner(&self) -> &str {
        self.guard.owner()
    }

    /// How long the lock can be counted on from now; zero once it is lost:
    /// [`crate::Guard::valid_for`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Options, blocking::Locks};
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::new(server.url())?;
    /// # let guard = locks.lock("printer", Options::new())?;
    /// if guard.valid_for() > Duration::from_secs(2) {
    ///     // There is time for a step that takes a second.
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.guard.valid_for()
    }

    /// Whether it was lost, and why. Nothing is asked over the network.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Options, blocking::Locks};
    /// # fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::new(server.url())?;
    /// # let guard = locks.lock("printer", Options::new())?;
    /// if let Some(loss) = guard.loss() {
    ///     eprintln!("stopping: {loss:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.guard.loss()
    }

    /// Has the lease end a `ttl` from now, also if that is sooner: [`crate::Guard::extend`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Extended, Options, blocking::Locks};
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::new(server.url())?;
    /// # let guard = locks.lock("printer", Options::new())?;
    /// assert_eq!(guard.extend(Duration::from_secs(60))?, Extended::Extended);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When the server refuses, or does not answer while the lease lasts.
    pub fn extend(&self, ttl: Duration) -> Result<Extended, Error> {
        let guard = Arc::clone(&self.guard);
        self.thread.wait(async move {
            let outcome = guard.extend(ttl).await;
            // Whoever is told has the only one again.
            drop(guard);
            outcome
        })?
    }

    /// Leaves the lock held until its lease ends, and renews it no more: [`crate::Guard::keep`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Options, blocking::Locks};
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::new(server.url())?;
    /// let ten_minutes = Options::new().fixed_ttl(Duration::from_secs(600));
    /// locks.lock("mail:disk-full", ten_minutes)?.keep();
    /// assert!(locks.try_lock("mail:disk-full")?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn keep(self) -> Duration {
        Arc::into_inner(self.guard).map(crate::Guard::keep).unwrap_or_default()
    }

    /// Gives the lock back.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Options, blocking::Locks};
    /// # fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::new(server.url())?;
    /// # let guard = locks.lock("printer", Options::new())?;
    /// if !guard.release()?.in_time() {
    ///     eprintln!("the work took longer than its lease");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When no server answers, or it refuses: the lease ends by itself then. [`Error::Closed`] when
    /// [`Locks::close`] has released it.
    pub fn release(self) -> Result<Released, Error> {
        self.leave(crate::Guard::release)?
    }

    /// Gives the guard to whatever ends it.
    fn leave<T, F>(self, end: impl FnOnce(crate::Guard) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let Self { guard, thread } = self;
        // Extensions have let go of it.
        let guard = Arc::into_inner(guard).ok_or(Error::Closed)?;
        thread.wait(end(guard))
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.locks.fmt(f)
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
