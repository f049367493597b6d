//! What a client holds, and what it gives back, whichever of its keepers does the work.
//!
//! Whoever closes the client reads it here. A keeper on a runtime that nobody drives could not be
//! asked, so a release stays here until it is done: a keeper that is driven helps with it when it
//! takes too long, and nothing is lost with a runtime that ends.
//!
//! Ends of leases, and replies, are told when the mutex is free again: telling runs wakers of the
//! program, which may drop guards.

use crate::calls::Calls;
use crate::clock::Moment;
use crate::home::Home;
use crate::lease::Lease;
use crate::orders::Reply;
use crate::poison::locked;
use crate::releases::{Done, Outcome, Releases};
use crate::same_owner::Slot;
use crate::{Error, Loss, Released, story};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::oneshot;

/// A release that has been open for so long is helped with: its keeper may be on a runtime that
/// nobody drives.
const HELP_AFTER: Duration = Duration::from_millis(500);

#[derive(Default)]
pub(crate) struct Ledger {
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    held: HashMap<u64, Held>,
    releases: Releases<Release>,
    /// Whom to call for help.
    keepers: HashMap<Home, Arc<Calls>>,
    /// The keys of what could not be released, and until when it may be held.
    left: Vec<(String, Moment)>,
    /// Nothing is to be held any more.
    closed: bool,
}

/// A lease that has a guard.
struct Held {
    lease: Arc<Lease>,
    /// Whose keepers renew it. There are several where guards of several runtimes share it.
    kept_by: Vec<Home>,
}

struct Release {
    key: String,
    /// Until when it may be held if it is not released.
    until: Moment,
    /// None where it is not known what was granted: only one keeper can see to that.
    of: Option<(Arc<Lease>, Option<Arc<Slot>>)>,
    reply: Option<Reply>,
    /// Whose keeper is to do it; none if its runtime has ended.
    by: Option<Home>,
    /// Whose keepers have begun.
    begun_by: Vec<Home>,
    /// When it was begun last.
    since: Moment,
}

/// What a keeper is to release.
pub(crate) struct Task {
    pub(crate) number: u64,
    pub(crate) lease: Arc<Lease>,
    pub(crate) slot: Option<Arc<Slot>>,
}

/// What is to be done about a lease that a runtime has a guard of.
pub(crate) enum Keeping {
    Keep,
    IsKept,
    /// The client is closed: it is to be released, by this number.
    GiveBack {
        number: u64,
    },
    /// It is over already.
    Nothing,
}

/// What is to be done about a lease whose last guard is gone.
pub(crate) enum Leaving {
    /// Nothing: the client was closed before.
    Closed,
    /// It is to end by itself.
    LetEnd {
        kept_by: Vec<Home>,
    },
    Release {
        number: u64,
        kept_by: Vec<Home>,
    },
}

impl Ledger {
    /// The keeper of this runtime can be called from now on.
    pub(crate) fn introduce(&self, home: Home, calls: Arc<Calls>) {
        self.books().keepers.insert(home, calls);
    }

    pub(crate) fn calls(&self, home: Home) -> Option<Arc<Calls>> {
        self.books().keepers.get(&home).cloned()
    }

    /// A release has been begun by this keeper: the others look whether it takes too long.
    pub(crate) fn call_others(&self, begun_by: Home) {
        self.call_all_but(begun_by, Moment::now().later(HELP_AFTER));
    }

    fn call_all_but(&self, but: Home, at: Moment) {
        let books = self.books();
        let others = books.keepers.iter().filter(|(home, _)| **home != but);
        let others: Vec<_> = others.map(|(_, calls)| Arc::clone(calls)).collect();
        drop(books);
        others.iter().for_each(|calls| calls.help(at));
    }

    pub(crate) fn keep(&self, lease: &Arc<Lease>, home: Home) -> Keeping {
        let mut books = self.books();
        if books.closed {
            let number = books.give_back(lease, home);
            drop(books);
            lease.tell_end();
            return number.map_or(Keeping::Nothing, |number| Keeping::GiveBack { number });
        }
        let new = || Held { lease: Arc::clone(lease), kept_by: Vec::new() };
        let held = books.held.entry(lease.id).or_insert_with(new);
        if held.kept_by.contains(&home) {
            return Keeping::IsKept;
        }
        held.kept_by.push(home);
        Keeping::Keep
    }

    /// There is no keeper on this runtime.
    pub(crate) fn cannot_keep(&self, id: u64, home: Home) {
        let mut books = self.books();
        let Some(held) = books.held.get_mut(&id) else { return };
        held.kept_by.retain(|known| *known != home);
        if held.kept_by.is_empty() {
            books.held.remove(&id);
        }
    }

    /// Those who can be called that renew it.
    pub(crate) fn callers_of(&self, id: u64) -> Vec<Arc<Calls>> {
        let books = self.books();
        let kept_by = books.held.get(&id).map(|held| held.kept_by.as_slice()).unwrap_or_default();
        kept_by.iter().filter_map(|home| books.keepers.get(home).cloned()).collect()
    }

    /// In one step, so that whoever closes the client either releases it or sees its release.
    pub(crate) fn leave(
        &self,
        lease: &Arc<Lease>,
        slot: Option<Arc<Slot>>,
        reply: Option<Reply>,
        by: Home,
    ) -> Leaving {
        let mut books = self.books();
        let held = books.held.remove(&lease.id);
        let kept_by = held.map(|held| held.kept_by).unwrap_or_default();
        lease.note_end(Loss::Released);
        let leaving = if lease.ended() == Some(Loss::Closed) {
            Leaving::Closed
        } else if lease.is_kept() {
            Leaving::LetEnd { kept_by }
        } else {
            let number = books.releases.begin(Release::of(lease, slot, reply, by));
            Leaving::Release { number, kept_by }
        };
        drop(books);
        lease.tell_end();
        leaving
    }

    /// A release of what may have been granted, for so long.
    pub(crate) fn begin(&self, key: String, ttl: Duration, by: Home) -> u64 {
        let (of, reply, since) = (None, None, Moment::now());
        let (until, by, begun_by) = (since.later(ttl), Some(by), Vec::new());
        self.books().releases.begin(Release { key, until, of, reply, by, begun_by, since })
    }

    /// This keeper is to do it.
    pub(crate) fn pass_on(&self, number: u64, by: Home) {
        if let Some(release) = self.books().releases.get_mut(number) {
            release.by = Some(by);
        }
    }

    /// There is no keeper that could do it. The next one will, if it is known what was granted.
    pub(crate) fn leave_open(&self, number: u64) {
        let mut books = self.books();
        let Some(release) = books.releases.get_mut(number) else { return };
        release.by = None;
        if release.of.is_none() {
            drop(books);
            self.end(number, Outcome::Failed);
        }
    }

    /// What this keeper was told to release: none if that is done, or it has begun it already.
    pub(crate) fn take(&self, number: u64, home: Home) -> Option<Task> {
        let mut books = self.books();
        books.releases.get_mut(number)?.take(number, home)
    }

    pub(crate) fn is_open(&self, number: u64) -> bool {
        self.books().releases.get_mut(number).is_some()
    }

    /// What this keeper is to help others with, and when it is to look again; each keeper tries
    /// each release once.
    pub(crate) fn take_of_others(&self, home: Home) -> (Vec<Task>, Option<Moment>) {
        let (mut tasks, mut look_at, now) = (Vec::new(), None::<Moment>, Moment::now());
        for (number, release) in self.books().releases.open_mut() {
            if release.of.is_none() || release.begun_by.contains(&home) {
                continue;
            }
            match release.by.map(|_| release.since.later(HELP_AFTER)).filter(|at| *at > now) {
                None => tasks.extend(release.take(number, home)),
                Some(at) => look_at = Some(look_at.map_or(at, |look_at| look_at.min(at))),
            }
        }
        (tasks, look_at)
    }

    pub(crate) fn end(&self, number: u64, outcome: Outcome) {
        let (_, done) = self.take_out(number, outcome);
        done.tell();
    }

    /// One of those who tried has an answer.
    pub(crate) fn released(&self, number: u64, came: Result<Released, Error>) {
        let outcome = if came.is_ok() { Outcome::Done } else { Outcome::Failed };
        let (Some(release), done) = self.take_out(number, outcome) else { return };
        if let (Some((lease, _)), Ok(came)) = (&release.of, &came) {
            story::released(lease, *came);
        }
        if let Some(reply) = release.reply {
            // Nobody may wait for it any more.
            let _ = reply.send(came);
        }
        done.tell();
    }

    /// The runtime of this keeper has ended. Returns the leases that nobody renews any more, and the
    /// keys of what nobody releases.
    pub(crate) fn keeper_has_ended(&self, home: Home) -> (Vec<Arc<Lease>>, Vec<String>) {
        let mut books = self.books();
        books.keepers.remove(&home);
        let mut orphans = Vec::new();
        for held in books.held.values_mut().filter(|held| held.kept_by.contains(&home)) {
            held.kept_by.retain(|known| *known != home);
            if held.kept_by.is_empty() && held.lease.ended().is_none() {
                orphans.push(Arc::clone(&held.lease));
            }
        }
        let is_his = |release: &Release| release.by == Some(home);
        let (lost, done) =
            books.releases.take_out(|release| is_his(release) && release.of.is_none());
        lost.iter().for_each(|release| books.could_not_release(release));
        let mut keys: Vec<_> = lost.into_iter().map(|release| release.key).collect();
        let (is_last, mut replies) = (books.keepers.is_empty(), Vec::new());
        for (_, release) in books.releases.open_mut().filter(|(_, release)| is_his(release)) {
            release.by = None;
            if is_last {
                keys.push(release.key.clone());
                replies.extend(release.reply.take());
            }
        }
        drop(books);
        done.tell();
        // Whoever waits for one is told that nobody does it.
        drop(replies);
        self.call_all_but(home, Moment::now());
        (orphans, keys)
    }

    /// All that is held is to be released, by these numbers.
    pub(crate) fn close(&self, by: Home) -> Vec<u64> {
        let mut books = self.books();
        books.closed = true;
        let held: Vec<_> = std::mem::take(&mut books.held).into_values().collect();
        let numbers = held.iter().filter_map(|held| books.give_back(&held.lease, by)).collect();
        drop(books);
        held.iter().for_each(|held| held.lease.tell_end());
        numbers
    }

    /// All that is not released yet is to be released by this keeper, whoever has begun: these
    /// numbers. Nobody asks any more, so nobody is waited for.
    pub(crate) fn take_over(&self, by: Home) -> Vec<u64> {
        let mut numbers = Vec::new();
        for (number, release) in self.books().releases.open_mut() {
            let Some((_, slot)) = &mut release.of else { continue };
            *slot = None;
            release.by = Some(by);
            release.begun_by.clear();
            numbers.push(number);
        }
        numbers
    }

    pub(crate) fn tell_when_done(&self, done: oneshot::Sender<()>) {
        let done = self.books().releases.tell_when_done(done);
        done.tell();
    }

    /// The keys of what is not released, or may not be.
    pub(crate) fn undone(&self) -> Vec<String> {
        let (books, now) = (self.books(), Moment::now());
        let left = books.left.iter().filter(|(_, until)| *until > now).map(|(key, _)| key);
        left.chain(books.releases.open().map(|release| &release.key)).cloned().collect()
    }

    fn take_out(&self, number: u64, outcome: Outcome) -> (Option<Release>, Done) {
        let mut books = self.books();
        let (release, done) = books.releases.end(number);
        if let (Some(release), Outcome::Failed) = (&release, outcome) {
            books.could_not_release(release);
        }
        (release, done)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        locked(&self.books)
    }
}

impl Release {
    fn of(lease: &Arc<Lease>, slot: Option<Arc<Slot>>, reply: Option<Reply>, by: Home) -> Self {
        let (key, since) = (lease.key.clone(), Moment::now());
        let until = since.later(lease.left(since));
        let (of, by, begun_by) = (Some((Arc::clone(lease), slot)), Some(by), Vec::new());
        Self { key, until, of, reply, by, begun_by, since }
    }

    fn take(&mut self, number: u64, home: Home) -> Option<Task> {
        let (lease, slot) = self.of.clone()?;
        if self.begun_by.contains(&home) {
            return None;
        }
        self.begun_by.push(home);
        self.since = Moment::now();
        Some(Task { number, lease, slot })
    }
}

impl Books {
    /// Whatever guards it has. None if it is over, or to end by itself. A lease that ended because
    /// nobody renews it any more may be held by the server still.
    fn give_back(&mut self, lease: &Arc<Lease>, by: Home) -> Option<u64> {
        let is_held = match lease.note_end(Loss::Closed) {
            None => true,
            Some(Loss::Expired) => !lease.left(Moment::now()).is_zero(),
            Some(_) => false,
        };
        let is_to_be_released = is_held && !lease.is_kept();
        is_to_be_released.then(|| self.releases.begin(Release::of(lease, None, None, by)))
    }

    fn could_not_release(&mut self, release: &Release) {
        let now = Moment::now();
        self.left.retain(|(_, until)| *until > now);
        self.left.push((release.key.clone(), release.until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Names;
    use crate::settings::Renew;

    fn lease() -> Arc<Lease> {
        let text = String::new;
        let names = Names { id: 1, name: text(), key: text(), owner: text(), correlation: text() };
        Arc::new(Lease::new(names, 7, Moment::now(), Duration::from_secs(60), Renew::Off))
    }

    #[test]
    fn nothing_is_held_that_no_keeper_could_keep() {
        let (ledger, here) = (Ledger::default(), Home::here());
        assert!(matches!(ledger.keep(&lease(), here), Keeping::Keep));
        ledger.cannot_keep(1, here);
        assert_eq!(ledger.close(here), []);
    }

    #[test]
    fn each_keeper_tries_each_release_once_and_those_of_ended_runtimes_at_once() {
        let (ledger, here) = (Ledger::default(), Home::here());
        let Leaving::Release { number, .. } = ledger.leave(&lease(), None, None, here) else {
            panic!("it is not released");
        };
        let (tasks, look_at) = ledger.take_of_others(here);
        assert!(tasks.is_empty() && look_at.is_some(), "its keeper has not had the time");
        let _ended = ledger.keeper_has_ended(here);
        let (tasks, look_at) = ledger.take_of_others(here);
        assert_eq!((tasks.len(), look_at), (1, None));
        assert!(ledger.take(number, here).is_none());
        assert!(ledger.is_open(number));
        ledger.released(number, Ok(Released::Released));
        assert!(!ledger.is_open(number));
    }
}
