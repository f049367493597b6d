//! A look at a lock, without asking for it.

use crate::dialect::{Server, number};
use crate::reading::text;
use crate::{Error, Locks};
use redis::{Value, cmd};
use std::time::Duration;

/// How often a server without the module is asked at most while the lock changes hands.
const MOST_LOOKS: u32 = 5;

/// What is known of a lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// As whom it is held: [`Guard::owner`](crate::Guard::owner) of the holder. Bytes that are no
    /// text are replaced.
    pub holder: String,
    /// The fence of the grant; 0 for a lock that neither Leasehold nor this client wrote.
    pub fence: u64,
    /// What is left of the lease; none if it has no end.
    pub ttl: Option<Duration>,
    /// How many hold it; the other fields are about the oldest of them.
    pub holders: u64,
    /// How many holders at a time they tolerate: 1 for an exclusive lock, 0 for no limit.
    pub share: u64,
    /// How many wait in the server's queue; none where the server keeps no queue.
    pub waiters: Option<u64>,
}

impl Locks {
    /// Who holds the lock at this moment, and how many wait for it: none if it is free. For people
    /// who want to know, and for metrics. Whoever wants to hold the lock asks for it: what this
    /// says may be over when it arrives.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// assert!(locks.info("printer").await?.is_none());
    /// let guard = locks.lock("printer").owner("worker-7:4711").await?;
    /// if let Some(info) = locks.info("printer").await? {
    ///     println!("{} has it for another {:?}", info.holder, info.ttl);
    ///     assert_eq!(info.fence, guard.fence());
    /// }
    /// # drop(guard);
    /// # locks.settle().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When no server answers, or it refuses: its user needs `LOCK.INFO`, or `GET` and `PTTL` where
    /// there is no module.
    pub async fn info(&self, name: &str) -> Result<Option<LockInfo>, Error> {
        self.gate().pass(self.look(name)).await
    }

    async fn look(&self, name: &str) -> Result<Option<LockInfo>, Error> {
        let (key, limits) = (self.key(name), self.look_limits());
        let commands = |server| match server {
            Server::Native => vec![cmd("LOCK.INFO").arg(&key).take()],
            // The value once more, to see that the time belongs to it.
            Server::Plain(_) => {
                ["GET", "PTTL", "GET"].map(|name| cmd(name).arg(&key).take()).into()
            }
        };
        for _ in 0..MOST_LOOKS {
            let (_, replies) = self.wire().read(&key, commands, limits).await?;
            match replies.as_slice() {
                [told] => return of_module(told),
                [before, left, after] if before == after => return of_key(before, left),
                _ => {}
            }
        }
        Err(Error::Unreachable { reason: "the lock changes hands all the time".to_owned() })
    }
}

/// The reply to `LOCK.INFO`.
fn of_module(reply: &Value) -> Result<Option<LockInfo>, Error> {
    if matches!(reply, Value::Nil) {
        return Ok(None);
    }
    let pairs = pairs(reply).ok_or_else(surprise)?;
    Ok(Some(LockInfo {
        holder: text(pairs.field("owner")?),
        fence: count(pairs.field("fence")?)?,
        ttl: time_left(pairs.field("ttl")?)?,
        holders: pairs.field("holders").map_or(Ok(1), count)?,
        share: pairs.field("share").map_or(Ok(1), count)?,
        waiters: Some(count(pairs.field("waiters")?)?),
    }))
}

/// Names and values: read by name, for later versions have more of them.
pub(crate) struct Pairs<'r>(Vec<(&'r Value, &'r Value)>);

/// Names and values in turn, or a map.
pub(crate) fn pairs(reply: &Value) -> Option<Pairs<'_>> {
    match reply {
        Value::Map(pairs) => Some(Pairs(pairs.iter().map(|(name, value)| (name, value)).collect())),
        Value::Array(flat) => {
            Some(Pairs(flat.iter().step_by(2).zip(flat.iter().skip(1).step_by(2)).collect()))
        }
        _ => None,
    }
}

impl<'r> Pairs<'r> {
    pub(crate) fn field(&self, wanted: &str) -> Result<&'r Value, Error> {
        let found = self.0.iter().find(|(name, _)| text(name) == wanted);
        found.map(|(_, value)| *value).ok_or_else(surprise)
    }
}

/// The replies to `GET` and `PTTL`.
fn of_key(value: &Value, left: &Value) -> Result<Option<LockInfo>, Error> {
    if matches!(value, Value::Nil) || matches!(left, Value::Int(-2)) {
        return Ok(None);
    }
    let value = text(value);
    let (fence, holder) = match value.split_once(':') {
        Some((fence, owner)) if is_fence(fence) => (fence.parse().unwrap_or_default(), owner),
        _ => (0, value.as_str()),
    };
    Ok(Some(LockInfo {
        holder: holder.to_owned(),
        fence,
        ttl: time_left(left)?,
        holders: 1,
        share: 1,
        waiters: None,
    }))
}

fn is_fence(digits: &str) -> bool {
    digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_digit())
}

pub(crate) fn count(value: &Value) -> Result<u64, Error> {
    number(value).ok().flatten().ok_or_else(surprise)
}

/// -1 is without end.
pub(crate) fn time_left(value: &Value) -> Result<Option<Duration>, Error> {
    match value {
        Value::Int(-1) => Ok(None),
        value => Ok(Some(Duration::from_millis(count(value)?))),
    }
}

pub(crate) fn surprise() -> Error {
    Error::Refused { reason: "the reply is not what it should be".to_owned() }
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
            fence: 42,
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
        assert_eq!((ours.holder.as_str(), ours.fence), ("a:b", 42));
        assert_eq!(ours.ttl, Some(Duration::from_secs(1)));
        let foreign = of("some-uuid", -1).unwrap();
        assert_eq!((foreign.holder.as_str(), foreign.fence, foreign.ttl), ("some-uuid", 0, None));
        assert_eq!(of("some-uuid", -2), None);
        assert_eq!(of_key(&Value::Nil, &Value::Int(-2)).unwrap(), None);
    }
}
