//! The guard of a lock.

use crate::asked::{Granted, Terms};
use crate::backoff::RETRY;
use crate::clock::{Moment, within};
use crate::core::{Core, Extension};
use crate::detached::Detached;
use crate::error::{Error, unanswered};
use crate::lease::Lease;
use crate::outcome::{Fence, Loss, Released};
use crate::question::{Claim, EXCLUSIVE, READERS, Share};
use crate::verdict::{Verdict, told, verdict};
use redis::{Arg, Cmd, FromRedisValue, cmd};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// How many times a guarded command follows its lock to another node.
const MOST_MOVES: u32 = 8;

/// A held lock, or several. The client renews the lease until the guard is released, dropped or [detached](Self::detach).
///
/// The client counts a lease from before its request, by a clock that runs during a suspend, and subtracts 1 % and 2 ms for
/// clocks that differ. At that end the guard is lost, whatever the server says later. A guard cannot stop a paused process
/// that then goes on writing: stores need the [`fence`](Self::fence) for that.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct Guard {
    core: Arc<Core>,
    lease: Arc<Lease>,
    is_open: bool,
}

/// What a guard is to a request by the work under it.
pub(crate) enum Serves {
    /// It holds all that the request names, and in a way that includes the request's.
    Fully,
    /// It holds some of it, or in another way: a request would wait for it.
    Partly,
    Nothing,
}

impl Guard {
    pub(crate) fn serves(&self, core: &Arc<Core>, keys: &[Vec<u8>], share: Share) -> Serves {
        let held = keys.iter().filter(|key| self.lease.claim.keys.contains(key)).count();
        let mine = self.lease.share();
        if !Arc::ptr_eq(core, &self.core) || held == 0 || self.loss().is_some() {
            Serves::Nothing
        } else if held == keys.len() && (mine == EXCLUSIVE || mine == share) {
            Serves::Fully
        } else {
            Serves::Partly
        }
    }

    pub(crate) fn new(core: &Arc<Core>, lease: Arc<Lease>) -> Self {
        if let Some(grace) = lease.claim.grace {
            let (weak, bound) = (Arc::downgrade(core), Arc::clone(&lease));
            core.home.spawn(async move {
                while let Some(node) = bound.trail.bond() {
                    let gone = bound.over.run_until_cancelled(node.gone.cancelled());
                    let (Some(()), Some(core)) = (gone.await, weak.upgrade()) else { return };
                    core.bind_again(&bound, grace).await;
                }
            });
        }
        Self { core: Arc::clone(core), lease, is_open: true }
    }

    pub(crate) async fn adopt(core: &Arc<Core>, detached: &Detached) -> Result<Self, Error> {
        core.home.enter()?;
        let settings = &core.home.settings;
        let Detached { keys, owner, fence } = detached.clone();
        let names: Vec<_> = keys.iter().map(|key| String::from_utf8_lossy(key)).collect();
        let name: Arc<str> = names.join(", ").into();
        let claim = Arc::new(Claim { keys, owner: owner.into(), share: EXCLUSIVE, grace: None });
        let (asked, ttl) = (Moment::now(), settings.ttl);
        let granted = Granted { fence: fence.into(), asked, lasts: ttl, is_unclaimed: false };
        let terms = Terms { renew: settings.renew, hold_at_least: None };
        // The lease counts only after the server has extended it.
        let held = (granted, claim, Arc::default());
        let lease = Arc::new(Lease::new(name, held, ttl, terms, String::new()));
        let until = asked.later(settings.retry_for).min(lease.valid_until());
        let _entry = core.home.ledger.begin(&lease.name);
        match core.extend(&lease, ttl, until).await {
            Ok(Extension::Extended) if core.home.closed.is_cancelled() => {
                let _ = core.release(&lease, Loss::Closed).await;
                Err(Error::Closed)
            }
            Ok(Extension::Extended) => Ok(Self::new(core, lease)),
            Ok(Extension::Lost) => {
                Err(Error::Lost { lock: lease.name.to_string(), loss: Loss::Taken })
            }
            Err(error) => {
                core.lose(&lease, Loss::Released);
                Err(error)
            }
        }
    }

    /// The name of the lock; several names are joined by commas.
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.lease.name)
    }

    /// The number of this grant, larger than any earlier one. Pass it to every store that can refuse a smaller number.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.lease.fence()
    }

    /// The owner that holds the lock.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.lease.claim.owner
    }

    /// How long nobody else can get the lock. Zero after a loss.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.lease.valid_for()
    }

    /// Why the guard lost the lock; none while it holds the lock.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.lease.loss()
    }

    /// Waits until the guard has lost the lock.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use std::time::Duration;
    /// # fn main() { example(async |locks| {
    /// let guard = locks.lock("printer").await?;
    /// tokio::select! {
    ///     () = tokio::time::sleep(Duration::from_millis(5)) => println!("printed"),
    ///     loss = guard.lost() => println!("stopped half-way: {loss}"),
    /// }
    /// # Ok(()) }) }
    /// ```
    pub async fn lost(&self) -> Loss {
        self.lease.over.cancelled().await;
        self.lease.loss().unwrap_or(Loss::Expired)
    }

    /// A token that is cancelled when the guard loses the lock, for tasks that may outlive the guard.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.lease.over.child_token()
    }

    /// Extends the lease to `ttl` from now. Later renewals use this ttl too.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the guard has lost the lock. Other errors if no server answers before the end of the lease, or the
    /// server refuses; the lease then stays as it was.
    pub async fn extend(&self, ttl: Duration) -> Result<(), Error> {
        if ttl.is_zero() {
            return Err(Error::setting("ttl", "it must be at least 1 ms"));
        }
        let (core, lease) = (&self.core, &self.lease);
        core.home.enter()?;
        let until = Moment::now().later(core.home.settings.retry_for).min(lease.valid_until());
        match core.extend(lease, ttl, until).await {
            Ok(Extension::Extended) => Ok(()),
            Ok(Extension::Lost) => Err(self.lease.lost_error()),
            Err(error) => {
                if let Error::Refused { .. } = error {
                    lease.refused(ttl);
                }
                if lease.is_held() && lease.is_renewed_now() {
                    // The lease goes on, and may end soon.
                    core.home.spawn(Arc::clone(core).renew(Arc::clone(lease)));
                }
                Err(error)
            }
        }
    }

    /// Extends the lease by `more` beyond its present end.
    ///
    /// # Errors
    ///
    /// Those of [`extend`](Guard::extend).
    pub async fn extend_by(&self, more: Duration) -> Result<(), Error> {
        self.extend(self.lease.valid_for().saturating_add(more)).await
    }

    /// Turns a shared hold into an exclusive one, with a new fence, ahead of all waiters. Returns false, without a change,
    /// if others share the lock. It never waits, because two readers that upgrade would wait for each other.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the guard has lost the lock. Other errors if no server answers, or the server refuses. If the
    /// server did change the hold and its answer was lost, the next renewal reports a loss.
    pub async fn upgrade(&self) -> Result<bool, Error> {
        self.core.home.enter()?;
        self.core.change(&self.lease, EXCLUSIVE).await
    }

    /// Admits any number of readers beside this hold. The fence stays.
    ///
    /// # Errors
    ///
    /// Those of [`upgrade`](Guard::upgrade).
    pub async fn downgrade(&self) -> Result<bool, Error> {
        self.core.home.enter()?;
        self.core.change(&self.lease, READERS).await
    }

    /// Releases the lock. If this future is dropped, the release goes on in the background.
    ///
    /// # Errors
    ///
    /// If no server answers in time, or the server refuses. The lock then stays held until its lease ends.
    pub async fn release(mut self) -> Result<Released, Error> {
        let core = &self.core;
        match self.lease.loss() {
            Some(Loss::Closed) => {
                self.is_open = false;
                return Err(Error::Closed);
            }
            _ => core.home.enter()?,
        }
        let released = core.release(&self.lease, Loss::Released).await;
        self.is_open = false;
        released
    }

    /// Stops the renewal and leaves the lock held until its lease ends. This program or another one can
    /// [adopt](crate::Locks::adopt) the lock by what this returns, to renew and release it. An ephemeral one still ends with
    /// the connection of this program.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::Detached;
    /// # fn main() { example(async |locks| {
    /// let payload = locks.lock("order:7").await?.detach().to_string();
    /// // Another program:
    /// let guard = locks.adopt(&payload.parse::<Detached>()?).await?;
    /// guard.release().await?;
    /// # Ok(()) }) }
    /// ```
    pub fn detach(mut self) -> Detached {
        self.is_open = false;
        let (core, lease) = (&self.core, &self.lease);
        let detached = Detached::of(lease);
        let was_unclaimed = lease.is_unclaimed();
        if lease.end(Loss::Released) && was_unclaimed {
            // Without a claim, the server frees the lock before its ttl ends.
            core.claim_in_background(lease);
        }
        core.forget(lease);
        detached
    }

    /// Runs a command on the server, by `LOCK.GUARD`, only if this guard still holds the lock. It needs the module. The
    /// client does not send the command again once a server may have run it.
    ///
    /// `LOCK.GUARD` looks at one key. For a guard of [several locks](crate::Locks::all) the server checks the first lock
    /// alone: if another one of them was deleted or taken, the command still runs, until a renewal finds that loss.
    ///
    /// The client also receives messages about grants on this connection. So the server closes it if a reply is larger than
    /// `client-output-buffer-limit pubsub` allows, which is 32 MB by default.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # fn main() { example(async |locks| {
    /// let guard = locks.lock("menu").await?;
    /// guard.run_command::<()>(redis::cmd("SET").arg("dish").arg("soup")).await?;
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if the lock is lost, and the command did not run; [`Error::Unanswered`] if it may have run;
    /// [`Error::UnexpectedReply`] if it ran, and its reply has another type. Others if the command did not run.
    pub async fn run_command<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        let (core, lease) = (&self.core, &self.lease);
        core.home.enter()?;
        if !lease.is_held() {
            return Err(self.lease.lost_error());
        }
        let (remote, key) = (core.remote()?, lease.claim.key());
        let mut guarded = cmd("LOCK.GUARD");
        guarded.arg(key).arg(&*lease.claim.owner).arg(u64::from(lease.fence()));
        for word in command.args_iter() {
            match word {
                Arg::Simple(word) => guarded.arg(word),
                _ => {
                    return Err(Error::setting(
                        "command",
                        "it must be a command, not the cursor of a scan",
                    ));
                }
            };
        }
        let mut tries = 0_u32;
        loop {
            let limit = core.home.settings.response_timeout;
            let opening = within(limit, remote.link.line_that_sends_once(key)).await;
            let mut line = opening.unwrap_or_else(|| Err(unanswered())).map_err(told)?;
            let replied = within(limit, line.send(key, &guarded)).await;
            let error = match replied.unwrap_or_else(|| Err(unanswered())) {
                Ok(reply) => {
                    return T::from_redis_value(reply)
                        .map_err(|error| Error::UnexpectedReply { source: error.into() });
                }
                Err(error) => error,
            };
            match verdict(&error) {
                Verdict::Broken => {
                    remote.link.give_up(&line);
                    return Err(Error::Unanswered { source: error });
                }
                _ if error.code() == Some("NOTHOLDER") => {
                    core.lose(lease, Loss::Taken);
                    return Err(self.lease.lost_error());
                }
                // The command did not run: the lock's slot has moved, or is moving.
                means @ (Verdict::Again | Verdict::Elsewhere)
                    if tries < MOST_MOVES && lease.is_held() =>
                {
                    if means == Verdict::Elsewhere {
                        remote.link.give_up(&line);
                    }
                    sleep(RETRY.random_rest(tries)).await;
                    let check = cmd("LOCK.CHECK").arg(key).arg(&*lease.claim.owner).take();
                    remote.read(key, &check, core.home.limits()).await.map_err(told)?;
                }
                _ => return Err(Error::Refused { source: error }),
            }
            tries = tries.saturating_add(1);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_open || self.lease.loss() == Some(Loss::Closed) {
            return;
        }
        let (core, lease) = (Arc::clone(&self.core), Arc::clone(&self.lease));
        let entry = core.home.ledger.begin_task(&lease.name);
        let giving_back = core.home.gives_back(&lease.claim);
        self.core.home.spawn(async move {
            // `close` may have released the lock meanwhile. The result is traced.
            if lease.loss() != Some(Loss::Closed) {
                let _ = core.release(&lease, Loss::Released).await;
            }
            entry.done();
            drop(giving_back);
        });
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Guard");
        debug.field("name", &self.name()).field("fence", &self.fence());
        debug
            .field("owner", &self.owner())
            .field("valid_for", &self.valid_for())
            .finish_non_exhaustive()
    }
}
