//! Conversations for servers of their own, to which more can be done.

use super::{LATE_MICROS, LONG, Teller, is_granted};
use crate::claims::Excuse;
use crate::connection::{Connection, Lost};
use crate::fight::now;
use redis::Value;
use testkit::bulk_text;

const EVER: u64 = 600_000;

/// May wait for a lock where that is limited.
pub(crate) const MOST: usize = 2;

/// The look of each second, and how late it may be.
const LOOK_MICROS: u64 = 1_000_000 + LATE_MICROS;

/// The server is short of memory until it has evicted the lock that is held and waited for.
pub(crate) fn evicted(teller: &mut Teller<'_>) -> Result<(), Lost> {
    let lock = teller.fresh();
    let fence = teller.grant(&lock, "m", LONG)?;
    teller.queue(&lock, 0, "w", EVER)?;
    let before = evictions(&mut teller.main)?;
    teller.main.ask("CONFIG SET maxmemory 1")?;
    teller.soon(Excuse::None, "the server evicts something", |teller| {
        // What may need memory makes it look for some. It is refused.
        teller.main.send(&["SET filler x".to_owned()])?;
        let _ = teller.main.receive();
        Ok((evictions(&mut teller.main)? > before).then_some(()))
    })?;
    teller.main.ask("CONFIG SET maxmemory 0")?;
    let kept = teller.soon(Excuse::None, "the lock is somebody's again", |teller| {
        let held = teller.main.ask(&format!("LOCK.CHECK {lock} m"))?;
        Ok(if is_granted(&held) == Some(fence) {
            Some(true)
        } else {
            teller.waiters[0].has_reply()?.then_some(false)
        })
    })?;
    if !kept {
        let what = format!("{lock} of m was evicted, and granted to w");
        teller.claim("L1", Excuse::None, what);
        return Err(Lost);
    }
    teller.release(&lock, "m")?;
    teller.reply_soon(0, "who waited while the lock was evicted has it")?;
    teller.release(&lock, "w")
}

/// The same where nobody waits, so that nobody looks at the lock either. Servers before 7.2 do not
/// tell modules what they are about to evict.
pub(crate) fn evicted_unwaited(teller: &mut Teller<'_>) -> Result<(), Lost> {
    let (lock, other) = (teller.fresh(), teller.fresh());
    let fence = teller.grant(&lock, "m", LONG)?;
    // What is no lock is evicted as ever.
    teller.main.ask(&format!("SET {other} x PX {LONG}"))?;
    let before = evictions(&mut teller.main)?;
    teller.main.ask("CONFIG SET maxmemory 1")?;
    teller.soon(Excuse::None, "the server evicts what is no lock", |teller| {
        teller.main.send(&["SET filler x".to_owned()])?;
        let _ = teller.main.receive();
        let is_gone = teller.main.ask(&format!("EXISTS {other}"))? == Value::Int(0);
        Ok((is_gone && evictions(&mut teller.main)? > before).then_some(()))
    })?;
    // Out of memory a try is refused with an error, and a release is not.
    for _ in 0..3 {
        teller.main.send(&[format!("LOCK.ACQUIRE {lock} thief 1000")])?;
        if let Ok(reply) = teller.main.receive_any()
            && let Some(stolen) = is_granted(&reply)
        {
            let what = format!("{lock} of m was evicted, and {stolen} granted to another");
            teller.claim("L1", Excuse::None, what);
            return Err(Lost);
        }
    }
    teller.main.ask("CONFIG SET maxmemory 0")?;
    let replies = teller.main.all(&[
        format!("LOCK.ACQUIRE {lock} thief 1000"),
        format!("LOCK.CHECK {lock} m"),
        format!("PTTL {lock}"),
    ])?;
    let lasts = matches!(replies[2], Value::Int(left) if (1..=LONG as i64).contains(&left));
    if is_granted(&replies[1]) != Some(fence) || !lasts {
        let what = format!("{lock} of m with {fence} was evicted: {replies:?}");
        teller.claim("L1", Excuse::None, what);
        return Err(Lost);
    }
    teller.release(&lock, "m")
}

fn evictions(connection: &mut Connection) -> Result<u64, Lost> {
    let text = bulk_text(&connection.ask("INFO stats")?);
    let count = text.lines().find_map(|line| line.strip_prefix("evicted_keys:"));
    count.and_then(|digits| digits.trim().parse().ok()).ok_or(Lost)
}

/// As many as may wait do, and nobody else; who waits already is not one more.
pub(crate) fn limited(teller: &mut Teller<'_>) -> Result<(), Lost> {
    let lock = teller.fresh();
    teller.grant(&lock, "m", LONG)?;
    for (waiter, owner) in (0..MOST).zip(["w0", "w1"]) {
        teller.queue(&lock, waiter, owner, EVER)?;
    }
    let mut stranger = teller.another()?;
    stranger.send(&[format!("LOCK.ACQUIRE {lock} w2 {LONG} BLOCK {EVER}")])?;
    let asked_again = format!("LOCK.ACQUIRE {lock} w1 {LONG} BLOCK {EVER}");
    teller.waiters[MOST].send(&[asked_again])?;
    let refused = teller.soon(Excuse::None, "who may not wait is told so", |teller| {
        let waits = teller.owners(&lock)?.iter().any(|owner| owner == "w2");
        Ok((waits || stranger.has_reply()?).then_some(!waits))
    })?;
    if !refused {
        let what = format!("{} wait for {lock}, and {MOST} may", MOST + 1);
        teller.claim("L6", Excuse::None, what);
        return Err(Lost);
    }
    teller.release(&lock, "m")?;
    teller.reply_soon(0, "the first who was let wait has the lock")?;
    teller.release(&lock, "w0")?;
    teller.reply_soon(MOST, "who asked again has the lock")?;
    teller.release(&lock, "w1")?;
    teller.renew(1)
}

/// The deletion is known before the clock is set back, and made after that. The look each second finds it.
pub(crate) fn transaction_in_a_step(
    teller: &mut Teller<'_>,
    step_back: &mut dyn FnMut(),
) -> Result<(), Lost> {
    let lock = teller.fresh();
    teller.grant(&lock, "m", EVER)?;
    teller.queue(&lock, 0, "w", EVER)?;
    let mut other = teller.another()?;
    other.all(&["MULTI".to_owned(), format!("DEL {lock}")])?;
    step_back();
    let Value::Array(_) = other.ask("EXEC")? else { return Err(Lost) };
    granted_by_the_next_look(teller)
}

fn granted_by_the_next_look(teller: &mut Teller<'_>) -> Result<(), Lost> {
    let begin = now();
    while now() < begin + LOOK_MICROS && !teller.waiters[0].has_reply()? {
        teller.main.ask("PING")?;
    }
    teller.reply_soon(0, "who waits for a lock deleted at a step of the clock has it")?;
    Ok(())
}

/// The clock is set back while the server hands the lock on, or shortly before or after. It goes on all the same.
pub(crate) fn deletion_in_a_step(
    teller: &mut Teller<'_>,
    step_back: &mut dyn FnMut(),
) -> Result<(), Lost> {
    let lock = teller.fresh();
    teller.grant(&lock, "m", EVER)?;
    teller.queue(&lock, 0, "w0", EVER)?;
    teller.queue(&lock, 1, "w1", EVER)?;
    let mut other = teller.another()?;
    step_back();
    for asked in [&*format!("DEL {lock}"), "PING", "PING"] {
        if other.ask(asked).is_err() {
            let what = "the clock was set back, and the server answers nobody any more";
            teller.claim("L6", Excuse::None, what);
            return Err(Lost);
        }
    }
    granted_by_the_next_look(teller)
}
