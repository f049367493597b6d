//! One leader among several candidates: a lock that whoever leads holds.

use crate::locks::new_uuid;
use crate::observing::Watch;
use crate::{Error, Guard, LockInfo, Locks, Options, Released};
use futures_util::Stream;
use futures_util::stream::{BoxStream, StreamExt, unfold};
use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// How often those who observe look at least, unless they say otherwise.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Between the name of a candidate and what makes it an owner that nobody else has.
const SEPARATOR: char = '/';

/// What a random UUID has in characters.
const UUID_LENGTH: usize = 36;

/// The longest owner that a server takes, in bytes.
const LONGEST_OWNER: usize = 255;

/// An election, as one of the candidates or of those who look on: [`Locks::election`].
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
/// # use leasehold_client::{Error, Locks};
/// # use std::time::Duration;
/// # #[tokio::main]
/// # async fn main() -> Result<(), Error> {
/// # let server = Example::start();
/// # let locks = Locks::connect(server.url()).await?;
/// let election = locks.election("scheduler", "host-1");
/// loop {
///     let leadership = election.campaign().await?; // waits until the others are gone
///     tokio::select! {
///         () = lead(leadership.fence()) => {
///             assert!(leadership.resign().await?.in_time());
///             break;
///         }
///         loss = leadership.lost() => eprintln!("another one may lead: {loss:?}"),
///     }
/// }
/// assert!(locks.close(Duration::from_secs(5)).await.is_empty());
/// # Ok(())
/// # }
/// # async fn lead(_fence: u64) {}
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    locks: Locks,
    name: String,
    candidate: String,
    options: Options,
    look_every: Duration,
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// By the name that it gave when it campaigned.
    pub candidate: String,
    /// The fence of its term: larger than that of any earlier term.
    pub fence: u64,
}

/// A term of office. It is over when this is dropped, or lost: see [`Guard::lost`],
/// [`Guard::valid_for`] and the others, all of which this has too.
#[derive(Debug)]
#[must_use = "whoever drops it leads no more"]
pub struct Leadership {
    guard: Guard,
}

/// Who leads, each time that it is somebody else: [`Election::observe`].
pub struct Leaders {
    seen: BoxStream<'static, Option<Leader>>,
}

impl Locks {
    /// An election of this name, in which this program goes by the name of `candidate`: that of its
    /// host, for instance. Candidates may have the same name; each campaign is one of its own.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let election = locks.election("scheduler", "host-1");
    /// # let _ = election;
    /// # Ok(())
    /// # }
    /// ```
    pub fn election(&self, name: impl Into<String>, candidate: impl Into<String>) -> Election {
        Election {
            locks: self.clone(),
            name: name.into(),
            candidate: candidate.into(),
            options: Options::new(),
            look_every: LOOK_EVERY,
        }
    }
}

impl Election {
    /// How the lock of this election is asked for: how long its lease lasts, which is how long it
    /// takes at most until another one leads when a leader has died, and how long a campaign waits.
    /// Its owner is the election's own affair.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks, Options};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let quick = Options::new().ttl(Duration::from_secs(3));
    /// let election = locks.election("scheduler", "host-1").options(quick);
    /// # let _ = election;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// How often those who [observe](Election::observe) look at least: each second, unless this is
    /// called. They look when the server says that something has changed, too.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let election = locks.election("scheduler", "host-1").look_every(Duration::from_millis(200));
    /// # let _ = election;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn look_every(mut self, interval: Duration) -> Self {
        self.look_every = interval.max(Duration::from_millis(1));
        self
    }

    /// Waits until this candidate leads. Candidates queue, and lead in the order of their coming.
    /// Dropped while it waits, it is a candidate no more.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let leadership = locks.election("scheduler", "host-1").campaign().await?;
    /// println!("leading, with fence {}", leadership.fence());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Locks::lock`]; and when the name of the candidate is longer than 218 bytes.
    pub async fn campaign(&self) -> Result<Leadership, Error> {
        let owner = format!("{}{SEPARATOR}{}", self.candidate, new_uuid());
        if owner.len() > LONGEST_OWNER {
            return Err(Error::setting("candidate", "it must be at most 218 bytes long"));
        }
        let options = self.options.clone().owner(owner);
        let guard = self.locks.lock(&self.name).options(options).await?;
        Ok(Leadership { guard })
    }

    /// Who leads at this moment: none between two terms. It asks for nothing, and needs not be a
    /// candidate.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let election = locks.election("scheduler", "host-1");
    /// assert!(election.leader().await?.is_none());
    /// let leadership = election.campaign().await?;
    /// if let Some(leader) = election.leader().await? {
    ///     assert_eq!(leader.candidate, "host-1");
    ///     assert_eq!(leader.fence, leadership.fence());
    /// }
    /// # drop(leadership);
    /// # locks.settle().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Locks::info`].
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        Ok(self.locks.info(&self.name).await?.map(Leader::from))
    }

    /// A stream of those who lead: the present one first, and then each that differs from the one
    /// before. None means that nobody leads. Terms of a few milliseconds may be missed.
    ///
    /// The server tells of changes on a connection of its own (`CLIENT TRACKING`, and `GET` of the
    /// key). Where its user is not allowed that, each [look](Election::look_every) shows them.
    ///
    /// While no server answers it says nothing. It ends when the client is [closed](Locks::close).
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let election = locks.election("scheduler", "host-1");
    /// let leadership = election.campaign().await?;
    /// let mut leaders = election.observe();
    /// while let Some(leader) = leaders.next().await {
    ///     match leader {
    ///         Some(leader) => println!("{} leads", leader.candidate),
    ///         None => println!("nobody leads"),
    ///     }
    /// #   break;
    /// }
    /// # drop(leadership);
    /// # locks.settle().await;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "it looks only while it is asked for the next one"]
    pub fn observe(&self) -> Leaders {
        let election = self.clone();
        let observer = Observer { election, watch: Watch::Closed, last: None };
        Leaders { seen: unfold(observer, Observer::next).boxed() }
    }
}

struct Observer {
    election: Election,
    watch: Watch,
    /// Who was seen last, if anything was.
    last: Option<Option<Leader>>,
}

impl Observer {
    /// The next one who differs from the one that was seen last.
    async fn next(mut self) -> Option<(Option<Leader>, Self)> {
        let Election { locks, name, look_every, .. } = self.election.clone();
        let (key, limit) = (locks.key(&name), locks.settings().response);
        loop {
            // First of all, so that no change is missed between the look and the wait.
            self.watch.arm(locks.wire(), &key, limit).await;
            match self.election.leader().await {
                Ok(leader) if self.last.as_ref() != Some(&leader) => {
                    self.last = Some(leader.clone());
                    return Some((leader, self));
                }
                Err(Error::Closed) => return None,
                // The look after this one may be answered.
                Ok(_) | Err(_) => self.watch.changed(look_every).await,
            }
        }
    }
}

impl Leaders {
    /// Waits for the next one; none when the client is closed.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let mut leaders = locks.election("scheduler", "host-1").observe();
    /// assert_eq!(leaders.next().await, Some(None)); // nobody leads
    /// # Ok(())
    /// # }
    /// ```
    pub async fn next(&mut self) -> Option<Option<Leader>> {
        self.seen.next().await
    }
}

impl Stream for Leaders {
    type Item = Option<Leader>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.seen.poll_next_unpin(context)
    }
}

impl fmt::Debug for Leaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaders").finish_non_exhaustive()
    }
}

impl Leadership {
    /// Steps down: the next candidate leads.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let leadership = locks.election("scheduler", "host-1").campaign().await?;
    /// assert!(leadership.resign().await?.in_time());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Guard::release`].
    pub async fn resign(self) -> Result<Released, Error> {
        self.guard.release().await
    }
}

impl Deref for Leadership {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl From<LockInfo> for Leader {
    fn from(LockInfo { holder, fence, .. }: LockInfo) -> Self {
        // Whoever took the lock in another way is called by its owner.
        let candidate = match holder.rsplit_once(SEPARATOR) {
            Some((candidate, unique)) if unique.len() == UUID_LENGTH => candidate.to_owned(),
            _ => holder,
        };
        Self { candidate, fence }
    }
}
