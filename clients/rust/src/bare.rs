//! A server without the module, for a user who may not run scripts: `SET … IFEQ` of Redis 8.4, Valkey 8.1 and later.
//!
//! ```text
//!   SET lock 0:owner NX  ──►  INCR fence  ──►  SET lock fence:owner IFEQ 0:owner
//! ```
//!
//! `INCR` runs while this owner holds the key, so fences grow. The first fence is the server's clock, as with scripts. If
//! the lease ends before the last step, that step fails and the number stays unused. Several locks at once are not possible
//! this way. And if the server loads the module meanwhile, a lock granted here bypasses the module's queue.

use crate::link::Line;
use crate::plain::{Call, DAY_MILLIS, MARGIN_MICROS, beside, parts, value};
use crate::question::{Claim, Question, millis};
use crate::verdict::{Verdict, number, verdict};
use redis::{RedisError, Value, cmd, make_extension_error};

/// A smaller counter is no clock: the server has forgotten the last fence.
const LEAST_CLOCK: u64 = 1_000_000_000_000_000;

const MOST_LOOKS: usize = 3;

/// The user may not run any script, as opposed to an error from inside a script.
pub(crate) fn is_without_scripts(error: &RedisError) -> bool {
    let is_refused = error.code() == Some("NOPERM") || verdict(error) == Verdict::UnknownCommand;
    let detail = error.detail().unwrap_or_default().to_ascii_lowercase();
    is_refused && detail.contains("'eval")
}

/// Changes nothing. Fails if the server does not know `IFEQ`.
pub(crate) async fn probe(line: &mut Line, key: &[u8]) -> Result<(), RedisError> {
    set_if(line, key, (&beside(key), b"0", b"none"), 1).await.map(drop)
}

pub(crate) async fn ask(
    line: &mut Line,
    claim: &Claim,
    question: Question<'_>,
) -> Result<Option<u64>, RedisError> {
    // Requests that scripts cannot serve fail here too.
    Call::of(claim, question)?;
    let [key] = claim.keys.as_slice() else { return Err(beyond("several locks")) };
    let owner = &*claim.owner;
    match question {
        Question::Try { ttl } | Question::Block { ttl, .. } | Question::Ticket { ttl, .. } => {
            acquire(line, key, owner, millis(ttl)).await
        }
        Question::Extend { ttl, fence } => {
            let held = value(fence, owner);
            let is_held = set_if(line, key, (key, &held, &held), millis(ttl)).await?;
            Ok(Some(u64::from(is_held)))
        }
        Question::Release { fence: Some(fence) } => {
            remove(line, key, &value(fence, owner)).await.map(Some)
        }
        Question::Release { fence: None } => match held_by(line, key, owner).await? {
            Some(held) => remove(line, key, &held).await.map(Some),
            None => Ok(Some(0)),
        },
        Question::Raise { .. } => Err(beyond("a quorum")),
    }
}

async fn acquire(
    line: &mut Line,
    key: &[u8],
    owner: &str,
    ttl: u64,
) -> Result<Option<u64>, RedisError> {
    let pending = [b"0000000000000000:".as_slice(), owner.as_bytes()].concat();
    for _ in 0..MOST_LOOKS {
        let set = cmd("SET").arg(key).arg(&pending).arg("NX").arg("PX").arg(ttl).take();
        let held = match line.send(key, &set).await? {
            Value::Nil => held_by(line, key, owner).await?,
            _ => Some(pending.clone()),
        };
        match held {
            Some(held) if held == owner.as_bytes() => return Ok(Some(0)),
            Some(held) if held == pending => {
                let fence = count(line, key).await?;
                let is_ours = set_if(line, key, (key, &value(fence, owner), &held), ttl).await?;
                return Ok(is_ours.then_some(fence));
            }
            Some(held) => {
                let is_ours = set_if(line, key, (key, &held, &held), ttl).await?;
                return Ok(parts(&held).map(|(fence, _)| fence).filter(|_| is_ours));
            }
            None => {}
        }
        let get = cmd("GET").arg(key).take();
        if line.send(key, &get).await? != Value::Nil {
            return Ok(None);
        }
    }
    Ok(None)
}

/// A number above all earlier ones. After a day without a grant it restarts from the clock, which is ahead by then.
async fn count(line: &mut Line, key: &[u8]) -> Result<u64, RedisError> {
    let last = beside(key);
    loop {
        let increase = cmd("INCR").arg(&last).take();
        let counted = number(&line.send(key, &increase).await?)?.unwrap_or_default();
        if counted >= LEAST_CLOCK {
            return Ok(counted);
        }
        let (seconds, micros) = match line.send(key, &cmd("TIME")).await? {
            Value::Array(words) => match words.as_slice() {
                [seconds, micros] => (number(seconds)?, number(micros)?),
                _ => (None, None),
            },
            _ => (None, None),
        };
        let micros = micros.unwrap_or_default().saturating_add(MARGIN_MICROS);
        let clock = seconds.unwrap_or_default().saturating_mul(1_000_000).saturating_add(micros);
        let (from, to) = (counted.to_string(), clock.to_string());
        if set_if(line, key, (&last, to.as_bytes(), from.as_bytes()), DAY_MILLIS).await? {
            return Ok(clock);
        }
    }
}

/// `key` selects the node of a cluster.
async fn set_if(
    line: &mut Line,
    key: &[u8],
    (of, to, from): (&[u8], &[u8], &[u8]),
    ttl: u64,
) -> Result<bool, RedisError> {
    let set = cmd("SET").arg(of).arg(to).arg("IFEQ").arg(from).arg("PX").arg(ttl).take();
    Ok(line.send(key, &set).await? != Value::Nil)
}

async fn held_by(line: &mut Line, key: &[u8], owner: &str) -> Result<Option<Vec<u8>>, RedisError> {
    let get = cmd("GET").arg(key).take();
    let Value::BulkString(held) = line.send(key, &get).await? else { return Ok(None) };
    let theirs = parts(&held).map_or(held.as_slice(), |(_, theirs)| theirs);
    let is_ours = theirs == owner.as_bytes() || held == owner.as_bytes();
    Ok(is_ours.then_some(held))
}

/// Deletes by the command that this server knows and this user may use, or else by a ttl of 1 ms. Returns how many.
async fn remove(line: &mut Line, key: &[u8], held: &[u8]) -> Result<u64, RedisError> {
    let words = [
        cmd("DELEX").arg(key).arg("IFEQ").arg(held).take(),
        cmd("DELIFEQ").arg(key).arg(held).take(),
    ];
    for command in words {
        match line.send(key, &command).await {
            Err(error)
                if verdict(&error) == Verdict::UnknownCommand || error.code() == Some("NOPERM") => {
            }
            came => return Ok(number(&came?)?.unwrap_or_default()),
        }
    }
    Ok(u64::from(set_if(line, key, (key, held, held), 1).await?))
}

fn beyond(what: &str) -> RedisError {
    let why =
        format!("{what} without scripts: that needs the module, which this server does not have");
    make_extension_error("SHARE".to_owned(), Some(why))
}
