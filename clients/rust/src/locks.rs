//! The client.

use crate::core::Core;
use crate::detached::Detached;
use crate::election::Election;
use crate::error::Error;
use crate::guard::Guard;
use crate::info::{self, Contended, Holder, LockInfo, Logged, Waiter};
use crate::question::{EXCLUSIVE, READERS};
use crate::request::Request;
use crate::server::Server;
use crate::settings::Settings;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The most permits of a semaphore.
const MOST_PERMITS: u32 = 99_999;

/// Locks on one server, a cluster, the primary that sentinels name, or a majority of several servers.
///
/// Copies share the connections and the task that renews leases. The client belongs to the tokio runtime of its first use;
/// on another one, requests fail with [`Error::OtherRuntime`]. A program with several runtimes needs a client for each.
///
/// Every future of this crate may be dropped at any time. A dropped request leaves the queue, and the client releases
/// whatever the server granted to it. A dropped release goes on in the background, and a dropped extension counts as
/// unanswered.
#[derive(Clone)]
pub struct Locks {
    core: Arc<Core>,
}

impl Locks {
    /// A client with the default settings. It connects with its first request, so a program may start before its server.
    ///
    /// ```
    /// use leasehold_client::Locks;
    ///
    /// let locks = Locks::new(redis::Client::open("redis://127.0.0.1:6379")?);
    /// # Ok::<(), redis::RedisError>(())
    /// ```
    #[must_use]
    pub fn new(server: impl Into<Server>) -> Self {
        Self { core: Core::new(&server.into(), Settings::default()) }
    }

    /// A client with these settings.
    ///
    /// # Errors
    ///
    /// If a setting is invalid.
    pub fn with_settings(server: impl Into<Server>, settings: Settings) -> Result<Self, Error> {
        Ok(Self { core: Core::new(&server.into(), settings.checked()?) })
    }

    /// The defaults of requests.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.core.home.settings
    }

    /// A request for an exclusive lock. Nothing is sent until the request is awaited, tried or run.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use std::time::Duration;
    /// # fn main() { example(async |locks| {
    /// let guard = locks.lock("printer").wait(Duration::from_secs(60)).await?;
    /// assert!(locks.lock("printer").try_now().await?.is_none());
    /// guard.release().await?;
    /// # Ok(()) }) }
    /// ```
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Request {
        Request::new(&self.core, vec![name.as_ref().to_vec()], EXCLUSIVE)
    }

    /// A request to hold the lock together with other readers. Writers ask for [`lock`](Self::lock). It needs the module.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # fn main() { example(async |locks| {
    /// let (one, other) = (locks.read("page").await?, locks.read("page").await?);
    /// assert!(locks.lock("page").try_now().await?.is_none());
    /// # drop((one, other));
    /// # Ok(()) }) }
    /// ```
    pub fn read(&self, name: impl AsRef<[u8]>) -> Request {
        Request::new(&self.core, vec![name.as_ref().to_vec()], READERS)
    }

    /// A request for one of `permits` permits. The server stores no number: the smallest that requests name counts. It needs
    /// the module.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # fn main() { example(async |locks| {
    /// let permits = [locks.semaphore("printers", 2).await?, locks.semaphore("printers", 2).await?];
    /// assert!(locks.semaphore("printers", 2).try_now().await?.is_none());
    /// # drop(permits);
    /// # Ok(()) }) }
    /// ```
    pub fn semaphore(&self, name: impl AsRef<[u8]>, permits: u32) -> Request {
        let request = Request::new(&self.core, vec![name.as_ref().to_vec()], permits);
        if (1..=MOST_PERMITS).contains(&permits) {
            request
        } else {
            request.wrong("permits", "there must be 1 to 99999")
        }
    }

    /// A request for all of these locks or none, by one owner, with one fence. It holds nothing while it waits, so requests
    /// cannot deadlock. In a cluster the names need one `{hash tag}`.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # fn main() { example(async |locks| {
    /// let guard = locks.all(["table:7", "table:8"]).await?;
    /// assert!(locks.lock("table:8").try_now().await?.is_none());
    /// guard.release().await?;
    /// # Ok(()) }) }
    /// ```
    pub fn all<N: AsRef<[u8]>>(&self, names: impl IntoIterator<Item = N>) -> Request {
        let mut names: Vec<_> = names.into_iter().map(|name| name.as_ref().to_vec()).collect();
        names.sort();
        names.dedup();
        let is_empty = names.is_empty();
        let request = Request::new(&self.core, names, EXCLUSIVE);
        if is_empty { request.wrong("names", "there must be at least one") } else { request }
    }

    /// The election of this name. This program takes part under the name `candidate`.
    pub fn election(&self, name: impl AsRef<[u8]>, candidate: impl Into<String>) -> Election {
        Election::new(&self.core, name.as_ref(), candidate.into())
    }

    /// The holder of the lock and the number of waiters; none if the lock is free. For people and metrics: to get the lock,
    /// request it, because this answer may be outdated when it arrives.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # fn main() { example(async |locks| {
    /// let guard = locks.lock("printer").await?;
    /// if let Some(info) = locks.info("printer").await? {
    ///     println!("{} has it for another {:?}", info.holder, info.ttl);
    ///     assert_eq!(info.fence, guard.fence());
    /// }
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    ///
    /// If no server answers, or the server refuses: the user needs `LOCK.INFO`, or `GET` and `PTTL` without the module.
    pub async fn info(&self, name: impl AsRef<[u8]>) -> Result<Option<LockInfo>, Error> {
        info::info(&self.core, name.as_ref()).await
    }

    /// The holders of this lock, the oldest hold first.
    ///
    /// # Errors
    ///
    /// If no server answers, or the server refuses.
    pub async fn holders(&self, name: impl AsRef<[u8]>) -> Result<Vec<Holder>, Error> {
        info::holders(&self.core, name.as_ref()).await
    }

    /// The waiters in the server's queue, the next one first. Empty without the module, because requests poll there.
    ///
    /// # Errors
    ///
    /// If no server answers, or the server refuses.
    pub async fn waiters(&self, name: impl AsRef<[u8]>) -> Result<Vec<Waiter>, Error> {
        info::waiters(&self.core, name.as_ref()).await
    }

    /// The most contended locks of the server, or of one node of a cluster. Empty without the module.
    ///
    /// # Errors
    ///
    /// If no server answers, or the server refuses: `LOCK.TOP` is for administrators.
    pub async fn top(&self) -> Result<Vec<Contended>, Error> {
        info::top(&self.core).await
    }

    /// The log of the server, or of one node of a cluster, the latest entry first. Empty without the module.
    ///
    /// # Errors
    ///
    /// If no server answers, or the server refuses: `LOCK.LOG` is for administrators.
    pub async fn log(&self) -> Result<Vec<Logged>, Error> {
        info::log(&self.core).await
    }

    /// A guard for a lock that this or another program [detached](Guard::detach), with the renewal of this client's
    /// settings.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock is no longer held. Other errors if no server answers, or the server refuses.
    pub async fn adopt(&self, detached: &Detached) -> Result<Guard, Error> {
        Guard::adopt(&self.core, detached).await
    }

    /// Ends all requests, releases all locks and closes the connections, within `limit`. Returns the names of the locks that
    /// stay held until their leases end: none, unless the server did not answer.
    ///
    /// Call it last: a lock that is not released by then stays held.
    #[must_use = "the locks that it names stay until their leases end"]
    pub async fn close(&self, limit: Duration) -> Vec<String> {
        self.core.close(limit).await
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").field("settings", self.settings()).finish_non_exhaustive()
    }
}
