//! What the [simulation](crate::simulation) does not compare: which of several locks is refused, and what is told of each.

use super::*;
use crate::lock::{OtherHolders, Stored, Value};

const NOW: Moment = Moment::from_millis(1_763_000_000_000);

const ME: &str = "me";

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
    Fence::new(Fence::FIRST.number().saturating_add(number)).unwrap()
}

/// The holders as "me" sees them, if the key holds this value.
fn held(value: &[u8]) -> Holders<'static> {
    let stored = Stored::Text { value: value.to_vec().leak(), deadline: Some(in_ms(9)) };
    stored.holders(owner(ME), NOW, &mut FenceClock::new()).unwrap()
}

fn held_by(holder: &str, number: u64, tolerates: u32) -> Holders<'static> {
    let value = Value::of_hold(fence(number), owner(holder), Some(in_ms(9)), share(tolerates));
    held(value.as_bytes())
}

fn stand(holders: &Holders<'_>, others: usize) -> Standing {
    Standing::new(holders, others, share(1), 1_000)
}

fn free() -> Standing {
    stand(&Holders::NOBODY, 0)
}

fn mine(number: u64) -> Standing {
    stand(&held_by(ME, number, 1), 0)
}

fn theirs() -> Standing {
    stand(&held_by("you", 7, 1), 0)
}

fn ask(standings: &[Standing], now: Moment) -> Decision<'static> {
    let wanted = Wanted { owner: owner(ME), ttl: ttl(5), share: share(1) };
    acquire(standings, &wanted, now, &mut FenceClock::new())
}

/// The locks of three of which anything is told.
fn told_of(decision: Decision<'_>) -> Vec<usize> {
    (0..3).filter(|&at| decision.outcome(at, &Holders::NOBODY, NOW).is_some()).collect()
}

#[test]
fn the_first_lock_that_cannot_be_had_is_refused_and_no_other() {
    let busy = |at| Decision::Busy { at, owner: owner(ME) };
    // Whoever holds one must not wait with it in hand.
    let not_upgraded = |at| Decision::NotUpgraded { at, owner: owner(ME) };
    let (waited_for, foreign) = (stand(&Holders::NOBODY, 1), stand(&held(b"me"), 0));
    for (standings, decision, at) in [
        (&[theirs(), free(), free()][..], busy(0), 0),
        (&[free(), theirs(), theirs()], busy(1), 1),
        (&[free(), free(), theirs()], busy(2), 2),
        (&[free(), waited_for], busy(1), 1),
        (&[mine(7), waited_for], not_upgraded(1), 1),
        (&[mine(7), theirs()], not_upgraded(1), 1),
        (&[theirs(), mine(7)], not_upgraded(0), 0),
        (&[free(), foreign], not_upgraded(1), 1),
        (&[foreign, foreign], not_upgraded(0), 0),
    ] {
        assert_eq!(ask(standings, NOW), decision);
        assert_eq!(told_of(decision), [at]);
    }
    let late = Moment::from_micros(Fence::LAST.number() + 1);
    assert_eq!(ask(&[free(), free()], late), Decision::NoFenceLeft);
}

#[test]
fn what_is_not_extended_is_told_of_one_lock_with_whether_others_hold_it() {
    let foreign = stand(&held(b"me"), 0);
    let seven = Some(fence(7).number());
    for (standings, shown, expected) in [
        (&[mine(7), theirs(), free()][..], None, Some((1, true))),
        (&[free(), mine(7)], None, Some((0, false))),
        (&[mine(7), mine(8)], seven, Some((1, true))),
        (&[foreign], seven, Some((0, true))),
        (&[foreign, mine(7)], None, None),
        (&[foreign, foreign], Some(0), None),
    ] {
        let proof = Proof { owner: owner(ME), fence: shown };
        let decision = extend(standings, &proof, ttl(5));
        let not_extended = expected.map(|(at, is_held)| {
            assert_eq!(told_of(decision), [at]);
            Decision::NotExtended { at, not_holder: NotHolder { proof, is_held } }
        });
        assert_eq!(decision, not_extended.unwrap_or(Decision::Extended { proof, ttl: ttl(5) }));
    }
}

#[test]
fn each_lock_has_its_own_part_of_a_grant() {
    let grant = Grant { owner: owner(ME), fence: fence(9), deadline: in_ms(5), share: share(1) };
    for (holders, former, others) in [
        (Holders::NOBODY, None, OtherHolders::None),
        (held_by(ME, 7, 1), Some(fence(7)), OtherHolders::None),
        (held_by("you", 7, 0), None, OtherHolders::Some),
    ] {
        let granted = Outcome::Granted { grant, former, others };
        assert_eq!(Decision::Granted(grant).outcome(3, &holders, NOW), Some(granted));
    }
}
