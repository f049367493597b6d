//! A look at a lock, without asking for it: who holds it, and who waits.

use crate::core::Core;
use crate::error::{Error, surprise};
use crate::listed::{count, field, list, text};
use crate::outcome::Fence;
use crate::plain::parts;
use crate::verdict::{Verdict, told, verdict};

use redis::{Value, cmd};
use std::time::{Duration, SystemTime};

/// How often a server without the module is asked at most while the lock changes hands.
const MOST_LOOKS: u32 = 5;

/// What is known of a lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The owner of the oldest hold: [`Guard::owner`](crate::Guard::owner) of its guard. Bytes that are no text are replaced.
    pub holder: String,
    /// The fence of that hold; 0 for a lock that neither Leasehold nor this client wrote.
    pub fence: Fence,
    /// What is left of its lease; none if it has no end.
    pub ttl: Option<Duration>,
    /// How many hold the lock.
    pub holders: u64,
    /// How many holders at a time they tolerate: 1 for an exclusive lock, 0 for no limit.
    pub share: u64,
    /// How many wait in the server's queue; none where the server keeps no queue.
    pub waiters: Option<u64>,
}

/// One of those who hold a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The owner of the hold.
    pub owner: String,
    /// The fence of its grant; 0 for a lock that another kind of client holds.
    pub fence: Fence,
    /// What is left of its lease; none if it never ends.
    pub ttl: Option<Duration>,
    /// How many holders at a time this one tolerates, itself included: 1 if it is exclusive, 0 if it has no limit.
    pub share: u64,
}

/// One of those who wait for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// Who waits.
    pub owner: String,
    /// For how long it has waited.
    pub waited: Duration,
    /// How much longer it is ready to wait, or keeps its place without being asked for; none without limit.
    pub patience: Option<Duration>,
    /// How many holders at a time it would tolerate, itself included.
    pub share: u64,
}

/// One of the locks of a server that most have waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contended {
    /// The lock, as its key is named.
    pub name: String,
    /// How many waits began.
    pub waits: u64,
    /// How many requests were refused without a wait.
    pub refused: u64,
    /// How long all waits took that have ended.
    pub waited: Duration,
    /// The longest of them.
    pub longest: Duration,
}

/// What went wrong with a lock, as the server's log has it: the page of `LOCK.LOG` tells of each kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Logged {
    /// Its number: one that is missing was dropped.
    pub id: u64,
    /// When it was logged, by the server's clock.
    pub time: SystemTime,
    /// Such as `late-release` or `deleted`.
    pub event: String,
    /// The lock, as its key is named.
    pub name: String,
    /// The owner that it is about; empty if it is not known.
    pub owner: String,
    /// What it is depends on the event; none for a lease without end.
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
        // The value once more, to see that the time belongs to it.
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

/// What the module lists; nothing where the server has not got it.
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

/// What the module says; none: the server has not got it.
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

/// The reply to `LOCK.INFO`.
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

/// The replies to `GET` and `PTTL`.
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

/// -1 is without end.
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
