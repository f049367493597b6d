//! Conversations about holds that end with a connection.

use super::{LONG, Probe, is_granted};
use crate::claims::Excuse;
use crate::connection::Lost;
use redis::Value;

impl Probe<'_> {
    /// A grant that is bound to the connection of this waiter.
    fn binds(&mut self, waiter: usize, lock: &str, owner: &str, grace: u64) -> Result<u64, Lost> {
        let asked = format!("LOCK.ACQUIRE {lock} {owner} {LONG} EPHEMERAL {grace}");
        is_granted(&self.waiters[waiter].ask(&asked)?).ok_or(Lost)
    }

    /// Whether this owner holds the lock by this fence. A fault may have ended the connection.
    fn still_holds(
        &mut self,
        waiter: usize,
        lock: &str,
        owner: &str,
        fence: u64,
    ) -> Result<(), Lost> {
        let held = self.main.ask(&format!("LOCK.CHECK {lock} {owner} {fence}"))?;
        if is_granted(&held) == Some(fence) {
            return Ok(());
        }
        self.waiters[waiter].ask("PING")?;
        self.claim("L3", Excuse::Freed, format!("{owner} has lost {lock} with fence {fence}"));
        Err(Lost)
    }

    fn kills(&mut self, waiter: usize) -> Result<(), Lost> {
        self.main.ask(&format!("CLIENT KILL ID {}", self.waiters[waiter].id))?;
        // Some servers close it in a later turn.
        for _ in 0..3 {
            self.main.ask("PING")?;
        }
        self.renew(waiter)
    }
}

/// A hold ends with the connection of the last request that bound it: with no former one, and it takes no other hold along.
pub(super) fn bound(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let lock = probe.fresh();
    let first = probe.binds(0, &lock, "e", 0)?;
    let again = probe.binds(1, &lock, "e", 0)?;
    if again != first {
        let what = format!("e holds {lock} with {first}, and was granted {again}");
        probe.claim("L2", Excuse::Freed, what);
        return Err(Lost);
    }
    probe.kills(0)?;
    probe.still_holds(1, &lock, "e", first)?;
    // The next hold of the same owner is bound to nothing, however this one ended.
    if probe.seed.below(2) == 0 {
        probe.release(&lock, "e")?;
    } else {
        probe.main.ask(&format!("DEL {lock}"))?;
    }
    let second = probe.grant(&lock, "e", LONG)?;
    probe.kills(1)?;
    probe.still_holds(2, &lock, "e", second)?;
    probe.release(&lock, "e")?;
    // In one packet with the end of the connection, and in a wait for it.
    probe.binds(0, &lock, "e", 0)?;
    let waits = probe.seed.below(2) == 0;
    if waits {
        probe.queue(&lock, 1, "w", LONG)?;
    }
    let id = probe.waiters[0].id;
    let mut asked = vec![format!("CLIENT KILL ID {id}"), format!("CLIENT LIST ID {id}")];
    if !waits {
        asked.push(format!("LOCK.ACQUIRE {lock} next {LONG}"));
    }
    let replies = probe.main.all(&asked)?;
    probe.renew(0)?;
    if waits {
        probe.reply_soon(1, "who waits for the end of a connection has the lock")?;
        return probe.release(&lock, "w");
    }
    let has_ended = matches!(&replies[1], Value::BulkString(text) if text.is_empty());
    if replies[2] == Value::Nil && has_ended {
        let holds = probe.main.ask(&format!("LOCK.HOLDERS {lock}"))?;
        let what = format!("{lock} is held behind the end of its connection, by {holds:?}");
        probe.claim("L5", Excuse::Freed, what);
        return Err(Lost);
    }
    probe.soon(Excuse::Freed, "the lock of a connection that has ended is free", |probe| {
        Ok(is_granted(&probe.main.ask(&format!("LOCK.ACQUIRE {lock} next {LONG}"))?))
    })?;
    probe.release(&lock, "next")
}
