//! What clients were told of the locks of one server, and whether the server still says so.
//!
//! ```text
//!   asked ├──────┤ told                      a grant: its fence, and between which moments its lease ends
//!                      asked ├──────┤ told   its release: from here to there nobody knows who has the lock
//! ```
//!
//! An answer that never came leaves open whether the server did what it was asked to.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use testkit::{Client, deadline, unix_micros};

/// The wall clock, in microseconds; the server's is the same.
pub(super) fn now() -> i64 {
    unix_micros().cast_signed()
}

/// What was asked for at one moment, and answered at another or never.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) asked: i64,
    /// When the answer came, or the end of the connection.
    pub(super) told: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    NotAsked,
    /// At this moment, and no answer came.
    Asked(i64),
    /// Asked for at this moment: it was still held then.
    Done(i64),
    /// The lease had run out.
    TooLate,
}

#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub(super) lock: String,
    pub(super) owner: String,
    /// `None`: asked for, and no answer came.
    pub(super) fence: Option<u64>,
    pub(super) span: Span,
    /// Between which milliseconds the lease ends: as granted, and as extended.
    pub(super) ends: Vec<RangeInclusive<i64>>,
    /// The one of these that was answered last.
    pub(super) answered: usize,
    pub(super) release: Release,
}

/// What the server says of a lock.
struct Held {
    owner: String,
    fence: u64,
    deadline: i64,
}

impl Fate {
    #[track_caller]
    pub(super) fn assert_nothing_lost(&self) {
        let nothing = self.lost.is_empty() && self.back.is_empty() && self.wrong.is_empty();
        assert!(nothing, "{self:?}");
    }
}

/// What became of the grants of one run.
#[derive(Debug, Default)]
pub(super) struct Fate {
    /// Answered and neither released nor over, and not held any more.
    pub(super) lost: Vec<String>,
    /// When the first of these was answered.
    pub(super) lost_since: Option<i64>,
    /// Held, although a release of it was answered, or as it was before an extension that was answered.
    pub(super) back: Vec<String>,
    /// Never answered, and held.
    pub(super) unanswered: usize,
    /// What no fault excuses.
    pub(super) wrong: Vec<String>,
}

/// Over all runs of a server.
#[derive(Default)]
pub(super) struct Book {
    highest: HashMap<String, u64>,
    fences: HashSet<u64>,
    /// Whoever asked in an earlier run.
    owners: HashSet<String>,
    pub(super) answered: usize,
}

pub(super) fn lease(span: Span, ttl: u64) -> RangeInclusive<i64> {
    let ttl = i64::try_from(ttl).unwrap();
    span.asked / 1_000 + ttl..=span.told / 1_000 + ttl
}

impl Grant {
    /// Whether its lease can be over at this millisecond.
    pub(super) fn may_be_over(&self, now: i64) -> bool {
        self.ends[self.answered..].iter().any(|end| *end.start() <= now)
    }

    /// The number of the lease that ends at this millisecond.
    fn lease_until(&self, deadline: i64) -> Option<usize> {
        self.ends.iter().rposition(|end| end.contains(&deadline))
    }
}

impl Book {
    /// Takes down the grants of one run; what is wrong with them (L1, L2).
    pub(super) fn take_down(&mut self, grants: &[Grant]) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut locks: HashMap<&str, Vec<(u64, &Grant)>> = HashMap::new();
        for grant in grants {
            let Some(fence) = grant.fence else { continue };
            self.answered += 1;
            locks.entry(&grant.lock).or_default().push((fence, grant));
            if !self.fences.insert(fence) {
                wrong.push(format!("this fence was given before: {grant:?}"));
            }
            let highest = self.highest.get(&grant.lock).copied().unwrap_or(0);
            if fence <= highest {
                wrong.push(format!("not above {highest}, of an earlier run: {grant:?}"));
            }
        }
        for (lock, grants) in &mut locks {
            grants.sort_unstable_by_key(|(fence, _)| *fence);
            wrong.extend(grants.windows(2).filter_map(overlap));
            wrong.extend(not_growing(grants));
            let (highest, _) = grants.last().unwrap();
            self.highest.insert((*lock).to_owned(), *highest);
        }
        wrong
    }

    /// What has become of them on a server, perhaps another one.
    pub(super) fn compare(&mut self, grants: &[Grant], client: &mut Client) -> Fate {
        let mut locks: HashMap<&str, Vec<&Grant>> = HashMap::new();
        for grant in grants {
            locks.entry(&grant.lock).or_default().push(grant);
        }
        let mut fate = Fate::default();
        for (lock, grants) in locks {
            let held = held(client, lock);
            let after = now() / 1_000;
            let owner = held.as_ref().map(|held| held.owner.as_str());
            let lost = grants.iter().filter(|grant| {
                grant.fence.is_some()
                    && grant.release == Release::NotAsked
                    && !grant.may_be_over(after)
                    && owner != Some(&grant.owner)
            });
            for grant in lost {
                fate.lost.push(format!("{grant:?}"));
                let since = fate.lost_since.into_iter().chain([grant.span.told]).min();
                fate.lost_since = since;
            }
            let Some(held) = held else { continue };
            match grants.iter().find(|grant| grant.owner == held.owner) {
                Some(grant) => self.compare_one(grant, &held, &mut fate),
                None if self.owners.contains(&held.owner) => {
                    fate.back.push(format!("{lock} by {}", held.owner));
                }
                None => fate.wrong.push(format!("{lock} by {}, who never asked", held.owner)),
            }
        }
        self.owners.extend(grants.iter().map(|grant| grant.owner.clone()));
        fate
    }

    fn compare_one(&mut self, grant: &Grant, held: &Held, fate: &mut Fate) {
        let Held { fence, deadline, .. } = *held;
        let lease = grant.lease_until(deadline);
        let is_released = matches!(grant.release, Release::Done(_) | Release::TooLate);
        if lease.is_none() {
            fate.wrong.push(format!("it ends at {deadline}: {grant:?}"));
        } else if is_released || lease < Some(grant.answered) {
            fate.back.push(format!("until {deadline}: {grant:?}"));
        }
        if grant.fence.is_some_and(|told| told != fence) {
            fate.wrong.push(format!("its fence is {fence}: {grant:?}"));
        }
        if grant.fence.is_none() {
            fate.unanswered += 1;
            // As if it had been answered now.
            let highest = self.highest.entry(grant.lock.clone()).or_default();
            if fence <= *highest || !self.fences.insert(fence) {
                fate.wrong.push(format!("its fence is {fence}, after {highest}: {grant:?}"));
            }
            *highest = (*highest).max(fence);
        }
    }
}

/// L1: who let go of a lock had it until then.
fn overlap(pair: &[(u64, &Grant)]) -> Option<String> {
    let (one, next) = (pair[0].1, pair[1].1);
    let until = match one.release {
        Release::Done(asked) => asked,
        Release::NotAsked if !one.may_be_over(next.span.told / 1_000) => i64::MAX,
        _ => return None,
    };
    (next.span.told < until).then(|| format!("{next:?} while {one:?}"))
}

/// L2: what was asked for after another was told has the larger fence. They are sorted by fence.
fn not_growing(grants: &[(u64, &Grant)]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut earliest: Option<&Grant> = None;
    for (_, grant) in grants.iter().rev() {
        if let Some(larger) = earliest.filter(|larger| larger.span.told < grant.span.asked) {
            wrong.push(format!("{grant:?} is below {larger:?}"));
        }
        earliest = earliest.filter(|other| other.span.told < grant.span.told).or(Some(grant));
    }
    wrong
}

fn held(client: &mut Client, lock: &str) -> Option<Held> {
    let before = now() / 1_000;
    let info = client.info(lock)?;
    assert!(info.deadline >= before, "it has run out: {info:?}");
    let deadline = deadline(client, lock.as_bytes());
    let owner = String::from_utf8(info.owner).unwrap();
    // Its lease may have run out between the two questions.
    (deadline > 0).then_some(Held { owner, fence: info.fence, deadline })
}

/// The book must see what it is there to see.
mod of_the_book {
    use super::{Book, Grant, Release, Span};

    const MS: i64 = 1_000;

    fn grant(fence: u64, asked: i64, told: i64, release: Release) -> Grant {
        let span = Span { asked: asked * MS, told: told * MS };
        let (lock, owner) = ("k".to_owned(), fence.to_string());
        Grant {
            lock,
            owner,
            fence: Some(fence),
            span,
            ends: vec![1_000..=1_000],
            answered: 0,
            release,
        }
    }

    #[test]
    fn what_can_have_happened_is_not_held_against_the_server_and_what_cannot_is() {
        let early = grant(21, 10, 12, Release::Done(13 * MS));
        let late = grant(11, 20, 22, Release::Done(23 * MS));
        let next = grant(21, 11, 22, Release::NotAsked);
        let elsewhere = Grant { lock: "other".to_owned(), ..early.clone() };
        let fine = vec![
            grant(11, 10, 12, Release::Done(20 * MS)),
            grant(21, 11, 22, Release::Asked(30 * MS)),
            grant(31, 10, 32, Release::NotAsked),
        ];
        for (runs, said) in [
            (vec![fine, vec![grant(32, 40, 41, Release::NotAsked)]], ""),
            (vec![vec![grant(11, 10, 12, Release::Done(30 * MS)), next.clone()]], "while"),
            (vec![vec![grant(11, 10, 12, Release::NotAsked), next]], "while"),
            (vec![vec![early.clone(), late.clone()]], "is below"),
            (vec![vec![early.clone()], vec![late]], "of an earlier run"),
            (vec![vec![early, elsewhere]], "was given before"),
        ] {
            let mut book = Book::default();
            let wrong: Vec<_> = runs.iter().flat_map(|grants| book.take_down(grants)).collect();
            assert_eq!(wrong.is_empty(), said.is_empty(), "{wrong:?}");
            assert!(wrong.is_empty() || wrong.concat().contains(said), "{wrong:?}: {said}");
        }
    }
}
