//! Conversations about the queue: who is next, and that the lock is handed on.

use super::{EVER, LONG, Probe, is_granted};
use crate::claims::Excuse;
use crate::connection::{Lost, micros};
use redis::Value;
use std::ops::Range;
use std::thread;
use std::time::Duration;
use testkit::field;

/// How many tries of others follow: for longer than the shortest lease.
const THIEVES: usize = 600;

fn word(text: &str) -> String {
    text.to_owned()
}

/// Several clients wait, one after the other, and the first may leave. The lock becomes free in
/// some way, and another client tries it at once. The waiters are granted the lock in turn.
pub(super) fn order(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let lock = probe.fresh();
    let count = 2 + probe.seed.below(2);
    let mut last = probe.grant(&lock, "m", LONG)?;
    for waiter in 0..count {
        probe.queue(&lock, waiter, &format!("w{waiter}"), EVER)?;
    }
    thread::sleep(Duration::from_millis(*probe.seed.pick(&[0, 0, 0, 6])));
    let leaves = probe.seed.below(3);
    if leaves == 0 {
        probe.renew(0)?;
        probe.soon(Excuse::Stop, "who has hung up waits no longer", |probe| {
            let stays = probe.owners(&lock)?.iter().any(|owner| owner == "w0");
            Ok((!stays).then_some(()))
        })?;
    }
    let before = probe.main.time()?;
    let way = if leaves == 1 {
        // In one packet, so that it is closed before it hears of its grant.
        let kill = format!("CLIENT KILL ID {}", probe.waiters[0].id);
        let replies = probe.main.all(&[format!("LOCK.RELEASE {lock} m"), kill])?;
        probe.renew(0)?;
        if replies[0] != Value::Int(1) {
            // A fault had deleted the lock, and the first waiter had heard of its grant by then.
            return Err(Lost);
        }
        word("LOCK.RELEASE and CLIENT KILL of the first")
    } else {
        free(probe, &lock)?
    };
    for waiter in usize::from(leaves < 2)..count {
        let what = format!("w{waiter} of {count} has {lock} after {way}");
        let reply = probe.soon(Excuse::Stop, &what, |probe| {
            in_turn(probe, &lock, waiter..count)?;
            probe.reply_of(waiter)
        })?;
        let Some(fence) = is_granted(&reply) else {
            probe.claim("L5", Excuse::Stop, format!("w{waiter} was refused {lock}"));
            return Err(Lost);
        };
        if fence <= last {
            probe.claim("L2", Excuse::None, format!("{fence} of {lock} came after {last}"));
        }
        last = fence;
        if waiter == 0 {
            lasts(probe, &lock, "w0", before)?;
        }
        probe.release(&lock, &format!("w{waiter}"))?;
    }
    Ok(())
}

/// Checks that no waiter has a reply before the first, who hears of the release of the holder before.
fn in_turn(probe: &mut Probe<'_>, lock: &str, mut waiting: Range<usize>) -> Result<(), Lost> {
    let Some(first) = waiting.next() else { return Ok(()) };
    for other in waiting {
        if probe.waiters[other].has_reply()? {
            let what = format!("w{other} was told something of {lock} before w{first} had it");
            probe.claim("L4", Excuse::Freed, what);
            return Err(Lost);
        }
    }
    Ok(())
}

/// Takes the lock from its holder in some way, and tries to get it at once, before those who wait. Returns the way.
fn free(probe: &mut Probe<'_>, lock: &str) -> Result<String, Lost> {
    let try_it = format!("LOCK.ACQUIRE {lock} thief 1000");
    let release = format!("LOCK.RELEASE {lock} m");
    let ways = [
        release.clone(),
        format!("DEL {lock}"),
        format!("UNLINK {lock}"),
        format!("GETDEL {lock}"),
        format!("PEXPIRE {lock} -1"),
        format!("RENAME {lock} elsewhere"),
        format!("EVAL \"return redis.call('DEL', KEYS[1])\" 1 {lock}"),
        format!("LOCK.EXTEND {lock} m 1"),
    ];
    let last = ways.len() - 1;
    let any = probe.seed.below(ways.len());
    let chosen = *probe.seed.pick(&[any, any, last]);
    let way = ways[chosen].clone();
    let ends_soon = chosen == last;
    let replies = if ends_soon {
        let mut all = vec![way.clone()];
        all.extend((0..THIEVES).map(|_| try_it.clone()));
        probe.main.all(&all)?
    } else if probe.seed.below(2) == 0 {
        let all = [word("MULTI"), way.clone(), try_it, word("EXEC")];
        match probe.main.all(&all)?.pop() {
            Some(Value::Array(replies)) => replies,
            _ => return Err(Lost),
        }
    } else {
        probe.main.all(&[way.clone(), try_it])?
    };
    if let Some(fence) = replies[1..].iter().find_map(is_granted) {
        let what = format!("a try of {lock} after {way} was granted {fence}, while others wait");
        probe.claim("L4", Excuse::Freed, what);
        return Err(Lost);
    }
    // A fault may have deleted the lock, and the first waiter may have had its grant and left.
    let is_freed = match replies[0] {
        Value::ServerError(_) => false,
        _ if way.starts_with("LOCK.") => replies[0] == Value::Int(1),
        _ => true,
    };
    if is_freed { Ok(way) } else { Err(Lost) }
}

/// Checks that the lease of a waiter began no earlier than `since`.
fn lasts(probe: &mut Probe<'_>, lock: &str, owner: &str, since: u64) -> Result<(), Lost> {
    let replies = probe.main.all(&[format!("LOCK.INFO {lock}"), word("TIME")])?;
    if replies[0] == Value::Nil {
        return Ok(());
    }
    let (Some(Value::BulkString(holder)), Some(Value::Int(left))) =
        (field(&replies[0], "owner"), field(&replies[0], "ttl"))
    else {
        return Ok(());
    };
    let (left, passed) = (*left as u64, micros(&replies[1])?.saturating_sub(since) / 1_000);
    if *holder == owner.as_bytes() && left + passed + 2 < LONG {
        let what = format!("{left} ms are left of {lock}, granted for {LONG} {passed} ms ago");
        probe.claim("L1", Excuse::Freed, what);
    }
    Ok(())
}

/// Many locks are handed on at once, each with one waiter.
pub(super) fn hand_offs(probe: &mut Probe<'_>) -> Result<(), Lost> {
    for _ in 0..20 {
        let locks: Vec<_> = (0..probe.waiters.len()).map(|_| probe.fresh()).collect();
        let each = |shape: &dyn Fn(&str) -> String| -> Vec<String> {
            locks.iter().map(|lock| shape(lock)).collect()
        };
        probe.main.all(&each(&|lock| format!("LOCK.ACQUIRE {lock} m {LONG}")))?;
        for (waiter, lock) in locks.iter().enumerate() {
            let asked = format!("LOCK.ACQUIRE {lock} w {LONG} BLOCK {EVER}");
            probe.waiters[waiter].send(&[asked])?;
        }
        let looks = each(&|lock| format!("LOCK.WAITERS {lock} COUNT 1"));
        probe.soon(Excuse::Stop, "all of them wait", |probe| {
            let queues = probe.main.all(&looks)?;
            let mut all = true;
            for (waiter, queue) in queues.iter().enumerate() {
                let waits = matches!(queue, Value::Array(rows) if !rows.is_empty());
                all &= waits || probe.waiters[waiter].has_reply()?;
            }
            Ok(all.then_some(()))
        })?;
        probe.main.all(&each(&|lock| format!("LOCK.RELEASE {lock} m")))?;
        for (waiter, lock) in locks.iter().enumerate() {
            let what = format!("who waits for {lock}, which was released, has it");
            let reply = probe.reply_soon(waiter, &what)?;
            if is_granted(&reply).is_none() {
                probe.claim("L5", Excuse::Stop, format!("{lock} was refused to who waited"));
            }
        }
        probe.main.all(&each(&|lock| format!("LOCK.RELEASE {lock} w")))?;
    }
    Ok(())
}

/// Who is next has the lock in the step that frees it, so that the next command sees that.
pub(super) fn at_once(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let lock = probe.fresh();
    probe.grant(&lock, "m", LONG)?;
    let ticket = format!("LOCK.ACQUIRE {lock} next {LONG} TICKET {LONG}");
    if probe.main.ask(&ticket)? != Value::Nil {
        // A fault had deleted the lock.
        return Err(Lost);
    }
    probe.release(&lock, "m")?;
    let held = is_granted(&probe.main.ask(&format!("LOCK.CHECK {lock} next"))?);
    if held.is_none() {
        let what = format!("next has the first place for {lock}, and not the lock");
        probe.claim("L5", Excuse::Freed, what);
        return Err(Lost);
    }
    let claimed = is_granted(&probe.main.ask(&ticket)?);
    if claimed != held {
        let what = format!("next was granted {lock} with {held:?}, and claims it with {claimed:?}");
        probe.claim("L2", Excuse::Freed, what);
        return Err(Lost);
    }
    probe.release(&lock, "next")
}

/// A deletion is queued in a transaction before anybody waits, so that nobody hears of it, and executed when somebody does.
pub(super) fn queued_before(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let lock = probe.fresh();
    probe.grant(&lock, "m", LONG)?;
    let mut other = probe.another()?;
    other.all(&[word("MULTI"), format!("DEL {lock}")])?;
    probe.queue(&lock, 0, "w", EVER)?;
    let Value::Array(done) = other.ask("EXEC")? else { return Err(Lost) };
    if done != [Value::Int(1)] {
        // A fault had deleted the lock, or took the right to do so away.
        return Err(Lost);
    }
    probe.reply_soon(0, "who waits for a lock whose deletion was queued before has it")?;
    probe.release(&lock, "w")
}
