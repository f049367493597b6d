//! Extensions that servers may carry out after others. Pure: moments are arguments.
//!
//! ```text
//!   EXTEND 1 s  ──► proxy: no answer, the connection is given up
//!   EXTEND 60 s ───────────────────────────► answered
//!                   proxy: EXTEND 1 s ─────────────► the lease ends a second from now
//! ```
//!
//! A proxy may deliver late what a client sent before it gave the connection up. Two connections
//! may deliver in either order what was sent at the same time. So an extension counts for no more
//! than a shorter one that the server may carry out after it.

use crate::clock::Moment;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long bytes may be on their way after the client has given up their connection.
pub(crate) const LONGEST_WAY: Duration = Duration::from_secs(60);

/// By server and ttl.
#[derive(Debug, Default)]
pub(crate) struct Unanswered {
    asked: BTreeMap<(usize, Duration), Asked>,
}

#[derive(Debug, Default)]
struct Asked {
    /// How many are waited for.
    waiting: usize,
    /// When the last one was answered.
    answered: Option<Moment>,
    /// Until when those may arrive that were given up.
    arrives_until: Option<Moment>,
}

impl Unanswered {
    /// This server is asked for an extension of this ttl.
    pub(crate) fn begin(&mut self, server: usize, ttl: Duration, now: Moment) {
        // An extension that is waited for may have been asked for at any time.
        if self.asked.values().all(|asked| asked.waiting == 0) {
            self.asked.retain(|_, asked| asked.may_be_heard(now));
        }
        let asked = self.asked.entry((server, ttl)).or_default();
        asked.waiting = asked.waiting.saturating_add(1);
    }

    /// The server has answered it now.
    pub(crate) fn answered(&mut self, server: usize, ttl: Duration, now: Moment) {
        if let Some(asked) = self.end(server, ttl) {
            asked.answered = asked.answered.max(Some(now));
        }
    }

    /// The server has not answered it, and it has been given up now.
    pub(crate) fn given_up(&mut self, server: usize, ttl: Duration, now: Moment) {
        if let Some(asked) = self.end(server, ttl) {
            asked.arrives_until = asked.arrives_until.max(Some(now.later(LONGEST_WAY)));
        }
    }

    fn end(&mut self, server: usize, ttl: Duration) -> Option<&mut Asked> {
        let asked = self.asked.get_mut(&(server, ttl))?;
        asked.waiting = asked.waiting.saturating_sub(1);
        Some(asked)
    }

    /// Whether any shorter extension is waited for.
    pub(crate) fn is_any_shorter(&self, ttl: Duration) -> bool {
        self.asked.iter().any(|((_, of), asked)| *of < ttl && asked.waiting > 0)
    }

    /// Whether the server may carry out any after that moment.
    pub(crate) fn is_any(&self, after: Moment) -> bool {
        self.asked.values().any(|asked| asked.may_be_heard(after))
    }

    /// The longest extension that is waited for.
    pub(crate) fn longest(&self) -> Option<Duration> {
        let waiting = self.asked.iter().filter(|(_, asked)| asked.waiting > 0);
        waiting.map(|((_, ttl), _)| *ttl).max()
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
        self.bounded(ttl, agreed, needed, |others| others.may_be_heard(asked))
    }

    /// For how much it would count if it were asked for when all that are waited for have been
    /// answered.
    pub(crate) fn counted_alone(
        &self,
        ttl: Duration,
        now: Moment,
        agreed: &[usize],
        needed: usize,
    ) -> Duration {
        self.bounded(ttl, agreed, needed, |others| others.may_arrive(now))
    }

    /// By the shortest of those on each server.
    fn bounded(
        &self,
        ttl: Duration,
        agreed: &[usize],
        needed: usize,
        by: impl Fn(&Asked) -> bool,
    ) -> Duration {
        let on_each = |server: &usize| {
            let mut all = self.asked.range((*server, Duration::ZERO)..=(*server, ttl));
            all.find(|(_, asked)| by(asked)).map_or(ttl, |((_, shortest), _)| *shortest)
        };
        let mut each: Vec<_> = agreed.iter().map(on_each).collect();
        each.sort_unstable();
        each.into_iter().rev().nth(needed.saturating_sub(1)).unwrap_or_default()
    }
}

impl Asked {
    fn may_be_heard(&self, after: Moment) -> bool {
        let was_answered_later = self.answered.is_some_and(|answered| answered > after);
        self.waiting > 0 || was_answered_later || self.may_arrive(after)
    }

    fn may_arrive(&self, after: Moment) -> bool {
        self.arrives_until.is_some_and(|until| until > after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MINUTE: Duration = Duration::from_secs(60);

    fn give_up(unanswered: &mut Unanswered, server: usize, ttl: Duration, now: Moment) {
        unanswered.begin(server, ttl, now);
        unanswered.given_up(server, ttl, now);
    }

    #[test]
    fn a_longer_extension_counts_for_no_more_than_a_shorter_one_that_may_still_arrive() {
        let (mut unanswered, now) = (Unanswered::default(), Moment::now());
        let counted = |unanswered: &Unanswered, ttl, asked| unanswered.counted(ttl, asked, &[0], 1);
        assert_eq!(counted(&unanswered, MINUTE, now), MINUTE);
        give_up(&mut unanswered, 0, 2 * SECOND, now);
        give_up(&mut unanswered, 0, 5 * SECOND, now + SECOND);
        assert_eq!(counted(&unanswered, MINUTE, now + SECOND), 2 * SECOND);
        assert_eq!(counted(&unanswered, SECOND, now + SECOND), SECOND);
        assert_eq!(counted(&unanswered, MINUTE, now + LONGEST_WAY), 5 * SECOND);
        assert_eq!(counted(&unanswered, MINUTE, now + LONGEST_WAY + SECOND), MINUTE);
    }

    #[test]
    fn what_may_still_reach_a_minority_of_the_servers_shortens_nothing() {
        let (mut unanswered, now) = (Unanswered::default(), Moment::now());
        give_up(&mut unanswered, 2, SECOND, now);
        let counted =
            |unanswered: &Unanswered, agreed: &[usize]| unanswered.counted(MINUTE, now, agreed, 2);
        assert_eq!(counted(&unanswered, &[0, 1, 2]), MINUTE);
        assert_eq!(counted(&unanswered, &[0, 2]), SECOND);
        give_up(&mut unanswered, 1, 2 * SECOND, now);
        assert_eq!(counted(&unanswered, &[0, 1, 2]), 2 * SECOND);
    }

    #[test]
    fn an_extension_counts_for_no_more_than_a_shorter_one_that_was_asked_for_at_the_same_time() {
        let (mut unanswered, now) = (Unanswered::default(), Moment::now());
        let counted = |unanswered: &Unanswered, asked| unanswered.counted(MINUTE, asked, &[0], 1);
        for _ in 0..2 {
            unanswered.begin(0, SECOND, now);
        }
        unanswered.begin(0, MINUTE, now + SECOND);
        unanswered.answered(0, SECOND, now + 2 * SECOND);
        assert_eq!(counted(&unanswered, now + 3 * SECOND), SECOND, "one is waited for");
        assert_eq!(unanswered.counted_alone(MINUTE, now, &[0], 1), MINUTE);
        assert_eq!(unanswered.longest(), Some(MINUTE));
        assert!(unanswered.is_any_shorter(MINUTE) && !unanswered.is_any_shorter(SECOND));
        unanswered.answered(0, SECOND, now + 4 * SECOND);
        assert_eq!(counted(&unanswered, now + 3 * SECOND), SECOND, "it was answered later");
        assert_eq!(counted(&unanswered, now + 4 * SECOND), MINUTE);
        assert!(!unanswered.is_any_shorter(MINUTE));
    }

    #[test]
    fn what_can_arrive_no_more_is_forgotten_when_nothing_is_waited_for_any_more() {
        let (mut unanswered, now) = (Unanswered::default(), Moment::now());
        unanswered.begin(0, MINUTE, now);
        for millis in 0..100 {
            give_up(&mut unanswered, 0, Duration::from_millis(millis), now);
        }
        unanswered.begin(0, SECOND, now + 2 * LONGEST_WAY);
        assert_eq!(unanswered.counted(MINUTE, now, &[0], 1), Duration::ZERO);
        unanswered.answered(0, SECOND, now + 2 * LONGEST_WAY);
        unanswered.answered(0, MINUTE, now + 2 * LONGEST_WAY);
        unanswered.begin(0, SECOND, now + 3 * LONGEST_WAY);
        assert_eq!(unanswered.asked.len(), 1);
    }
}
