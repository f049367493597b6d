//! The names of locks that may not be free yet: their requests or releases are under way, or their release failed.

use crate::clock::Moment;
use crate::locked::locked;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Ledger {
    books: Mutex<Books>,
    settled: Notify,
}

#[derive(Default)]
struct Books {
    next: u64,
    /// By number. None if the lock is not held, whatever the outcome.
    open: HashMap<u64, Option<Arc<str>>>,
    /// Locks whose release failed, with the ends of their leases.
    staying: Vec<(Arc<str>, Moment)>,
    /// Locks whose release the runtime dropped.
    cut_off: Vec<Arc<str>>,
}

/// A request or release under way, until this is dropped.
pub(crate) struct Entry {
    ledger: Arc<Ledger>,
    number: u64,
    name: Arc<str>,
    /// A task owns the entry. Only the end of the runtime drops it before it is done.
    is_a_task: bool,
}

impl Ledger {
    pub(crate) fn begin(self: &Arc<Self>, name: &Arc<str>) -> Entry {
        let mut books = locked(&self.books);
        let number = books.next;
        books.next = number.wrapping_add(1);
        books.open.insert(number, Some(Arc::clone(name)));
        drop(books);
        Entry { ledger: Arc::clone(self), number, name: Arc::clone(name), is_a_task: false }
    }

    pub(crate) fn begin_task(self: &Arc<Self>, name: &Arc<str>) -> Entry {
        let mut entry = self.begin(name);
        entry.is_a_task = true;
        entry
    }

    /// Waits until nothing is under way.
    pub(crate) async fn settled(&self) {
        loop {
            let settled = self.settled.notified();
            if locked(&self.books).open.is_empty() {
                return;
            }
            settled.await;
        }
    }

    pub(crate) fn cut_off(&self) -> Vec<String> {
        locked(&self.books).cut_off.iter().map(|name| name.to_string()).collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let (books, now) = (locked(&self.books), Moment::now());
        let staying = books.staying.iter().filter(|(_, until)| *until > now).map(|(name, _)| name);
        let names: BTreeSet<&str> =
            books.open.values().flatten().chain(staying).map(AsRef::as_ref).collect();
        names.into_iter().map(str::to_owned).collect()
    }
}

impl Entry {
    pub(crate) fn also(&self) -> Self {
        self.ledger.begin(&self.name)
    }

    /// The lock is not held, whatever the outcome.
    pub(crate) fn is_of_no_matter(&self) {
        locked(&self.ledger.books).open.insert(self.number, None);
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn done(mut self) {
        self.is_a_task = false;
    }

    /// The release failed: the lock stays until then.
    pub(crate) fn stays(self, until: Moment) {
        let mut books = locked(&self.ledger.books);
        let now = Moment::now();
        books.staying.retain(|(_, until)| *until > now);
        books.staying.push((Arc::clone(&self.name), until));
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut books = locked(&self.ledger.books);
        books.open.remove(&self.number);
        if self.is_a_task {
            books.cut_off.push(Arc::clone(&self.name));
        }
        if books.open.is_empty() {
            self.ledger.settled.notify_waiters();
        }
    }
}
