//! A request for locks and its options.

use crate::asked::{Asked, Terms, Wanted};
use crate::copies::Copies;
use crate::core::Core;
use crate::error::Error;
use crate::guard::{Guard, Serves};
use crate::question::{Claim, Share};
use crate::settings::Renew;
use std::fmt;
use std::future::{IntoFuture, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use uuid::Uuid;

tokio::task_local! {
    /// The guards of the works of [`Request::run_reentrant`] that this task is in, the innermost first.
    static AROUND: Vec<Arc<Guard>>;
}

/// A shorter lease would end before its answer arrives.
const LEAST_TTL: Duration = Duration::from_millis(3);

/// The server's limit for a ttl or a grace: a hundred years.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

/// The server's limit for an owner, in bytes.
pub(crate) const LONGEST_OWNER: usize = 255;

/// A request for a lock, or for several: [`Locks::lock`](crate::Locks::lock), [`Locks::read`](crate::Locks::read), [`Locks::semaphore`](crate::Locks::semaphore) and [`Locks::all`](crate::Locks::all).
///
/// Awaited, it waits for the lock in the order of arrival. Dropped while it waits, it leaves the queue.
#[derive(Clone)]
#[must_use = "nothing is asked before it is awaited, tried or run"]
pub struct Request {
    core: Arc<Core>,
    names: Vec<Vec<u8>>,
    share: Share,
    ttl: Duration,
    wait: Option<Duration>,
    renew: Renew,
    owner: Option<String>,
    copies: Copies,
    hold_at_least: Option<Duration>,
    ephemeral: Option<Duration>,
    confirm: bool,
    correlation: String,
    /// An invalid option, and why.
    wrong: Option<(&'static str, &'static str)>,
}

impl Request {
    pub(crate) fn new(core: &Arc<Core>, names: Vec<Vec<u8>>, share: Share) -> Self {
        let settings = &core.home.settings;
        let (ttl, wait, renew) = (settings.ttl, settings.wait, settings.renew);
        let (replicas, within) = (settings.replicas, settings.replicas_within);
        let copies = Copies { replicas, within, is_durable: false };
        Self {
            core: Arc::clone(core),
            names,
            share,
            ttl,
            wait,
            renew,
            owner: None,
            copies,
            hold_at_least: None,
            ephemeral: None,
            confirm: false,
            correlation: String::new(),
            wrong: None,
        }
    }

    pub(crate) fn wrong(self, option: &'static str, reason: &'static str) -> Self {
        Self { wrong: Some((option, reason)), ..self }
    }

    /// How long the lease lasts without a renewal. After the death of its holder, the lock is free when this time is over.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    /// How long to wait while others hold the lock. Without limit by default, unless [set](crate::Settings::wait).
    pub fn wait(self, patience: Duration) -> Self {
        Self { wait: Some(patience), ..self }
    }

    /// Whether the lease is renewed while the guard lives.
    pub fn renew(self, renew: Renew) -> Self {
        Self { renew, ..self }
    }

    /// The owner. By default, each request has a new one.
    ///
    /// If the holder's owner asks again, also from another program, it gets the same grant. Each guard then holds the lock
    /// without knowing of the others, and a release by one ends the hold of all. An owner is an identity, not a secret. A
    /// message about an earlier grant to this owner may still arrive, so its grants are [confirmed](Self::confirm).
    pub fn owner(self, owner: impl Into<String>) -> Self {
        Self { owner: Some(owner.into()), ..self }
    }

    /// Requires `count` replicas to acknowledge the grant within that time. Otherwise the client releases the lock, and the
    /// request fails with [`Error::TooFewReplicas`]. A failover to one of these replicas keeps the lock.
    pub fn replicas(self, count: u64, within: Duration) -> Self {
        let copies = Copies { replicas: count, within, ..self.copies };
        Self { copies, ..self }
    }

    /// Requires the server, and as many replicas as [`replicas`](Self::replicas) says, to write the grant to disk before the
    /// work begins. Otherwise the request fails as with too few replicas. The lock then survives a loss of power.
    ///
    /// It needs `WAITAOF` (Redis 7.2 or Valkey) and an append-only file. With `appendfsync everysec` the server takes up to
    /// a second, so allow more than that with `replicas(0, …)` or [`replicas_within`](crate::Settings::replicas_within). On
    /// Valkey use `appendfsync always`: with `everysec`, Valkey 9.1 replies to `WAITAOF` before the grant is on disk.
    pub fn durable(self) -> Self {
        let copies = Copies { is_durable: true, ..self.copies };
        Self { copies, ..self }
    }

    /// The least time to hold the lock: [`Guard::release`] leaves the lock held until then, and says so.
    ///
    /// For work that must run once although several programs start it at about the same time, such as a cron job. If the
    /// program dies, the lock is free at the end of its lease, so choose a [ttl](Self::ttl) that is at least as long.
    pub fn hold_at_least(self, least: Duration) -> Self {
        Self { hold_at_least: Some(least), ..self }
    }

    /// Binds the hold to a connection. If that connection ends, because the program was closed or killed, the lock is free
    /// `grace` later, and not only at the end of its lease.
    ///
    /// All ephemeral holds of a client on one server share a connection. If a living program loses it, the client binds the
    /// holds anew at once, and the guards go on if the server hears of it within the grace. After the loss,
    /// [`Guard::valid_for`] is at most the grace. The ttl still applies: a machine that vanishes ends no connection. It
    /// needs the module.
    pub fn ephemeral(self, grace: Duration) -> Self {
        Self { ephemeral: Some(grace), ..self }
    }

    /// Confirms the grant with the server before the work begins, for one more round trip.
    ///
    /// By default the work begins with the message about the grant. Anyone who may publish on channels `leasehold:*` and
    /// knows the owner could forge that message. The first renewal, release or guarded command detects the forgery.
    pub fn confirm(self) -> Self {
        Self { confirm: true, ..self }
    }

    /// The caller's own reference, such as the id of a web request. It is a field of all trace events of this lock.
    pub fn correlation(self, correlation: impl Into<String>) -> Self {
        Self { correlation: correlation.into(), ..self }
    }

    /// Takes the lock if it is free, without waiting. None if somebody else holds it.
    ///
    /// # Errors
    ///
    /// If no server answers, or the server refuses.
    pub async fn try_now(self) -> Result<Option<Guard>, Error> {
        let core = Arc::clone(&self.core);
        let asked = self.wait(Duration::ZERO).checked()?;
        Ok(core.acquire(asked).await?.map(|lease| Guard::new(&core, lease)))
    }

    /// Waits for the lock, does the work, and releases the lock. If the lock is lost meanwhile, the work stops: its future
    /// is dropped at its next await, and this returns [`Error::Lost`].
    ///
    /// What the work wrote before that stays written, and requests that it sent may still arrive. So pass the
    /// [fence](Guard::fence) to every store that can compare it.
    ///
    /// Returns the result of the work, whatever the outcome of the release, which is traced.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # fn main() { example(async |locks| {
    /// let pages = locks.lock("printer").run(async |guard| {
    ///     println!("printing, with fence {}", guard.fence());
    ///     17
    /// });
    /// assert_eq!(pages.await?, 17);
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    ///
    /// If the request failed, the work did not begin. [`Error::Lost`] if it began and was stopped.
    pub async fn run<T>(self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Error> {
        let guard = self.await?;
        let done = until_lost(&guard, work).await?;
        let _ = guard.release().await;
        Ok(done)
    }

    /// As [`run`](Self::run). Inside the work of another `run_reentrant` for the same lock, in the same task and by the same
    /// client, it does its work with the guard of that one, and asks no server. The last one to end releases the lock.
    ///
    /// The guard of a writer serves a reader, and that of several locks a request for some of them.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # fn main() { example(async |locks| {
    /// let outer = locks.lock("printer").run_reentrant(async |outer| {
    ///     let inner = locks.lock("printer").run_reentrant(async |inner| inner.fence());
    ///     assert_eq!(inner.await?, outer.fence());
    ///     Ok::<_, leasehold_client::Error>(())
    /// });
    /// outer.await??;
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and [`Error::Setting`] if the work around holds the lock in a way that does not serve: as a
    /// reader, or only some of the locks. The request would wait for its own task.
    pub async fn run_reentrant<T>(self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Error> {
        let mut around = AROUND.try_with(Clone::clone).unwrap_or_default();
        let guard = if let Some(guard) = self.served_by(&around)? {
            guard
        } else {
            let guard = Arc::new(self.await?);
            around.insert(0, Arc::clone(&guard));
            guard
        };
        let done = AROUND.scope(around, until_lost(&guard, work)).await?;
        if let Some(guard) = Arc::into_inner(guard) {
            let _ = guard.release().await;
        }
        Ok(done)
    }

    fn served_by(&self, around: &[Arc<Guard>]) -> Result<Option<Arc<Guard>>, Error> {
        let keys = self.keys();
        for guard in around {
            match guard.serves(&self.core, &keys, self.share) {
                Serves::Fully => return Ok(Some(Arc::clone(guard))),
                Serves::Nothing => {}
                Serves::Partly => {
                    let reason = "the work around holds the lock in another way, so this would wait for itself";
                    return Err(Error::setting("run_reentrant", reason));
                }
            }
        }
        Ok(None)
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        self.names.iter().map(|name| self.core.home.key(name)).collect()
    }

    fn name(&self) -> String {
        let names: Vec<_> = self.names.iter().map(|name| String::from_utf8_lossy(name)).collect();
        names.join(", ")
    }

    fn checked(self) -> Result<Box<Asked>, Error> {
        let (name, keys) = (self.name(), self.keys());
        let is_too_long =
            |duration: Option<Duration>| duration.is_some_and(|duration| duration > LONGEST);
        let confirm = self.confirm || self.owner.is_some();
        let owner = self.owner.unwrap_or_else(|| Uuid::new_v4().to_string());
        let mut ttl = self.ttl;
        if let Renew::For(longest) = self.renew {
            ttl = ttl.min(longest);
        }
        let longest = match self.renew {
            Renew::Always => None,
            Renew::Never => Some(ttl),
            Renew::For(longest) => Some(longest),
        };
        let wrong = if self.wrong.is_some() {
            self.wrong
        } else if ttl < LEAST_TTL {
            Some(("ttl", "it must be at least 3 ms"))
        } else if is_too_long(Some(ttl)) {
            Some(("ttl", "it must be at most a hundred years"))
        } else if is_too_long(self.ephemeral) {
            Some(("ephemeral", "it must be at most a hundred years"))
        } else if owner.is_empty() || owner.len() > LONGEST_OWNER {
            Some(("owner", "it must be 1 to 255 bytes long"))
        } else if self.names.iter().any(Vec::is_empty) && self.core.home.settings.prefix.is_empty()
        {
            Some(("name", "it must not be empty"))
        } else if longest.is_some_and(|longest| self.hold_at_least > Some(longest)) {
            Some((
                "hold_at_least",
                "it must be no more than the lease lasts, which is not renewed for so long",
            ))
        } else if self.ephemeral.is_some() && self.hold_at_least.is_some() {
            Some(("ephemeral", "it ends with the connection, and cannot be held for a least time"))
        } else {
            None
        };
        if let Some((setting, reason)) = wrong {
            return Err(Error::setting(setting, reason));
        }
        Ok(Box::new(Asked {
            name: name.into(),
            claim: Arc::new(Claim {
                keys,
                owner: owner.into(),
                share: self.share,
                grace: self.ephemeral,
            }),
            wanted: Wanted { ttl, wait: self.wait, confirm },
            terms: Terms { renew: self.renew, hold_at_least: self.hold_at_least },
            copies: Some(self.copies).filter(Copies::are_wanted),
            correlation: self.correlation,
        }))
    }
}

/// Does the work, and drops its future if the guard loses the lock.
async fn until_lost<T>(guard: &Guard, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Error> {
    let (mut work, mut lost) = (pin!(work(guard)), pin!(guard.lost()));
    let came = poll_fn(|context| match lost.as_mut().poll(context) {
        Poll::Ready(loss) => Poll::Ready(Err(loss)),
        // After a suspend, the clock shows the end of the lease before any timer does.
        Poll::Pending => match guard.loss() {
            Some(loss) => Poll::Ready(Err(loss)),
            None => work.as_mut().poll(context).map(Ok),
        },
    });
    came.await.map_err(|loss| Error::Lost { lock: guard.name().into_owned(), loss })
}

impl IntoFuture for Request {
    type Output = Result<Guard, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let (core, asked) = (Arc::clone(&self.core), self.checked());
        Box::pin(async move {
            let (begun, asked) = (Instant::now(), asked?);
            let lock = Arc::clone(&asked.name);
            match core.acquire(asked).await? {
                Some(lease) => Ok(Guard::new(&core, lease)),
                None => Err(Error::Busy { lock: lock.to_string(), waited: begun.elapsed() }),
            }
        })
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Request");
        debug
            .field("lock", &self.name())
            .field("ttl", &self.ttl)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}
