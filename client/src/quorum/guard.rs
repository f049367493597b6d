//! A lock that is held on most servers.

use super::kept::Kept;
use super::servers::{Ask, Servers, Subject};
use crate::clock::Moment;
use crate::lease::{Lease, checked, released_in_time};
use crate::{Error, Extended, Loss, Released, story};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// A lock that is held on most servers of a [`Quorum`](crate::Quorum).
///
/// Dropped, it is released everywhere in the background.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct QuorumGuard {
    pub(super) held: Arc<Held>,
    left: bool,
}

pub(super) struct Held {
    pub(super) servers: Arc<Servers>,
    subject: Arc<Subject>,
    pub(super) lease: Arc<Lease>,
    /// Its end may be another one now.
    pub(super) changed: Notify,
}

impl QuorumGuard {
    /// Renews it from now on.
    pub(super) fn new(servers: Arc<Servers>, subject: Arc<Subject>, lease: Lease) -> Self {
        let lease = Arc::new(lease);
        let held = Arc::new(Held { servers, subject, lease, changed: Notify::new() });
        // Before the task begins: it may do so after the client has been closed.
        let inside = held.servers.gate.enter();
        tokio::spawn(Kept::new(Arc::clone(&held), inside).run_until_closed());
        Self { held, left: false }
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
        let _look_again = LookAgain(&self.held);
        let outcome = self.held.extend(ttl).await;
        if matches!(outcome, Ok(Extended::Extended)) {
            self.held.lease.renew_with(ttl);
        }
        outcome
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
    pub fn keep(mut self) -> Duration {
        self.left = true;
        self.valid_for()
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
    pub async fn release(mut self) -> Result<Released, Error> {
        let Held { servers, subject, lease, .. } = &*self.held;
        if lease.ended() == Some(Loss::Closed) {
            return Err(Error::Closed);
        }
        let valid_until = lease.valid_until();
        let was_valid = self.loss().is_none();
        let leaving = self.held.leaving();
        lease.end(Loss::Released);
        let everybody = servers.everybody();
        let agrees = |number: Option<u64>| number == Some(1);
        let answers = servers.ask(&everybody, subject, leaving, agrees).await;
        // Whoever has not been heard of by now is looked after by the task that asked.
        self.left = true;
        let (mut in_time, mut gone) = (0_usize, 0_usize);
        for (server, answer) in &answers {
            match answer {
                Ok(answer) if released_in_time(*answer, valid_until) => {
                    in_time = in_time.saturating_add(1);
                }
                Ok(_) => gone = gone.saturating_add(1),
                Err(_) => self.held.leave(*server, leaving),
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
        let Held { lease, .. } = &*self.held;
        lease.end(Loss::Released);
        if !self.left && lease.ended() != Some(Loss::Closed) {
            self.held.leave_everywhere();
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

struct LookAgain<'a>(&'a Held);

impl Drop for LookAgain<'_> {
    fn drop(&mut self) {
        self.0.changed.notify_one();
    }
}

impl Held {
    fn loss(&self) -> Option<Loss> {
        let is_over = || self.lease.valid_for(Moment::now()).is_zero().then_some(Loss::Expired);
        self.lease.ended().or_else(is_over)
    }

    pub(super) fn lose(&self, loss: Loss) {
        if self.lease.end(loss) {
            story::lost(&self.lease, loss);
        }
    }

    /// What servers are asked when it is held no more.
    fn leaving(&self) -> Ask {
        let (fence, now) = (self.lease.fence, Moment::now());
        match self.lease.hold_for(now) {
            Some(left) => Ask::HoldOn { fence, until: now.later(left) },
            None => Ask::Release,
        }
    }

    /// Has this one asked in the background.
    fn leave(&self, server: usize, leaving: Ask) {
        match leaving {
            Ask::HoldOn { fence, until } => {
                self.servers.hold_on(server, &self.subject, fence, until);
            }
            _ => self.servers.abandon(server, &self.subject),
        }
    }

    pub(super) fn leave_everywhere(&self) {
        let leaving = self.leaving();
        self.servers.everybody().into_iter().for_each(|server| self.leave(server, leaving));
    }

    pub(super) async fn extend(&self, ttl: Duration) -> Result<Extended, Error> {
        let Self { servers, subject, lease, .. } = self;
        let _extending = lease.alone(lease.valid_until().as_instant()).await?;
        if self.loss().is_some() {
            return Ok(Extended::Lost);
        }
        let asked = Moment::now();
        let (everybody, fence) = (servers.everybody(), lease.fence);
        let mut asking = lease.about_to_extend(everybody.iter().copied(), ttl, asked);
        let agrees = |number: Option<u64>| number == Some(1);
        let answers = servers.ask(&everybody, subject, Ask::Extend { fence, ttl }, agrees).await;
        let mut agreed = Vec::new();
        for (server, answer) in &answers {
            let Ok(answer) = answer else { continue };
            if !answer.repeated {
                asking.answered(*server);
            }
            if agrees(answer.number) {
                agreed.push(*server);
            }
        }
        let said = answers.iter().filter(|(_, answer)| answer.is_ok()).count();
        let refused = said.saturating_sub(agreed.len());
        let now = Moment::now();
        if agreed.len() >= servers.majority() {
            if lease.extended_by(&agreed, servers.majority(), asked, ttl, now) {
                story::extended(lease, now);
                return Ok(Extended::Extended);
            }
            self.lose(Loss::Expired);
            return Ok(Extended::Lost);
        }
        if servers.all.len().saturating_sub(refused) < servers.majority() {
            self.lose(Loss::Taken);
            return Ok(Extended::Lost);
        }
        servers.too_few(&answers)?;
        let reason = "too few servers answered to tell".to_owned();
        Err(Error::Unreachable { reason })
    }
}
