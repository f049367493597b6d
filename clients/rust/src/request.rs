//! How a lock is asked for.

use crate::clock::Moment;
use crate::lease::{Lease, checked};
use crate::settings::Renew;
use crate::share::Share;
use crate::wire::Replicas;
use crate::{Error, Guard, Locks, Settings};
use std::future::IntoFuture;
use std::pin::Pin;
use std::time::{Duration, Instant};

/// What servers take.
const LONGEST_GRACE: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

/// What one request wants to be different from the settings of its client.
///
/// ```
/// use leasehold_client::Options;
/// use std::time::Duration;
///
/// let options = Options::new().ttl(Duration::from_secs(5)).wait(Duration::from_secs(1));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options {
    ttl: Option<Duration>,
    wait: Option<Duration>,
    renew: Option<Renew>,
    owner: Option<String>,
    replicas: Option<Replicas>,
    hold_at_least: Option<Duration>,
    ephemeral: Option<Duration>,
    correlation: Option<String>,
}

/// The same with what the settings say of the rest.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) share: Share,
    pub(crate) ttl: Duration,
    /// None is without limit.
    pub(crate) wait: Option<Duration>,
    pub(crate) renew: Renew,
    pub(crate) owner: Option<String>,
    pub(crate) replicas: Option<Replicas>,
    pub(crate) hold_at_least: Option<Duration>,
    /// How long the hold outlives its connection, if it ends with that.
    pub(crate) grace: Option<Duration>,
    pub(crate) correlation: String,
}

impl Wanted {
    /// It has been granted just now.
    pub(crate) fn hold(&self, lease: &Lease) {
        if let Some(least) = self.hold_at_least {
            lease.hold_until(Moment::now().later(least));
        }
    }
}

impl Options {
    /// Everything as the settings say.
    ///
    /// ```
    /// use leasehold_client::Options;
    /// let options = Options::new();
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How long the lease lasts, unless it is renewed.
    ///
    /// ```
    /// use leasehold_client::Options;
    /// use std::time::Duration;
    /// let options = Options::new().ttl(Duration::from_secs(10));
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// The lease lasts so long, and is not renewed.
    ///
    /// ```
    /// use leasehold_client::Options;
    /// use std::time::Duration;
    /// let options = Options::new().fixed_ttl(Duration::from_secs(600));
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn fixed_ttl(self, ttl: Duration) -> Self {
        self.ttl(ttl).renew(Renew::Off)
    }

    /// How long to wait while others have it.
    ///
    /// ```
    /// use leasehold_client::Options;
    /// use std::time::Duration;
    /// let options = Options::new().wait(Duration::from_secs(3));
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn wait(mut self, patience: Duration) -> Self {
        self.wait = Some(patience);
        self
    }

    /// Whether the lease is renewed.
    ///
    /// ```
    /// use leasehold_client::{Options, Renew};
    /// use std::time::Duration;
    /// let options = Options::new().renew(Renew::AtMost(Duration::from_secs(3_600)));
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn renew(mut self, renew: Renew) -> Self {
        self.renew = Some(renew);
        self
    }

    /// As whom to ask, 1 to 255 bytes; unless this is called, as somebody new each time. Within a client the same owner
    /// may have the lock several times: it is released when the last of its guards is gone.
    ///
    /// **Two processes, or two clients of one process, that ask as the same owner both have the
    /// lock**: to the server they are one, which asks once more. When one of them releases it, the
    /// other learns of that at its next renewal only. So an owner needs a part that no other
    /// process has, such as a random UUID; the name of a host, or of a worker that may be started
    /// twice, is not enough.
    ///
    /// A lock that was [kept](Guard::keep), or is [held on](Options::hold_at_least) after its
    /// release, still belongs to its owner. When no guard is left, a later request of the same
    /// owner joins it: it gets the same fence at once, and its release ends the lock. Ask without
    /// an owner where the time that is left has to pass.
    ///
    /// Requests of one client for the same lock and owner take turns, on whichever runtime they are
    /// made. One that waits keeps the others waiting, until their patience ends.
    ///
    /// The server may give the same owner the same grant again. What an earlier guard sent without
    /// an answer could then arrive late, behind a proxy. This client allows for that for a minute:
    /// after an extension that was not answered, [`Guard::valid_for`] says no more than its ttl;
    /// after a release that was not answered, the next request asks for it again first, and fails
    /// with [`Error::Unreachable`] if nobody answers. It knows nothing of what other clients sent
    /// as the same owner.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks, Options, Released};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let outer = locks.lock("printer").owner("worker-7").await?;
    /// let inner = locks.lock("printer").owner("worker-7").await?;
    /// assert_eq!(inner.release().await?, Released::StillHeld);
    /// assert_eq!(outer.release().await?, Released::Released);
    /// # locks.settle().await;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// How many replicas must have heard of the grant, and how long they may take.
    ///
    /// ```
    /// use leasehold_client::Options;
    /// use std::time::Duration;
    /// let options = Options::new().replicas(1, Duration::from_millis(100));
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn replicas(mut self, count: u64, within: Duration) -> Self {
        self.replicas = Some(Replicas { count, within });
        self
    }

    /// Releases the lock no sooner than so long after the grant. A guard that is released or
    /// dropped earlier leaves the rest to the server, which frees the lock at that moment, also
    /// when this program has ended.
    ///
    /// For work that several hosts begin by their own clocks, such as a nightly job: a host whose
    /// clock is late finds the lock taken, however quickly the work was done. Choose more than the
    /// clocks can differ by, and try once.
    ///
    /// If the program dies during the work, the lock is free at the end of its lease, which may be
    /// sooner: give it a [ttl](Options::ttl) that is no shorter.
    ///
    /// While it is held on, the lock still belongs to its [owner](Options::owner). A later request
    /// of the same owner gets it at once, and its release ends it: at once, or, if that request
    /// says `hold_at_least` too, so long after its own grant. While guards share the lock, the
    /// latest of their moments counts.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks, Released};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let nightly = || locks.lock("nightly").hold_at_least(Duration::from_secs(60)).try_now();
    /// if let Some(guard) = nightly().await? {
    ///     // The work of half a second.
    ///     assert_eq!(guard.release().await?, Released::Later);
    /// }
    /// assert!(nightly().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn hold_at_least(mut self, least: Duration) -> Self {
        self.hold_at_least = Some(least);
        self
    }

    /// Binds the hold to the connection of this client, the one for all requests. When that ends, because the program was
    /// closed or killed, or the network failed, the lock is free `grace` later, and not only at the end of its lease.
    ///
    /// The guard goes on when the client connects again within the grace: it asks for the lock at once, and gets the same
    /// fence. From the moment when this client sees the end of a connection, [`Guard::valid_for`] is no more than the grace.
    /// If the grace is shorter than it takes to connect, the guard is lost: [`Loss::Expired`](crate::Loss::Expired), or
    /// [`Loss::Taken`](crate::Loss::Taken) if the server has given the lock to somebody else. With a grace of zero the end
    /// of the connection is the end of the guard. A server that does not answer within [`Settings::response`] counts as a
    /// connection that has ended, because this client opens another one then.
    ///
    /// For tools that a person runs and interrupts, such as editors, migrations, and whatever is started on a developer's
    /// machine: nobody waits for the lease of a tool that was closed. It is of no use behind a proxy that shares connections,
    /// or closes those that are idle. **The ttl counts as ever**, and the lease is renewed: a machine that vanishes without a
    /// word ends no connection.
    ///
    /// What `valid_for` does not see: a server that closes the connection while the network keeps that from this client, as
    /// when an operator kills it. For that there is [`Guard::fence`], as ever. A lock that is [kept](Guard::keep) ends with
    /// the connection, too, and with the runtime of its request: the connection is driven there.
    ///
    /// It needs the module. On a server that has none, or an older one, the request fails with
    /// [`Error::Refused`], and nothing was changed.
    ///
    /// ```no_run
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let editing = locks.lock("page-7").ephemeral(Duration::from_secs(5)).await?;
    /// # editing.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn ephemeral(mut self, grace: Duration) -> Self {
        self.ephemeral = Some(grace);
        self
    }

    /// What the caller goes by: a field of all that is traced about this lock.
    ///
    /// ```
    /// use leasehold_client::Options;
    /// let options = Options::new().correlation("request 17");
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn correlation(mut self, correlation: impl Into<String>) -> Self {
        self.correlation = Some(correlation.into());
        self
    }

    pub(crate) fn over(self, share: Share, settings: &Settings) -> Result<Wanted, Error> {
        if self.owner.as_ref().is_some_and(|owner| owner.is_empty() || owner.len() > 255) {
            return Err(Error::setting("owner", "it must be 1 to 255 bytes long"));
        }
        let from_settings =
            || Replicas { count: settings.replicas, within: settings.replicas_within };
        let replicas = self.replicas.unwrap_or_else(from_settings);
        let (mut ttl, renew) =
            (self.ttl.unwrap_or(settings.ttl), self.renew.unwrap_or(settings.renew));
        if let Renew::AtMost(longest) = renew {
            ttl = ttl.min(longest);
        }
        let longest = match renew {
            Renew::Every => None,
            Renew::Off => Some(ttl),
            Renew::AtMost(longest) => Some(longest),
        };
        if longest.is_some_and(|longest| self.hold_at_least > Some(longest)) {
            let reason =
                "it must be no more than the lease lasts, which is not renewed for so long";
            return Err(Error::setting("hold_at_least", reason));
        }
        if self.ephemeral.is_some() && self.hold_at_least.is_some() {
            let reason = "it ends with the connection, and cannot be held for a least time";
            return Err(Error::setting("ephemeral", reason));
        }
        if self.ephemeral > Some(LONGEST_GRACE) {
            return Err(Error::setting("ephemeral", "it must be no more than a hundred years"));
        }
        Ok(Wanted {
            share: share.checked()?,
            ttl: checked(ttl)?,
            wait: self.wait.or(settings.wait),
            renew,
            owner: self.owner,
            replicas: Some(replicas).filter(|replicas| replicas.count > 0),
            hold_at_least: self.hold_at_least,
            grace: self.ephemeral,
            correlation: self.correlation.unwrap_or_default(),
        })
    }
}

/// A lock that is about to be asked for: [`Locks::lock`], [`Locks::read`], [`Locks::write`] or
/// [`Locks::semaphore`].
///
/// Awaited, it waits for the lock; dropped while it waits, it leaves the queue.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked before it is awaited"]
pub struct Request {
    locks: Locks,
    name: String,
    share: Share,
    options: Options,
}

impl Request {
    pub(crate) fn new(locks: Locks, name: String, share: Share) -> Self {
        Self { locks, name, share, options: Options::new() }
    }

    /// All options at once.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks, Options};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let guard = locks.lock("printer").options(Options::new().correlation("request 17")).await?;
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

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

    /// [`Options::owner`]
    pub fn owner(self, owner: impl Into<String>) -> Self {
        self.with(|options| options.owner(owner))
    }

    /// [`Options::replicas`]
    pub fn replicas(self, count: u64, within: Duration) -> Self {
        self.with(|options| options.replicas(count, within))
    }

    /// [`Options::hold_at_least`]
    pub fn hold_at_least(self, least: Duration) -> Self {
        self.with(|options| options.hold_at_least(least))
    }

    /// [`Options::ephemeral`]
    pub fn ephemeral(self, grace: Duration) -> Self {
        self.with(|options| options.ephemeral(grace))
    }

    /// [`Options::correlation`]
    pub fn correlation(self, correlation: impl Into<String>) -> Self {
        self.with(|options| options.correlation(correlation))
    }

    fn with(mut self, change: impl FnOnce(Options) -> Options) -> Self {
        self.options = change(self.options);
        self
    }

    /// Takes the lock if it is free, and does not wait: none if somebody else has it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let guard = locks.lock("printer").ttl(Duration::from_secs(5)).try_now().await?;
    /// assert!(guard.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When no server answers, or it refuses.
    pub async fn try_now(self) -> Result<Option<Guard>, Error> {
        self.locks.acquire(&self.name, self.share, self.options.wait(Duration::ZERO)).await
    }
}

impl IntoFuture for Request {
    type Output = Result<Guard, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let asked = Instant::now();
            let guard = self.locks.acquire(&self.name, self.share, self.options).await?;
            guard.ok_or_else(|| Error::Busy { name: self.name, waited: asked.elapsed() })
        })
    }
}
