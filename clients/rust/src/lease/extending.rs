//! Extensions of a lease, any number of them at a time.
//!
//! ```text
//!   EXTEND 60 s ├─────────────────────────┤ answered: it counts for 1 s
//!   EXTEND 1 s          ├─────────────────────────┤ answered
//! ```
//!
//! None waits for another one, which may be on a runtime that nobody drives, or may be a future that
//! nobody polls. Servers carry them out in any order, so each counts for no more than any that may
//! be carried out after it.

use super::{Lease, Next, ONLY, State};
use crate::clock::Moment;
use crate::validity::valid_until;
use std::collections::BTreeSet;
use std::sync::MutexGuard;
use std::time::Duration;

/// An extension that is being asked for. When this is dropped, those servers are noted that have
/// not answered: it may still reach them.
#[must_use = "dropped, it says that nobody has answered"]
pub(crate) struct Asking<'l> {
    pub(crate) lease: &'l Lease,
    pub(crate) ttl: Duration,
    pub(crate) effect: Effect,
    begun: Moment,
    silent: BTreeSet<usize>,
}

/// What asking for an extension does to the lease, whatever comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    /// It may end sooner, and has to be renewed sooner.
    Shortened,
}

/// What an extension comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// As much as it could.
    Fully,
    /// Shorter ones were asked for at the same time, and may be carried out after it. Asked for
    /// again once those are answered, it would count for more.
    Less,
    /// The lease is over: it cannot be counted on any more.
    Over,
}

impl Lease {
    /// From now on these servers may have this ttl in force, which may be less than what is left.
    /// None if the grant is that of a later lease.
    pub(crate) fn about_to_extend(
        &self,
        servers: impl IntoIterator<Item = usize>,
        ttl: Duration,
        now: Moment,
    ) -> Option<Asking<'_>> {
        self.ask(self.state(), servers, ttl, now)
    }

    /// The same to renew it, if it has not ended and that is due now. Whoever is extending it to a
    /// longer ttl is to have that, whichever of the two the servers carry out last.
    pub(crate) fn about_to_renew(
        &self,
        servers: impl IntoIterator<Item = usize>,
        now: Moment,
    ) -> Option<Asking<'_>> {
        let state = self.state();
        let is_due = matches!(state.next(), Next::Renew { at } if at <= now);
        if state.ended.is_some() || !is_due {
            return None;
        }
        let ttl = state.renewal_ttl(now).max(self.unanswered().longest(now).unwrap_or_default());
        self.ask(state, servers, ttl, now)
    }

    fn ask(
        &self,
        mut state: MutexGuard<'_, State>,
        servers: impl IntoIterator<Item = usize>,
        ttl: Duration,
        now: Moment,
    ) -> Option<Asking<'_>> {
        let silent: BTreeSet<_> = servers.into_iter().collect();
        let mut unanswered = self.unanswered();
        // The later lease has counted what was asked for before it, and nothing after.
        if !unanswered.is_of(self.id) {
            return None;
        }
        silent.iter().for_each(|server| unanswered.begin(*server, ttl, now));
        drop(unanswered);
        let until = valid_until(now, ttl);
        let effect = if until < state.valid_until { Effect::Shortened } else { Effect::None };
        if effect == Effect::Shortened {
            // As if it were granted with this ttl, so that it is renewed in time.
            (state.valid_until, state.asked, state.counted) = (until, now, ttl);
        }
        drop(state);
        if effect == Effect::Shortened {
            self.sooner.notify_waiters();
        }
        Some(Asking { lease: self, ttl, effect, begun: now, silent })
    }
}

impl Asking<'_> {
    /// Nothing more of it can reach this server. What others were begun at the same time is known
    /// until then: so it is counted before.
    pub(crate) fn answered(&mut self, server: usize, now: Moment) {
        if self.silent.remove(&server) {
            self.lease.unanswered().answered(server, self.ttl, self.begun, now);
        }
    }

    /// The server has extended it.
    pub(crate) fn extended(&self, asked: Moment, now: Moment) -> Counted {
        self.extended_by(&[ONLY], 1, asked, now)
    }

    /// The same where these servers have, and so many of them are needed. What was over stays so.
    pub(crate) fn extended_by(
        &self,
        agreed: &[usize],
        needed: usize,
        asked: Moment,
        now: Moment,
    ) -> Counted {
        let mut state = self.lease.state();
        let mut others = self.lease.unanswered();
        others.may_hold(self.ttl, asked);
        if state.ended.is_some() || now >= state.valid_until {
            return Counted::Over;
        }
        let counted = others.counted(self.ttl, asked, agreed, needed);
        let until = valid_until(asked, counted);
        // What was counted on before has allowed for this extension since it was begun.
        if until >= state.valid_until {
            (state.valid_until, state.asked, state.counted) = (until, asked, counted);
            state.ttl = self.ttl;
            // A server that has not agreed may hold it for what it was asked before, and a later
            // lease may have been granted after this.
            let have_all_agreed = self.silent.iter().all(|server| agreed.contains(server));
            if have_all_agreed && others.is_of(self.lease.id) {
                others.hold(self.ttl, asked);
            }
        }
        let alone = others.counted_alone(self.ttl, now, agreed, needed);
        if alone > counted { Counted::Less } else { Counted::Fully }
    }

    fn give_up(&mut self, now: Moment) {
        for server in std::mem::take(&mut self.silent) {
            self.lease.unanswered().given_up(server, self.ttl, self.begun, now);
        }
        self.lease.heard.notify_waiters();
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.give_up(Moment::now());
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{MINUTE, SECOND, extend, lease};
    use super::*;
    use crate::settings::Renew;
    use crate::unanswered::LONGEST_WAY;

    #[test]
    fn a_shorter_ttl_counts_as_soon_as_it_may_be_in_force() {
        let (lease, asked) = lease(Renew::Every);
        let shorter = lease.about_to_extend([ONLY], SECOND, asked).unwrap();
        assert_eq!(shorter.effect, Effect::Shortened);
        assert_eq!(lease.valid_until(), valid_until(asked, SECOND));
        let longer = lease.about_to_extend([ONLY], MINUTE, asked).unwrap();
        assert_eq!(longer.effect, Effect::None);
        assert_eq!(lease.valid_until(), valid_until(asked, SECOND));
    }

    #[test]
    fn a_shorter_extension_that_nobody_answered_bounds_later_ones_for_a_minute() {
        let (lease, asked) = lease(Renew::Every);
        lease.about_to_extend([ONLY], 3 * SECOND, asked).unwrap().give_up(asked);
        let mut again = asked;
        for _ in 0..60 {
            again = again + SECOND;
            assert_eq!(extend(&lease, again, MINUTE), Counted::Fully);
            if again < asked + LONGEST_WAY {
                assert_eq!(lease.valid_until(), valid_until(again, 3 * SECOND));
                assert_eq!(lease.next(), Next::Renew { at: again + SECOND });
            }
        }
        assert_eq!(lease.valid_until(), valid_until(again, MINUTE));
        assert_eq!(lease.next(), Next::Renew { at: again + 20 * SECOND });
    }

    #[test]
    fn a_server_that_has_not_agreed_may_hold_it_for_what_it_was_asked_before() {
        let (lease, asked) = lease(Renew::Off);
        let extend = |ttl, now, agreed: &[usize]| {
            let mut asking = lease.about_to_extend(0..3, ttl, now).unwrap();
            let counted = asking.extended_by(agreed, 2, now, now);
            (0..3).for_each(|server| asking.answered(server, now));
            counted
        };
        let (early, late) = (asked + SECOND, asked + 2 * SECOND);
        assert_eq!(extend(60 * MINUTE, asked, &[0, 1, 2]), Counted::Fully);
        assert_eq!(extend(SECOND, early, &[0, 1]), Counted::Fully);
        assert_eq!(lease.left(early), 60 * MINUTE - SECOND);
        assert_eq!(extend(MINUTE, early, &[0, 1, 2]), Counted::Fully);
        assert_eq!(lease.left(late), MINUTE - SECOND);
    }

    #[test]
    fn the_last_try_of_an_extension_that_nobody_answered_may_hold_it_for_its_ttl() {
        let (lease, asked) = lease(Renew::Off);
        let given_up = asked + 40 * SECOND;
        lease.about_to_extend([ONLY], MINUTE, asked).unwrap().give_up(given_up);
        assert_eq!(lease.left(given_up), MINUTE);
    }

    #[test]
    fn the_last_renewal_that_counts_for_less_is_followed_by_another() {
        let (lease, asked) = lease(Renew::AtMost(2 * MINUTE));
        lease.about_to_extend([ONLY], 3 * SECOND, asked).unwrap().give_up(asked);
        assert_eq!(extend(&lease, asked, 2 * MINUTE), Counted::Fully);
        assert_eq!(lease.next(), Next::Renew { at: asked + SECOND });
    }

    /// 5 s and 60 s, in whatever order they are asked for, answered and looked at.
    #[test]
    fn of_two_extensions_at_a_time_the_shorter_one_counts_in_whatever_order_they_are_answered() {
        for (first, second) in [(5 * SECOND, MINUTE), (MINUTE, 5 * SECOND)] {
            for is_first_answered_first in [true, false] {
                let (lease, begun) = lease(Renew::Every);
                let (early, late) = (begun + SECOND, begun + 2 * SECOND);
                let mut first = lease.about_to_extend([ONLY], first, early).unwrap();
                let mut second = lease.about_to_extend([ONLY], second, late).unwrap();
                let answered = late + SECOND;
                let look = |asking: &mut Asking<'_>, asked| {
                    asking.answered(ONLY, answered);
                    let counted = asking.extended(asked, answered);
                    assert_ne!(counted, Counted::Over);
                    let until = lease.valid_until();
                    assert!(until <= valid_until(late, 5 * SECOND), "{until:?}");
                };
                if is_first_answered_first {
                    look(&mut first, early);
                    look(&mut second, late);
                } else {
                    look(&mut second, late);
                    look(&mut first, early);
                }
                assert!(lease.valid_until() >= valid_until(early, 5 * SECOND));
                // Asked for again when nothing else is under way, it counts fully.
                drop((first, second));
                assert_eq!(extend(&lease, answered, MINUTE), Counted::Fully);
                assert_eq!(lease.valid_until(), valid_until(answered, MINUTE));
            }
        }
    }

    #[test]
    fn whoever_was_extended_beside_a_shorter_one_knows_that_more_can_be_had() {
        let (lease, asked) = lease(Renew::Every);
        let mut shorter = lease.about_to_extend([ONLY], SECOND, asked).unwrap();
        let mut longer = lease.about_to_extend([ONLY], MINUTE, asked).unwrap();
        let half = asked + SECOND / 2;
        assert_eq!(longer.extended(asked, half), Counted::Less, "nobody has answered the other");
        shorter.answered(ONLY, half);
        assert_eq!(longer.extended(asked, half), Counted::Less);
        // Another task took this moment before the shorter one was answered.
        assert_eq!(longer.extended(asked, asked), Counted::Less);
        longer.answered(ONLY, half);
        assert_eq!(longer.extended(half, half), Counted::Fully);
        assert_eq!(lease.valid_until(), valid_until(half, MINUTE));
    }

    #[test]
    fn a_renewal_asks_for_no_less_than_whoever_extends_it_meanwhile() {
        let (lease, asked) = lease(Renew::Every);
        let due = asked + 20 * SECOND;
        assert!(lease.about_to_renew([ONLY], asked).is_none(), "it is not due");
        let longer = lease.about_to_extend([ONLY], 2 * MINUTE, due).unwrap();
        assert_eq!(lease.about_to_renew([ONLY], due).map(|asking| asking.ttl), Some(2 * MINUTE));
        drop(longer);
        assert_eq!(lease.about_to_renew([ONLY], due).map(|asking| asking.ttl), Some(MINUTE));
        assert_eq!(extend(&lease, due, 2 * MINUTE), Counted::Fully);
        assert!(lease.about_to_renew([ONLY], due).is_none(), "somebody has extended it");
    }

    #[test]
    fn an_extension_that_nobody_looks_at_keeps_no_other_from_counting() {
        let (lease, asked) = lease(Renew::Every);
        let left = lease.about_to_extend([ONLY], 6 * SECOND, asked).unwrap();
        let mut now = asked;
        for _ in 0..100 {
            let Next::Renew { at } = lease.next() else { panic!("it is not renewed") };
            assert!(at <= now + 2 * SECOND);
            now = at;
            assert_eq!(extend(&lease, now, MINUTE), Counted::Less);
            assert_eq!(lease.valid_until(), valid_until(now, 6 * SECOND));
        }
        // Looked at in the end, it changes nothing.
        assert_eq!(left.extended(asked, now), Counted::Fully);
        assert_eq!(lease.valid_until(), valid_until(now, 6 * SECOND));
    }
}
