//! A lock that is held, as long as the guard lives.

use crate::clock::Moment;
use crate::keeper;
use crate::lease::{Counted, Effect, Lease, ONLY, checked};
use crate::orders::{Ordered, Orders, Reply};
use crate::same_owner::Slot;
use crate::settings::Renew;
use crate::share::Share;
use crate::wire::{Answer, Replicas, Wire};
use crate::{Error, Extended, Loss, Released};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// One grant, and how many guards share it.
pub(crate) struct Hold {
    pub(crate) lease: Arc<Lease>,
    pub(crate) orders: Orders,
    pub(crate) wire: Arc<Wire>,
    pub(crate) slot: Option<Arc<Slot>>,
    pub(crate) share: Share,
    /// How long a release is waited for.
    pub(crate) within: Duration,
    pub(crate) guards: AtomicUsize,
}

impl Hold {
    /// Another guard, if there is one still.
    pub(crate) fn another(self: Arc<Self>) -> Option<Guard> {
        let more = |guards: usize| guards.checked_add(1).filter(|_| guards > 0);
        if self.lease.ended().is_some() {
            return None;
        }
        self.guards.fetch_update(SeqCst, SeqCst, more).ok()?;
        Some(Guard { hold: self, left: false })
    }

    /// One guard fewer; the last one releases. Whether this one does.
    fn leave(&self, reply: Option<Reply>) -> Result<Ordered, Error> {
        if self.guards.fetch_sub(1, SeqCst) > 1 {
            return Ok(Ordered::Nothing);
        }
        self.orders.leave(&self.lease, self.slot.clone(), reply)
    }
}

/// A lock that is held.
///
/// Dropped, it is released in the background; [`release`](Guard::release) also says whether that was in time.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct Guard {
    pub(crate) hold: Arc<Hold>,
    /// It has been counted out already.
    pub(crate) left: bool,
}

impl Guard {
    /// The name, without the prefix.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// # let guard = locks.lock("printer").await?;
    /// assert_eq!(guard.name(), "printer");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.hold.lease.name
    }

    /// The number of the grant: larger than that of any earlier grant of this lock. Send it along with every write.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// # let guard = locks.lock("printer").await?;
    /// let write = format!("UPDATE page SET body = $1 WHERE fence <= {}", guard.fence());
    /// # assert!(!write.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.hold.lease.fence
    }

    /// The [fence](Guard::fence) for stores and drivers that have no unsigned numbers, such as
    /// those of Postgres: it is always positive, and below 2^53.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// # let guard = locks.lock("printer").await?;
    /// let parameter: i64 = guard.fence_i64(); // a `bigint`
    /// assert!(parameter > 0);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fence_i64(&self) -> i64 {
        self.fence().cast_signed()
    }

    /// As whom it is held.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// # let guard = locks.lock("printer").await?;
    /// println!("held as {}", guard.owner());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.hold.lease.owner
    }

    /// How long the lock can be counted on from now: what is left of the lease by the monotonic clock, less what clocks
    /// may differ by. Zero once it is lost.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// # let guard = locks.lock("printer").await?;
    /// if guard.valid_for() > Duration::from_secs(2) {
    ///     // There is time for a step that takes a second.
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.hold.lease.valid_for(Moment::now())
    }

    /// Whether it was lost, and why.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// # let guard = locks.lock("printer").await?;
    /// if let Some(loss) = guard.loss() {
    ///     eprintln!("stopping: {loss:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        let lease = &self.hold.lease;
        let is_over = || lease.valid_for(Moment::now()).is_zero().then_some(Loss::Expired);
        lease.ended().or_else(is_over)
    }

    /// Ends when the lock is lost, or can no longer be shown to be held.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks, Options, Released};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let guard = locks.lock("printer").fixed_ttl(Duration::from_millis(50)).await?;
    /// tokio::select! {
    ///     () = std::future::pending() => {} // the work
    ///     loss = guard.lost() => println!("stopped: {loss:?}"),
    /// }
    /// assert_eq!(guard.valid_for(), Duration::ZERO);
    /// # locks.settle().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lost(&self) -> Loss {
        self.hold.lease.lost().await
    }

    /// The same for whoever has no guard at hand; it also fires when the last guard is gone.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// # let guard = locks.lock("printer").await?;
    /// let stop = guard.cancellation();
    /// let work = tokio::spawn(async move {
    ///     stop.cancelled().await; // between two steps: stop.is_cancelled()
    /// });
    /// drop(guard);
    /// # let _ = work.await;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.hold.lease.watch_here();
        self.hold.lease.over.child_token()
    }

    /// Has the lease end a `ttl` from now, also if that is sooner. Later renewals ask for this `ttl` too.
    ///
    /// After a shorter extension that the server did not answer, this one may count for less: the
    /// shorter one may still arrive within a minute. [`valid_for`](Guard::valid_for) knows.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Extended, Locks};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// # let guard = locks.lock("printer").await?;
    /// let outcome = guard.extend(Duration::from_secs(60)).await?;
    /// assert_eq!(outcome, Extended::Extended);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When the server refuses, or does not answer while the lease lasts. The lock may be held or lost then:
    /// [`valid_for`](Guard::valid_for) is right in any case.
    pub async fn extend(&self, ttl: Duration) -> Result<Extended, Error> {
        let ttl = checked(ttl)?;
        match self.extend_heard(ttl, None, None).await? {
            Some(_) => {
                self.hold.lease.renew_with(ttl);
                Ok(Extended::Extended)
            }
            None => Ok(Extended::Lost),
        }
    }

    /// None if it is lost.
    pub(crate) async fn extend_heard(
        &self,
        ttl: Duration,
        replicas: Option<Replicas>,
        until: Option<Instant>,
    ) -> Result<Option<Answer>, Error> {
        let mut heard = self.extend_once(ttl, replicas, until).await?;
        if let Some((_, Counted::Less)) = heard {
            let limit = self.hold.wire.limits(ttl, None).each;
            self.hold.lease.joined(ttl, Renew::Off, Moment::now());
            self.hold.lease.until_shorter_are_heard(ttl, limit).await;
            heard = self.extend_once(ttl, replicas, until).await.unwrap_or(heard);
        }
        Ok(heard.map(|(answer, _)| answer))
    }

    async fn extend_once(
        &self,
        ttl: Duration,
        replicas: Option<Replicas>,
        until: Option<Instant>,
    ) -> Result<Option<(Answer, Counted)>, Error> {
        let Hold { lease, wire, orders, .. } = &*self.hold;
        if self.loss().is_some() {
            return Ok(None);
        }
        let Some(asking) = lease.about_to_extend([ONLY], ttl, Moment::now()) else {
            return Ok(None);
        };
        if asking.effect == Effect::Shortened {
            orders.look_again(lease.id);
        }
        keeper::extend(wire, asking, replicas, until).await
    }

    /// Leaves the lock held until its lease ends, and renews it no more. Returns how long it can be
    /// counted on from now.
    ///
    /// That is up to a ttl, and two thirds of it at least if it was renewed. Nobody else has the
    /// lock meanwhile, not even when this program has ended. Where other guards of the same owner
    /// share the lock, they go on holding it, and the last one does not release it either.
    ///
    /// The lock still belongs to its owner. If the caller [chose](crate::Options::owner) that
    /// owner, a request of the same owner that comes when no guard is left joins the lock, and its
    /// release ends it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// // At most one mail of this kind in ten minutes, from whichever host.
    /// let warning = locks.lock("mail:disk-full").fixed_ttl(Duration::from_secs(600));
    /// if let Some(guard) = warning.try_now().await? {
    ///     // Send the mail.
    ///     guard.keep();
    /// }
    /// assert!(locks.try_lock("mail:disk-full").await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn keep(mut self) -> Duration {
        let valid_for = self.hold.lease.keep(Moment::now());
        self.left = true;
        // Without a keeper nobody renews it either.
        let _ = self.hold.leave(None);
        valid_for
    }

    /// Gives the lock back. It is released even if this future is dropped.
    ///
    /// It is waited for as long as [`Settings::within`](crate::Settings::within) says, and goes on in
    /// the background after that.
    ///
    /// Awaited outside of any runtime, it starts a thread, which releases the lock if no runtime
    /// that uses the client is driven.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// # let guard = locks.lock("printer").await?;
    /// if !guard.release().await?.in_time() {
    ///     eprintln!("the work took longer than its lease");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When no server answers in time, or it refuses: the lease ends by itself then. [`Error::Closed`] when
    /// [`Locks::close`](crate::Locks::close) has released it.
    pub async fn release(mut self) -> Result<Released, Error> {
        let (reply, outcome) = oneshot::channel();
        self.left = true;
        if self.hold.leave(Some(reply))? == Ordered::Nothing {
            return Ok(Released::StillHeld);
        }
        let within = self.hold.within;
        let outcome = async move {
            match timeout(within, outcome).await {
                Ok(outcome) => outcome.map_err(|_| Error::Closed)?,
                Err(_) => Err(Error::unanswered_release()),
            }
        };
        if Handle::try_current().is_ok() {
            return outcome.await;
        }
        self.hold.orders.driven(outcome).await?
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.left {
            // Without a keeper the lease ends by itself.
            let _ = self.hold.leave(None);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Guard");
        debug.field("name", &self.name()).field("fence", &self.fence());
        debug.field("owner", &self.owner()).field("valid_for", &self.valid_for()).finish()
    }
}
