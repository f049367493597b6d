//! Which releases are under way, in the order in which they were asked for, and who waits for them.
//! A quorum keeps all its requests to a server so. Pure.

use crate::home::Home;
use crate::lease::Lease;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// What became of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is held no more, as far as this client is concerned.
    Done,
    Failed,
}

#[derive(Default)]
pub(crate) struct Releases {
    next: u64,
    /// Those that are under way.
    open: BTreeMap<u64, Release>,
    /// The keys of those that have failed since the client was closed.
    failed: Vec<String>,
    /// Who waits, and for all below which number.
    waiting: Vec<(u64, oneshot::Sender<()>)>,
}

struct Release {
    key: String,
    /// None where it is not known what was granted.
    lease: Option<Arc<Lease>>,
    /// Whose keeper is to do it.
    by: Home,
}

impl Releases {
    /// One more is under way, by this number.
    pub(crate) fn begin(&mut self, key: String, lease: Option<Arc<Lease>>, by: Home) -> u64 {
        let number = self.next;
        self.next = number.saturating_add(1);
        self.open.insert(number, Release { key, lease, by });
        number
    }

    /// Another keeper is to do it.
    pub(crate) fn pass_on(&mut self, number: u64, by: Home) {
        if let Some(release) = self.open.get_mut(&number) {
            release.by = by;
        }
    }

    /// The key, if it was under way.
    pub(crate) fn end(&mut self, number: u64) -> Option<String> {
        let release = self.open.remove(&number);
        self.tell();
        release.map(|release| release.key)
    }

    pub(crate) fn note_failure(&mut self, key: String) {
        self.failed.push(key);
    }

    /// The keys of those that have failed, or not ended yet.
    pub(crate) fn undone(&self) -> Vec<String> {
        let open = self.open.values().map(|release| &release.key);
        self.failed.iter().chain(open).cloned().collect()
    }

    /// Nobody does those of this keeper any more: their keys.
    pub(crate) fn give_up(&mut self, by: Home) -> Vec<String> {
        let all = std::mem::take(&mut self.open).into_iter();
        let (given_up, open): (BTreeMap<_, _>, _) = all.partition(|(_, release)| release.by == by);
        self.open = open;
        let keys = given_up.into_values().map(|release| release.key).collect();
        self.tell();
        keys
    }

    /// What others are to release, and have not released yet.
    pub(crate) fn of_others(&self, home: Home) -> Vec<(u64, Arc<Lease>)> {
        let others = self.open.iter().filter(|(_, release)| release.by != home);
        others.filter_map(|(number, release)| Some((*number, release.lease.clone()?))).collect()
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

    fn begin(releases: &mut Releases, key: &str) -> u64 {
        releases.begin(key.to_owned(), None, Home::here())
    }

    #[test]
    fn whoever_waits_is_told_when_those_before_are_done_whatever_comes_after() {
        let mut releases = Releases::default();
        let (first, second) = (begin(&mut releases, "a"), begin(&mut releases, "b"));
        let mut told = waiting(&mut releases);
        let third = begin(&mut releases, "c");
        let mut later = waiting(&mut releases);
        assert_eq!(releases.end(second).as_deref(), Some("b"));
        assert!(told.try_recv().is_err(), "the first one is under way");
        assert_eq!(releases.end(first).as_deref(), Some("a"));
        releases.note_failure("a".to_owned());
        assert!(told.try_recv().is_ok());
        assert!(later.try_recv().is_err(), "the third one is under way");
        assert_eq!(releases.undone(), ["a", "c"]);
        assert!(releases.end(third).is_some());
        assert!(later.try_recv().is_ok());
        assert_eq!(releases.undone(), ["a"]);
        assert_eq!(releases.end(third), None, "somebody else has done it");
    }

    #[test]
    fn whoever_waits_for_nothing_is_told_at_once() {
        assert!(waiting(&mut Releases::default()).try_recv().is_ok());
    }

    #[tokio::test]
    async fn nobody_waits_for_what_a_keeper_that_is_gone_was_to_release() {
        let mut releases = Releases::default();
        let elsewhere = std::thread::spawn(Home::here).join().unwrap();
        releases.begin("a".to_owned(), None, elsewhere);
        let ours = begin(&mut releases, "b");
        let mut told = waiting(&mut releases);
        assert_eq!(releases.give_up(elsewhere), ["a"]);
        assert!(told.try_recv().is_err(), "ours is under way");
        assert!(releases.end(ours).is_some());
        assert!(told.try_recv().is_ok());
    }
}
