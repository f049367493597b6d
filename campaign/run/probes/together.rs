//! Conversations about several locks in one request: all or none, in turn, and by one fence.

use super::{LONG, Probe, is_granted};
use crate::claims::Excuse;
use crate::connection::Lost;
use redis::Value;

impl Probe<'_> {
    /// `LOCK.ACQUIRE` of these locks, in whatever order, with these options.
    fn for_all(&mut self, locks: &[&str], owner: &str, options: &str) -> String {
        let mut locks = locks.to_vec();
        for at in (1..locks.len()).rev() {
            locks.swap(at, self.seed.below(at + 1));
        }
        let (first, also) = (locks[0], locks[1..].join(" "));
        format!("LOCK.ACQUIRE {first} {owner} {LONG} {options} ALSO {} {also}", locks.len() - 1)
    }

    /// Sends a request that waits for all of these, and returns when it is seen in the queue of each.
    fn queue_for_all(
        &mut self,
        locks: &[&str],
        waiter: usize,
        owner: &str,
        options: &str,
    ) -> Result<(), Lost> {
        let options = format!("BLOCK {LONG} {options}");
        let asked = self.for_all(locks, owner, &options);
        self.waiters[waiter].send(&[asked])?;
        for lock in locks {
            self.soon(Excuse::Stop, "one who asked for several locks waits for each", |probe| {
                if probe.waiters[waiter].has_reply()? {
                    // A fault deleted a lock, or the server is too old.
                    return Err(Lost);
                }
                Ok(probe.owners(lock)?.iter().any(|seen| seen == owner).then_some(()))
            })?;
        }
        Ok(())
    }

    /// All of these are its own, by this fence.
    fn holds_all(&mut self, locks: &[&str], owner: &str, fence: u64) -> Result<(), Lost> {
        let asked: Vec<_> = locks.iter().map(|lock| format!("LOCK.CHECK {lock} {owner}")).collect();
        let held: Vec<_> = self.main.all(&asked)?.iter().map(is_granted).collect();
        if held.iter().all(|held| *held == Some(fence)) {
            return Ok(());
        }
        let what = format!("{owner} was granted {locks:?} by {fence}, and holds {held:?}");
        self.claim("L1", Excuse::Freed, what);
        Err(Lost)
    }

    /// Nobody overtakes those who wait for this lock, although it is free.
    fn is_not_to_be_had(&mut self, lock: &str, queue: &[&str]) -> Result<(), Lost> {
        let tried = self.main.ask(&format!("LOCK.ACQUIRE {lock} try {LONG}"))?;
        let waiting = self.owners(lock)?;
        if is_granted(&tried).is_some() || waiting != queue {
            let what = format!("{queue:?} wait for {lock}; a try got {tried:?}, and {waiting:?}");
            self.claim("L4", Excuse::Freed, what);
            return Err(Lost);
        }
        Ok(())
    }

    fn release_all(&mut self, locks: [&str; 2], owner: &str) -> Result<(), Lost> {
        let [first, other] = locks;
        let released = self.main.ask(&format!("LOCK.RELEASE {first} {owner} ALSO 1 {other}"))?;
        if released != Value::Int(2) {
            let what = format!("{owner} holds {locks:?}, and released {released:?} of them");
            self.claim("L3", Excuse::Freed, what);
            return Err(Lost);
        }
        Ok(())
    }
}

/// Who waits for several locks is granted all of them, when it is first in every queue; those behind it wait.
pub(super) fn in_turn(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let (a, b, c) = (probe.fresh(), probe.fresh(), probe.fresh());
    let (a, b, c) = (&*a, &*b, &*c);
    probe.grant(a, "m", LONG)?;
    let bound = *probe.seed.pick(&["", "EPHEMERAL 0"]);
    probe.queue_for_all(&[a, b], 0, "w0", bound)?;
    let by_ticket = probe.seed.below(2) == 0;
    if by_ticket {
        let options = format!("TICKET {LONG}");
        let asked = probe.for_all(&[b, c], "w1", &options);
        probe.main.ask(&asked)?;
    } else {
        probe.queue_for_all(&[b, c], 1, "w1", "")?;
    }
    probe.queue(c, 2, "w2", LONG)?;
    probe.is_not_to_be_had(b, &["w0", "w1"])?;
    probe.is_not_to_be_had(c, &["w1", "w2"])?;
    probe.release(a, "m")?;
    let granted = probe.reply_soon(0, "who is first in both queues has both locks")?;
    let fence = is_granted(&granted).ok_or(Lost)?;
    probe.holds_all(&[a, b], "w0", fence)?;
    if bound.is_empty() {
        probe.release_all([a, b], "w0")?;
    } else {
        let id = probe.waiters[0].id;
        probe.main.ask(&format!("CLIENT KILL ID {id}"))?;
        probe.renew(0)?;
    }
    if by_ticket {
        let options = format!("TICKET {LONG}");
        let asked = probe.for_all(&[b, c], "w1", &options);
        let told = probe.soon(Excuse::Freed, "whose turn has come has both locks", |probe| {
            Ok(is_granted(&probe.main.ask(&asked)?))
        })?;
        probe.holds_all(&[b, c], "w1", told)?;
    } else {
        let told = probe.reply_soon(1, "who is first in both queues has both locks")?;
        probe.holds_all(&[b, c], "w1", is_granted(&told).ok_or(Lost)?)?;
    }
    // Each lock is released by itself, whatever else is named.
    let released = probe.main.ask(&format!("LOCK.RELEASE {a} w1 ALSO 1 {c}"))?;
    if released != Value::Int(1) {
        let what = format!("w1 holds {c} and not {a}, and released {released:?} of them");
        probe.claim("L3", Excuse::Freed, what);
        return Err(Lost);
    }
    probe.reply_soon(2, "who waits for one of several locks has it when that is free")?;
    probe.release(c, "w2")?;
    probe.release(b, "w1")
}

/// Who leaves has no place left in any queue; and a grant that nobody hears of goes back whole.
pub(super) fn leaving(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let (a, b) = (probe.fresh(), probe.fresh());
    let (a, b) = (&*a, &*b);
    probe.grant(a, "m", LONG)?;
    probe.queue_for_all(&[a, b], 0, "w0", "")?;
    probe.queue(b, 1, "w1", LONG)?;
    let kill = format!("CLIENT KILL ID {}", probe.waiters[0].id);
    if probe.seed.below(2) == 0 {
        probe.main.ask(&kill)?;
    } else {
        // In one packet with its grant.
        let released = probe.main.all(&[format!("LOCK.RELEASE {a} m"), kill])?;
        if released[0] != Value::Int(1) {
            return Err(Lost);
        }
    }
    probe.renew(0)?;
    // A fault may have freed the other lock before: then it was told of its grant, and keeps it.
    let what = "who waits behind one that has gone has the lock";
    probe.soon(Excuse::Freed, what, |probe| probe.reply_of(1))?;
    // What the other had, if it had anything, is free again.
    probe.main.ask(&format!("LOCK.RELEASE {a} m"))?;
    probe.soon(Excuse::Freed, "no lock is kept for one that has gone", |probe| {
        Ok(is_granted(&probe.main.ask(&format!("LOCK.ACQUIRE {a} next {LONG}"))?))
    })?;
    probe.release(a, "next")?;
    probe.release(b, "w1")
}

/// A try is granted all or none, and so is an extension.
pub(super) fn tried(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let (a, b) = (probe.fresh(), probe.fresh());
    let (a, b) = (&*a, &*b);
    probe.grant(b, "m", LONG)?;
    let asked = probe.for_all(&[a, b], "t", "");
    if is_granted(&probe.main.ask(&asked)?).is_some() {
        probe.claim("L1", Excuse::Freed, format!("m holds {b}, and t was granted it with {a}"));
        return Err(Lost);
    }
    // The first is still free.
    probe.grant(a, "m2", LONG)?;
    probe.release(a, "m2")?;
    probe.release(b, "m")?;
    let granted = is_granted(&probe.main.ask(&asked)?).ok_or(Lost)?;
    probe.holds_all(&[a, b], "t", granted)?;
    let extend = format!("LOCK.EXTEND {a} t {LONG} {granted} ALSO 1 {b}");
    let both = probe.main.ask(&extend)?;
    probe.release(b, "t")?;
    let one = probe.main.ask(&extend)?;
    if (&both, &one) != (&Value::Int(1), &Value::Int(0)) {
        let what = format!("both of {a} and {b} were extended: {both:?}; one of them: {one:?}");
        probe.claim("L3", Excuse::Freed, what);
        return Err(Lost);
    }
    probe.release(a, "t")
}
