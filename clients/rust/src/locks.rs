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

/// How many holders at a time a semaphore has at most.
const MOST_PERMITS: u32 = 99_999;

/// Locks on one server, on a cluster, on the primary that sentinels name, or on most of several servers.
///
/// Copies share everything: the connections, and the task that renews leases. The client belongs to the tokio runtime on
/// which it was used first; elsewhere it is [`Error::OtherRuntime`]. A program with several runtimes has a client for each.
///
/// Every future of this crate may be dropped at any time. A request that is dropped leaves the queue, and what it may have
/// been granted is given back; a release or an extension that is dropped goes on in the background, or is as if its answer
/// had been lost.
#[derive(Clone)]
pub struct Locks {
    core: Arc<Core>,
}

impl Locks {
    /// A client with the default settings. It connects with its first request, so a program can be started before its
    /// server.
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

    /// The same with these settings.
    ///
    /// # Errors
    ///
    /// When a setting makes no sense.
    pub fn with_settings(server: impl Into<Server>, settings: Settings) -> Result<Self, Error> {
        Ok(Self { core: Core::new(&server.into(), settings.checked()?) })
    }

    /// What requests do that do not say otherwise.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.core.home.settings
    }

    /// A request for this lock, which one holds at a time. Nothing is asked before it is awaited, tried or run.
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

    /// A request to hold this lock beside any number of other readers. A writer asks for [`lock`](Self::lock). It needs the
    /// module.
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

    /// A request for one of so many permits. Nothing is stored of their number: of those who name different ones, the
    /// smallest counts. It needs the module.
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

    /// A request for all of these locks or none, by one owner, with one fence. Nothing is held while it waits, so requests
    /// do not wait for each other in a circle. In a cluster the names have one `{hash tag}`.
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

    /// An election of this name, in which this program goes by the name of `candidate`.
    pub fn election(&self, name: impl AsRef<[u8]>, candidate: impl Into<String>) -> Election {
        Election::new(&self.core, name.as_ref(), candidate.into())
    }

    /// Who holds the lock at this moment, and how many wait for it: none if it is free. For people who want to know, and for
    /// metrics. Whoever wants to hold the lock asks for it: what this says may be over when it arrives.
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
    /// When no server answers, or it refuses: the user needs `LOCK.INFO`, or `GET` and `PTTL` where there is no module.
    pub async fn info(&self, name: impl AsRef<[u8]>) -> Result<Option<LockInfo>, Error> {
        info::info(&self.core, name.as_ref()).await
    }

    /// Those who hold this lock, the one who has held it for longest first.
    ///
    /// # Errors
    ///
    /// When no server answers, or it refuses.
    pub async fn holders(&self, name: impl AsRef<[u8]>) -> Result<Vec<Holder>, Error> {
        info::holders(&self.core, name.as_ref()).await
    }

    /// Those who wait for this lock in the server's queue, the one who is next first. Nobody is listed where there is no
    /// module: requests poll there.
    ///
    /// # Errors
    ///
    /// When no server answers, or it refuses.
    pub async fn waiters(&self, name: impl AsRef<[u8]>) -> Result<Vec<Waiter>, Error> {
        info::waiters(&self.core, name.as_ref()).await
    }

    /// The locks of the server that most have waited for, the most contended first; of a cluster, those of one node. None
    /// are listed where there is no module.
    ///
    /// # Errors
    ///
    /// When no server answers, or it refuses: `LOCK.TOP` is for administrators.
    pub async fn top(&self) -> Result<Vec<Contended>, Error> {
        info::top(&self.core).await
    }

    /// What went wrong with locks of the server, the latest first; of a cluster, with those of one node. Nothing is listed
    /// where there is no module.
    ///
    /// # Errors
    ///
    /// When no server answers, or it refuses: `LOCK.LOG` is for administrators.
    pub async fn log(&self) -> Result<Vec<Logged>, Error> {
        info::log(&self.core).await
    }

    /// A guard of a lock that another program, or an earlier run of this one, has [detached](Guard::detach). It is renewed
    /// by the settings of this client.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when it is not held any more; when no server answers, or it refuses.
    pub async fn adopt(&self, detached: &Detached) -> Result<Guard, Error> {
        Guard::adopt(&self.core, detached).await
    }

    /// Ends all requests, releases what is held, and closes the connections, within that limit. It returns the names of the
    /// locks that stay until their leases end: none, unless the server did not answer.
    ///
    /// It is the last thing that a program does: a lock that is not released by then stays.
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
