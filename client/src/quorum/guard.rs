//! A lock that is held on most servers, and the task that renews it.

use super::servers::{Ask, Servers, Subject};
use crate::clock::{Moment, sleep_until};
use crate::gate::Inside;
use crate::lease::{Lease, Next, checked, released_in_time};
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
    servers: Arc<Servers>,
    subject: Arc<Subject>,
    lease: Arc<Lease>,
    /// Its end may be another one now.
    changed: Notify,
}

impl QuorumGuard {
    /// Renews it from now on.
    pub(super) fn keep(servers: Arc<Servers>, subject: Arc<Subject>, lease: Lease) -> Self {
        let lease = Arc::new(lease);
        let held = Arc::new(Held { servers, subject, lease, changed: Notify::new() });
        let kept = Kept(Arc::clone(&held));
        match held.servers.gate.enter() {
            Some(inside) => drop(tokio::spawn(kept.run_until_closed(inside))),
            None => kept.close(),
        }
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
        lease.end(Loss::Released);
        let everybody = servers.everybody();
        let agrees = |number: Option<u64>| number == Some(1);
        let answers = servers.ask(&everybody, subject, Ask::Release, agrees).await;
        // Whoever has not been heard of by now is looked after by the task that asked.
        self.left = true;
        let (mut in_time, mut gone) = (0_usize, 0_usize);
        for (server, answer) in &answers {
            match answer {
                Ok(answer) if released_in_time(*answer, valid_until) => {
                    in_time = in_time.saturating_add(1);
                }
                Ok(_) => gone = gone.saturating_add(1),
                Err(_) => servers.abandon(*server, subject),
            }
        }
        if gone.saturating_add(in_time) == 0 {
            servers.too_few(&answers)?;
        }
        let may_hold = servers.all.len().saturating_sub(gone) >= servers.majority();
        let held = in_time >= servers.majority() || (may_hold && was_valid && in_time > 0);
        let outcome = if held { Released::Released } else { Released::Late };
        story::released(lease, outcome);
        Ok(outcome)
    }
}

impl Drop for QuorumGuard {
    fn drop(&mut self) {
        let Held { lease, .. } = &*self.held;
        lease.end(Loss::Released);
        if !self.left && lease.ended() != Some(Loss::Closed) {
            self.held.servers.abandon_everywhere(&self.held.subject);
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

    fn lose(&self, loss: Loss) {
        if self.lease.end(loss) {
            story::lost(&self.lease, loss);
        }
    }

    async fn extend(&self, ttl: Duration) -> Result<Extended, Error> {
        let Self { servers, subject, lease, .. } = self;
        let _extending = lease.alone(lease.valid_until().as_instant()).await?;
        if self.loss().is_some() {
            return Ok(Extended::Lost);
        }
        let asked = Moment::now();
        lease.about_to_extend(ttl, asked);
        let (everybody, fence) = (servers.everybody(), lease.fence);
        let agrees = |number: Option<u64>| number == Some(1);
        let answers = servers.ask(&everybody, subject, Ask::Extend { fence, ttl }, agrees).await;
        let count = |wanted: bool| {
            let said = answers.iter().filter_map(|(_, answer)| answer.as_ref().ok());
            said.filter(|answer| agrees(answer.number) == wanted).count()
        };
        let now = Moment::now();
        if count(true) >= servers.majority() {
            if lease.extended(asked, ttl, now) {
                story::extended(lease, now);
                return Ok(Extended::Extended);
            }
            self.lose(Loss::Expired);
            return Ok(Extended::Lost);
        }
        if servers.all.len().saturating_sub(count(false)) < servers.majority() {
            self.lose(Loss::Taken);
            return Ok(Extended::Lost);
        }
        servers.too_few(&answers)?;
        let reason = "too few servers answered to tell".to_owned();
        Err(Error::Unreachable { reason })
    }
}

/// The task that renews one lock, and sees it end.
struct Kept(Arc<Held>);

impl Kept {
    async fn run_until_closed(self, inside: Inside) {
        self.0.servers.gate.stay(inside, self.run(), || self.close()).await;
    }

    fn close(&self) {
        let Held { servers, subject, lease, .. } = &*self.0;
        if lease.end(Loss::Closed) {
            servers.abandon_everywhere(subject);
        }
    }

    async fn run(&self) {
        let Held { lease, changed, .. } = &*self.0;
        // After a renewal that failed there may be time for another one.
        let mut not_before = Moment::now();
        loop {
            let next = match lease.next() {
                Next::Renew { at } => at.max(not_before).min(lease.valid_until()),
                Next::End { at } => at,
            };
            tokio::select! {
                () = lease.over.cancelled() => return,
                () = changed.notified() => continue,
                () = sleep_until(next) => {}
            }
            let now = Moment::now();
            if now >= lease.valid_until() {
                return self.0.lose(Loss::Expired);
            }
            if matches!(lease.next(), Next::Renew { at } if at <= now) {
                let renewing = self.0.extend(lease.renewal_ttl(now));
                tokio::select! {
                    () = lease.over.cancelled() => return,
                    () = sleep_until(lease.valid_until()) => {}
                    outcome = renewing => if outcome.is_err() {
                        let rest = lease.valid_for(now).checked_div(3).unwrap_or_default();
                        not_before = Moment::now().later(rest.max(Duration::from_millis(10)));
                    }
                }
            }
        }
    }
}

impl Drop for Kept {
    /// The runtime ends, and nobody renews any more.
    fn drop(&mut self) {
        if self.0.lease.ended().is_none() {
            self.0.lose(Loss::Expired);
        }
    }
}
