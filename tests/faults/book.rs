//! What clients were told of the locks of one server, and whether the server still says so. An answer that never came leaves
//! open whether the server did what it was asked to.

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
    /// No answer came.
    Asked,
    /// It was released, or its lease had run out.
    Answered,
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
    /// Takes down the grants of one run; what is wrong with their fences. Who held what at a time is judged in the campaign.
    pub(super) fn take_down(&mut self, grants: &[Grant]) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut told: HashMap<&str, u64> = HashMap::new();
        for grant in grants {
            let Some(fence) = grant.fence else { continue };
            self.answered += 1;
            let last = told.entry(&grant.lock).or_default();
            *last = fence.max(*last);
            if !self.fences.insert(fence) {
                wrong.push(format!("this fence was given before: {grant:?}"));
            }
            let highest = self.highest.get(&grant.lock).copied().unwrap_or(0);
            if fence <= highest {
                wrong.push(format!("not above {highest}, of an earlier run: {grant:?}"));
            }
        }
        self.highest.extend(told.into_iter().map(|(lock, fence)| (lock.to_owned(), fence)));
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
        let is_released = grant.release == Release::Answered;
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

fn held(client: &mut Client, lock: &str) -> Option<Held> {
    let before = now() / 1_000;
    let info = client.info(lock)?;
    assert!(info.deadline >= before, "it has run out: {info:?}");
    let deadline = deadline(client, lock.as_bytes());
    let owner = String::from_utf8(info.owner).unwrap();
    // Its lease may have run out between the two questions.
    (deadline > 0).then_some(Held { owner, fence: info.fence, deadline })
}
