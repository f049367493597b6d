//! Time in which this machine ran.
//!
//! Some tests require that a waiter is told within 200 ms. A busy machine, or the host of a virtual
//! one, may stop every process for that long. A thread that only takes short naps notices this,
//! because it wakes late. The stopwatch subtracts the delay of that thread and nothing else: a
//! server that computes, waits or hangs does not delay the thread.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const NAP: Duration = Duration::from_millis(5);

/// Every nap takes a little longer than asked for.
const USUAL_DELAY: Duration = Duration::from_millis(5);

struct Naps {
    /// When the last nap began.
    began: Instant,
    /// For each nap that took too long: when it should have ended, and when it did.
    stalls: Vec<(Instant, Instant)>,
}

static NAPS: Mutex<Option<Naps>> = Mutex::new(None);
static NAPPING: Once = Once::new();

fn naps() -> MutexGuard<'static, Option<Naps>> {
    NAPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The stall of a nap that began at `began` and ends now.
fn stall(began: Instant, now: Instant) -> Option<(Instant, Instant)> {
    let due = began + NAP;
    (now > due + USUAL_DELAY).then_some((due, now))
}

fn nap_for_ever() {
    loop {
        thread::sleep(NAP);
        let now = Instant::now();
        if let Some(naps) = naps().as_mut() {
            naps.stalls.extend(stall(naps.began, now));
            naps.began = now;
        }
    }
}

/// Measures time from its start.
pub struct Stopwatch {
    begun: Instant,
}

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Self {
        NAPPING.call_once(|| {
            *naps() = Some(Naps { began: Instant::now(), stalls: Vec::new() });
            thread::spawn(nap_for_ever);
        });
        Self { begun: Instant::now() }
    }

    /// How long the machine ran since the start.
    pub fn elapsed(&self) -> Duration {
        self.between(self.begun, Instant::now())
    }

    /// The time that the machine ran between two moments since the start.
    pub fn between(&self, from: Instant, to: Instant) -> Duration {
        to.saturating_duration_since(from).saturating_sub(self.stalled(from, to))
    }

    fn stalled(&self, from: Instant, to: Instant) -> Duration {
        let (from, now, naps) = (from.max(self.begun), Instant::now(), naps());
        let Some(naps) = naps.as_ref() else { return Duration::ZERO };
        let so_far = stall(naps.began, now);
        let stalls = naps.stalls.iter().chain(&so_far);
        stalls.map(|stall| stall.1.min(to).saturating_duration_since(stall.0.max(from))).sum()
    }

    /// How many milliseconds the machine stood still since the start. Tests subtract them from a
    /// difference that a server's clock shows.
    pub fn stalled_millis(&self) -> i64 {
        self.stalled(self.begun, Instant::now()).as_millis().try_into().unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(300);

    /// Blocks the napping thread, as a stalled machine would.
    fn stall_for(millis: Duration) {
        let kept = naps();
        thread::sleep(millis);
        drop(kept);
    }

    #[test]
    fn what_the_machine_stood_still_is_left_out_and_nothing_else() {
        let (watch, from) = (Stopwatch::start(), Instant::now());
        thread::sleep(LONG);
        let slept = watch.elapsed();
        assert!(slept + watch.stalled(from, Instant::now()) >= LONG, "{slept:?}");
        let from = Instant::now();
        stall_for(LONG);
        let ran = watch.between(from, Instant::now());
        assert!(ran < LONG / 2, "{ran:?} of {:?}", from.elapsed());
        assert!(watch.stalled_millis() >= 280, "{}", watch.stalled_millis());
    }
}
