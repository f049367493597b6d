//! What is under way, in the order in which it was begun, and who waits for it. A client keeps its
//! releases so, and a quorum its requests to each server. Pure.

use std::collections::BTreeMap;
use tokio::sync::oneshot;

/// What became of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is held no more, as far as this client is concerned.
    Done,
    Failed,
}

pub(crate) struct Releases<T> {
    next: u64,
    /// Those that are under way.
    open: BTreeMap<u64, T>,
    /// Who waits, and for all below which number.
    waiting: Vec<(u64, oneshot::Sender<()>)>,
}

/// Those who are to be told that all is done that they have waited for. Telling them may run code
/// of the program, which may use the client: no mutex may be held then.
#[must_use = "they wait until they are told"]
pub(crate) struct Done(Vec<oneshot::Sender<()>>);

impl Done {
    pub(crate) fn tell(self) {
        for done in self.0 {
            // Whoever waited may be gone.
            let _ = done.send(());
        }
    }
}

impl<T> Default for Releases<T> {
    fn default() -> Self {
        Self { next: 0, open: BTreeMap::new(), waiting: Vec::new() }
    }
}

impl<T> Releases<T> {
    /// One more is under way, by this number.
    pub(crate) fn begin(&mut self, what: T) -> u64 {
        let number = self.next;
        self.next = number.saturating_add(1);
        self.open.insert(number, what);
        number
    }

    /// None if it is under way no more.
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.open.get_mut(&number)
    }

    /// What it was, if it was under way.
    pub(crate) fn end(&mut self, number: u64) -> (Option<T>, Done) {
        (self.open.remove(&number), self.done())
    }

    /// All that are under way.
    pub(crate) fn open(&self) -> impl Iterator<Item = &T> {
        self.open.values()
    }

    pub(crate) fn open_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        self.open.iter_mut().map(|(number, what)| (*number, what))
    }

    /// Takes out those for which this is so: nobody does them any more.
    pub(crate) fn take_out(&mut self, is_out: impl Fn(&T) -> bool) -> (Vec<T>, Done) {
        let all = std::mem::take(&mut self.open).into_iter();
        let (out, open): (BTreeMap<_, _>, _) = all.partition(|(_, what)| is_out(what));
        self.open = open;
        (out.into_values().collect(), self.done())
    }

    /// Tells when all are done that have begun by now, and not those that begin later.
    pub(crate) fn tell_when_done(&mut self, done: oneshot::Sender<()>) -> Done {
        // Some do not wait any longer.
        self.waiting.retain(|(_, done)| !done.is_closed());
        self.waiting.push((self.next, done));
        self.done()
    }

    fn done(&mut self) -> Done {
        let first = self.open.keys().next().copied().unwrap_or(self.next);
        let done = self.waiting.extract_if(.., |(below, _)| *below <= first);
        Done(done.map(|(_, done)| done).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(releases: &mut Releases<&str>) -> oneshot::Receiver<()> {
        let (done, told) = oneshot::channel();
        releases.tell_when_done(done).tell();
        told
    }

    fn end<'a>(releases: &mut Releases<&'a str>, number: u64) -> Option<&'a str> {
        let (what, done) = releases.end(number);
        done.tell();
        what
    }

    #[test]
    fn whoever_waits_is_told_when_those_before_are_done_whatever_comes_after() {
        let mut releases = Releases::default();
        let (first, second) = (releases.begin("a"), releases.begin("b"));
        let mut told = waiting(&mut releases);
        let third = releases.begin("c");
        let mut later = waiting(&mut releases);
        assert_eq!(end(&mut releases, second), Some("b"));
        assert!(told.try_recv().is_err(), "the first one is under way");
        assert_eq!(end(&mut releases, first), Some("a"));
        assert!(told.try_recv().is_ok());
        assert!(later.try_recv().is_err(), "the third one is under way");
        assert_eq!(releases.open().collect::<Vec<_>>(), [&"c"]);
        assert!(end(&mut releases, third).is_some());
        assert!(later.try_recv().is_ok());
        assert_eq!(end(&mut releases, third), None, "somebody else has done it");
    }

    #[test]
    fn whoever_waits_for_nothing_is_told_at_once() {
        assert!(waiting(&mut Releases::default()).try_recv().is_ok());
    }

    #[test]
    fn whoever_waits_no_longer_is_forgotten() {
        let mut releases = Releases::default();
        releases.begin("a");
        for _ in 0..100 {
            drop(waiting(&mut releases));
        }
        assert_eq!(releases.waiting.len(), 1);
    }

    #[test]
    fn nobody_waits_for_what_is_done_by_nobody() {
        let mut releases = Releases::default();
        releases.begin("a");
        let ours = releases.begin("b");
        let mut told = waiting(&mut releases);
        let (taken, done) = releases.take_out(|what| *what == "a");
        done.tell();
        assert_eq!(taken, ["a"]);
        assert!(told.try_recv().is_err(), "ours is under way");
        assert!(end(&mut releases, ours).is_some());
        assert!(told.try_recv().is_ok());
    }
}
