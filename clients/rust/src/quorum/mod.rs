//! Locks on several servers that know nothing of each other: Redlock, with fences. `docs/redlock.md` has the argument.

mod attempt;
mod guard;
mod held;
mod identity;
mod kept;
mod servers;

pub use guard::QuorumGuard;

use crate::clock::Moment;
use crate::closing::at_most;
use crate::lease::{Lease, Names};
use crate::locks::next_id;
use crate::request::{Options, Wanted};
use crate::settings::Renew;
use crate::share::Share;
use crate::validity::later;
use crate::wire::Limits;
use crate::{Error, Locks, Settings, Target, backoff, story};
use attempt::attempt;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use servers::Servers;
use std::collections::BTreeMap;
use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout, timeout_at};
use tracing::Instrument;

/// What servers have at least that connect after most have.
const LEAST_GRACE: Duration = Duration::from_millis(100);

/// Locks on several independent servers, each of which is held by whoever has it on most of them. Copies share
/// everything.
///
/// They are exclusive: there are no [readers](Locks::read) and no [permits](Locks::semaphore) here.
/// Most servers may each have room for one more holder without agreeing on who the others are.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
/// # use leasehold_client::{Error, Quorum};
/// # use std::time::Duration;
/// # #[tokio::main]
/// # async fn main() -> Result<(), Error> {
/// # let servers = [Example::start(), Example::start(), Example::start()];
/// # let urls = servers.iter().map(Example::url);
/// let quorum = Quorum::connect(urls).await?; // three or five addresses
/// let guard = quorum.lock("printer").ttl(Duration::from_secs(5)).wait(Duration::from_secs(60)).await?;
/// println!("printing, with fence {}", guard.fence());
/// assert!(guard.release().await?.in_time());
/// let left = quorum.close(Duration::from_secs(5)).await;
/// assert!(left.is_empty(), "not released: {left:?}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Quorum {
    servers: Arc<Servers>,
    settings: Settings,
}

impl Quorum {
    /// Of these servers, with the settings of the first one's client.
    ///
    /// That no server is among them twice is seen at the first request: it fails.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks, Quorum};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let servers = [Example::start(), Example::start(), Example::start()];
    /// # let urls = servers.iter().map(Example::url);
    /// let mut servers = Vec::new();
    /// for url in urls {
    ///     servers.push(Locks::connect(url).await?);
    /// }
    /// let quorum = Quorum::new(servers)?;
    /// # drop(quorum);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When there is none, or they are to have replicas acknowledge grants: here other servers do.
    pub fn new(servers: Vec<Locks>) -> Result<Self, Error> {
        let Some(settings) = servers.first().map(|first| first.settings().clone()) else {
            return Err(Error::setting("servers", "there must be at least one"));
        };
        if settings.replicas > 0 {
            return Err(Error::setting("replicas", "it must be 0 for servers of a quorum"));
        }
        Ok(Self { servers: Arc::new(Servers::new(servers)), settings })
    }

    /// Connects to these, with the default settings.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Quorum};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let servers = [Example::start(), Example::start(), Example::start()];
    /// # let urls = servers.iter().map(Example::url);
    /// let quorum = Quorum::connect(urls).await?;
    /// # drop(quorum);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When an address makes no sense, when two addresses lead to one server, and when fewer than
    /// most of them answer.
    pub async fn connect<T: Into<Target>>(
        targets: impl IntoIterator<Item = T>,
    ) -> Result<Self, Error> {
        Self::connect_with(targets, Settings::default()).await
    }

    /// Connects to these, with these settings. A few may be down: they count as soon as they are up.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Quorum, Settings};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let servers = [Example::start(), Example::start(), Example::start()];
    /// # let urls = servers.iter().map(Example::url);
    /// let settings = Settings::default().ttl(Duration::from_secs(5));
    /// let quorum = Quorum::connect_with(urls, settings).await?;
    /// # drop(quorum);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When a setting or an address has no sense, when two addresses lead to one server, and when
    /// fewer than most of them answer.
    pub async fn connect_with<T: Into<Target>>(
        targets: impl IntoIterator<Item = T>,
        settings: Settings,
    ) -> Result<Self, Error> {
        let unasked = |target: T| -> Result<Locks, Error> {
            Locks::unasked(&target.into(), settings.clone())
        };
        let quorum = Self::new(targets.into_iter().map(unasked).collect::<Result<_, _>>()?)?;
        quorum.find_out().await?;
        Ok(quorum)
    }

    /// Waits for most of them, not for all: after that the others have as long again.
    async fn find_out(&self) -> Result<(), Error> {
        let begun = Instant::now();
        let (mut up, mut failed, mut until) = (0_usize, None, None);
        let asked = self.servers.everybody().into_iter().map(|server| self.find_out_one(server));
        let mut asked: FuturesUnordered<_> = asked.collect();
        loop {
            let next = asked.next();
            let answer = match until {
                None => next.await,
                Some(until) => timeout_at(until, next).await.unwrap_or_default(),
            };
            match answer {
                Some(Ok(())) => up = up.saturating_add(1),
                Some(Err(error @ Error::Setting { .. })) => return Err(error),
                Some(Err(error)) => failed = Some(error),
                None if up >= self.servers.majority() => return Ok(()),
                None => return Err(failed.unwrap_or(Error::Closed)),
            }
            if up >= self.servers.majority() {
                let grace = begun.elapsed().max(LEAST_GRACE);
                until.get_or_insert_with(|| later(Instant::now(), grace).into());
            }
        }
    }

    async fn find_out_one(&self, server: usize) -> Result<(), Error> {
        let locks = self.servers.all.get(server).ok_or(Error::Closed)?;
        locks.find_out().await?;
        let Settings { response, within, .. } = self.settings;
        let limits = Limits { each: response, until: Some(later(Instant::now(), within)) };
        self.servers.identify(server, &locks.key("leasehold"), limits).await
    }

    /// How long each server may take to answer, which is to be small against the ttl; a tenth of that, and at most
    /// half a second, unless this is called.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Quorum};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let servers = [Example::start(), Example::start(), Example::start()];
    /// # let urls = servers.iter().map(Example::url);
    /// # let quorum = Quorum::connect(urls).await?;
    /// let quorum = quorum.server_limit(Duration::from_millis(50));
    /// # drop(quorum);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn server_limit(self, limit: Duration) -> Self {
        let servers = Servers { limit: Some(limit), ..(*self.servers).clone() };
        Self { servers: Arc::new(servers), ..self }
    }

    /// Takes the lock if it is free on most servers: none if others have it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Quorum};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let servers = [Example::start(), Example::start(), Example::start()];
    /// # let urls = servers.iter().map(Example::url);
    /// # let quorum = Quorum::connect(urls).await?;
    /// let guard = quorum.try_lock("printer").await?;
    /// assert!(guard.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When too few servers answer, or they refuse.
    pub async fn try_lock(&self, name: &str) -> Result<Option<QuorumGuard>, Error> {
        self.lock(name).try_now().await
    }

    /// Waits for the lock, when it is awaited: it tries again and again, after rests of random length.
    ///
    /// It does not wait in the servers' queues. Each would be in an order of its own: whoever came first in one would
    /// wait for whoever came first in another, until their leases end.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Quorum};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let servers = [Example::start(), Example::start(), Example::start()];
    /// # let urls = servers.iter().map(Example::url);
    /// # let quorum = Quorum::connect(urls).await?;
    /// let guard = quorum.lock("printer").wait(Duration::from_secs(10)).await?;
    /// println!("fence {}", guard.fence());
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock(&self, name: impl Into<String>) -> QuorumRequest {
        QuorumRequest { quorum: self.clone(), name: name.into(), options: Options::new() }
    }

    /// Ends the use of all copies of this client, as [`Locks::close`] does, and of the clients of
    /// its servers. Returns the names of the locks that could not be released on so many servers
    /// within `limit` that they may still be held. What guards hold is released from the runtime
    /// that this is called on, whether theirs are driven or not. What a request was granted that is
    /// under way on a runtime that stands still is not named: it is released when that runtime is
    /// driven again, or the request is dropped.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Quorum};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let servers = [Example::start(), Example::start(), Example::start()];
    /// # let urls = servers.iter().map(Example::url);
    /// # let quorum = Quorum::connect(urls).await?;
    /// drop(quorum.lock("printer").await?);
    /// let left = quorum.close(Duration::from_secs(5)).await;
    /// assert!(left.is_empty(), "not released: {left:?}");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "the locks that it names stay until their leases end"]
    pub async fn close(&self, limit: Duration) -> Vec<String> {
        let begun = Instant::now();
        self.servers.holdings.close().iter().for_each(|held| held.close());
        // Those that do not end are released as soon as they are granted.
        let _ = timeout(at_most(limit, 4), self.servers.gate.close()).await;
        let left = self.servers.close(limit.saturating_sub(begun.elapsed())).await;
        let mut held_on = BTreeMap::<String, usize>::new();
        for name in left.into_iter().flatten() {
            let count = held_on.entry(name).or_default();
            *count = count.saturating_add(1);
        }
        held_on.retain(|_, count| *count >= self.servers.majority());
        held_on.into_keys().collect()
    }

    /// Waits until all that was released or given up before is released, for ten seconds at the
    /// most.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Quorum};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let servers = [Example::start(), Example::start(), Example::start()];
    /// # let urls = servers.iter().map(Example::url);
    /// # let quorum = Quorum::connect(urls).await?;
    /// drop(quorum.lock("printer").await?);
    /// quorum.settle().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn settle(&self) {
        join_all(self.servers.all.iter().map(Locks::settle)).await;
    }

    /// `begun` is when the first of all tries began.
    async fn try_once(
        &self,
        name: &str,
        wanted: &Wanted,
        begun: Instant,
    ) -> Result<Option<QuorumGuard>, Error> {
        let Some(grant) = attempt(&self.servers, name, wanted.ttl).await? else { return Ok(None) };
        let names = Names {
            id: next_id(),
            name: name.to_owned(),
            key: format!("{}{name}", self.settings.prefix),
            owner: grant.subject.owner.clone(),
            correlation: wanted.correlation.clone(),
        };
        let lease = Lease::new(names, grant.fence, grant.asked, wanted.ttl, wanted.renew);
        let is_over = lease.valid_for(Moment::now()).is_zero();
        if !is_over {
            wanted.hold(&lease);
            story::acquired(&lease, begun.elapsed());
        }
        // One that is over is released by being dropped.
        let guard = QuorumGuard::new(Arc::clone(&self.servers), grant.subject, lease);
        if is_over {
            return Err(Error::TooLate { name: name.to_owned() });
        }
        Ok(Some(guard))
    }

    async fn acquire(&self, name: &str, wanted: &Wanted) -> Result<Option<QuorumGuard>, Error> {
        self.servers.gate.pass(self.acquire_in_time(name, wanted)).await
    }

    /// Until it is granted, or patience has ended.
    async fn acquire_in_time(
        &self,
        name: &str,
        wanted: &Wanted,
    ) -> Result<Option<QuorumGuard>, Error> {
        let begun = Instant::now();
        let until = wanted.wait.map(|patience| later(begun, patience));
        let mut tries = 0_u32;
        loop {
            let came = self.try_once(name, wanted, begun).await;
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let is_final = match &came {
                Ok(Some(_)) => true,
                Ok(None) | Err(Error::Unreachable { .. }) => {
                    left.is_some_and(|left| left.is_zero())
                }
                Err(_) => true,
            };
            if is_final {
                story::not_acquired(name, None, wanted, begun, &came);
                return came;
            }
            // At random, or those who split the servers between them would do so again.
            let rest = backoff::POLL.random_rest(tries);
            sleep(left.map_or(rest, |left| rest.min(left))).await;
            tries = tries.saturating_add(1);
        }
    }
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quorum").field("servers", &self.servers.all).finish()
    }
}

/// A lock that is about to be asked for: [`Quorum::lock`].
#[derive(Clone, Debug)]
#[must_use = "nothing is asked before it is awaited"]
pub struct QuorumRequest {
    quorum: Quorum,
    name: String,
    options: Options,
}

impl QuorumRequest {
    /// [`Options::ttl`]
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|options| options.ttl(ttl))
    }

    /// [`Options::fixed_ttl`]
    pub fn fixed_ttl(self, ttl: Duration) -> Self {
        self.with(|options| options.fixed_ttl(ttl))
    }

    /// [`Options::wait`]
    pub fn wait(self, patience: Duration) -> Self {
        self.with(|options| options.wait(patience))
    }

    /// [`Options::renew`]
    pub fn renew(self, renew: Renew) -> Self {
        self.with(|options| options.renew(renew))
    }

    /// [`Options::hold_at_least`]
    pub fn hold_at_least(self, least: Duration) -> Self {
        self.with(|options| options.hold_at_least(least))
    }

    /// [`Options::correlation`]
    pub fn correlation(self, correlation: impl Into<String>) -> Self {
        self.with(|options| options.correlation(correlation))
    }

    fn with(mut self, change: impl FnOnce(Options) -> Options) -> Self {
        self.options = change(self.options);
        self
    }

    /// Tries once: none if others have it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Quorum};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let servers = [Example::start(), Example::start(), Example::start()];
    /// # let urls = servers.iter().map(Example::url);
    /// # let quorum = Quorum::connect(urls).await?;
    /// let guard = quorum.lock("printer").ttl(Duration::from_secs(5)).try_now().await?;
    /// assert!(guard.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When too few servers answer, or they refuse.
    pub async fn try_now(self) -> Result<Option<QuorumGuard>, Error> {
        let Self { quorum, name, options } = self.wait(Duration::ZERO);
        let wanted = options.over(Share::Exclusive, &quorum.settings)?;
        let span = story::span(&name, &wanted.correlation);
        quorum.acquire(&name, &wanted).instrument(span).await
    }
}

impl IntoFuture for QuorumRequest {
    type Output = Result<QuorumGuard, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let Self { quorum, name, options } = self;
            let (asked, wanted) =
                (Instant::now(), options.over(Share::Exclusive, &quorum.settings)?);
            let span = story::span(&name, &wanted.correlation);
            let guard = quorum.acquire(&name, &wanted).instrument(span).await?;
            guard.ok_or_else(|| Error::Busy { name, waited: asked.elapsed() })
        })
    }
}
