//! Which releases are under way, in the order in which they were asked for, and who waits for them.
//! A quorum keeps all its requests to a server so. Pure.

use std::collections::BTreeMap;
use tokio::sync::oneshot;

/// What became of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is held no more, as far as this client is concerned.
    Done,
    Failed,
}

#[derive(Debug, Default)]
pub(crate) struct Releases {
    next: u64,
    /// The keys of those that are under way.
    open: BTreeMap<u64, String>,
    /// The keys of those that have failed.
    failed: Vec<String>,
    /// Who waits, and for all below which number.
    waiting: Vec<(u64, oneshot::Sender<()>)>,
}

impl Releases {
    /// One more is under way, by this number.
    pub(crate) fn begin(&mut self, key: String) -> u64 {
        let number = self.next;
        self.next = number.saturating_add(1);
        self.open.insert(number, key);
        number
    }

    pub(crate) fn end(&mut self, number: u64, outcome: Outcome) {
        if let Some(key) = self.open.remove(&number)
            && outcome == Outcome::Failed
        {
            self.failed.push(key);
        }
        self.tell();
    }

    /// The keys of those that have failed, or not ended yet.
    pub(crate) fn undone(&self) -> Vec<String> {
        self.failed.iter().chain(self.open.values()).cloned().collect()
    }

    /// Failures until now are known to whoever had to know of them.
    pub(crate) fn forget_failures(&mut self) {
        self.failed.clear();
    }

    /// Tells when all are done that have begun by now, and not those that begin later.
    pub(crate) fn tell_when_done(&mut self, done: oneshot::Sender<()>) {
        self.waiting.push((self.next, done));
        self.tell();
    }

    fn tell(&mut self) {
        let first = self.open.keys().next().copied().unwrap_or(self.next);
        for (_, done) in self.waiting.extract_if(.., |(below, _)| *below <= first) {
            // Whoever waited may be gone.
            let _ = done.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(releases: &mut Releases) -> oneshot::Receiver<()> {
        let (done, told) = oneshot::channel();
        releases.tell_when_done(done);
        told
    }

    #[test]
    fn whoever_waits_is_told_when_those_before_are_done_whatever_comes_after() {
        let mut releases = Releases::default();
        let (first, second) = (releases.begin("a".to_owned()), releases.begin("b".to_owned()));
        let mut told = waiting(&mut releases);
        let third = releases.begin("c".to_owned());
        let mut later = waiting(&mut releases);
        releases.end(second, Outcome::Done);
        assert!(told.try_recv().is_err(), "the first one is under way");
        releases.end(first, Outcome::Failed);
        assert!(told.try_recv().is_ok());
        assert!(later.try_recv().is_err(), "the third one is under way");
        assert_eq!(releases.undone(), ["a", "c"]);
        releases.end(third, Outcome::Done);
        assert!(later.try_recv().is_ok());
        assert_eq!(releases.undone(), ["a"]);
    }

    #[test]
    fn whoever_waits_for_nothing_is_told_at_once() {
        assert!(waiting(&mut Releases::default()).try_recv().is_ok());
    }
}
