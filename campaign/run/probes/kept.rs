//! Conversations that need a server of their own, because they change its settings or its clock.

use super::{EVER, LONG, Probe, is_granted};
use crate::claims::Excuse;
use crate::connection::{Connection, Lost};
use crate::runner::now;
use leasehold_campaign::LATE_MICROS;
use redis::Value;
use testkit::bulk_text;

/// How many may wait for a lock where that is limited.
pub(crate) const MOST: usize = 2;

/// The module looks at contended locks every second; this is how late that may be.
const LOOK_MICROS: u64 = 1_000_000 + LATE_MICROS;

/// The server runs out of memory until it has evicted a lock that is held and waited for.
pub(crate) fn evicted(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let lock = probe.fresh();
    let fence = probe.grant(&lock, "m", LONG)?;
    probe.queue(&lock, 0, "w", EVER)?;
    let before = evictions(&mut probe.main)?;
    probe.main.ask("CONFIG SET maxmemory 1")?;
    probe.soon(Excuse::None, "the server evicts something", |probe| {
        // A command that may need memory makes the server evict. The command is refused.
        probe.main.send(&["SET filler x".to_owned()])?;
        let _ = probe.main.receive();
        Ok((evictions(&mut probe.main)? > before).then_some(()))
    })?;
    probe.main.ask("CONFIG SET maxmemory 0")?;
    let kept = probe.soon(Excuse::None, "the lock is somebody's again", |probe| {
        let held = probe.main.ask(&format!("LOCK.CHECK {lock} m"))?;
        Ok(if is_granted(&held) == Some(fence) {
            Some(true)
        } else {
            probe.waiters[0].has_reply()?.then_some(false)
        })
    })?;
    if !kept {
        let what = format!("{lock} of m was evicted, and granted to w");
        probe.claim("L1", Excuse::None, what);
        return Err(Lost);
    }
    probe.release(&lock, "m")?;
    probe.reply_soon(0, "who waited while the lock was evicted has it")?;
    probe.release(&lock, "w")
}

/// The server evicts a lock for which nobody waits, so the module has no other reason to look at
/// it. Servers before 7.2 do not tell modules what they are about to evict.
pub(crate) fn evicted_unwaited(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let (lock, other) = (probe.fresh(), probe.fresh());
    let fence = probe.grant(&lock, "m", LONG)?;
    // Keys that are no locks are evicted as ever.
    probe.main.ask(&format!("SET {other} x PX {LONG}"))?;
    let before = evictions(&mut probe.main)?;
    probe.main.ask("CONFIG SET maxmemory 1")?;
    probe.soon(Excuse::None, "the server evicts what is no lock", |probe| {
        probe.main.send(&["SET filler x".to_owned()])?;
        let _ = probe.main.receive();
        let is_gone = probe.main.ask(&format!("EXISTS {other}"))? == Value::Int(0);
        Ok((is_gone && evictions(&mut probe.main)? > before).then_some(()))
    })?;
    // Without memory, the server refuses a try with an error, and executes a release.
    for _ in 0..3 {
        probe.main.send(&[format!("LOCK.ACQUIRE {lock} thief 1000")])?;
        if let Ok(reply) = probe.main.receive_any()
            && let Some(stolen) = is_granted(&reply)
        {
            let what = format!("{lock} of m was evicted, and {stolen} granted to another");
            probe.claim("L1", Excuse::None, what);
            return Err(Lost);
        }
    }
    probe.main.ask("CONFIG SET maxmemory 0")?;
    let replies = probe.main.all(&[
        format!("LOCK.ACQUIRE {lock} thief 1000"),
        format!("LOCK.CHECK {lock} m"),
        format!("PTTL {lock}"),
    ])?;
    let lasts = matches!(replies[2], Value::Int(left) if (1..=LONG as i64).contains(&left));
    if is_granted(&replies[1]) != Some(fence) || !lasts {
        let what = format!("{lock} of m with {fence} was evicted: {replies:?}");
        probe.claim("L1", Excuse::None, what);
        return Err(Lost);
    }
    probe.release(&lock, "m")
}

fn evictions(connection: &mut Connection) -> Result<u64, Lost> {
    let text = bulk_text(&connection.ask("INFO stats")?);
    let count = text.lines().find_map(|line| line.strip_prefix("evicted_keys:"));
    count.and_then(|digits| digits.trim().parse().ok()).ok_or(Lost)
}

/// As many clients wait as may, and no others. A waiter that asks again does not count twice.
pub(crate) fn limited(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let lock = probe.fresh();
    probe.grant(&lock, "m", LONG)?;
    for (waiter, owner) in (0..MOST).zip(["w0", "w1"]) {
        probe.queue(&lock, waiter, owner, EVER)?;
    }
    let mut stranger = probe.another()?;
    stranger.send(&[format!("LOCK.ACQUIRE {lock} w2 {LONG} BLOCK {EVER}")])?;
    let asked_again = format!("LOCK.ACQUIRE {lock} w1 {LONG} BLOCK {EVER}");
    probe.waiters[MOST].send(&[asked_again])?;
    let refused = probe.soon(Excuse::None, "who may not wait is told so", |probe| {
        let waits = probe.owners(&lock)?.iter().any(|owner| owner == "w2");
        Ok((waits || stranger.has_reply()?).then_some(!waits))
    })?;
    if !refused {
        let what = format!("{} wait for {lock}, and {MOST} may", MOST + 1);
        probe.claim("L6", Excuse::None, what);
        return Err(Lost);
    }
    probe.release(&lock, "m")?;
    probe.reply_soon(0, "the first who was let wait has the lock")?;
    probe.release(&lock, "w0")?;
    probe.reply_soon(MOST, "who asked again has the lock")?;
    probe.release(&lock, "w1")?;
    probe.renew(1)
}

/// A deletion is queued in a transaction, the clock is set back, and the transaction is executed.
/// The look of every second finds the free lock.
pub(crate) fn transaction_in_a_step(
    probe: &mut Probe<'_>,
    step_back: &mut dyn FnMut(),
) -> Result<(), Lost> {
    let lock = probe.fresh();
    probe.grant(&lock, "m", EVER)?;
    probe.queue(&lock, 0, "w", EVER)?;
    let mut other = probe.another()?;
    other.all(&["MULTI".to_owned(), format!("DEL {lock}")])?;
    step_back();
    let Value::Array(_) = other.ask("EXEC")? else { return Err(Lost) };
    granted_by_the_next_look(probe)
}

fn granted_by_the_next_look(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let begin = now();
    while now() < begin + LOOK_MICROS && !probe.waiters[0].has_reply()? {
        probe.main.ask("PING")?;
    }
    probe.reply_soon(0, "who waits for a lock deleted at a step of the clock has it")?;
    Ok(())
}

/// The clock is set back while the server hands the lock on, or shortly before or after. The lock
/// is handed on all the same.
pub(crate) fn deletion_in_a_step(
    probe: &mut Probe<'_>,
    step_back: &mut dyn FnMut(),
) -> Result<(), Lost> {
    let lock = probe.fresh();
    probe.grant(&lock, "m", EVER)?;
    probe.queue(&lock, 0, "w0", EVER)?;
    probe.queue(&lock, 1, "w1", EVER)?;
    let mut other = probe.another()?;
    step_back();
    for asked in [&*format!("DEL {lock}"), "PING", "PING"] {
        if other.ask(asked).is_err() {
            let what = "the clock was set back, and the server answers nobody any more";
            probe.claim("L6", Excuse::None, what);
            return Err(Lost);
        }
    }
    granted_by_the_next_look(probe)
}

/// The clock falls back by less than a millisecond while the server hands the lock on, as that of Valkey 9.1 does by itself. Nobody
/// waits for the server's routine.
pub(crate) fn deletion_in_a_fall(
    probe: &mut Probe<'_>,
    fall_back: &mut dyn FnMut(),
) -> Result<(), Lost> {
    let lock = probe.fresh();
    probe.grant(&lock, "m", EVER)?;
    probe.queue(&lock, 0, "w", EVER)?;
    let mut other = probe.another()?;
    fall_back();
    other.ask(&format!("DEL {lock}"))?;
    probe.reply_soon(0, "who waits for a lock deleted as the clock fell back a little has it")?;
    Ok(())
}
