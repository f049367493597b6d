//! Renews the leases of a client and notices their ends, by one task with one timer for all of them.
//!
//! ```text
//!   due     lease   what
//!   12:00   a       renew ──► a task of its own asks the server; until it is answered, the lease is watched
//!   12:03   b       watch ──► its end has come: it is lost
//! ```

use crate::clock::Moment;
use crate::core::Core;
use crate::lease::{Lease, Next};
use crate::ledger::Ledger;
use crate::locked::locked;
use crate::outcome::Loss;
use crate::story;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;

/// Timers stop during a suspend of the machine, leases do not.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Book {
    /// By time and the number of the lease.
    due: BTreeMap<(Moment, u64), (Arc<Lease>, Next)>,
    /// When the task wakes by itself; none if it waits to be woken.
    looks_at: Option<Moment>,
}

#[derive(Default)]
pub(crate) struct Keeper {
    book: Mutex<Book>,
    changed: Arc<Notify>,
    is_running: AtomicBool,
}

impl Keeper {
    pub(crate) fn all(&self) -> Vec<Arc<Lease>> {
        locked(&self.book).due.values().map(|(lease, _)| Arc::clone(lease)).collect()
    }

    pub(crate) fn wake(&self) {
        self.changed.notify_one();
    }

    /// The leases that are due, and how long to sleep after them. A held lease stays in the book, where `close` looks.
    fn take_due(&self) -> (Vec<(Arc<Lease>, Next)>, Option<Duration>) {
        let (mut book, now) = (locked(&self.book), Moment::now());
        let (mut due, mut sleeps) = (Vec::new(), None);
        while let Some(first) = book.due.first_entry() {
            let (at, id) = *first.key();
            if at > now {
                sleeps = Some(at.since(now).min(LONGEST_SLEEP));
                break;
            }
            let (lease, next) = first.remove();
            let end = Some(lease.valid_until()).filter(|end| *end > now);
            lease.schedule(end);
            if let Some(end) = end {
                book.due.insert((end, id), (Arc::clone(&lease), Next::Watch(end)));
            }
            due.push((lease, next));
        }
        book.looks_at = sleeps.map(|sleeps| now.later(sleeps));
        (due, sleeps)
    }
}

impl Core {
    pub(crate) fn keep(self: &Arc<Self>, lease: &Arc<Lease>, next: Next) {
        let (Next::Renew(at) | Next::Watch(at)) = next;
        let mut book = locked(&self.keeper.book);
        if let Some(before) = lease.schedule(Some(at)) {
            book.due.remove(&(before, lease.id));
        }
        book.due.insert((at, lease.id), (Arc::clone(lease), next));
        let is_too_late = book.looks_at.is_none_or(|looks| at < looks);
        if is_too_late {
            // Later calls with a later time need not wake the task.
            book.looks_at = Some(at);
        }
        drop(book);
        if !lease.is_held() {
            self.forget(lease);
        }
        if !self.keeper.is_running.swap(true, Relaxed) {
            self.home.spawn(run(LeftBehind::of(self), Arc::clone(&self.keeper.changed)));
        } else if is_too_late {
            self.keeper.wake();
        }
    }

    pub(crate) fn forget(&self, lease: &Lease) {
        let mut book = locked(&self.keeper.book);
        if let Some(before) = lease.schedule(None) {
            book.due.remove(&(before, lease.id));
        }
    }

    /// Starts the renewal of a lease. The book still watches for its end.
    fn act(self: &Arc<Self>, lease: Arc<Lease>, next: Next) {
        if lease.is_held()
            && let (Next::Renew(_), true) = (next, lease.is_renewed_now())
        {
            self.home.spawn(Arc::clone(self).renew(lease));
        }
    }
}

/// Ends with the client and its guards, or with the runtime.
async fn run(left_behind: LeftBehind, changed: Arc<Notify>) {
    loop {
        let next = match left_behind.core.upgrade() {
            None => return,
            Some(core) => {
                let (due, next) = core.keeper.take_due();
                let is_more = !due.is_empty();
                due.into_iter().for_each(|(lease, next)| core.act(lease, next));
                if is_more {
                    continue;
                }
                next
            }
        };
        match next {
            None => changed.notified().await,
            Some(left) => tokio::select! {
                () = sleep(left) => {}
                () = changed.notified() => {}
            },
        }
    }
}

/// Logs the locks that are still held when the runtime ends, even if this task never ran. The runtime drops its tasks in any
/// order, so the tasks that release locks may be gone already, and the client with the last of them.
struct LeftBehind {
    core: Weak<Core>,
    ledger: Arc<Ledger>,
}

impl LeftBehind {
    fn of(core: &Arc<Core>) -> Self {
        Self { core: Arc::downgrade(core), ledger: Arc::clone(&core.home.ledger) }
    }
}

impl Drop for LeftBehind {
    fn drop(&mut self) {
        let mut names = self.ledger.cut_off();
        if let Some(core) = self.core.upgrade() {
            names.extend(self.ledger.names());
            for lease in core.keeper.all() {
                lease.end(Loss::Closed);
                names.push(lease.name.to_string());
            }
        }
        story::left_behind(names);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asked::{Granted, Terms};
    use crate::question::{Claim, EXCLUSIVE};
    use crate::settings::{Renew, Settings};

    #[test]
    fn what_is_due_is_known_to_whoever_closes_the_client_until_it_ends() {
        let client = redis::Client::open("redis://127.0.0.1").unwrap();
        let core = Core::new(&client.into(), Settings::default());
        let (asked, ttl) = (Moment::now(), Duration::from_secs(30));
        let claim =
            Claim { keys: vec![b"a".into()], owner: "me".into(), share: EXCLUSIVE, grace: None };
        let granted = Granted { fence: 1, asked, lasts: ttl, is_unclaimed: false };
        let terms = Terms { renew: Renew::Always, hold_at_least: None };
        let held = (granted, Arc::new(claim), Arc::default());
        let lease = Arc::new(Lease::new("a".into(), held, ttl, terms, String::new()));
        core.keep(&lease, Next::Renew(asked));
        let (due, sleeps) = core.keeper.take_due();
        assert!(matches!(due.as_slice(), [(_, Next::Renew(_))]) && sleeps == Some(LONGEST_SLEEP));
        assert_eq!(core.keeper.all().len(), 1);
        assert!(core.keeper.take_due().0.is_empty());
        core.lose(&lease, Loss::Taken);
        assert!(core.keeper.all().is_empty());
    }
}
