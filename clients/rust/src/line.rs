//! Who asks for a lock in this process, one behind the other: one of them waits in the server, the others wait here.
//!
//! So a thousand tasks that want one lock need one connection to wait on, and a process gets one turn in the
//! server's queue, however many of its tasks wait. Each runtime has its own line: whoever is first
//! in that of another runtime may not be driven.

use crate::home::Home;
use crate::poison::locked;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::OwnedMutexGuard;

/// That of a runtime for a key.
type Line = (Home, String);

#[derive(Default)]
pub(crate) struct Lines {
    /// Those in which nobody stands are taken out.
    lines: Mutex<HashMap<Line, Arc<tokio::sync::Mutex<()>>>>,
}

/// The first place of a line, until it is dropped.
pub(crate) struct First {
    lines: Arc<Lines>,
    line: Line,
    place: Option<OwnedMutexGuard<()>>,
}

impl Lines {
    /// The first place, if nobody stands there.
    pub(crate) fn enter_at_once(self: &Arc<Self>, key: &str) -> Option<First> {
        let line = (Home::here(), key.to_owned());
        let place = self.line(&line).try_lock_owned().ok()?;
        Some(self.first(line, place))
    }

    /// Waits until everybody is gone who came before.
    pub(crate) async fn enter(self: &Arc<Self>, key: &str) -> First {
        let line = (Home::here(), key.to_owned());
        let _standing = Standing { lines: self, line: &line };
        let place = self.line(&line).lock_owned().await;
        self.first(line.clone(), place)
    }

    fn first(self: &Arc<Self>, line: Line, place: OwnedMutexGuard<()>) -> First {
        First { lines: Arc::clone(self), line, place: Some(place) }
    }

    fn line(&self, line: &Line) -> Arc<tokio::sync::Mutex<()>> {
        let mut lines = self.lines();
        if let Some(known) = lines.get(line) {
            return Arc::clone(known);
        }
        Arc::clone(lines.entry(line.clone()).or_default())
    }

    /// Called by whoever has left: nobody may be there any more.
    fn tidy(&self, line: &Line) {
        let mut lines = self.lines();
        if lines.get(line).is_some_and(|known| Arc::strong_count(known) == 1) {
            lines.remove(line);
        }
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Line, Arc<tokio::sync::Mutex<()>>>> {
        locked(&self.lines)
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
    use std::time::Duration;
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
}
