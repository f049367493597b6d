//! Conversations about leases: when one ends, and who has the lock until then.

use super::{EVER, LONG, Probe, is_granted};
use crate::claims::Excuse;
use crate::connection::{Lost, micros};
use redis::Value;
use testkit::{is_older_than, is_valkey_since};

/// How often another owner tries: for longer than the lease lasts.
const TRIES: usize = 500;

fn word(text: &str) -> String {
    text.to_owned()
}

/// A lease ends to the millisecond, by the server's own clock, which is asked between all tries.
pub(super) fn exact(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let lock = probe.fresh();
    let ttl = 1 + probe.seed.below(3) as u64;
    let mut all = vec![word("TIME"), format!("LOCK.ACQUIRE {lock} a {ttl}"), word("TIME")];
    for _ in 0..TRIES {
        all.extend([format!("LOCK.ACQUIRE {lock} b 1"), word("TIME")]);
    }
    let replies = probe.main.all(&all)?;
    let millis = |index: usize| micros(&replies[index]).map(|time| time / 1_000);
    if is_granted(&replies[1]).is_none() {
        return Err(Lost);
    }
    // Without both replies the end of the lease is not known.
    if millis(0)? != millis(2)? {
        return Ok(());
    }
    // These policies may delete a key in the very millisecond of its deadline.
    let tidies_early = !is_valkey_since((0, 0)) && !is_older_than((7, 2));
    let deadline = millis(0)? + ttl - u64::from(tidies_early);
    let first = (3..replies.len()).step_by(2).find(|index| is_granted(&replies[*index]).is_some());
    if let Some(first) = first
        && millis(first + 1)? <= deadline
    {
        let early = deadline - millis(first + 1)?;
        let what = format!(
            "{lock}, granted for {ttl} ms, went to another {early} ms before the end of its last one"
        );
        probe.claim("L1", Excuse::Freed, what);
    }
    Ok(())
}

/// A lease also ends within a transaction, for which the server's own clock stands still.
pub(super) fn in_a_transaction(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let lock = probe.fresh();
    let all = [
        word("MULTI"),
        format!("LOCK.ACQUIRE {lock} a 1"),
        word("DEBUG SLEEP 0.004"),
        format!("LOCK.CHECK {lock} a"),
        word("EXEC"),
    ];
    let Some(Value::Array(replies)) = probe.main.all(&all)?.pop() else { return Err(Lost) };
    let [granted, Value::Okay, held] = &replies[..] else { return Err(Lost) };
    if is_granted(granted).is_none() {
        return Err(Lost);
    }
    if is_granted(held).is_some() {
        probe.claim("L3", Excuse::None, format!("{lock} is held 2 ms after its end"));
    }
    Ok(())
}

/// What only the holder can do, and only with the fence of its grant, and what it can do again.
pub(super) fn proofs(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let lock = probe.fresh();
    let fence = probe.grant(&lock, "m", LONG)?;
    let (less, more) = (fence - 1, fence + 1);
    let held = i64::try_from(fence).map_err(|_| Lost)?;
    let asked = [
        (format!("LOCK.EXTEND {lock} other {LONG}"), Value::Int(0)),
        (format!("LOCK.EXTEND {lock} m {LONG} {less}"), Value::Int(0)),
        (format!("LOCK.RELEASE {lock} other"), Value::Int(0)),
        (format!("LOCK.RELEASE {lock} m {less}"), Value::Int(0)),
        (format!("LOCK.RELEASE {lock} m {more}"), Value::Int(0)),
        (format!("LOCK.CHECK {lock} other"), Value::Nil),
        (format!("LOCK.CHECK {lock} m {more}"), Value::Nil),
        (format!("LOCK.ACQUIRE {lock} other 1000"), Value::Nil),
        (format!("LOCK.ACQUIRE {lock} m 10"), Value::Int(held)),
        (format!("LOCK.CHECK {lock} m {fence}"), Value::Int(held)),
        (format!("PTTL {lock}"), Value::Nil),
        (format!("LOCK.RELEASE {lock} m {fence}"), Value::Int(1)),
        (format!("LOCK.EXTEND {lock} m 1000"), Value::Int(0)),
        (format!("LOCK.CHECK {lock} m"), Value::Nil),
        (format!("LOCK.RELEASE {lock} m"), Value::Int(0)),
    ];
    let commands: Vec<_> = asked.iter().map(|(command, _)| command.clone()).collect();
    let replies = probe.main.all(&commands)?;
    for ((command, due), reply) in asked.iter().zip(&replies) {
        let is_right = if command.starts_with("PTTL") {
            // A retry with a shorter lease does not shorten the lease, and no conversation lasts
            // half of it.
            matches!(reply, Value::Int(left) if *left > LONG as i64 / 2)
        } else {
            reply == due
        };
        if !is_right {
            let what = format!("{command}: {reply:?} with fence {fence} of m in force");
            probe.claim("L3", Excuse::Freed, what);
            return Err(Lost);
        }
    }
    Ok(())
}

/// The lock of a client that uses `SET NX` excludes others, and is released like any other.
pub(super) fn foreign(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let lock = probe.fresh();
    let set = format!("SET {lock} older NX PX {LONG}");
    let replies = probe.main.all(&[set, format!("LOCK.ACQUIRE {lock} m 1000")])?;
    if is_granted(&replies[1]).is_some() {
        probe.claim("L1", Excuse::Freed, format!("{lock} was granted, and an older client has it"));
        return Err(Lost);
    }
    probe.queue(&lock, 0, "w", EVER)?;
    probe.release(&lock, "older")?;
    probe.reply_soon(0, "who waited for an older client has the lock")?;
    probe.release(&lock, "w")
}
