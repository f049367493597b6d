//! Those who hold a lock and those who wait for it, and the end of a hold by somebody else than its holder: for tools
//! of those who run the servers.

use crate::dialect::{Question, Server, number};
use crate::info::{count, pairs, surprise, time_left};
use crate::reading::text;
use crate::validity::later;
use crate::wire::Limits;
use crate::{Error, Locks, Released};
use redis::{Cmd, Value, cmd};
use std::time::{Duration, Instant};

/// One of those who hold a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderInfo {
    /// The owner of the hold.
    pub owner: String,
    /// The fence of its grant; 0 for a lock that another kind of client holds.
    pub fence: u64,
    /// What is left of its lease; none if it never ends.
    pub ttl: Option<Duration>,
    /// How many holders at a time this one tolerates, itself included: 1 if it is exclusive, 0 if it has no limit.
    pub share: u64,
}

/// One of those who wait for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiterInfo {
    /// Who waits.
    pub owner: String,
    /// For how long it has waited.
    pub waited: Duration,
    /// How much longer it is ready to wait, or keeps its place without being asked for; none without limit.
    pub patience: Option<Duration>,
    /// How many holders at a time it would tolerate, itself included: 1 if it wants the lock for itself, 0 without limit.
    pub share: u64,
}

impl Locks {
    /// Those who hold this lock, the one who has held it for longest first. It asks for nothing.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let guard = locks.lock("printer").owner("alice").await?;
    /// for holder in locks.holders("printer").await? {
    ///     println!("{} with fence {}, for {:?} more", holder.owner, holder.fence, holder.ttl);
    /// #   assert_eq!(holder.owner, "alice");
    /// }
    /// # drop(guard);
    /// # locks.settle().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When no server answers, or it refuses.
    pub async fn holders(&self, name: &str) -> Result<Vec<HolderInfo>, Error> {
        let listed = self.list(name, "LOCK.HOLDERS").await?;
        if let Some(listed) = listed {
            return listed.iter().map(holder).collect();
        }
        let only = self.info(name).await?.map(|info| HolderInfo {
            owner: info.holder,
            fence: info.fence,
            ttl: info.ttl,
            share: info.share,
        });
        Ok(only.into_iter().collect())
    }

    /// Those who wait for this lock in the server's queue, the one who is next first. Nobody is listed where there is no
    /// module: requests poll there.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let queue = locks.waiters("printer").await?;
    /// let before_alice = queue.iter().position(|waiter| waiter.owner == "alice");
    /// assert_eq!(before_alice, None); // she does not wait
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When no server answers, or it refuses.
    pub async fn waiters(&self, name: &str) -> Result<Vec<WaiterInfo>, Error> {
        let listed = self.list(name, "LOCK.WAITERS").await?;
        listed.unwrap_or_default().iter().map(waiter).collect()
    }

    /// Ends the hold of this owner by this fence, whichever program has it: the next one who waits is granted the lock.
    /// A later grant, of the same owner too, is left alone. For an operator who knows that the holder is gone, or does no
    /// harm: **a holder that lives learns of it at its next renewal only**.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks, Released};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let guard = locks.lock("printer").await?;
    /// let (owner, fence) = (guard.owner(), guard.fence());
    /// assert_eq!(locks.end_hold("printer", owner, fence).await?, Released::Released);
    /// assert_eq!(locks.end_hold("printer", owner, fence).await?, Released::Late);
    /// # drop(guard);
    /// # locks.settle().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When no server answers, or it refuses.
    pub async fn end_hold(&self, name: &str, owner: &str, fence: u64) -> Result<Released, Error> {
        let question = Question::Release { owner, fence };
        let key = self.key(name);
        let answer = self.gate().pass(self.wire().ask(&key, question, self.look_limits())).await?;
        Ok(if answer.number == Some(1) { Released::Released } else { Released::Late })
    }

    /// None where the server has no such list.
    async fn list(&self, name: &str, command: &str) -> Result<Option<Vec<Value>>, Error> {
        let key = self.key(name);
        let commands = |server| match server {
            Server::Native => vec![list_all(command, &key)],
            Server::Plain(_) => Vec::new(),
        };
        let reading = self.wire().read(&key, commands, self.look_limits());
        let (_, replies) = self.gate().pass(reading).await?;
        match replies.into_iter().next() {
            None => Ok(None),
            Some(Value::Array(listed)) => Ok(Some(listed)),
            Some(_) => Err(surprise()),
        }
    }

    pub(crate) fn look_limits(&self) -> Limits {
        let settings = self.settings();
        Limits { each: settings.response, until: Some(later(Instant::now(), settings.within)) }
    }
}

fn list_all(command: &str, key: &str) -> Cmd {
    cmd(command).arg(key).arg("COUNT").arg(-1).take()
}

fn holder(listed: &Value) -> Result<HolderInfo, Error> {
    let pairs = pairs(listed).ok_or_else(surprise)?;
    Ok(HolderInfo {
        owner: text(pairs.field("owner")?),
        fence: count(pairs.field("fence")?)?,
        ttl: time_left(pairs.field("ttl")?)?,
        share: count(pairs.field("share")?)?,
    })
}

fn waiter(listed: &Value) -> Result<WaiterInfo, Error> {
    let pairs = pairs(listed).ok_or_else(surprise)?;
    let waited = number(pairs.field("waited")?).ok().flatten().unwrap_or_default();
    Ok(WaiterInfo {
        owner: text(pairs.field("owner")?),
        waited: Duration::from_millis(waited),
        patience: time_left(pairs.field("patience")?)?,
        share: count(pairs.field("share")?)?,
    })
}
