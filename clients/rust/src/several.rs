//! Several locks at once, all or none.

use crate::clock::Moment;
use crate::request::Wanted;
use crate::settings::Renew;
use crate::share::Share;
use crate::together::Together;
use crate::validity::later;
use crate::{Error, Extended, Guard, Locks, Loss, Options, Released, story};
use futures_util::future::{join_all, select_all};
use std::future::IntoFuture;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tracing::Instrument;

impl Locks {
    /// Waits for all these locks, when it is awaited: one guard has them all, or nobody has any.
    ///
    /// A name that is given twice counts once.
    ///
    /// A server with the module is asked for all of them by one request, for 128 locks at the most. They have one fence
    /// then, and whoever waits holds none of them meanwhile: it has a place in the queue of each, and is granted all
    /// when it is the first in all. In a cluster that takes names in one slot, by a hash tag, as in `{account}:7` and
    /// `{account}:9`.
    ///
    /// Otherwise, and with a chosen [owner](Options::owner) or [replicas](Options::replicas), they are taken one after
    /// another in the order of their names, whatever the order in which they are given, so that two who want the same
    /// ones never wait for each other in a circle. Those that have been granted are held while the others are waited
    /// for.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let accounts = locks.lock_all(["account:9", "account:7"]).wait(Duration::from_secs(10)).await?;
    /// for name in accounts.names() {
    ///     println!("{name} with fence {:?}", accounts.fence(name));
    /// }
    /// assert!(locks.try_lock("account:7").await?.is_none());
    /// assert!(accounts.release().await?.in_time());
    /// # locks.settle().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock_all<N: Into<String>>(&self, names: impl IntoIterator<Item = N>) -> AllRequest {
        let mut names: Vec<String> = names.into_iter().map(Into::into).collect();
        names.sort();
        names.dedup();
        AllRequest { locks: self.clone(), names, options: Options::new() }
    }
}

/// Several locks that are about to be asked for: [`Locks::lock_all`].
///
/// Awaited, it waits for all of them; dropped while it waits, it gives back those that it has.
#[derive(Clone, Debug)]
#[must_use = "nothing is asked before it is awaited"]
pub struct AllRequest {
    locks: Locks,
    /// In order, each once.
    names: Vec<String>,
    options: Options,
}

/// Several locks that are held.
///
/// Dropped, all are released in the background.
#[derive(Debug)]
#[must_use = "the locks are released as soon as the guard is dropped"]
pub struct AllGuard {
    /// In the order of their names; at least one.
    pub(crate) guards: Vec<Guard>,
}

/// What came of one try to have them all.
enum Taken {
    All(Vec<Guard>),
    Busy,
    /// One that had been granted was lost while others were waited for.
    Lost {
        name: String,
    },
}

impl AllRequest {
    /// All options at once. They are the same for each lock, but that patience is for all together.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks, Options};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let options = Options::new().correlation("transfer 17");
    /// let guard = locks.lock_all(["account:7", "account:9"]).options(options).await?;
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// [`Options::ttl`]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options = self.options.ttl(ttl);
        self
    }

    /// [`Options::fixed_ttl`]: all leases begin when the last lock was granted.
    pub fn fixed_ttl(mut self, ttl: Duration) -> Self {
        self.options = self.options.fixed_ttl(ttl);
        self
    }

    /// [`Options::wait`], for all together.
    pub fn wait(mut self, patience: Duration) -> Self {
        self.options = self.options.wait(patience);
        self
    }

    /// Takes all of them if all are free, and does not wait: none if somebody else has one.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let guard = locks.lock_all(["account:7", "account:9"]).try_now().await?;
    /// assert!(guard.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When no server answers, or it refuses.
    pub async fn try_now(self) -> Result<Option<AllGuard>, Error> {
        self.wait(Duration::ZERO).acquire().await
    }

    async fn acquire(&self) -> Result<Option<AllGuard>, Error> {
        if self.names.is_empty() {
            return Err(Error::setting("names", "there must be at least one"));
        }
        let wanted = self.options.clone().over(Share::Exclusive, self.locks.settings())?;
        let begun = Instant::now();
        let until = wanted.wait.map(|patience| later(begun, patience));
        match self.take_together(&wanted, until, begun).await? {
            Together::All(guards) => return Ok(Some(AllGuard { guards })),
            Together::Busy => return Ok(None),
            Together::NotSo => {}
        }
        loop {
            match self.take_in_order(wanted.ttl, wanted.renew, until).await? {
                Taken::All(guards) => return Ok(Some(AllGuard { guards })),
                Taken::Busy => return Ok(None),
                Taken::Lost { name } if until.is_some_and(|until| Instant::now() >= until) => {
                    return Err(Error::TooLate { name });
                }
                Taken::Lost { .. } => {}
            }
        }
    }

    async fn take_together(
        &self,
        wanted: &Wanted,
        until: Option<Instant>,
        begun: Instant,
    ) -> Result<Together, Error> {
        let (locks, names) = (&self.locks, self.names.join(" "));
        let told = async {
            let asked = locks.inner().acquire_together(&self.names, wanted, until);
            let came = locks.gate().pass(asked).await;
            // Those that were granted have been told of, each by itself.
            let refused = match &came {
                Ok(Together::Busy) => Ok(None::<()>),
                Err(error) => Err(error.clone()),
                Ok(_) => return came,
            };
            story::not_acquired(&names, None, wanted, begun, &refused);
            came
        };
        told.instrument(story::span(&names, &wanted.correlation)).await
    }

    /// One request for each.
    async fn take_in_order(
        &self,
        ttl: Duration,
        renew: Renew,
        until: Option<Instant>,
    ) -> Result<Taken, Error> {
        // Whichever way this ends early, those that it has are released as it is left.
        let mut guards = Vec::with_capacity(self.names.len());
        for name in &self.names {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let options = self.options.clone();
            let options = left.map_or(options.clone(), |left| options.wait(left));
            match self.locks.acquire(name, Share::Exclusive, options).await? {
                Some(guard) => guards.push(guard),
                None => return Ok(Taken::Busy),
            }
        }
        if renew == Renew::Off {
            let old = guards.iter().filter(|guard| is_old(guard, ttl));
            for extended in join_all(old.map(|guard| guard.extend(ttl))).await {
                // What is lost is seen below.
                let _ = extended?;
            }
        }
        let lost = guards.iter().find(|guard| guard.loss().is_some());
        Ok(match lost.map(|guard| guard.name().to_owned()) {
            Some(name) => Taken::Lost { name },
            None => Taken::All(guards),
        })
    }
}

/// Whether a part of the lease has passed that is worth a request.
fn is_old(guard: &Guard, ttl: Duration) -> bool {
    let passed = ttl.saturating_sub(guard.hold.lease.left(Moment::now()));
    passed > ttl.checked_div(20).unwrap_or_default()
}

impl IntoFuture for AllRequest {
    type Output = Result<AllGuard, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let asked = Instant::now();
            let guard = self.acquire().await?;
            let busy = || Error::Busy { name: self.names.join(" "), waited: asked.elapsed() };
            guard.ok_or_else(busy)
        })
    }
}

impl AllGuard {
    /// The names in their order, without the prefix.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// # let guard = locks.lock_all(["account:7", "account:9"]).await?;
    /// assert_eq!(guard.names().collect::<Vec<_>>(), ["account:7", "account:9"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.guards.iter().map(Guard::name)
    }

    /// The fence of the grant of this lock: none if it is not one of these. Send it along with
    /// every write to what this lock protects.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// # let guard = locks.lock_all(["account:7", "account:9"]).await?;
    /// assert!(guard.fence("account:7").is_some());
    /// assert!(guard.fence("printer").is_none());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fence(&self, name: &str) -> Option<u64> {
        self.guards.iter().find(|guard| guard.name() == name).map(Guard::fence)
    }

    /// As whom this lock is held: none if it is not one of these. Asked for by one request, all have the same owner.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// # let guard = locks.lock_all(["account:7", "account:9"]).await?;
    /// assert!(guard.owner("account:7").is_some());
    /// assert!(guard.owner("printer").is_none());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn owner(&self, name: &str) -> Option<&str> {
        self.guards.iter().find(|guard| guard.name() == name).map(Guard::owner)
    }

    /// How long all of them can be counted on from now. Zero once one is lost.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// # let guard = locks.lock_all(["account:7", "account:9"]).await?;
    /// assert!(guard.valid_for() > Duration::ZERO);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.guards.iter().map(Guard::valid_for).min().unwrap_or_default()
    }

    /// Whether one of them was lost, and why.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// # let guard = locks.lock_all(["account:7", "account:9"]).await?;
    /// if let Some(loss) = guard.loss() {
    ///     eprintln!("stopping: {loss:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.guards.iter().find_map(Guard::loss)
    }

    /// Ends when one of them is lost, or can no longer be shown to be held.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// # let guard = locks.lock_all(["account:7", "account:9"]).await?;
    /// tokio::select! {
    ///     () = tokio::time::sleep(Duration::from_millis(10)) => {} // the work
    ///     loss = guard.lost() => eprintln!("stopped: {loss:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lost(&self) -> Loss {
        let lost = self.guards.iter().map(|guard| Box::pin(guard.lost()));
        select_all(lost).await.0
    }

    /// Has all leases end a `ttl` from now, also if that is sooner: [`Guard::extend`].
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Extended, Locks};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// # let guard = locks.lock_all(["account:7", "account:9"]).await?;
    /// let outcome = guard.extend(Duration::from_secs(60)).await?;
    /// assert_eq!(outcome, Extended::Extended);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When the server refuses or does not answer for one of them. The others may have been
    /// extended.
    pub async fn extend(&self, ttl: Duration) -> Result<Extended, Error> {
        let mut outcome = Extended::Extended;
        for extended in join_all(self.guards.iter().map(|guard| guard.extend(ttl))).await {
            if extended? == Extended::Lost {
                outcome = Extended::Lost;
            }
        }
        Ok(outcome)
    }

    /// Leaves all of them held until their leases end: [`Guard::keep`]. Returns how long all can be
    /// counted on.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// # let guard = locks.lock_all(["account:7", "account:9"]).await?;
    /// println!("held for another {:?}", guard.keep());
    /// # Ok(())
    /// # }
    /// ```
    pub fn keep(self) -> Duration {
        self.guards.into_iter().map(Guard::keep).min().unwrap_or_default()
    }

    /// Gives all of them back. The outcome is [`Late`](Released::Late) if one of them was lost
    /// before.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// # let guard = locks.lock_all(["account:7", "account:9"]).await?;
    /// assert!(guard.release().await?.in_time());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When no server answers for one of them, or it refuses. The others are released all the same.
    pub async fn release(self) -> Result<Released, Error> {
        let outcomes = join_all(self.guards.into_iter().map(Guard::release)).await;
        let outcomes = outcomes.into_iter().collect::<Result<Vec<_>, _>>()?;
        let of_all = [Released::Late, Released::StillHeld, Released::Later];
        let found = of_all.into_iter().find(|outcome| outcomes.contains(outcome));
        Ok(found.unwrap_or(Released::Released))
    }
}
