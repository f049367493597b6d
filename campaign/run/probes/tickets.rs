//! Conversations about tickets: places that are kept by asking again.

use super::{LONG, Probe, is_granted};
use crate::claims::Excuse;
use crate::connection::Lost;
use redis::Value;
use std::thread;
use std::time::Duration;

/// How long a ticket lasts that nobody claims, in milliseconds.
const SHORT: u64 = 20;

/// How long the server keeps a published grant that no subscriber received, in milliseconds.
const WINDOW: u64 = 1_000;

impl Probe<'_> {
    /// A request for a ticket that lasts so long, of a lock that another holds.
    fn takes_ticket(&mut self, lock: &str, owner: &str, lasts: u64) -> Result<(), Lost> {
        let asked = format!("LOCK.ACQUIRE {lock} {owner} {LONG} TICKET {lasts}");
        match is_granted(&self.main.ask(&asked)?) {
            None => Ok(()),
            // A fault had deleted the lock.
            Some(_) => Err(Lost),
        }
    }
}

/// Who asks again keeps its place, among those who wait on a connection, too. Its owner claims the lock, and a release gives up
/// the place.
pub(super) fn kept(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let lock = probe.fresh();
    probe.grant(&lock, "m", LONG)?;
    probe.takes_ticket(&lock, "a", LONG)?;
    probe.takes_ticket(&lock, "b", LONG)?;
    probe.queue(&lock, 0, "w0", LONG)?;
    for _ in 0..1 + probe.seed.below(3) {
        let owner = *probe.seed.pick(&["a", "b"]);
        probe.takes_ticket(&lock, owner, LONG)?;
    }
    let queue = probe.owners(&lock)?;
    if queue != ["a", "b", "w0"] {
        probe.claim("L4", Excuse::Freed, format!("a, b and w0 wait for {lock}, and are {queue:?}"));
        return Err(Lost);
    }
    probe.release(&lock, "m")?;
    let held = is_granted(&probe.main.ask(&format!("LOCK.CHECK {lock} a"))?);
    let Some(fence) = held else {
        probe.claim(
            "L5",
            Excuse::Freed,
            format!("a has the first place for {lock}, and not the lock"),
        );
        return Err(Lost);
    };
    let claimed = is_granted(&probe.main.ask(&format!("LOCK.ACQUIRE {lock} a {LONG}"))?);
    if claimed != Some(fence) {
        let what = format!("a was granted {lock} with {fence}, and claims it with {claimed:?}");
        probe.claim("L2", Excuse::Freed, what);
        return Err(Lost);
    }
    probe.main.ask(&format!("LOCK.RELEASE {lock} b"))?;
    probe.release(&lock, "a")?;
    probe.reply_soon(0, "who waits behind a place that was given up has the lock")?;
    probe.release(&lock, "w0")
}

/// A grant that nobody claims ends with its ticket, however long the lease that was asked for.
pub(super) fn unclaimed(probe: &mut Probe<'_>) -> Result<(), Lost> {
    let lock = probe.fresh();
    probe.grant(&lock, "m", LONG)?;
    probe.takes_ticket(&lock, "gone", SHORT)?;
    probe.queue(&lock, 0, "w0", LONG)?;
    probe.release(&lock, "m")?;
    let released = probe.main.time()?;
    while probe.main.time()? <= released + (SHORT + 2) * 1_000 {}
    probe.reply_soon(0, "who waits behind one that has gone has the lock in its turn")?;
    probe.release(&lock, "w0")
}

/// A program that was killed has several places, and its grants are published where nobody hears them. All its places
/// together cost one short window, however long its tickets last.
pub(super) fn unheard(probe: &mut Probe<'_>) -> Result<(), Lost> {
    // It takes a whole second, and others take a few milliseconds.
    if probe.seed.below(10) > 0 {
        return Ok(());
    }
    let lock = probe.fresh();
    probe.grant(&lock, "m", LONG)?;
    for number in 0..2 + probe.seed.below(4) {
        let asked = format!("LOCK.ACQUIRE {lock} gone{number} {LONG} TICKET {LONG} NOTIFY {lock}");
        match probe.main.ask(&asked)? {
            Value::Nil => {}
            // A fault had deleted the lock, or the server is too old to publish grants.
            _ => return Err(Lost),
        }
    }
    probe.queue(&lock, 0, "w0", LONG)?;
    probe.release(&lock, "m")?;
    let released = probe.main.time()?;
    while probe.main.time()? <= released + (WINDOW + 2) * 1_000 {
        thread::sleep(Duration::from_millis(1));
    }
    probe.reply_soon(0, "who waits behind a killed program has the lock after one window")?;
    probe.release(&lock, "w0")
}
