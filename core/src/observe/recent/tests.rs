//! What is told about grants, also compared with their full history.

#![allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test, as it should")]

use super::*;
use crate::lock::{Owner, Share};
use proptest::prelude::*;

const NOW: Moment = Moment::from_millis(1_763_000_000_000);
const LOCK: u64 = 7 << 60 | 1;

fn at(millis: u64) -> Moment {
    NOW.plus_millis(millis)
}

fn owner(name: &str) -> Owner<'_> {
    Owner::new(name.as_bytes()).unwrap()
}

fn fence(number: u64) -> Fence {
    Fence::new(Fence::FIRST.number() + number).unwrap()
}

/// A grant whose lease ends `end` milliseconds after `NOW`.
fn grant(name: &str, number: u64, end: u64) -> Grant<'_> {
    let deadline = Deadline::from_millis(at(end).millis());
    Grant { owner: owner(name), fence: fence(number), deadline, share: Share::EXCLUSIVE }
}

fn by(name: &str) -> Proof<'_> {
    Proof { owner: owner(name), fence: None }
}

fn by_fence(name: &str, number: u64) -> Proof<'_> {
    Proof { owner: owner(name), fence: Some(fence(number).number()) }
}

fn ran_out(by_ms: u64) -> Lateness {
    Lateness::RanOut { by_ms }
}

/// The grant of a lock that nobody held.
fn granted(recent: &mut Recent, grant: &Grant<'_>, now: Moment) -> Option<u64> {
    recent.granted(LOCK, grant, OtherHolders::None, now)
}

#[test]
fn a_proof_is_late_for_the_grant_that_it_is_of_although_others_have_had_the_lock_since() {
    let mut recent = Recent::new();
    assert_eq!(granted(&mut recent, &grant("a", 1, 50), NOW), None);
    assert_eq!(granted(&mut recent, &grant("b", 2, 100), at(51)), None);
    recent.released(LOCK, fence(2));
    assert_eq!(granted(&mut recent, &grant("c", 3, 200), at(52)), None);
    assert_eq!(recent.lateness(LOCK, &by_fence("a", 2), at(60)), None);
    assert_eq!(recent.lateness(LOCK + 1, &by("a"), at(60)), None);
    let late = recent.lateness(LOCK, &by("a"), at(60));
    assert_eq!(late, Some((ran_out(10), Telling::First)));
    let again = recent.lateness(LOCK, &by_fence("a", 1), at(70));
    assert_eq!(again, Some((ran_out(20), Telling::Again)));
}

#[test]
fn a_second_release_is_not_late_and_its_fence_still_identifies_the_grant_before_it() {
    let mut recent = Recent::new();
    let _ = granted(&mut recent, &grant("a", 1, 50), NOW);
    let _ = granted(&mut recent, &grant("a", 2, 100), at(51));
    recent.released(LOCK, fence(2));
    assert_eq!(recent.lateness(LOCK, &by("a"), at(200)), None);
    let late = recent.lateness(LOCK, &by_fence("a", 1), at(60));
    assert_eq!(late, Some((ran_out(10), Telling::First)));
    let _ = granted(&mut recent, &grant("b", 3, 300), at(200));
    assert_eq!(recent.lateness(LOCK, &by("a"), at(200)), None);
}

#[test]
fn an_extension_moves_the_end() {
    let mut recent = Recent::new();
    let _ = granted(&mut recent, &grant("a", 1, 50), NOW);
    recent.extended(LOCK, fence(1), Deadline::from_millis(at(500).millis()));
    assert_eq!(recent.held(at(500)), 1);
    let late = recent.lateness(LOCK, &by("a"), at(510));
    assert_eq!(late, Some((ran_out(10), Telling::First)));
}

#[test]
fn a_loss_that_was_told_by_other_means_is_not_told_again() {
    let mut recent = Recent::new();
    let _ = granted(&mut recent, &grant("a", 1, 50), NOW);
    recent.lost(LOCK);
    assert_eq!(recent.held(NOW), 0);
    assert_eq!(granted(&mut recent, &grant("b", 2, 90), at(20)), None);
    recent.released(LOCK, fence(2));
    recent.lost(LOCK);
    assert_eq!(recent.lateness(LOCK, &by("b"), at(100)), None, "released is released");
}

#[test]
fn locks_of_one_entry_push_each_other_out() {
    let mut recent = Recent::new();
    let other = LOCK + 1;
    assert_eq!(index(LOCK), index(other));
    let _ = granted(&mut recent, &grant("a", 1, 50), NOW);
    assert_eq!(recent.granted(other, &grant("b", 2, 50), OtherHolders::None, NOW), None);
    assert_eq!(recent.lateness(LOCK, &by("a"), at(60)), None);
    recent.released(LOCK, fence(2));
    assert_eq!(recent.held(NOW), 1);
}

#[test]
fn a_grant_that_may_have_been_released_elsewhere_was_neither_deleted_nor_is_its_release_late() {
    let mut recent = Recent::new();
    let _ = granted(&mut recent, &grant("a", 1, 50), NOW);
    recent.doubt();
    assert_eq!(recent.lateness(LOCK, &by("a"), at(60)), None);
    assert_eq!(granted(&mut recent, &grant("b", 2, 50), at(20)), None);
    assert_eq!(recent.held(at(20)), 1);
    let vanished = granted(&mut recent, &grant("c", 3, 50), at(30));
    assert_eq!(vanished, Some(20), "of what came later it is sure");
    let late = recent.lateness(LOCK, &by("c"), at(60));
    assert_eq!(late, Some((ran_out(10), Telling::First)));
}

#[test]
fn it_takes_no_memory_before_the_first_grant_and_then_a_fixed_amount() {
    let mut recent = Recent::new();
    recent.released(LOCK, fence(1));
    assert_eq!(recent.lateness(LOCK, &by("a"), NOW), None);
    assert_eq!((recent.held(NOW), recent.entries.capacity()), (0, 0));
    for number in 0..50_000 {
        let _ = recent.granted(number << 44, &grant("a", number, 50), OtherHolders::None, NOW);
    }
    assert_eq!(recent.entries.capacity(), ENTRIES);
    assert!(size_of::<Entry>() * ENTRIES <= 512 * 1_024, "{}", size_of::<Entry>());
    recent.forget();
    assert_eq!(recent.entries.capacity(), 0);
}

/// One grant, as it really was. Times are in milliseconds after `NOW`.
#[derive(Debug)]
struct Real {
    lock: u64,
    owner: &'static str,
    number: u64,
    end: u64,
    fate: Fate,
    told: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Left,
    Released,
    Deleted,
}

/// All grants, and the time.
#[derive(Default)]
struct History {
    grants: Vec<Real>,
    clock: u64,
}

impl History {
    /// The last grant of the lock, or the last of this owner.
    fn last(&mut self, lock: u64, owner: Option<&str>) -> Option<&mut Real> {
        let fits =
            |real: &&mut Real| real.lock == lock && owner.is_none_or(|owner| owner == real.owner);
        self.grants.iter_mut().rev().find(fits)
    }

    fn held(&mut self, lock: u64) -> Option<&mut Real> {
        let clock = self.clock;
        self.last(lock, None).filter(|real| real.fate == Fate::Left && real.end >= clock)
    }

    fn acquire(&mut self, recent: &mut Recent, lock: u64, owner: &'static str, ttl: u64) {
        if self.held(lock).is_some() {
            return;
        }
        let (clock, number) = (self.clock, u64::try_from(self.grants.len()).unwrap());
        let end = clock + ttl;
        let vanished =
            recent.granted(lock, &grant(owner, number, end), OtherHolders::None, at(clock));
        let expected = self
            .last(lock, None)
            .filter(|last| last.fate == Fate::Deleted && last.end > clock && !last.told)
            .map(|last| {
                last.told = true;
                last.end - clock
            });
        assert_eq!(vanished, expected);
        self.grants.push(Real { lock, owner, number, end, fate: Fate::Left, told: false });
    }

    fn release(&mut self, recent: &mut Recent, lock: u64, owner: &'static str) {
        let clock = self.clock;
        if let Some(held) = self.held(lock).filter(|held| held.owner == owner) {
            held.fate = Fate::Released;
            return recent.released(lock, fence(held.number));
        }
        let told = recent.lateness(lock, &by(owner), at(clock));
        let is_last = self.last(lock, None).is_some_and(|last| last.owner == owner);
        let expected =
            self.last(lock, Some(owner)).filter(|real| real.fate != Fate::Released).map(|real| {
                let telling = if real.told { Telling::Again } else { Telling::First };
                real.told = true;
                if real.end <= clock {
                    (ran_out(clock - real.end), telling)
                } else {
                    (Lateness::Vanished { left_ms: real.end - clock }, telling)
                }
            });
        // Not everything is known about earlier grants, but what is told is true.
        if is_last || told.is_some() {
            assert_eq!(told, expected);
        }
    }
}

proptest! {
    #[test]
    fn what_is_told_is_true_and_of_the_last_grant_all_is_told(
        steps in prop::collection::vec((0..5_u8, 0..3_u64, 0..3_usize, 1..40_u64, 0..20_u64), 1..200),
    ) {
        let (mut recent, mut history) = (Recent::new(), History::default());
        for (kind, lock, owner, ttl, passes) in steps {
            history.clock += passes;
            let (lock, owner) = (lock << 58, ["a", "b", "c"][owner]);
            match kind {
                0 | 1 => history.acquire(&mut recent, lock, owner, ttl),
                2 | 3 => history.release(&mut recent, lock, owner),
                _ => if let Some(held) = history.held(lock) {
                    held.fate = Fate::Deleted;
                },
            }
            let clock = history.clock;
            let mut runs = |lock: u64| {
                history.last(lock << 58, None).is_some_and(|last| {
                    last.fate != Fate::Released && !last.told && last.end >= clock
                })
            };
            let running = (0..3).filter(|&lock| runs(lock)).count();
            let held = recent.held(at(history.clock));
            prop_assert_eq!(usize::try_from(held), Ok(running));
        }
    }
}
