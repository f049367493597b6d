//! Conversations about fences: they grow, whatever happens to a lock.

use super::{LONG, Probe};
use crate::claims::Excuse;
use crate::connection::Lost;
use redis::Value;

/// How far ahead of the clock a met fence is, as that of a server whose clock is wrong.
const AHEAD_MICROS: u64 = 2_000_000;

const A_YEAR_MICROS: u64 = 365 * 86_400 * 1_000_000;

/// The owner and the place of fences that another server gave out.
pub(super) fn lifted(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let lock = probe.fresh();
    let first = probe.grant(&lock, "m", LONG)?;
    let now = probe.main.time()?;
    let ahead = first.max(now + AHEAD_MICROS) + 1_000;
    let by_hand = probe.seed.below(2) == 0;
    if by_hand {
        let raise = format!("LOCK.RAISE {lock} m {ahead}");
        if probe.main.ask(&raise)? != Value::Int(ahead as i64) {
            return Ok(());
        }
        // Deleted without a command of the module, which would see the fence in the value.
        probe.main.ask(&format!("DEL {lock}"))?;
    } else {
        let others = format!("SET {lock} {ahead}:m PX {LONG}");
        probe.main.all(&[others, format!("LOCK.CHECK {lock} m")])?;
        probe.release(&lock, "m")?;
    }
    let next = probe.grant(&lock, "n", LONG)?;
    if next <= ahead {
        probe.claim("L2", Excuse::Freed, format!("{next} was granted for {lock} after {ahead}"));
    }
    // Nor is the fence given out again. The clock has not reached it yet, and no value shows it.
    probe.main.ask(&format!("DEL {lock}"))?;
    let (before, other) = (next, probe.fresh());
    let next = probe.grant(&other, "n", LONG)?;
    if next <= before {
        probe.claim("L2", Excuse::None, format!("{next} was granted for {other} after {before}"));
    }
    probe.release(&other, "n")?;
    // A fence that no server can have given out is ignored.
    let never = now + A_YEAR_MICROS;
    probe.main.all(&[
        format!("SET {lock} {never}:m PX {LONG}"),
        format!("LOCK.CHECK {lock} m"),
        format!("DEL {lock}"),
    ])?;
    let next = probe.grant(&lock, "n", LONG)?;
    if next >= never {
        probe.claim("L2", Excuse::Freed, format!("{next} was granted for {lock}, of next year"));
    }
    probe.release(&lock, "n")
}

/// The owners that the server makes are all different.
pub(super) fn minted(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let locks = [probe.fresh(), probe.fresh()];
    let asked = locks.each_ref().map(|lock| format!("LOCK.ACQUIRE {lock} * {LONG}"));
    let replies = probe.main.all(&asked)?;
    let owner = |reply: &Value| match reply {
        Value::Array(parts) => parts.first().cloned(),
        _ => None,
    };
    let Some(first) = owner(&replies[0]) else { return Err(Lost) };
    if owner(&replies[1]).is_some_and(|other| other == first) {
        probe.claim("L3", Excuse::None, "two owners that the server made are the same");
    }
    probe.main.all(&locks.each_ref().map(|lock| format!("DEL {lock}"))).map(drop)
}
