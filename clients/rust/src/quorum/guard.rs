//! A lock that is held on most servers.

use super::held::{Held, Holding};
use super::kept::Kept;
use super::servers::{Ask, Servers, Subject};
use crate::clock::Moment;
use crate::lease::{Counted, Lease, checked, released_in_time};
use crate::settings::Renew;
use crate::{Error, Extended, Loss, Released, story};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A lock that is held on most servers of a [`Quorum`](crate::Quorum).
///
/// Dropped, it is released everywhere in the background.
///
/// It has no `run_command`, as [`Guard`](crate::Guard) has: one server cannot tell who holds the lock on most of them. Send the
/// [fence](QuorumGuard::fence) along with every write, to a store that compares it.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct QuorumGuard {
    held: Arc<Held>,
}

impl QuorumGuard {
    /// Renews it from now on.
    pub(super) fn new(servers: Arc<Servers>, subject: Arc<Subject>, lease: Lease) -> Self {
        let held = Arc::new(Held { servers, subject, lease: Arc::new(lease) });
        match held.servers.holdings.begin(&held) {
            Holding::Open => drop(tokio::spawn(Kept::new(Arc::clone(&held)).run())),
            Holding::Closed => held.close(),
        }
        Self { held }
    }

    /// The name, without the prefix.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Quorum};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let servers = [Example::start(), Example::start(), Example::start()];
    /// # let urls = servers.iter().map(Example::url);
    /// # let quorum = Quorum::connect(urls).await?;
    /// # let guard = quorum.lock("printer").await?;
    /// assert_eq!(guard.name(), "printer");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.held.lease.name
    }

    /// The number of the grant: larger than that of any earlier grant of this lock. Most servers show it. Send it along
    /// with every write.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Quorum};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let servers = [Example::start(), Example::start(), Example::start()];
    /// # let urls = servers.iter().map(Example::url);
    /// # let quorum = Quorum::connect(urls).await?;
    /// # let guard = quorum.lock("printer").await?;
    /// let write = format!("UPDATE page SET body = $1 WHERE fence <= {}", guard.fence());
    /// # assert!(!write.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.held.lease.fence
    }

    /// The [fence](QuorumGuard::fence) for stores and drivers that have no unsigned numbers, such
    /// as those of Postgres: it is always positive, and below 2^53.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Quorum};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let servers = [Example::start(), Example::start(), Example::start()];
    /// # let urls = servers.iter().map(Example::url);
    /// # let quorum = Quorum::connect(urls).await?;
    /// # let guard = quorum.lock("printer").await?;
    /// let parameter: i64 = guard.fence_i64(); // a `bigint`
    /// assert!(parameter > 0);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fence_i64(&self) -> i64 {
        self.fence().cast_signed()
    }

    /// As whom it is held, on all servers alike.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Quorum};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let servers = [Example::start(), Example::start(), Example::start()];
    /// # let urls = servers.iter().map(Example::url);
    /// # let quorum = Quorum::connect(urls).await?;
    /// # let guard = quorum.lock("printer").await?;
    /// println!("held as {}", guard.owner());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.held.lease.owner
    }

    /// How long the lock can be counted on from now: what is left of the ttl since before the first server was asked,
    /// by the monotonic clock, less what clocks may differ by. Zero once it is lost.
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
    /// # let guard = quorum.lock("printer").await?;
    /// if guard.valid_for() > Duration::from_secs(2) {
    ///     // There is time for a step that takes a second.
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.held.lease.valid_for(Moment::now())
    }

    /// Whether it was lost, and why.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Quorum};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let servers = [Example::start(), Example::start(), Example::start()];
    /// # let urls = servers.iter().map(Example::url);
    /// # let quorum = Quorum::connect(urls).await?;
    /// # let guard = quorum.lock("printer").await?;
    /// if let Some(loss) = guard.loss() {
    ///     eprintln!("stopping: {loss:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.held.loss()
    }

    /// Ends when the lock is lost, or can no longer be shown to be held on most servers.
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
    /// # let guard = quorum.lock("printer").await?;
    /// tokio::select! {
    ///     () = tokio::time::sleep(Duration::from_millis(10)) => {} // the work
    ///     loss = guard.lost() => eprintln!("stopped: {loss:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lost(&self) -> Loss {
        self.held.lease.lost().await
    }

    /// The same for whoever has no guard at hand; it also fires when the guard is gone.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Quorum};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let servers = [Example::start(), Example::start(), Example::start()];
    /// # let urls = servers.iter().map(Example::url);
    /// # let quorum = Quorum::connect(urls).await?;
    /// # let guard = quorum.lock("printer").await?;
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
        self.held.lease.watch_here();
        self.held.lease.over.child_token()
    }

    /// Has the lease end a `ttl` from now on most servers, also if that is sooner. Later renewals ask for this `ttl`
    /// too.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Extended, Quorum};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let servers = [Example::start(), Example::start(), Example::start()];
    /// # let urls = servers.iter().map(Example::url);
    /// # let quorum = Quorum::connect(urls).await?;
    /// # let guard = quorum.lock("printer").await?;
    /// let outcome = guard.extend(Duration::from_secs(60)).await?;
    /// assert_eq!(outcome, Extended::Extended);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When too few servers answer to tell. [`valid_for`](QuorumGuard::valid_for) is right in any case.
    pub async fn extend(&self, ttl: Duration) -> Result<Extended, Error> {
        let ttl = checked(ttl)?;
        let mut counted = self.held.extend(ttl).await?;
        if counted == Counted::Less {
            let Held { servers, lease, .. } = &*self.held;
            lease.joined(ttl, Renew::Off, Moment::now());
            lease.until_shorter_are_heard(ttl, servers.limit(ttl)).await;
            counted = self.held.extend(ttl).await.unwrap_or(counted);
        }
        Ok(match counted {
            Counted::Over => Extended::Lost,
            Counted::Fully | Counted::Less => {
                self.held.lease.renew_with(ttl);
                Extended::Extended
            }
        })
    }

    /// Leaves the lock held on the servers until its leases end there, and renews it no more.
    /// Returns how long it can be counted on from now.
    ///
    /// That is up to a ttl, and two thirds of it at least if it was renewed. Nobody else has the
    /// lock meanwhile, not even when this program has ended.
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
    /// // At most one mail of this kind in ten minutes, from whichever host.
    /// let warning = quorum.lock("mail:disk-full").fixed_ttl(Duration::from_secs(600));
    /// if let Some(guard) = warning.try_now().await? {
    ///     // Send the mail.
    ///     guard.keep();
    /// }
    /// assert!(quorum.try_lock("mail:disk-full").await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn keep(self) -> Duration {
        let Some(mut giving_back) = self.held.give_back() else { return Duration::ZERO };
        let valid_for = self.valid_for();
        self.held.lease.end(Loss::Released);
        giving_back.done();
        valid_for
    }

    /// Gives the lock back on every server. On those that do not answer that goes on in the background.
    ///
    /// It was [`Late`](Released::Late) if most servers had it no more.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Quorum};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let servers = [Example::start(), Example::start(), Example::start()];
    /// # let urls = servers.iter().map(Example::url);
    /// # let quorum = Quorum::connect(urls).await?;
    /// # let guard = quorum.lock("printer").await?;
    /// if !guard.release().await?.in_time() {
    ///     eprintln!("the work took longer than its lease");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When no server answers, or they refuse. The leases end by themselves then.
    pub async fn release(self) -> Result<Released, Error> {
        let Held { servers, subject, lease, .. } = &*self.held;
        let Some(mut giving_back) = self.held.give_back() else { return Err(Error::Closed) };
        let valid_until = lease.valid_until();
        let was_valid = self.loss().is_none();
        let leaving = self.held.leaving();
        lease.end(Loss::Released);
        let everybody = servers.everybody();
        let agrees = |number: Option<u64>| number == Some(1);
        let answers = servers.ask(&everybody, subject, leaving, agrees).await;
        // Whoever has not been heard of by now is looked after by the task that asked.
        giving_back.done();
        let (mut in_time, mut gone) = (0_usize, 0_usize);
        for (server, answer) in &answers {
            match answer {
                Ok(answer) if released_in_time(*answer, valid_until) => {
                    in_time = in_time.saturating_add(1);
                }
                Ok(_) => gone = gone.saturating_add(1),
                Err(_) => servers.leave(*server, subject, leaving),
            }
        }
        if gone.saturating_add(in_time) == 0 {
            servers.too_few(&answers)?;
        }
        let may_hold = servers.all.len().saturating_sub(gone) >= servers.majority();
        let held = in_time >= servers.majority() || (may_hold && was_valid && in_time > 0);
        let outcome = match leaving {
            _ if !held => Released::Late,
            Ask::HoldOn { .. } => Released::Later,
            _ => Released::Released,
        };
        story::released(lease, outcome);
        Ok(outcome)
    }
}

impl Drop for QuorumGuard {
    fn drop(&mut self) {
        if let Some(_giving_back) = self.held.give_back() {
            self.held.lease.end(Loss::Released);
        }
    }
}

impl fmt::Debug for QuorumGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("QuorumGuard");
        debug.field("name", &self.name()).field("fence", &self.fence());
        debug.field("owner", &self.owner()).field("valid_for", &self.valid_for()).finish()
    }
}
