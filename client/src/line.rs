//! Who asks for a lock in this process, one behind the other: one of them waits in the server, the others wait here.
//!
//! So a thousand tasks that want one lock need one connection to wait on, and a process gets one turn in the
//! server's queue, however many of its tasks wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::OwnedMutexGuard;

#[derive(Default)]
pub(crate) struct Lines {
    /// By key. Those in which nobody stands are taken out.
    lines: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// The first place of a line, until it is dropped.
pub(crate) struct First {
    lines: Arc<Lines>,
    key: String,
    place: Option<OwnedMutexGuard<()>>,
}

impl Lines {
    /// The first place, if nobody stands there.
    pub(crate) fn enter_at_once(self: &Arc<Self>, key: &str) -> Option<First> {
        let place = self.line(key).try_lock_owned().ok()?;
        Some(self.first(key, place))
    }

    /// Waits until everybody is gone who came before.
    pub(crate) async fn enter(self: &Arc<Self>, key: &str) -> First {
        let _standing = Standing { lines: self, key };
        let place = self.line(key).lock_owned().await;
        self.first(key, place)
    }

    fn first(self: &Arc<Self>, key: &str, place: OwnedMutexGuard<()>) -> First {
        First { lines: Arc::clone(self), key: key.to_owned(), place: Some(place) }
    }

    fn line(&self, key: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut lines = self.lines();
        if let Some(line) = lines.get(key) {
            return Arc::clone(line);
        }
        Arc::clone(lines.entry(key.to_owned()).or_default())
    }

    /// Called by whoever has left: nobody may be there any more.
    fn tidy(&self, key: &str) {
        let mut lines = self.lines();
        if lines.get(key).is_some_and(|line| Arc::strong_count(line) == 1) {
            lines.remove(key);
        }
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<String, Arc<tokio::sync::Mutex<()>>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever stands in a line may leave before it is first.
struct Standing<'l> {
    lines: &'l Lines,
    key: &'l str,
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        self.lines.tidy(self.key);
    }
}

impl Drop for First {
    fn drop(&mut self) {
        self.place = None;
        self.lines.tidy(&self.key);
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
