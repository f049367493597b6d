//! Reading the state of locks: holders, waiters, contention and the log.

use crate::core::Core;
use crate::error::{Error, surprise};
use crate::listed::{count, field, list, text};
use crate::outcome::Fence;
use crate::plain::parts;
use crate::verdict::{Verdict, told, verdict};
use redis::{Value, cmd};
use std::time::{Duration, SystemTime};

/// How many times to read the key of a lock that changes hands, without the module.
const MOST_LOOKS: u32 = 5;

/// The state of a held lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The owner of the oldest hold, as [`Guard::owner`](crate::Guard::owner) returns it. Invalid UTF-8 is replaced.
    pub holder: String,
    /// The fence of that hold; 0 if neither Leasehold nor this client wrote the key.
    pub fence: Fence,
    /// The rest of its lease; none without end.
    pub ttl: Option<Duration>,
    /// The number of holders.
    pub holders: u64,
    /// How many holders the present ones tolerate at a time: 1 for an exclusive lock, 0 for no limit.
    pub share: u64,
    /// The length of the server's queue; none if the server has no queue.
    pub waiters: Option<u64>,
}

/// A holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The owner.
    pub owner: String,
    /// The fence of its grant; 0 if another kind of client holds the lock.
    pub fence: Fence,
    /// The rest of its lease; none without end.
    pub ttl: Option<Duration>,
    /// How many holders this one tolerates at a time, itself included: 1 is exclusive, 0 has no limit.
    pub share: u64,
}

/// A waiter in the queue of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// The owner that waits.
    pub owner: String,
    /// How long it has waited.
    pub waited: Duration,
    /// How much longer it waits, or keeps its place without asking again; none without limit.
    pub patience: Option<Duration>,
    /// How many holders it would tolerate at a time, itself included.
    pub share: u64,
}

/// A lock that many have waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contended {
    /// The key of the lock.
    pub name: String,
    /// The number of waits.
    pub waits: u64,
    /// The number of requests refused without a wait.
    pub refused: u64,
    /// The total time of all finished waits.
    pub waited: Duration,
    /// The longest finished wait.
    pub longest: Duration,
}

/// An entry of the server's log. The page of `LOCK.LOG` explains each event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Logged {
    /// The number of the entry. Missing numbers are entries that were dropped.
    pub id: u64,
    /// The time of the entry, by the server's clock.
    pub time: SystemTime,
    /// Such as `late-release` or `deleted`.
    pub event: String,
    /// The key of the lock.
    pub name: String,
    /// The owner concerned; empty if unknown.
    pub owner: String,
    /// A duration whose meaning depends on the event; none for a lease without end.
    pub duration: Option<Duration>,
}

pub(crate) async fn info(core: &Core, name: &[u8]) -> Result<Option<LockInfo>, Error> {
    let key = core.home.key(name);
    if let Some(reply) = look(core, &key, "LOCK.INFO").await? {
        return of_module(&reply);
    }
    let remote = core.remote()?;
    let read = async |command: &str| {
        let command = cmd(command).arg(&key).take();
        remote.read(&key, &command, core.home.limits()).await.map_err(told)
    };
    for _ in 0..MOST_LOOKS {
        // Read the value twice, to know that the ttl belongs to it.
        let (before, left, after) = (read("GET").await?, read("PTTL").await?, read("GET").await?);
        if before == after {
            return of_key(&before, &left);
        }
    }
    Err(told(std::io::Error::other("the lock changes hands all the time").into()))
}

pub(crate) async fn holders(core: &Core, name: &[u8]) -> Result<Vec<Holder>, Error> {
    if let Some(listed) = look(core, &core.home.key(name), "LOCK.HOLDERS").await? {
        return list(&listed)?.iter().map(holder).collect();
    }
    let only = info(core, name).await?.map(|LockInfo { holder, fence, ttl, share, .. }| Holder {
        owner: holder,
        fence,
        ttl,
        share,
    });
    Ok(only.into_iter().collect())
}

pub(crate) async fn waiters(core: &Core, name: &[u8]) -> Result<Vec<Waiter>, Error> {
    rows(core, &core.home.key(name), "LOCK.WAITERS", waiter).await
}

pub(crate) async fn top(core: &Core) -> Result<Vec<Contended>, Error> {
    let each = |row: &Value| {
        let millis = |name| field(row, name).and_then(count).map(Duration::from_millis);
        Ok(Contended {
            name: text(field(row, "key")?),
            waits: count(field(row, "waits")?)?,
            refused: count(field(row, "refused")?)?,
            waited: millis("wait-total")?,
            longest: millis("wait-longest")?,
        })
    };
    rows(core, &[], "LOCK.TOP", each).await
}

pub(crate) async fn log(core: &Core) -> Result<Vec<Logged>, Error> {
    let each = |row: &Value| {
        let since = Duration::from_millis(count(field(row, "time")?)?);
        Ok(Logged {
            id: count(field(row, "id")?)?,
            time: SystemTime::UNIX_EPOCH.checked_add(since).ok_or_else(surprise)?,
            event: text(field(row, "event")?),
            name: text(field(row, "key")?),
            owner: text(field(row, "owner")?),
            duration: time_left(field(row, "ms")?)?,
        })
    };
    rows(core, &[], "LOCK.LOG", each).await
}

/// The rows that the module lists; none without the module.
async fn rows<T>(
    core: &Core,
    key: &[u8],
    command: &str,
    each: impl Fn(&Value) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    match look(core, key, command).await? {
        Some(listed) => list(&listed)?.iter().map(each).collect(),
        None => Ok(Vec::new()),
    }
}

/// The module's reply; none without the module.
async fn look(core: &Core, key: &[u8], command: &str) -> Result<Option<Value>, Error> {
    let mut asked = cmd(command);
    match command {
        "LOCK.INFO" => asked.arg(key),
        "LOCK.TOP" | "LOCK.LOG" => asked.arg(-1),
        _ => asked.arg(key).arg("COUNT").arg(-1),
    };
    core.home.enter()?;
    let remote = core.remote()?;
    if remote.is_plain() {
        return Ok(None);
    }
    let reading = remote.read(key, &asked, core.home.limits());
    match core.home.closed.run_until_cancelled(reading).await {
        None => Err(Error::Closed),
        Some(Err(error)) if verdict(&error) == Verdict::UnknownCommand => Ok(None),
        Some(came) => came.map(Some).map_err(told),
    }
}

fn of_module(reply: &Value) -> Result<Option<LockInfo>, Error> {
    if matches!(reply, Value::Nil) {
        return Ok(None);
    }
    let or_one = |name| field(reply, name).map_or(Ok(1), count);
    Ok(Some(LockInfo {
        holder: text(field(reply, "owner")?),
        fence: fence(field(reply, "fence")?)?,
        ttl: time_left(field(reply, "ttl")?)?,
        holders: or_one("holders")?,
        share: or_one("share")?,
        waiters: Some(count(field(reply, "waiters")?)?),
    }))
}

fn of_key(value: &Value, left: &Value) -> Result<Option<LockInfo>, Error> {
    if matches!(value, Value::Nil) || matches!(left, Value::Int(-2)) {
        return Ok(None);
    }
    let value = text(value);
    let (fence, holder) = parts(value.as_bytes()).unwrap_or((0, value.as_bytes()));
    Ok(Some(LockInfo {
        holder: String::from_utf8_lossy(holder).into_owned(),
        fence: Fence::new(fence),
        ttl: time_left(left)?,
        holders: 1,
        share: 1,
        waiters: None,
    }))
}

fn holder(listed: &Value) -> Result<Holder, Error> {
    Ok(Holder {
        owner: text(field(listed, "owner")?),
        fence: fence(field(listed, "fence")?)?,
        ttl: time_left(field(listed, "ttl")?)?,
        share: count(field(listed, "share")?)?,
    })
}

fn waiter(listed: &Value) -> Result<Waiter, Error> {
    Ok(Waiter {
        owner: text(field(listed, "owner")?),
        waited: Duration::from_millis(count(field(listed, "waited")?)?),
        patience: time_left(field(listed, "patience")?)?,
        share: count(field(listed, "share")?)?,
    })
}

fn fence(value: &Value) -> Result<Fence, Error> {
    count(value).map(Fence::new)
}

/// -1 means no end.
fn time_left(value: &Value) -> Result<Option<Duration>, Error> {
    match value {
        Value::Int(-1) => Ok(None),
        value => Ok(Some(Duration::from_millis(count(value)?))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn what_the_module_tells_is_read_by_name() {
        let fields = [
            ("owner", bulk("alice")),
            ("later", bulk("something new")),
            ("fence", Value::Int(42)),
            ("ttl", Value::Int(-1)),
            ("waiters", Value::Int(3)),
            ("holders", Value::Int(2)),
            ("share", Value::Int(5)),
        ];
        let told = LockInfo {
            holder: "alice".to_owned(),
            fence: Fence::new(42),
            ttl: None,
            holders: 2,
            share: 5,
            waiters: Some(3),
        };
        let map = fields.clone().map(|(name, value)| (bulk(name), value)).to_vec();
        assert_eq!(of_module(&Value::Map(map)).unwrap().as_ref(), Some(&told));
        let flat = fields.into_iter().flat_map(|(name, value)| [bulk(name), value]).collect();
        assert_eq!(of_module(&Value::Array(flat)).unwrap(), Some(told));
        assert_eq!(of_module(&Value::Nil).unwrap(), None);
        assert!(of_module(&Value::Array(Vec::new())).is_err());
    }

    #[test]
    fn a_key_that_another_kind_of_client_wrote_is_its_holder() {
        let of = |value, left| of_key(&bulk(value), &Value::Int(left)).unwrap();
        let ours = of("0000000000000042:a:b", 1_000).unwrap();
        assert_eq!((ours.holder.as_str(), u64::from(ours.fence)), ("a:b", 42));
        assert_eq!(ours.ttl, Some(Duration::from_secs(1)));
        let foreign = of("some-uuid", -1).unwrap();
        assert_eq!(
            (foreign.holder.as_str(), u64::from(foreign.fence), foreign.ttl),
            ("some-uuid", 0, None)
        );
        assert_eq!(of("some-uuid", -2), None);
    }
}
