//! Conversations about locks that several hold: who is let in beside whom, and what one of several
//! holders may do.

use super::{EVER, LONG, Probe, is_granted};
use crate::claims::Excuse;
use crate::connection::Lost;
use redis::Value;

/// A lease among long ones, in milliseconds.
const SHORT: u64 = 20;

impl Probe<'_> {
    /// One request, of one who tolerates so many holders.
    fn asks(&mut self, lock: &str, owner: &str, ttl: u64, share: u32) -> Result<Option<u64>, Lost> {
        let reply = self.main.ask(&format!("LOCK.ACQUIRE {lock} {owner} {ttl} SHARE {share}"))?;
        Ok(is_granted(&reply))
    }

    /// A grant that nothing is in the way of.
    pub(super) fn joins(
        &mut self,
        lock: &str,
        owner: &str,
        ttl: u64,
        share: u32,
    ) -> Result<u64, Lost> {
        match self.asks(lock, owner, ttl, share)? {
            Some(fence) => Ok(fence),
            None => {
                let what = format!("{owner} would be tolerated at {lock}, and is refused");
                self.claim("L5", Excuse::Freed, what);
                Err(Lost)
            }
        }
    }

    /// A try that must be refused.
    fn stays_out(
        &mut self,
        law: &'static str,
        lock: &str,
        share: u32,
        why: &str,
    ) -> Result<(), Lost> {
        match self.asks(lock, "thief", 1_000, share)? {
            None => Ok(()),
            Some(fence) => {
                let what = format!("a try of {lock} with share {share} was granted {fence}: {why}");
                self.claim(law, Excuse::Freed, what);
                Err(Lost)
            }
        }
    }

    fn holds(&mut self, lock: &str, owner: &str, fence: u64) -> Result<(), Lost> {
        let held = self.main.ask(&format!("LOCK.CHECK {lock} {owner} {fence}"))?;
        if is_granted(&held) == Some(fence) {
            return Ok(());
        }
        self.claim("L3", Excuse::Freed, format!("{owner} has lost {lock} with fence {fence}"));
        Err(Lost)
    }
}

/// Readers pass together. A writer waits for all of them, and later readers wait behind it, until it
/// has had the lock or has left.
pub(super) fn readers(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let lock = probe.fresh();
    let first = probe.joins(&lock, "r0", LONG, 0)?;
    let second = probe.joins(&lock, "r1", LONG, 0)?;
    probe.stays_out("L1", &lock, 1, "readers hold it")?;
    let leaves = probe.seed.below(3);
    let patience = if leaves == 0 { SHORT } else { EVER };
    probe.queue_for(&lock, 0, "writer", 1, patience)?;
    // One that gives up soon may be gone by now.
    if leaves > 0 {
        probe.queue_for(&lock, 1, "late", 0, EVER)?;
        probe.stays_out("L4", &lock, 0, "a writer waits")?;
    } else {
        let asked = format!("LOCK.ACQUIRE {lock} late {LONG} SHARE 0 BLOCK {EVER}");
        probe.waiters[1].send(&[asked])?;
    }
    // A reader that asks again is a reader still.
    let again = probe.joins(&lock, "r0", LONG, 0)?;
    if again != first {
        let what = format!("r0 holds {lock} with {first}, and was granted {again}");
        probe.claim("L2", Excuse::Freed, what);
        return Err(Lost);
    }
    if leaves == 1 {
        probe.main.ask(&format!("CLIENT KILL ID {}", probe.waiters[0].id))?;
        probe.renew(0)?;
    }
    if leaves < 2 {
        // If all keys were deleted meanwhile, the writer had the lock before it left, and may have it still.
        let what = match leaves {
            0 => "a reader behind a writer that has given up is let in",
            _ => "a reader behind a writer whose connection has ended is let in",
        };
        let reply = probe.soon(Excuse::Freed, what, |probe| probe.reply_of(1))?;
        let Some(fence) = is_granted(&reply) else { return Err(Lost) };
        probe.holds(&lock, "late", fence)?;
        if leaves == 0 {
            let given_up = probe.reply_soon(0, "the writer is told that it is too late")?;
            if let Some(fence) = is_granted(&given_up) {
                let what = format!("a writer was granted {fence} of {lock}, which readers hold");
                probe.claim("L1", Excuse::Freed, what);
                return Err(Lost);
            }
        }
        probe.holds(&lock, "r0", first)?;
        probe.holds(&lock, "r1", second)?;
        return probe.main.ask(&format!("DEL {lock}")).map(drop);
    }
    probe.release(&lock, "r1")?;
    if probe.reply_of(0)?.is_some() {
        probe.claim("L1", Excuse::Freed, format!("a writer has {lock} beside a reader"));
        return Err(Lost);
    }
    probe.release(&lock, "r0")?;
    let reply = probe.reply_soon(0, "the writer has the lock after all readers")?;
    if probe.reply_of(1)?.is_some() {
        probe.claim("L4", Excuse::Freed, format!("a reader of {lock} overtook a writer"));
        return Err(Lost);
    }
    let (Some(fence), true) = (is_granted(&reply), second > first) else { return Err(Lost) };
    if fence <= second {
        let what = format!("the writer was granted {fence} of {lock} after {second}");
        probe.claim("L2", Excuse::None, what);
    }
    probe.release(&lock, "writer")?;
    probe.reply_soon(1, "the reader has the lock after the writer")?;
    probe.release(&lock, "late")
}

/// As many hold the lock as all of them tolerate, and each who leaves lets in one.
pub(super) fn pool(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let lock = probe.fresh();
    let size = 2 + probe.seed.below(4) as u32;
    let mut last = 0;
    for holder in 0..size {
        // The smallest share of all counts, wherever it stands.
        let share = if holder == 0 { size } else { *probe.seed.pick(&[size, size + 2, 0]) };
        let fence = probe.joins(&lock, &format!("m{holder}"), LONG, share)?;
        if fence <= last {
            let what = format!("{fence} of {lock} was granted after {last}");
            probe.claim("L2", Excuse::None, what);
        }
        last = fence;
    }
    let share = *probe.seed.pick(&[size, size + 1, 0]);
    probe.stays_out("L1", &lock, share, "as many hold it as they tolerate")?;
    for waiter in 0..2 {
        probe.queue_for(&lock, waiter, &format!("w{waiter}"), size, EVER)?;
    }
    // The first one stays: what it tolerates still counts.
    probe.release(&lock, "m1")?;
    let reply = probe.reply_soon(0, "who waits for a place has the one that became free")?;
    if is_granted(&reply).is_none_or(|fence| fence <= last) {
        let what = format!("w0 was told {reply:?} of {lock} after {last}");
        probe.claim("L2", Excuse::Freed, what);
    }
    if probe.reply_of(1)?.is_some() {
        let what = format!("{} hold {lock}, where {size} are tolerated", size + 1);
        probe.claim("L1", Excuse::Freed, what);
        return Err(Lost);
    }
    probe.release(&lock, "w0")?;
    probe.reply_soon(1, "the next one has the place")?;
    probe.release(&lock, "w1")?;
    probe.main.ask(&format!("DEL {lock}")).map(drop)
}

/// A short lease ends among long ones, and the next is let in. The key lives on, and as long as the
/// longest lease.
pub(super) fn short_among_long(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let lock = probe.fresh();
    let long = probe.joins(&lock, "long", LONG, 2)?;
    let begin = probe.main.time()?;
    probe.joins(&lock, "short", SHORT, 2)?;
    let asked = format!("LOCK.ACQUIRE {lock} w {SHORT} SHARE 2 BLOCK {EVER}");
    probe.waiters[0].send(&[asked])?;
    while probe.main.time()? <= begin + (SHORT + 2) * 1_000 {}
    probe.reply_soon(0, "who waits for the end of a short lease has its place")?;
    probe.holds(&lock, "long", long)?;
    // The longest hold leaves, and the key ends with the one that is left.
    let (other, left) = (probe.fresh(), LONG / 2);
    probe.joins(&other, "long", LONG, 0)?;
    probe.joins(&other, "other", left, 0)?;
    probe.release(&other, "long")?;
    match probe.main.ask(&format!("PTTL {other}"))? {
        Value::Int(lasts) if lasts > left as i64 => {
            let what = format!("{other} lasts {lasts} ms, and its only holder {left} ms");
            probe.claim("L7", Excuse::Freed, what);
            Err(Lost)
        }
        _ => probe.main.ask(&format!("DEL {other}")).map(drop),
    }
}

/// A holder comes to tolerate more or fewer.
pub(super) fn other_shares(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let lock = probe.fresh();
    let reads = probe.joins(&lock, "m", LONG, 0)?;
    // Alone, a reader may write, even before those who wait; with a fence of its own.
    let waits = probe.seed.below(2) == 0;
    if waits {
        probe.queue_for(&lock, 0, "w", 1, EVER)?;
    }
    let writes = probe.joins(&lock, "m", LONG, 1)?;
    if writes <= reads {
        let what = format!("m of {lock} came to tolerate nobody, with {writes} after {reads}");
        probe.claim("L2", Excuse::Freed, what);
        return Err(Lost);
    }
    let former = probe.main.ask(&format!("LOCK.RELEASE {lock} m {reads}"))?;
    if former != Value::Int(0) {
        let what = format!("m released {lock} with {reads}, and has had {writes} since");
        probe.claim("L3", Excuse::Freed, what);
        return Err(Lost);
    }
    probe.holds(&lock, "m", writes)?;
    probe.stays_out("L1", &lock, 0, "a writer holds it")?;
    if waits {
        probe.release(&lock, "m")?;
        probe.reply_soon(0, "who waited while a reader came to write has the lock")?;
        return probe.release(&lock, "w");
    }
    // A writer that reads from now on keeps its fence and lets others in.
    let again = probe.joins(&lock, "m", LONG, 0)?;
    if again != writes {
        let what = format!("m of {lock} came to tolerate others, with {again} after {writes}");
        probe.claim("L2", Excuse::Freed, what);
        return Err(Lost);
    }
    let other = probe.joins(&lock, "n", LONG, 0)?;
    // If all keys were deleted before the other came, it is alone, and the first would wait for it.
    probe.holds(&lock, "m", writes)?;
    // Two that want to write would wait for each other.
    for (owner, fence) in [("m", writes), ("n", other)] {
        let asked = format!("LOCK.ACQUIRE {lock} {owner} {LONG} BLOCK {EVER}");
        probe.waiters[0].send(&[asked])?;
        let reply = probe.reply_soon(0, "a reader beside others is told that it cannot write")?;
        if let Some(fence) = is_granted(&reply) {
            let what = format!("{owner} writes at {lock} with {fence}, beside another");
            probe.claim("L1", Excuse::Freed, what);
            return Err(Lost);
        }
        probe.holds(&lock, owner, fence)?;
    }
    probe.main.ask(&format!("DEL {lock}")).map(drop)
}

/// Somebody else damages the value of a lock that several hold. It is the lock of a stranger then,
/// and excludes everybody.
pub(super) fn damaged(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let lock = probe.fresh();
    probe.joins(&lock, "r0", LONG, 0)?;
    probe.joins(&lock, "r1", LONG, 0)?;
    let Value::Int(length) = probe.main.ask(&format!("STRLEN {lock}"))? else { return Err(Lost) };
    let middle = length / 2 + 20;
    let ways = [
        format!("APPEND {lock} x"),
        format!("APPEND {lock} 1763712345678901"),
        format!("SETRANGE {lock} 3 x"),
        format!("SETRANGE {lock} {middle} x"),
        format!("SETRANGE {lock} {} x", length - 1),
    ];
    let way = probe.seed.pick(&ways).clone();
    probe.main.ask(&way)?;
    probe.stays_out("L1", &lock, 0, &format!("it is a stranger's since {way}"))?;
    let replies = probe.main.all(&[
        format!("LOCK.CHECK {lock} r0"),
        format!("LOCK.RELEASE {lock} r1"),
        format!("LOCK.EXTEND {lock} r0 1"),
        format!("EXISTS {lock}"),
    ])?;
    if replies != [Value::Nil, Value::Int(0), Value::Int(0), Value::Int(1)] {
        let what = format!("{lock} is a stranger's since {way}: {replies:?}");
        probe.claim("L3", Excuse::Freed, what);
        return Err(Lost);
    }
    probe.main.ask(&format!("DEL {lock}")).map(drop)
}

/// A grant that nobody heard of goes back, and with it no other hold.
pub(super) fn taken_back(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let lock = probe.fresh();
    let stays = probe.joins(&lock, "stays", LONG, 2)?;
    probe.joins(&lock, "leaves", LONG, 2)?;
    probe.queue_for(&lock, 0, "gone", 2, EVER)?;
    let next = probe.seed.below(2) == 0;
    if next {
        probe.queue_for(&lock, 1, "next", 2, EVER)?;
    }
    // In one packet, so that it is closed before it hears of its grant.
    let release = format!("LOCK.RELEASE {lock} leaves");
    let kill = format!("CLIENT KILL ID {}", probe.waiters[0].id);
    let replies = probe.main.all(&[release, kill])?;
    probe.renew(0)?;
    if replies[0] != Value::Int(1) {
        // A fault had deleted the lock.
        return Err(Lost);
    }
    if next {
        probe.reply_soon(1, "who waited behind one that is gone has its place")?;
    } else {
        probe.soon(Excuse::Freed, "the place of one that is gone is free", |probe| {
            probe.asks(&lock, "next", LONG, 2)
        })?;
    }
    probe.holds(&lock, "stays", stays)?;
    probe.stays_out("L1", &lock, 2, "two hold it, and no more are tolerated")?;
    probe.main.ask(&format!("DEL {lock}")).map(drop)
}
