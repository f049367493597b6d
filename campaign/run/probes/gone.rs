//! Waiters that cannot use their grant: the server is closing their connection, or the lease has
//! ended by then.

use super::{EVER, LONG, Probe, is_granted};
use crate::claims::Excuse;
use crate::connection::Lost;
use redis::Value;
use testkit::{field, is_valkey_since};

/// More than the server keeps for a connection besides the replies that its output limit counts.
const MESSAGE: usize = 50_000;

/// How long a transaction keeps the server busy, in seconds, and how many turns of a loop a script
/// does: both take longer than `SHORT`.
const BUSY: &str = "0.006";
const TURNS: u32 = 60_000;

/// A lease that ends within the transaction or the script, in milliseconds.
const SHORT: u64 = 2;

/// How the server closes the connection of the first waiter in the turn in which the lock is handed
/// to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closing {
    /// Its user is deleted.
    DeletedUser,
    /// Its user is not in the file of users that is loaded.
    LoadedUsers,
    /// It subscribes to a channel, and too much is published there.
    OutputLimit,
}

/// The way that is possible on any server.
pub(super) fn deleted_user(probe: &mut Probe<'_>) -> Result<(), Lost> {
    closed(probe, Closing::DeletedUser)
}

/// One of the ways, on a server of its own that keeps a file of users.
pub(crate) fn closed_in_any_way(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let mut ways = vec![Closing::DeletedUser, Closing::LoadedUsers];
    // On Valkey, a subscriber may not wait.
    if !is_valkey_since((0, 0)) {
        ways.push(Closing::OutputLimit);
    }
    let way = *probe.seed.pick(&ways);
    closed(probe, way)
}

fn closed(probe: &mut Probe<'_>, way: Closing) -> Result<(), Lost> {
    let lock = probe.fresh();
    // No other probe uses this name.
    let name = lock.clone();
    let users = way != Closing::OutputLimit;
    let prepare = match users {
        true => vec![format!("AUTH {name} x")],
        false => vec!["HELLO 3".to_owned(), format!("SUBSCRIBE {name}")],
    };
    if users {
        probe.main.ask(&format!("ACL SETUSER {name} on nopass ~* +@all"))?;
    }
    for command in prepare {
        probe.waiters[0].ask(&command)?;
    }
    probe.grant(&lock, "m", LONG)?;
    probe.queue(&lock, 0, "closed", EVER)?;
    probe.queue(&lock, 1, "next", EVER)?;
    let close = match way {
        Closing::DeletedUser => vec![format!("ACL DELUSER {name}")],
        Closing::LoadedUsers => vec!["ACL LOAD".to_owned()],
        Closing::OutputLimit => vec![
            "CONFIG SET client-output-buffer-limit \"pubsub 1000 0 0\"".to_owned(),
            format!("PUBLISH {name} {}", "x".repeat(MESSAGE)),
        ],
    };
    let mut all = close;
    all.push(format!("LOCK.RELEASE {lock} m"));
    let replies = probe.main.all(&all)?;
    if replies.last() != Some(&Value::Int(1)) {
        // A fault had deleted the lock.
        return Err(Lost);
    }
    let what =
        format!("who waits for {lock} behind one whom the server closes ({}) has it", all[0]);
    probe.reply_soon(1, &what)?;
    probe.release(&lock, "next")?;
    probe.renew(0)
}

/// A transaction or a script hands a lock on, and keeps the server busy until the lease of the next
/// holder has ended. The next holder must not be told of a fence that `LOCK.CHECK` denies by then.
pub(crate) fn over_when_told(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let lock = probe.fresh();
    probe.grant(&lock, "m", LONG)?;
    let asked = format!("LOCK.ACQUIRE {lock} w {SHORT} BLOCK {EVER}");
    probe.waiters[0].send(&[asked])?;
    probe.soon(Excuse::Freed, "the waiter is in the queue", |probe| {
        let waits = probe.owners(&lock)?.iter().any(|owner| owner == "w");
        Ok((waits || probe.waiters[0].has_reply()?).then_some(()))
    })?;
    if probe.waiters[0].has_reply()? {
        return Err(Lost);
    }
    let mut all = match probe.seed.below(2) {
        0 => vec![format!(
            "EVAL \"redis.call('LOCK.RELEASE',KEYS[1],'m') local held=redis.call('LOCK.INFO',KEYS[1]) \
             for n=1,{TURNS} do local text=n..'' end return {{1,held}}\" 1 {lock}"
        )],
        _ => vec![
            "MULTI".to_owned(),
            format!("LOCK.RELEASE {lock} m"),
            format!("LOCK.INFO {lock}"),
            format!("DEBUG SLEEP {BUSY}"),
            "EXEC".to_owned(),
        ],
    };
    all.push(format!("LOCK.CHECK {lock} w"));
    let mut replies = probe.main.all(&all)?;
    let denied = replies.pop() == Some(Value::Nil);
    let Some(Value::Array(done)) = replies.pop() else { return Err(Lost) };
    let [Value::Int(1), held, ..] = &done[..] else { return Err(Lost) };
    if *held == Value::Nil {
        // The lock is handed on later, so nothing can be checked here.
        return probe.reply_soon(0, "who waited has the lock").map(drop);
    }
    let Some(&Value::Int(fence)) = field(held, "fence") else { return Err(Lost) };
    let told = probe.reply_soon(0, "who waited is told something")?;
    if denied && is_granted(&told) == u64::try_from(fence).ok() {
        let what = format!("w was told of fence {fence} of {lock}, which LOCK.CHECK had denied");
        probe.claim("L3", Excuse::Freed, what);
        return Err(Lost);
    }
    Ok(())
}
