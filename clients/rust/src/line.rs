//! Who asks for a lock in this process, one behind the other: one of them waits in the server, the others wait here.
//!
//! So a thousand tasks that want one lock need one connection to wait on, and a process gets one turn in the
//! server's queue, however many of its tasks wait. Each runtime has its own line: whoever is first
//! in that of another runtime may not be driven.
//!
//! Nor may whoever is first in this one: a future that was begun does nothing while its task is busy with another one. So
//! those behind it call it now and then, and do not wait for it if it does not stir.

use crate::home::Home;
use crate::poison::locked;
use futures_util::task::AtomicWaker;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::time::{Duration, Instant};
use tokio::sync::OwnedMutexGuard;
use tokio::time::sleep;

/// How often whoever is first is called.
const CALL_EVERY: Duration = Duration::from_millis(500);

/// How many calls it may not hear.
const MOST_UNHEARD: u32 = 4;

/// That of a runtime for a key.
type Line = (Home, String);

#[derive(Default)]
pub(crate) struct Lines {
    /// Those in which nobody stands are taken out.
    lines: Mutex<HashMap<Line, Standings>>,
}

#[derive(Clone, Default)]
struct Standings {
    place: Arc<tokio::sync::Mutex<()>>,
    stir: Arc<Stir>,
}

/// Whether whoever is first is driven.
#[derive(Default)]
struct Stir {
    /// How often it has been.
    times: AtomicU64,
    waker: AtomicWaker,
    called: Mutex<Option<Instant>>,
}

/// The first place of a line, until it is dropped.
pub(crate) struct First {
    lines: Arc<Lines>,
    line: Line,
    place: Option<OwnedMutexGuard<()>>,
    stir: Arc<Stir>,
}

impl Lines {
    /// The first place, if nobody stands there.
    pub(crate) fn enter_at_once(self: &Arc<Self>, key: &str) -> Option<First> {
        let line = (Home::here(), key.to_owned());
        let Standings { place, stir } = self.line(&line);
        let place = place.try_lock_owned().ok()?;
        Some(self.first(line, place, stir))
    }

    /// Waits until everybody is gone who came before.
    pub(crate) async fn enter(self: &Arc<Self>, key: &str) -> First {
        let line = (Home::here(), key.to_owned());
        let _standing = Standing { lines: self, line: &line };
        let Standings { place, stir } = self.line(&line);
        let place = place.lock_owned().await;
        self.first(line.clone(), place, stir)
    }

    /// The same, and None if whoever is first is not driven.
    pub(crate) async fn enter_or_pass(self: &Arc<Self>, key: &str) -> Option<First> {
        let stir = self.line(&(Home::here(), key.to_owned())).stir;
        tokio::select! {
            biased;
            first = self.enter(key) => Some(first),
            () = stir.is_missing() => None,
        }
    }

    fn first(self: &Arc<Self>, line: Line, place: OwnedMutexGuard<()>, stir: Arc<Stir>) -> First {
        First { lines: Arc::clone(self), line, place: Some(place), stir }
    }

    fn line(&self, line: &Line) -> Standings {
        let mut lines = self.lines();
        if let Some(known) = lines.get(line) {
            return known.clone();
        }
        lines.entry(line.clone()).or_default().clone()
    }

    /// Called by whoever has left: nobody may be there any more.
    fn tidy(&self, line: &Line) {
        let mut lines = self.lines();
        if lines.get(line).is_some_and(|known| Arc::strong_count(&known.place) == 1) {
            lines.remove(line);
        }
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Line, Standings>> {
        locked(&self.lines)
    }
}

impl First {
    /// Somebody drives whoever is first, and this wakes it. Those who stand behind are shown that.
    pub(crate) fn stirs(&self, waker: &Waker) {
        self.stir.times.fetch_add(1, Relaxed);
        self.stir.waker.register(waker);
    }
}

impl Stir {
    /// Ends when it has not stirred for some calls.
    async fn is_missing(&self) {
        let mut unheard = 0_u32;
        while unheard < MOST_UNHEARD {
            let before = self.times.load(Relaxed);
            self.call();
            sleep(CALL_EVERY).await;
            let has_stirred = self.times.load(Relaxed) != before;
            unheard = if has_stirred { 0 } else { unheard.saturating_add(1) };
        }
    }

    /// Many may stand behind it: one call is enough for all.
    fn call(&self) {
        let mut called = locked(&self.called);
        if called.is_some_and(|at| at.elapsed() < CALL_EVERY.checked_div(2).unwrap_or_default()) {
            return;
        }
        *called = Some(Instant::now());
        drop(called);
        self.waker.wake();
    }
}

/// Whoever stands in a line may leave before it is first.
struct Standing<'l> {
    lines: &'l Lines,
    line: &'l Line,
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        self.lines.tidy(self.line);
    }
}

impl Drop for First {
    fn drop(&mut self) {
        self.place = None;
        self.lines.tidy(&self.line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::task::Poll;
    use tokio::time::timeout;

    #[tokio::test]
    async fn whoever_comes_first_is_first() {
        let lines = Arc::<Lines>::default();
        let first = lines.enter_at_once("printer").unwrap();
        assert!(lines.enter_at_once("printer").is_none());
        assert!(lines.enter_at_once("scanner").is_some());
        let order = Arc::<Mutex<Vec<u32>>>::default();
        let mut tasks = Vec::new();
        for number in 0..10 {
            let (lines, order) = (Arc::clone(&lines), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let _first = lines.enter("printer").await;
                order.lock().unwrap().push(number);
            }));
            tokio::task::yield_now().await;
        }
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), (0..10).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn nothing_is_kept_of_a_line_that_everybody_has_left() {
        let lines = Arc::<Lines>::default();
        let first = lines.enter_at_once("printer").unwrap();
        let given_up = timeout(Duration::from_millis(5), lines.enter("printer")).await;
        assert!(given_up.is_err());
        assert_eq!(lines.lines().len(), 1);
        drop(first);
        assert!(lines.lines().is_empty());
    }

    #[tokio::test]
    async fn whoever_is_first_and_is_not_driven_is_not_waited_for() {
        let lines = Arc::<Lines>::default();
        let first = lines.enter_at_once("printer").unwrap();
        assert!(lines.enter_or_pass("printer").await.is_none());
        // It is not driven all the time, but whenever it is called.
        let driven = poll_fn(move |context| {
            first.stirs(context.waker());
            Poll::<()>::Pending
        });
        let driven = tokio::spawn(async move { timeout(8 * CALL_EVERY, driven).await });
        assert!(timeout(6 * CALL_EVERY, lines.enter_or_pass("printer")).await.is_err());
        assert!(driven.await.is_ok());
    }
}
