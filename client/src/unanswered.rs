//! Extensions that nobody answered. Pure: moments are arguments.
//!
//! ```text
//!   EXTEND 1 s  ──► proxy: no answer, the connection is given up
//!   EXTEND 60 s ───────────────────────────► answered
//!                   proxy: EXTEND 1 s ─────────────► the lease ends a second from now
//! ```
//!
//! A proxy may deliver late what a client sent before it gave the connection up. So a longer
//! extension counts for no more than a shorter one that may still arrive after it.

use crate::clock::Moment;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

/// How long bytes may be on their way after the client has given up their connection.
pub(crate) const LONGEST_WAY: Duration = Duration::from_secs(60);

/// Extensions of one grant, by server and ttl.
#[derive(Debug, Default)]
pub(crate) struct Unanswered {
    /// How many are being asked for.
    open: BTreeMap<(usize, Duration), usize>,
    /// Until when those may still arrive that were given up.
    until: BTreeMap<(usize, Duration), Moment>,
}

impl Unanswered {
    /// This server is about to be asked for an extension of this ttl.
    pub(crate) fn begin(&mut self, server: usize, ttl: Duration) {
        let count = self.open.entry((server, ttl)).or_default();
        *count = count.saturating_add(1);
    }

    /// It has answered, and nothing more of this extension can reach it.
    pub(crate) fn answered(&mut self, server: usize, ttl: Duration) {
        if let Entry::Occupied(mut count) = self.open.entry((server, ttl)) {
            match count.get().checked_sub(1).filter(|count| *count > 0) {
                Some(less) => *count.get_mut() = less,
                None => drop(count.remove()),
            }
        }
    }

    /// It did not answer, and the extension has been given up now.
    pub(crate) fn given_up(&mut self, server: usize, ttl: Duration, now: Moment) {
        self.answered(server, ttl);
        self.until.retain(|_, until| *until > now);
        self.until.insert((server, ttl), now.later(LONGEST_WAY));
    }

    pub(crate) fn is_any(&self, now: Moment) -> bool {
        !self.open.is_empty() || self.until.values().any(|until| *until > now)
    }

    /// For how much of its ttl an extension counts from the moment it was asked for, if these
    /// servers have agreed to it and so many of them are needed.
    pub(crate) fn counted(
        &self,
        ttl: Duration,
        asked: Moment,
        agreed: &[usize],
        needed: usize,
    ) -> Duration {
        let on_each = |server: &usize| self.shortest(*server, asked).map_or(ttl, |it| it.min(ttl));
        let mut each: Vec<_> = agreed.iter().map(on_each).collect();
        each.sort_unstable();
        each.into_iter().rev().nth(needed.saturating_sub(1)).unwrap_or_default()
    }

    /// The shortest extension that may reach this server after that moment.
    fn shortest(&self, server: usize, asked: Moment) -> Option<Duration> {
        let given_up = self.until.iter().filter(|(_, until)| **until > asked).map(|(what, _)| what);
        let of_server = self.open.keys().chain(given_up).filter(|(of, _)| *of == server);
        of_server.map(|(_, ttl)| *ttl).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_longer_extension_counts_for_no_more_than_a_shorter_one_that_may_still_arrive() {
        let (mut unanswered, now) = (Unanswered::default(), Moment::now());
        let counted = |unanswered: &Unanswered, ttl, asked| unanswered.counted(ttl, asked, &[0], 1);
        assert_eq!(counted(&unanswered, MINUTE, now), MINUTE);
        unanswered.given_up(0, 2 * SECOND, now);
        unanswered.given_up(0, 5 * SECOND, now + SECOND);
        assert_eq!(counted(&unanswered, MINUTE, now + SECOND), 2 * SECOND);
        assert_eq!(counted(&unanswered, SECOND, now + SECOND), SECOND);
        assert_eq!(counted(&unanswered, MINUTE, now + LONGEST_WAY), 5 * SECOND);
        assert_eq!(counted(&unanswered, MINUTE, now + LONGEST_WAY + SECOND), MINUTE);
    }

    #[test]
    fn what_may_still_reach_a_minority_of_the_servers_shortens_nothing() {
        let (mut unanswered, now) = (Unanswered::default(), Moment::now());
        unanswered.given_up(2, SECOND, now);
        let counted =
            |unanswered: &Unanswered, agreed: &[usize]| unanswered.counted(MINUTE, now, agreed, 2);
        assert_eq!(counted(&unanswered, &[0, 1, 2]), MINUTE);
        assert_eq!(counted(&unanswered, &[0, 2]), SECOND);
        unanswered.given_up(1, 2 * SECOND, now);
        assert_eq!(counted(&unanswered, &[0, 1, 2]), 2 * SECOND);
    }

    #[test]
    fn an_extension_counts_for_no_more_than_a_shorter_one_that_is_being_asked_for() {
        let (mut unanswered, now) = (Unanswered::default(), Moment::now());
        unanswered.begin(0, SECOND);
        unanswered.begin(0, SECOND);
        unanswered.answered(0, SECOND);
        assert_eq!(unanswered.counted(MINUTE, now + 2 * LONGEST_WAY, &[0], 1), SECOND);
        assert_eq!(unanswered.counted(MINUTE, now, &[1], 1), MINUTE);
        unanswered.answered(0, SECOND);
        assert_eq!(unanswered.counted(MINUTE, now, &[0], 1), MINUTE);
        assert!(!unanswered.is_any(now));
    }

    #[test]
    fn what_can_arrive_no_more_is_forgotten() {
        let (mut unanswered, now) = (Unanswered::default(), Moment::now());
        for millis in 0..100 {
            unanswered.given_up(0, Duration::from_millis(millis), now);
        }
        unanswered.given_up(0, SECOND, now + LONGEST_WAY);
        assert_eq!(unanswered.until.len(), 1);
    }
}
