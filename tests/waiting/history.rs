//! What was asked and told, and when, and whether that can have been right.
//!
//! A server with a fence margin of 0 says with each fence when it made the grant, by the clock that the
//! test reads too. So nothing has to be guessed: leases are compared as the server granted them.
//!
//! ```text
//!   asked ├──────────── a request that waits ───────────┤ told        microseconds of the wall clock
//!                                     ▲ fence
//!                                     ├──── ttl ────┤
//! ```

use std::collections::{BTreeMap, HashMap};

/// A span of the wall clock in which something happened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) asked: u64,
    pub(super) told: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Event {
    /// This owner was told this fence, in answer to what it asked last; it may have asked before and lost
    /// the connection.
    Granted { owner: String, fence: u64, ttl_millis: u64, asked_last: u64 },
    /// The lease of this grant now ends so long from then, which is later than before.
    Extended { fence: u64, ttl_millis: u64 },
    /// Whoever held the lock may have lost it: by a release, a deletion, a shorter expiry.
    Freed,
    /// This owner was seen in the queue.
    Waits { owner: String },
}

#[derive(Clone, Debug)]
pub(super) struct Record {
    /// `None`: every lock.
    pub(super) key: Option<&'static str>,
    pub(super) span: Span,
    pub(super) event: Event,
}

struct Grant<'h> {
    owner: &'h str,
    fence: u64,
    ttl_millis: u64,
    asked_last: u64,
    span: Span,
}

/// What is wrong with a history; nothing, if it can have happened on a server that keeps its promises.
pub(super) fn check(history: &[Record]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut locks: BTreeMap<&str, Vec<Grant>> = BTreeMap::new();
    for record in history {
        let Event::Granted { owner, fence, ttl_millis, asked_last } = &record.event else {
            continue;
        };
        locks.entry(record.key.expect("a grant is of one lock")).or_default().push(Grant {
            owner,
            fence: *fence,
            ttl_millis: *ttl_millis,
            asked_last: *asked_last,
            span: record.span,
        });
    }
    wrong.extend(fences_that_do_not_grow(locks.values().flatten()));
    for (key, grants) in &mut locks {
        grants.sort_unstable_by_key(|grant| grant.fence);
        let of_lock: Vec<_> =
            history.iter().filter(|record| record.key.is_none_or(|other| other == *key)).collect();
        wrong.extend(leases_that_overlap(key, grants, &of_lock));
        wrong.extend(those_who_were_overtaken(key, grants, &of_lock));
    }
    wrong
}

/// L2: no fence twice, each within the span of its request, and what was told before something was asked is
/// below it. For all locks of the server at once, which have one clock.
fn fences_that_do_not_grow<'g>(grants: impl Iterator<Item = &'g Grant<'g>>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut by_told: Vec<_> = grants.collect();
    by_told.sort_unstable_by_key(|grant| grant.span.told);
    let mut by_asked = by_told.clone();
    by_asked.sort_unstable_by_key(|grant| grant.span.asked);
    let mut told = by_told.iter().peekable();
    let mut highest = 0;
    for grant in by_asked {
        while let Some(before) = told.next_if(|before| before.span.told < grant.span.asked) {
            highest = highest.max(before.fence);
        }
        if grant.fence <= highest {
            wrong.push(format!("{} is not above {highest}, told before it was asked", grant.fence));
        }
        // Some servers tell modules only milliseconds.
        let at = millis(grant.fence);
        if at < millis(grant.span.asked) || at > millis(grant.span.told) {
            wrong.push(format!("{} was not granted within {:?}", grant.fence, grant.span));
        }
    }
    by_told.sort_unstable_by_key(|grant| grant.fence);
    let twice = by_told.windows(2).filter(|pair| pair[0].fence == pair[1].fence);
    wrong.extend(twice.map(|pair| {
        format!("{} was granted to {} and {}", pair[0].fence, pair[0].owner, pair[1].owner)
    }));
    wrong
}

/// L1: a lock is granted only after the grant before it ended, or something may have ended it.
fn leases_that_overlap(key: &str, grants: &[Grant], history: &[&Record]) -> Vec<String> {
    let mut extensions: HashMap<u64, Vec<(Span, u64)>> = HashMap::new();
    let mut freed = Vec::new();
    for record in history {
        match record.event {
            Event::Freed => freed.push(record.span),
            Event::Extended { fence, ttl_millis } => {
                extensions.entry(fence).or_default().push((record.span, ttl_millis));
            }
            _ => {}
        }
    }
    freed.sort_unstable_by_key(|span| span.told);
    let mut wrong = Vec::new();
    for pair in grants.windows(2) {
        let (one, next) = (&pair[0], &pair[1]);
        let for_sure = extensions.get(&one.fence).into_iter().flatten();
        let end = for_sure
            .filter(|(span, _)| span.told <= next.fence)
            .map(|(span, ttl)| millis(span.asked) + ttl)
            .fold(millis(one.fence) + one.ttl_millis, u64::max);
        let ended = millis(next.fence) >= end;
        let first = freed.partition_point(|span| span.told < millis(one.fence) * 1_000);
        // Those told after the one grant that were asked for before the other.
        let may_be_freed = freed[first..].iter().any(|span| span.asked <= next.fence + 1_000);
        if !ended && !may_be_freed {
            wrong.push(format!(
                "{key}: {} was granted {} at {}, while {} had it by {} until {end}",
                next.owner,
                next.fence,
                millis(next.fence),
                one.owner,
                one.fence
            ));
        }
    }
    wrong
}

/// L4: who was seen waiting before another asked is granted the lock before it.
fn those_who_were_overtaken(key: &str, grants: &[Grant], history: &[&Record]) -> Vec<String> {
    let mut seen: HashMap<&str, Vec<Span>> = HashMap::new();
    for record in history {
        if let Event::Waits { owner } = &record.event {
            seen.entry(owner).or_default().push(record.span);
        }
    }
    let mut by_asked: Vec<_> = grants.iter().collect();
    by_asked.sort_unstable_by_key(|grant| grant.span.asked);
    // The lowest fence of this one and all that asked later.
    let mut lowest = vec![(u64::MAX, ""); by_asked.len() + 1];
    for (index, grant) in by_asked.iter().enumerate().rev() {
        lowest[index] = lowest[index + 1].min((grant.fence, grant.owner));
    }
    let overtaken = grants.iter().filter_map(|grant| {
        let looks = seen.get(grant.owner)?.iter().filter(|look| look.asked >= grant.asked_last);
        let at = looks.map(|look| look.told).min()?;
        let later = by_asked.partition_point(|other| other.span.asked <= at);
        let (fence, by) = lowest[later];
        (fence < grant.fence)
            .then(|| format!("{key}: {} was overtaken by {by}, who asked after {at}", grant.owner))
    });
    overtaken.collect()
}

fn millis(micros: u64) -> u64 {
    micros / 1_000
}

/// The checker must see what it is there to see.
mod of_the_checker {
    use super::{Event, Record, Span, check};

    /// A millisecond, in the microseconds of a fence.
    const MS: u64 = 1_000;

    fn record(asked: u64, told: u64, event: Event) -> Record {
        Record { key: Some("k"), span: Span { asked: asked * MS, told: told * MS }, event }
    }

    fn granted(owner: &str, asked: u64, at: u64, told: u64, ttl_millis: u64) -> Record {
        let (owner, fence, asked_last) = (owner.to_owned(), at * MS, asked * MS);
        record(asked, told, Event::Granted { owner, fence, ttl_millis, asked_last })
    }

    #[track_caller]
    fn assert_wrong(history: &[Record], what: &str) {
        let wrong = check(history);
        assert!(matches!(&wrong[..], [one] if one.contains(what)), "{wrong:?} does not say {what}");
    }

    #[test]
    fn what_can_have_happened_is_not_held_against_the_server() {
        let waits = Event::Waits { owner: "b".to_owned() };
        let history = [
            granted("a", 10, 11, 12, 5),
            record(12, 13, waits),
            granted("b", 10, 17, 18, 50),
            record(20, 21, Event::Extended { fence: 17 * MS, ttl_millis: 100 }),
            record(30, 31, Event::Freed),
            granted("c", 14, 31, 33, 1_000),
            record(200, 201, Event::Freed),
            granted("a2", 200, 201, 202, 5),
        ];
        assert_eq!(check(&history), [""; 0]);
    }

    #[test]
    fn a_grant_within_the_lease_of_another_is_wrong() {
        assert_wrong(
            &[granted("a", 10, 11, 12, 50), granted("b", 10, 60, 61, 5)],
            "b was granted 60000 at 60, while a had it",
        );
    }

    #[test]
    fn a_grant_within_an_extended_lease_is_wrong() {
        let extended = record(12, 13, Event::Extended { fence: 11 * MS, ttl_millis: 100 });
        assert_wrong(
            &[granted("a", 10, 11, 12, 5), extended, granted("b", 50, 60, 61, 5)],
            "until 112",
        );
    }

    #[test]
    fn a_release_before_or_after_does_not_excuse_a_grant() {
        let early = record(1, 2, Event::Freed);
        let late = record(70, 71, Event::Freed);
        assert_wrong(
            &[early, granted("a", 10, 11, 12, 90), granted("b", 50, 60, 61, 5), late],
            "while a had it",
        );
    }

    #[test]
    fn a_release_of_another_lock_does_not_excuse_a_grant() {
        let mut other = record(20, 21, Event::Freed);
        other.key = Some("other");
        assert_wrong(
            &[granted("a", 10, 11, 12, 90), other, granted("b", 50, 60, 61, 5)],
            "while a had it",
        );
    }

    #[test]
    fn a_fence_that_does_not_grow_is_wrong() {
        let mut other = granted("b", 15, 11, 16, 1);
        other.key = Some("other");
        let wrong = check(&[granted("a", 10, 12, 13, 1), other]);
        assert!(wrong.iter().any(|one| one.contains("not above 12000")), "{wrong:?}");
    }

    #[test]
    fn a_fence_granted_twice_is_wrong() {
        let mut other = granted("b", 10, 12, 16, 1);
        other.key = Some("other");
        assert_wrong(&[granted("a", 10, 12, 13, 1), other], "granted to");
    }

    #[test]
    fn a_fence_from_outside_its_request_is_wrong() {
        assert_wrong(&[granted("a", 10, 9, 13, 1)], "not granted within");
        assert_wrong(&[granted("a", 10, 14, 13, 1)], "not granted within");
    }

    #[test]
    fn who_left_and_asked_again_has_not_been_overtaken() {
        let waits = Event::Waits { owner: "a".to_owned() };
        let mut again = granted("a", 10, 30, 31, 1);
        if let Event::Granted { asked_last, .. } = &mut again.event {
            *asked_last = 15 * MS;
        }
        let history = [record(11, 12, waits), granted("b", 13, 20, 21, 1), again];
        assert_eq!(check(&history), [""; 0]);
    }

    #[test]
    fn who_asks_later_and_is_granted_earlier_has_overtaken() {
        let waits = Event::Waits { owner: "a".to_owned() };
        assert_wrong(
            &[record(11, 12, waits), granted("b", 13, 20, 21, 1), granted("a", 10, 30, 31, 1)],
            "a was overtaken by b",
        );
    }
}
