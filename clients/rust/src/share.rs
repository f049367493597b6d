//! How many may hold a lock at a time.

use crate::{Error, Locks, Request};

/// How many holders at a time a hold tolerates, itself included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    /// Only itself.
    Exclusive,
    /// So many.
    AtMost(u32),
    /// However many, as long as each tolerates the others.
    Any,
}

impl Share {
    pub(crate) fn checked(self) -> Result<Self, Error> {
        match self {
            Self::AtMost(0) => Err(Error::setting("semaphore", "it must have a permit at least")),
            Self::AtMost(1) => Ok(Self::Exclusive),
            share => Ok(share),
        }
    }

    /// What the option `SHARE` says; an exclusive hold goes without.
    pub(crate) fn option(self) -> Option<u32> {
        match self {
            Self::Exclusive => None,
            Self::AtMost(holders) => Some(holders),
            Self::Any => Some(0),
        }
    }
}

impl Locks {
    /// Waits for the right to read: readers hold the lock together, and a [writer](Locks::write)
    /// alone.
    ///
    /// Nobody overtakes: a reader who comes after a waiting writer waits behind it, so no writer
    /// waits for ever. The server has to have the module; without it this is
    /// [`Error::Refused`].
    ///
    /// The guard has a fence, as every other. A store that compares fences remembers the largest
    /// one of a *writer*, and refuses what is smaller; the fences of readers tell it nothing.
    ///
    /// The same name and owner cannot be held in two ways by one client: that is
    /// [`Error::Setting`].
    ///
    /// ```no_run
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks, Options};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let (one, two) = (locks.read("prices").await?, locks.read("prices").await?);
    /// assert!(locks.write("prices").try_now().await?.is_none());
    /// assert!(one.release().await?.in_time());
    /// assert!(two.release().await?.in_time());
    /// assert!(locks.write("prices").try_now().await?.is_some());
    /// # locks.settle().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn read(&self, name: impl Into<String>) -> Request {
        Request::new(self.clone(), name.into(), Share::Any)
    }

    /// Waits for the right to write: alone, when all [readers](Locks::read) who came before have
    /// left. It is the same as [`lock`](Locks::lock).
    ///
    /// ```no_run
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks, Options};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let writer = locks.write("prices").ttl(Duration::from_secs(5)).await?;
    /// assert!(locks.read("prices").try_now().await?.is_none());
    /// # drop(writer);
    /// # locks.settle().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn write(&self, name: impl Into<String>) -> Request {
        self.lock(name)
    }

    /// Waits for one of so many permits. The server stores no number of permits: whoever asks for
    /// five tolerates four others. While programs disagree, for instance during a deploy, the
    /// smallest number among the holders and the one who asks counts.
    ///
    /// Two permits for one worker are two requests, without an [owner](crate::Options::owner) or with two
    /// different ones. The server has to have the module; without it this is [`Error::Refused`].
    ///
    /// ```no_run
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks, Options};
    /// # use std::time::Duration;
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let permit = || locks.semaphore("pool", 2);
    /// let (one, two) = (permit().await?, permit().await?);
    /// assert!(permit().try_now().await?.is_none());
    /// assert!(one.release().await?.in_time());
    /// assert!(permit().try_now().await?.is_some());
    /// # drop(two);
    /// # locks.settle().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn semaphore(&self, name: impl Into<String>, permits: u32) -> Request {
        Request::new(self.clone(), name.into(), Share::AtMost(permits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_semaphore_has_a_permit_at_least_and_with_one_it_is_a_lock() {
        assert!(Share::AtMost(0).checked().is_err());
        assert_eq!(Share::AtMost(1).checked().unwrap(), Share::Exclusive);
        assert_eq!(Share::AtMost(5).checked().unwrap().option(), Some(5));
        assert_eq!(Share::Any.checked().unwrap().option(), Some(0));
        assert_eq!(Share::Exclusive.option(), None);
    }
}
