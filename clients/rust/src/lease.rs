//! What a client knows of one grant. Moments are arguments. The one output is how long it was held,
//! which is measured when it ends.

use crate::clock::Moment;
use crate::home::Home;
use crate::measure;
use crate::poison::locked;
use crate::settings::Renew;
use crate::stray::Stray;
use crate::unanswered::Unanswered;
use crate::validity::{renew_at, valid_until};
use crate::wire::Answer;
use crate::{Error, Loss};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

mod bond;
mod extending;
mod releasing;
mod watching;

pub(crate) use bond::Bond;
pub(crate) use extending::{Asking, Counted, Effect};

pub(crate) struct Lease {
    pub(crate) id: u64,
    /// Without the prefix.
    pub(crate) name: String,
    pub(crate) key: String,
    pub(crate) owner: String,
    pub(crate) fence: u64,
    pub(crate) correlation: String,
    /// If it ends with a connection.
    pub(crate) bond: Option<Bond>,
    /// The connections on which it was asked for, and nobody answered.
    pub(crate) stray: Stray,
    granted: Moment,
    state: Mutex<State>,
    /// Later leases of the same owner share it if they are of the same grant.
    unanswered: Arc<Mutex<Unanswered>>,
    /// Fires when it is held no more.
    pub(crate) over: CancellationToken,
    /// It may end sooner than it would have.
    sooner: Notify,
    /// An extension is waited for no more.
    heard: Notify,
}

struct State {
    /// That in force.
    ttl: Duration,
    /// When that ttl was asked for.
    asked: Moment,
    /// How much of that ttl can be counted on.
    counted: Duration,
    valid_until: Moment,
    /// What renewals ask for.
    renewal: Duration,
    /// Until when it is renewed; none if it is not.
    renewed_until: Option<Moment>,
    /// It is not released sooner.
    held_until: Option<Moment>,
    /// It is not released at all.
    kept: bool,
    /// How many requests to release it may have done that, and nobody knows.
    releases: u32,
    /// One of them has.
    released: bool,
    ended: Option<Loss>,
    /// Whoever waits for the end has been told.
    told: bool,
    /// The runtimes on which its end is seen.
    watched_on: Vec<Home>,
}

/// The place of a server that is the only one.
pub(crate) const ONLY: usize = 0;

/// What is to be done with it next, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Renew { at: Moment },
    End { at: Moment },
}

/// What names a lease.
pub(crate) struct Names {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) key: String,
    pub(crate) owner: String,
    pub(crate) correlation: String,
}

impl Lease {
    pub(crate) fn new(
        names: Names,
        fence: u64,
        asked: Moment,
        ttl: Duration,
        renew: Renew,
    ) -> Self {
        Self::after(names, fence, asked, ttl, renew, Arc::default())
    }

    /// That of a grant for which others may have asked before, without an answer.
    pub(crate) fn after(
        names: Names,
        fence: u64,
        asked: Moment,
        ttl: Duration,
        renew: Renew,
        unanswered: Arc<Mutex<Unanswered>>,
    ) -> Self {
        let Names { id, name, key, owner, correlation } = names;
        let mut others = locked(&unanswered);
        others.pass_to(id, ttl, asked);
        let counted = others.counted(ttl, asked, &[ONLY], 1);
        drop(others);
        let renewed_until = renewed_until(renew, asked);
        let state = State {
            ttl,
            asked,
            counted,
            valid_until: valid_until(asked, counted),
            renewal: ttl,
            renewed_until,
            held_until: None,
            kept: false,
            releases: 0,
            released: false,
            ended: None,
            told: false,
            watched_on: Vec::new(),
        };
        Self {
            id,
            name,
            key,
            owner,
            fence,
            correlation,
            bond: None,
            stray: Stray::default(),
            granted: asked,
            state: Mutex::new(state),
            unanswered,
            over: CancellationToken::new(),
            sooner: Notify::new(),
            heard: Notify::new(),
        }
    }

    /// It ends with a connection.
    pub(crate) fn bound(self, bond: Option<Bond>) -> Self {
        Self { bond, ..self }
    }

    /// The server gave the same grant again to a later request, whose lease it is now.
    pub(crate) fn is_superseded(&self) -> bool {
        !self.unanswered().is_of(self.id)
    }

    pub(crate) fn valid_for(&self, now: Moment) -> Duration {
        let state = self.state();
        match state.ended {
            None => state.valid_until.since(now),
            Some(_) => Duration::ZERO,
        }
    }

    /// That in force.
    pub(crate) fn ttl(&self) -> Duration {
        self.state().ttl
    }

    pub(crate) fn valid_until(&self) -> Moment {
        self.state().valid_until
    }

    pub(crate) fn ended(&self) -> Option<Loss> {
        self.state().ended
    }

    /// It is held no more. Whether that is news.
    pub(crate) fn end(&self, loss: Loss) -> bool {
        let is_news = self.note_end(loss).is_none();
        self.tell_end();
        is_news
    }

    /// The same, and nobody is told of it before [`Lease::tell_end`]. Why it had ended before.
    pub(crate) fn note_end(&self, loss: Loss) -> Option<Loss> {
        let mut state = self.state();
        let before = state.ended;
        state.ended.get_or_insert(loss);
        before
    }

    /// Tells that it has ended, if it has, and nobody has told so. That runs wakers of the program:
    /// no mutex may be held.
    pub(crate) fn tell_end(&self) {
        let mut state = self.state();
        let is_ended = state.ended.is_some();
        let is_news = is_ended && !std::mem::replace(&mut state.told, true);
        drop(state);
        if is_news {
            measure::held(Moment::now().since(self.granted));
            self.over.cancel();
        }
    }

    pub(crate) fn next(&self) -> Next {
        self.state().next()
    }

    /// How long to wait after a renewal that failed: there may be time for another.
    pub(crate) fn retry_after(&self, now: Moment) -> Duration {
        let rest = self.valid_for(now).checked_div(3).unwrap_or_default();
        rest.max(Duration::from_millis(10))
    }

    /// From now on renewals ask for this ttl.
    pub(crate) fn renew_with(&self, ttl: Duration) {
        self.state().renewal = ttl;
    }

    /// What the server is to be asked for so that another guard has a lease of this ttl from now
    /// on: none if that is held already. It never ends sooner than before.
    pub(crate) fn ttl_to_join(&self, ttl: Duration, now: Moment) -> Option<Duration> {
        let state = self.state();
        let is_enough = state.valid_until >= valid_until(now, ttl);
        (!is_enough).then(|| ttl.max(self.left(now)))
    }

    /// How long the server may hold it from now on.
    pub(crate) fn left(&self, now: Moment) -> Duration {
        self.unanswered().left(now)
    }

    /// It is not to be released sooner than then.
    pub(crate) fn hold_until(&self, moment: Moment) {
        let mut state = self.state();
        state.held_until = state.held_until.max(Some(moment));
    }

    /// How long it is to be held on if it is released now: none if it need not be. A millisecond
    /// more than is left, because the server is told whole ones.
    pub(crate) fn hold_for(&self, now: Moment) -> Option<Duration> {
        let left = self.state().held_until?.since(now);
        (!left.is_zero()).then(|| left.saturating_add(Duration::from_millis(1)))
    }

    /// It is to end by itself, unless it is being released already. Returns for how long it can
    /// be counted on from now.
    pub(crate) fn keep(&self, now: Moment) -> Duration {
        let mut state = self.state();
        state.kept |= state.ended != Some(Loss::Closed);
        match state.ended {
            None => state.valid_until.since(now),
            Some(_) => Duration::ZERO,
        }
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.state().kept
    }

    /// Another guard shares it: it is renewed as long as either wants that, by the longer ttl.
    pub(crate) fn joined(&self, ttl: Duration, renew: Renew, now: Moment) {
        let mut state = self.state();
        state.renewed_until = state.renewed_until.max(renewed_until(renew, now));
        state.renewal = state.renewal.max(ttl);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    fn unanswered(&self) -> MutexGuard<'_, Unanswered> {
        locked(&self.unanswered)
    }
}

impl State {
    fn next(&self) -> Next {
        let end = Next::End { at: self.valid_until };
        let at = renew_at(self.asked, self.counted);
        let counted_until = self.asked.later(self.counted);
        let more = self.renewed_until.is_some_and(|until| counted_until < until);
        if more && at < self.valid_until { Next::Renew { at } } else { end }
    }

    /// The ttl to renew it with now.
    fn renewal_ttl(&self, now: Moment) -> Duration {
        self.renewed_until.map_or(self.renewal, |until| self.renewal.min(until.since(now)))
    }
}

/// Until when a lease is renewed if that was asked for at this moment.
fn renewed_until(renew: Renew, asked: Moment) -> Option<Moment> {
    match renew {
        Renew::Off => None,
        Renew::Every => Some(asked.later(Duration::MAX)),
        Renew::AtMost(longest) => Some(asked.later(longest)),
    }
}

impl Next {
    pub(crate) fn at(self) -> Moment {
        match self {
            Self::Renew { at } | Self::End { at } => at,
        }
    }
}

/// Whether a release was heard in time. A try of which nobody knows may have been the one that released it: nobody
/// else could, before the end of the lease.
pub(crate) fn released_in_time(answer: Answer, valid_until: Moment) -> bool {
    answer.number == Some(1) || (answer.repeated && answer.asked < valid_until)
}

/// The longest and the shortest ttl that is of use.
pub(crate) fn checked(ttl: Duration) -> Result<Duration, Error> {
    if ttl < Duration::from_millis(1) {
        return Err(Error::setting("ttl", "it must be at least a millisecond"));
    }
    Ok(ttl)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;

    pub(super) const MINUTE: Duration = Duration::from_secs(60);
    pub(super) const SECOND: Duration = Duration::from_secs(1);

    /// Asked for, and answered at once.
    pub(super) fn extend(lease: &Lease, now: Moment, ttl: Duration) -> Counted {
        let mut asking = lease.about_to_extend([ONLY], ttl, now).unwrap();
        asking.answered(ONLY, now);
        asking.extended(now, now)
    }

    fn names(id: u64) -> Names {
        let text = String::new;
        Names { id, name: text(), key: text(), owner: text(), correlation: text() }
    }

    pub(super) fn lease(renew: Renew) -> (Lease, Moment) {
        let asked = Moment::now();
        (Lease::new(names(1), 7, asked, MINUTE, renew), asked)
    }

    #[test]
    fn each_renewal_moves_the_end_and_the_next_renewal() {
        let (lease, asked) = lease(Renew::Every);
        assert_eq!(lease.next(), Next::Renew { at: asked + 20 * SECOND });
        let again = asked + 21 * SECOND;
        assert_eq!(extend(&lease, again, MINUTE), Counted::Fully);
        assert_eq!(lease.valid_until(), valid_until(again, MINUTE));
        assert_eq!(lease.next(), Next::Renew { at: again + 20 * SECOND });
    }

    #[test]
    fn a_fixed_lease_only_ends() {
        let (lease, asked) = lease(Renew::Off);
        assert_eq!(lease.next(), Next::End { at: valid_until(asked, MINUTE) });
    }

    #[test]
    fn the_last_renewal_ends_with_the_longest_lifetime() {
        let (lease, asked) = lease(Renew::AtMost(65 * SECOND));
        let at = asked + 20 * SECOND;
        assert_eq!(lease.next(), Next::Renew { at });
        assert_eq!(lease.state().renewal_ttl(at), 45 * SECOND);
        assert_eq!(extend(&lease, at, 45 * SECOND), Counted::Fully);
        assert_eq!(lease.next(), Next::End { at: valid_until(at, 45 * SECOND) });
    }

    #[test]
    fn a_guard_that_joins_gets_no_less_than_it_asked_for() {
        let (lease, asked) = lease(Renew::Off);
        let now = asked + 10 * SECOND;
        assert_eq!(lease.ttl_to_join(40 * SECOND, now), None);
        assert_eq!(lease.ttl_to_join(MINUTE, now), Some(MINUTE));
        // The drift of a short ttl is less.
        assert_eq!(lease.ttl_to_join(50 * SECOND, now), Some(50 * SECOND));
        lease.joined(40 * SECOND, Renew::AtMost(2 * MINUTE), now);
        assert_eq!(lease.next(), Next::Renew { at: asked + 20 * SECOND });
        assert_eq!(lease.state().renewal_ttl(now), MINUTE);
        assert_eq!(lease.state().renewal_ttl(now + 100 * SECOND), 20 * SECOND);
        lease.joined(2 * MINUTE, Renew::Off, now);
        assert_eq!(lease.state().renewal_ttl(now), 2 * MINUTE);
    }

    #[test]
    fn the_server_may_hold_it_for_as_long_as_any_extension_may_be_in_force() {
        let (lease, asked) = lease(Renew::Off);
        assert_eq!(lease.left(asked), MINUTE);
        let hour = lease.about_to_extend([ONLY], 60 * MINUTE, asked);
        assert_eq!(lease.left(asked), 60 * MINUTE, "it may be carried out");
        assert_eq!(lease.ttl_to_join(MINUTE, asked + SECOND), Some(60 * MINUTE - SECOND));
        drop(hour);
        assert_eq!(extend(&lease, asked + SECOND, SECOND), Counted::Fully);
        assert_eq!(lease.left(asked + SECOND), 60 * MINUTE, "it may still arrive");
        let later = asked + 2 * SECOND;
        let (lease, _) = super::tests::lease(Renew::Off);
        assert_eq!(extend(&lease, asked + SECOND, 60 * MINUTE), Counted::Fully);
        assert_eq!(extend(&lease, later, SECOND), Counted::Fully);
        assert_eq!(lease.left(later), SECOND, "the server has answered the shorter one last");
    }

    #[test]
    fn the_server_may_hold_it_for_as_long_as_before_when_it_gave_the_same_grant_again() {
        let (first, asked) = lease(Renew::Off);
        let mut earlier = first.about_to_extend([ONLY], 2 * SECOND, asked).unwrap();
        let unanswered = Arc::clone(&first.unanswered);
        let next = Lease::after(names(2), 7, asked, SECOND, Renew::Off, unanswered);
        earlier.answered(ONLY, asked);
        assert_eq!(earlier.extended(asked, asked), Counted::Fully);
        assert_eq!(next.left(asked), MINUTE, "the server may have done that before");
    }

    /// Its guards are gone, and nobody has told its keeper.
    #[test]
    fn nothing_is_asked_for_a_lease_whose_grant_was_given_to_a_later_request() {
        let (first, asked) = lease(Renew::Every);
        let unanswered = Arc::clone(&first.unanswered);
        let next = Lease::after(names(2), 7, asked, MINUTE, Renew::Every, unanswered);
        assert!(first.is_superseded() && !next.is_superseded());
        let due = asked + 20 * SECOND;
        assert!(first.about_to_renew([ONLY], due).is_none());
        assert!(first.about_to_extend([ONLY], SECOND, due).is_none());
        assert!(next.about_to_renew([ONLY], due).is_some());
    }

    #[test]
    fn a_lease_that_has_ended_is_not_renewed_before_that_is_told() {
        let (lease, asked) = lease(Renew::Every);
        assert_eq!(lease.note_end(Loss::Released), None);
        assert!(lease.about_to_renew([ONLY], asked + 20 * SECOND).is_none());
    }

    #[test]
    fn a_lease_is_held_on_until_the_latest_moment_that_was_asked_for() {
        let (lease, asked) = lease(Renew::Every);
        assert_eq!(lease.hold_for(asked), None);
        lease.hold_until(asked + MINUTE);
        lease.hold_until(asked + SECOND);
        assert_eq!(lease.hold_for(asked + 59 * SECOND), Some(Duration::from_millis(1_001)));
        assert_eq!(lease.hold_for(asked + MINUTE), None);
    }

    #[test]
    fn what_is_over_is_not_revived() {
        let (late, asked) = lease(Renew::Every);
        let asking = late.about_to_extend([ONLY], MINUTE, asked + 59 * SECOND).unwrap();
        assert_eq!(asking.extended(asked + 59 * SECOND, asked + MINUTE), Counted::Over);
        let (lost, asked) = lease(Renew::Every);
        assert!(lost.end(Loss::Taken));
        assert!(!lost.end(Loss::Expired));
        assert_eq!(extend(&lost, asked, MINUTE), Counted::Over);
        assert_eq!(lost.ended(), Some(Loss::Taken));
        assert_eq!(lost.valid_for(asked), Duration::ZERO);
        assert!(lost.over.is_cancelled());
    }

    #[test]
    fn what_is_kept_is_known_in_the_same_moment_to_be_held_or_to_be_released() {
        let (kept, asked) = lease(Renew::Every);
        assert_eq!(kept.keep(asked), valid_until(asked, MINUTE).since(asked));
        assert!(kept.end(Loss::Closed) && kept.is_kept());
        let (closed, asked) = lease(Renew::Every);
        assert!(closed.end(Loss::Closed));
        assert_eq!(closed.keep(asked), Duration::ZERO);
        assert!(!closed.is_kept(), "it is being released");
    }

    #[test]
    fn a_release_that_was_repeated_within_the_lease_was_in_time() {
        let asked = Moment::now();
        let answer = |number, repeated| Answer {
            number: Some(number),
            asked,
            repeated,
            dialect: Dialect::Native,
            heard: 0,
        };
        assert!(released_in_time(answer(1, false), asked));
        assert!(released_in_time(answer(0, true), asked + SECOND));
        assert!(!released_in_time(answer(0, true), asked));
        assert!(!released_in_time(answer(0, false), asked + SECOND));
    }
}
