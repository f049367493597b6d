//! Decisions about one lock or several, which are made alike.

use super::*;
use crate::lock::{Monotonic, OtherHolders, Stored, Value};

const NOW: Moment = Moment::from_millis(1_763_000_000_000);

const MOST: usize = 1_000;

fn owner(name: &str) -> Owner<'_> {
    Owner::new(name.as_bytes()).unwrap()
}

fn ttl(millis: u64) -> Ttl {
    Ttl::from_millis(millis).unwrap()
}

fn in_ms(millis: u64) -> Deadline {
    Deadline::after(NOW, ttl(millis))
}

fn share(number: u32) -> Share {
    Share::new(number).unwrap()
}

/// One of the first fences that there are.
fn fence(number: u64) -> Fence {
    Fence::new(number_of(number)).unwrap()
}

fn number_of(number: u64) -> u64 {
    Fence::FIRST.number().saturating_add(number)
}

fn wanted(number: u32) -> Wanted<'static> {
    Wanted { owner: owner("me"), ttl: ttl(5), share: share(number) }
}

/// The holders as "me" sees them, if the key holds this value.
fn held(value: Vec<u8>) -> Holders<'static> {
    let stored = Stored::Text { value: value.leak(), deadline: Some(in_ms(9)) };
    stored.holders(owner("me"), NOW, &mut FenceClock::new()).unwrap()
}

fn held_by(holder: &str, number: u64, tolerates: u32) -> Holders<'static> {
    let value = Value::of_hold(fence(number), owner(holder), Some(in_ms(9)), share(tolerates));
    held(value.as_bytes().to_vec())
}

fn stand(holders: &Holders<'_>, others: usize, tolerates: u32) -> Standing {
    Standing::new(holders, others, share(tolerates), MOST)
}

fn free() -> Standing {
    stand(&Holders::NOBODY, 0, 1)
}

fn mine(number: u64) -> Standing {
    stand(&held_by("me", number, 1), 0, 1)
}

fn theirs() -> Standing {
    stand(&held_by("you", 7, 1), 0, 1)
}

fn ask(standings: &[Standing]) -> Decision<'static> {
    acquire(standings, &wanted(1), NOW, &mut FenceClock::new())
}

fn busy(at: usize) -> Decision<'static> {
    Decision::Busy { at, owner: owner("me") }
}

fn not_upgraded(at: usize) -> Decision<'static> {
    Decision::NotUpgraded { at, owner: owner("me") }
}

#[test]
fn locks_that_are_free_are_granted_by_one_fence() {
    let mut fences = FenceClock::new();
    let decision = acquire(&[free(), free(), free()], &wanted(3), NOW, &mut fences);
    let Decision::Granted(grant) = decision else { panic!("{decision:?}") };
    assert_eq!((grant.owner, grant.deadline, grant.share), (owner("me"), in_ms(5), share(3)));
    assert!(fences.mint(NOW).fence().unwrap() > grant.fence, "one was used, and no more");
    assert_eq!(fences.mint(NOW).fence().unwrap().number(), grant.fence.number() + 2);
}

#[test]
fn one_that_is_held_keeps_all_from_being_had_and_no_fence_is_used() {
    let mut fences = FenceClock::new();
    for (standings, at) in [
        ([theirs(), free(), free()], 0),
        ([free(), theirs(), free()], 1),
        ([free(), theirs(), theirs()], 1),
        ([free(), free(), theirs()], 2),
    ] {
        assert_eq!(acquire(&standings, &wanted(1), NOW, &mut fences), busy(at));
    }
    assert_eq!(fences.mint(NOW).fence().unwrap().number(), NOW.micros());
}

#[test]
fn one_for_which_others_wait_is_not_for_the_taking() {
    let waited_for = stand(&Holders::NOBODY, 1, 1);
    assert_eq!(ask(&[free(), waited_for]), busy(1));
    assert_eq!(ask(&[mine(7), waited_for]), not_upgraded(1));
}

#[test]
fn who_holds_some_of_them_is_given_all_by_a_new_grant_or_is_refused_at_once() {
    assert!(matches!(ask(&[mine(7), free()]), Decision::Granted(_)));
    assert!(matches!(ask(&[mine(7), mine(8)]), Decision::Granted(_)), "two grants are made one");
    assert_eq!(ask(&[mine(7), theirs()]), not_upgraded(1), "it must not wait with one in its hand");
    assert_eq!(ask(&[theirs(), mine(7)]), not_upgraded(0));
}

#[test]
fn who_holds_all_of_them_by_one_grant_has_them_again() {
    let (mut fences, wanted) = (FenceClock::new(), wanted(1));
    let decision = acquire(&[mine(7), mine(7)], &wanted, NOW, &mut fences);
    let again = Decision::Again { wanted, fence_number: number_of(7) };
    assert_eq!(decision, again);
    let waited_for = stand(&held_by("me", 7, 1), 3, 1);
    assert_eq!(ask(&[waited_for, mine(7)]), again, "others who wait take nothing from it");
    assert_eq!(fences.mint(NOW).fence().unwrap().number(), NOW.micros(), "and no fence is used");
}

#[test]
fn who_asks_to_tolerate_fewer_is_granted_them_anew_if_it_is_admitted() {
    let loose = |others: &str| {
        let mine = Value::of_hold(fence(7), owner("me"), Some(in_ms(9)), share(0));
        let mut value = mine.as_bytes().to_vec();
        if !others.is_empty() {
            let other = Value::of_hold(fence(8), owner(others), Some(in_ms(9)), share(0));
            value.extend_from_slice(other.as_bytes());
        }
        stand(&held(value), 0, 1)
    };
    assert!(matches!(ask(&[loose(""), loose("")]), Decision::Granted(_)));
    assert_eq!(ask(&[loose(""), loose("you")]), not_upgraded(1));
}

#[test]
fn a_foreign_hold_of_its_own_cannot_be_given_a_fence() {
    let foreign = stand(&held(b"me".to_vec()), 0, 1);
    assert_eq!(ask(&[free(), foreign]), not_upgraded(1));
    assert_eq!(ask(&[foreign, foreign]), not_upgraded(0));
}

#[test]
fn nothing_is_granted_in_a_quarantine_or_without_a_fence() {
    let mut fences = FenceClock::new();
    fences.quarantine(Monotonic::from_micros(0), 9);
    assert_eq!(acquire(&[free(), free()], &wanted(1), NOW, &mut fences), busy(0));
    assert!(matches!(
        acquire(&[mine(7), mine(7)], &wanted(1), NOW, &mut fences),
        Decision::Again { .. }
    ));
    let late = Moment::from_micros(Fence::LAST.number() + 1);
    let decision = acquire(&[free(), free()], &wanted(1), late, &mut FenceClock::new());
    assert_eq!(decision, Decision::NoFenceLeft);
}

#[test]
fn all_or_none_are_extended() {
    let proof = |fence| Proof { owner: owner("me"), fence };
    let extend = |standings: &[Standing], fence| extend(standings, &proof(fence), ttl(5));
    for shown in [None, Some(number_of(7))] {
        let extended = Decision::Extended { proof: proof(shown), ttl: ttl(5) };
        assert_eq!(extend(&[mine(7), mine(7)], shown), extended);
    }
    let not_extended = |at, shown, is_held| {
        let not_holder = NotHolder { proof: proof(shown), is_held };
        Decision::NotExtended { at, not_holder }
    };
    assert_eq!(extend(&[mine(7), theirs(), free()], None), not_extended(1, None, true));
    assert_eq!(extend(&[free(), mine(7)], None), not_extended(0, None, false));
    assert_eq!(
        extend(&[mine(7), mine(8)], Some(number_of(7))),
        not_extended(1, Some(number_of(7)), true)
    );
    let foreign = stand(&held(b"me".to_vec()), 0, 1);
    assert!(matches!(extend(&[foreign, mine(7)], None), Decision::Extended { .. }));
    assert!(matches!(extend(&[foreign, foreign], Some(0)), Decision::Extended { .. }));
    assert_eq!(extend(&[foreign], Some(number_of(7))), not_extended(0, Some(number_of(7)), true));
}

#[test]
fn each_lock_has_its_own_part_of_a_grant() {
    let grant = Grant { owner: owner("me"), fence: fence(9), deadline: in_ms(5), share: share(1) };
    let part = |holders: &Holders<'_>| Decision::Granted(grant).outcome(3, holders, NOW);
    let granted =
        |former, others| Some(Outcome::Acquire(Acquired::Granted { grant, former, others }));
    assert_eq!(part(&Holders::NOBODY), granted(None, OtherHolders::None));
    assert_eq!(part(&held_by("me", 7, 1)), granted(Some(fence(7)), OtherHolders::None));
    assert_eq!(part(&held_by("you", 7, 0)), granted(None, OtherHolders::Some));
}

#[test]
fn what_is_refused_is_told_of_one_lock() {
    let proof = Proof { owner: owner("me"), fence: None };
    let extended = extend(&[mine(7), theirs()], &proof, ttl(5));
    for decision in [busy(1), ask(&[mine(7), theirs()]), extended] {
        let told: Vec<_> =
            (0..3).map(|at| decision.outcome(at, &Holders::NOBODY, NOW).is_some()).collect();
        assert_eq!(told, [false, true, false]);
    }
}

#[test]
fn the_holder_has_its_lock_again_until_the_later_of_two_ends() {
    let again = Decision::Again { wanted: wanted(1), fence_number: number_of(7) };
    for (end, longer) in [(Some(4), Some(in_ms(5))), (Some(5), None), (Some(6), None), (None, None)]
    {
        let value = Value::new(fence(7), owner("me"));
        let stored = Stored::Text { value: value.as_bytes(), deadline: end.map(in_ms) };
        let holders = stored.holders(owner("me"), NOW, &mut FenceClock::new()).unwrap();
        let (owner, fence_number, share) = (owner("me"), number_of(7), share(1));
        let told = Acquired::Again { owner, fence_number, longer, share };
        assert_eq!(again.outcome(0, &holders, NOW), Some(Outcome::Acquire(told)), "{end:?}");
    }
}

#[test]
fn the_holder_alone_extends_and_checks_by_the_fence_that_it_shows() {
    for (holders, shown, is_its_own) in [
        (held_by("me", 7, 1), None, true),
        (held_by("me", 7, 1), Some(number_of(7)), true),
        (held_by("me", 8, 1), Some(number_of(7)), false),
        (held_by("you", 7, 1), None, false),
        (Holders::NOBODY, None, false),
    ] {
        let proof = Proof { owner: owner("me"), fence: shown };
        let extended = Extended::Until { fence: Some(fence(7)), deadline: in_ms(2) };
        assert_eq!(extend_one(&holders, &proof, ttl(2), NOW) == extended, is_its_own);
        let holds = Checked::Holds { fence_number: number_of(7) };
        assert_eq!(check(&holders, &proof), if is_its_own { holds } else { Checked::NotHolder });
    }
}

#[test]
fn each_lock_is_released_by_itself() {
    let decision = Decision::Released(Proof { owner: owner("me"), fence: Some(number_of(7)) });
    let released = |holders: &Holders<'_>| match decision.outcome(0, holders, NOW) {
        Some(Outcome::Release(released)) => matches!(released, Released::Released { .. }),
        other => panic!("{other:?}"),
    };
    assert!(released(&held_by("me", 7, 1)));
    for other in [Holders::NOBODY, held_by("me", 8, 1), held_by("you", 7, 1)] {
        assert!(!released(&other));
    }
}
