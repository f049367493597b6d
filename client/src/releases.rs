//! Which releases are under way, in the order in which they were asked for, and who waits for them. Pure.

use std::collections::BTreeMap;
use tokio::sync::oneshot;

#[derive(Debug, Default)]
pub(crate) struct Releases {
    next: u64,
    /// The keys of those that are under way.
    open: BTreeMap<u64, String>,
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

    pub(crate) fn end(&mut self, number: u64) {
        self.open.remove(&number);
        self.tell();
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
        releases.end(second);
        assert!(told.try_recv().is_err(), "the first one is under way");
        releases.end(first);
        assert!(told.try_recv().is_ok());
        assert!(later.try_recv().is_err(), "the third one is under way");
        releases.end(third);
        assert!(later.try_recv().is_ok());
    }

    #[test]
    fn whoever_waits_for_nothing_is_told_at_once() {
        assert!(waiting(&mut Releases::default()).try_recv().is_ok());
    }
}
