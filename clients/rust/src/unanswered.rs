//! Extensions that servers may carry out after others, and until when servers may hold a lock for
//! them. Pure: moments are arguments.
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

/// Whoever is extending a lease is heard within this time, or may never look at the answer.
const LATELY: Duration = Duration::from_secs(5);

/// Those of one grant.
#[derive(Debug, Default)]
pub(crate) struct Unanswered {
    /// By server and ttl.
    asked: BTreeMap<(usize, Duration), Asked>,
    /// The last lease of this grant.
    lease: u64,
    /// Until when the servers may hold it, whatever they have carried out and not answered.
    may_hold_until: Option<Moment>,
}

#[derive(Debug, Default)]
struct Asked {
    /// When those were begun that are waited for.
    waiting: Vec<Moment>,
    /// When the last one was answered.
    answered: Option<Moment>,
    /// Until when those may arrive that were given up.
    arrives_until: Option<Moment>,
}

impl Unanswered {
    /// This server is asked for an extension of this ttl.
    pub(crate) fn begin(&mut self, server: usize, ttl: Duration, now: Moment) {
        // Those that are waited for have been asked for since then.
        let since = self.asked.iter().flat_map(|((_, ttl), asked)| asked.may_count(*ttl, now));
        let since = since.min().unwrap_or(now);
        self.asked.retain(|_, asked| asked.may_be_heard(since));
        self.asked.entry((server, ttl)).or_default().waiting.push(now);
        self.may_hold(ttl, now);
    }

    /// The server gave the grant, perhaps once more: earlier leases of it are over. It does not end
    /// sooner for that.
    pub(crate) fn pass_to(&mut self, lease: u64, ttl: Duration, asked: Moment) {
        self.lease = lease;
        self.may_hold(ttl, asked);
    }

    /// Servers may have begun to hold it for so long at this moment.
    pub(crate) fn may_hold(&mut self, ttl: Duration, from: Moment) {
        self.may_hold_until = self.may_hold_until.max(Some(from.later(ttl)));
    }

    /// All servers have, and hold it for longer only if they carry out a longer extension after
    /// that.
    pub(crate) fn hold(&mut self, ttl: Duration, from: Moment) {
        let longest = self.longest_of(|asked| asked.may_be_heard(from)).unwrap_or_default();
        self.may_hold_until = Some(from.later(ttl.max(longest)));
    }

    /// How long the servers may hold it from now on.
    pub(crate) fn left(&self, now: Moment) -> Duration {
        self.may_hold_until.map_or(Duration::ZERO, |until| until.since(now))
    }

    pub(crate) fn is_of(&self, lease: u64) -> bool {
        self.lease == lease
    }

    /// The server has answered the one that was begun then.
    pub(crate) fn answered(&mut self, server: usize, ttl: Duration, begun: Moment, now: Moment) {
        if let Some(asked) = self.end(server, ttl, begun) {
            asked.answered = asked.answered.max(Some(now));
        }
    }

    /// The server has not answered it, and it has been given up now.
    pub(crate) fn given_up(&mut self, server: usize, ttl: Duration, begun: Moment, now: Moment) {
        if let Some(asked) = self.end(server, ttl, begun) {
            asked.arrives_until = asked.arrives_until.max(Some(now.later(LONGEST_WAY)));
            // One of its tries may have been carried out just now.
            self.may_hold(ttl, now);
        }
    }

    fn end(&mut self, server: usize, ttl: Duration, begun: Moment) -> Option<&mut Asked> {
        let asked = self.asked.get_mut(&(server, ttl))?;
        let place = asked.waiting.iter().position(|waiting| *waiting == begun)?;
        asked.waiting.swap_remove(place);
        Some(asked)
    }

    /// Whether any shorter extension is waited for.
    pub(crate) fn is_any_shorter(&self, ttl: Duration) -> bool {
        self.asked.iter().any(|((_, of), asked)| *of < ttl && !asked.waiting.is_empty())
    }

    /// Whether the server may carry out any after that moment.
    pub(crate) fn is_any(&self, after: Moment) -> bool {
        self.asked.values().any(|asked| asked.may_be_heard(after))
    }

    /// The longest extension that was begun lately and is waited for.
    pub(crate) fn longest(&self, now: Moment) -> Option<Duration> {
        self.longest_of(|asked| asked.waiting.iter().any(|begun| begun.later(LATELY) > now))
    }

    fn longest_of(&self, is_one: impl Fn(&Asked) -> bool) -> Option<Duration> {
        let those = self.asked.iter().filter(|(_, asked)| is_one(asked));
        those.map(|((_, ttl), _)| *ttl).max()
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
    /// When those were begun that are waited for, and may count for something. An extension is
    /// asked for within one ttl, and lasts for one.
    fn may_count(&self, ttl: Duration, now: Moment) -> impl Iterator<Item = Moment> {
        let longest = ttl.saturating_mul(2);
        self.waiting.iter().copied().filter(move |begun| begun.later(longest) > now)
    }

    fn may_be_heard(&self, after: Moment) -> bool {
        let was_answered_later = self.answered.is_some_and(|answered| answered > after);
        !self.waiting.is_empty() || was_answered_later || self.may_arrive(after)
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
        unanswered.given_up(server, ttl, now, now);
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
        unanswered.answered(0, SECOND, now, now + 2 * SECOND);
        assert_eq!(counted(&unanswered, now + 3 * SECOND), SECOND, "one is waited for");
        assert_eq!(unanswered.counted_alone(MINUTE, now, &[0], 1), MINUTE);
        assert!(unanswered.is_any_shorter(MINUTE) && !unanswered.is_any_shorter(SECOND));
        unanswered.answered(0, SECOND, now, now + 4 * SECOND);
        assert_eq!(counted(&unanswered, now + 3 * SECOND), SECOND, "it was answered later");
        assert_eq!(counted(&unanswered, now + 4 * SECOND), MINUTE);
        assert!(!unanswered.is_any_shorter(MINUTE));
    }

    #[test]
    fn what_can_arrive_no_more_is_forgotten_when_nothing_older_is_waited_for_any_more() {
        let (mut unanswered, now) = (Unanswered::default(), Moment::now());
        unanswered.begin(0, 3 * MINUTE, now);
        for millis in 0..100 {
            give_up(&mut unanswered, 0, Duration::from_millis(millis), now);
        }
        let later = now + 2 * LONGEST_WAY;
        unanswered.begin(0, SECOND, later);
        assert_eq!(unanswered.counted(MINUTE, now, &[0], 1), Duration::ZERO);
        unanswered.answered(0, 3 * MINUTE, now, later);
        unanswered.begin(0, SECOND, later);
        assert_eq!(unanswered.asked.len(), 1);
    }

    /// Each of another ttl.
    #[test]
    fn extensions_that_always_overlap_are_forgotten_once_they_are_answered() {
        let (mut unanswered, mut now) = (Unanswered::default(), Moment::now());
        let ttl = |number| MINUTE + Duration::from_millis(number);
        unanswered.begin(0, ttl(0), now);
        for number in 1..1_000 {
            let begun = now;
            now = now + Duration::from_millis(10);
            unanswered.begin(0, ttl(number), now);
            unanswered.answered(0, ttl(number - 1), begun, now);
        }
        assert!(unanswered.asked.len() <= 3, "{}", unanswered.asked.len());
    }

    #[test]
    fn an_extension_that_nobody_looks_at_is_no_reason_to_remember_all_that_come_after_it() {
        let (mut unanswered, begun) = (Unanswered::default(), Moment::now());
        unanswered.begin(0, MINUTE, begun);
        for seconds in 0..1_000 {
            let (now, ttl) = (begun + seconds * SECOND, 2 * MINUTE + seconds * SECOND);
            unanswered.begin(0, ttl, now);
            unanswered.answered(0, ttl, now, now);
        }
        assert!(unanswered.asked.len() <= 3, "{}", unanswered.asked.len());
    }

    #[test]
    fn renewals_ask_for_no_more_because_of_an_extension_that_nobody_looks_at() {
        let (mut unanswered, now) = (Unanswered::default(), Moment::now());
        unanswered.begin(0, 60 * MINUTE, now);
        unanswered.begin(0, MINUTE, now + SECOND);
        assert_eq!(unanswered.longest(now + SECOND), Some(60 * MINUTE));
        assert_eq!(unanswered.longest(now + LATELY), Some(MINUTE));
        assert_eq!(unanswered.longest(now + MINUTE), None);
    }
}
