//! What values say, what edits change in them, and the slow and obvious way to do both.

#![allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test, as it should")]

use super::*;
use crate::lock::edit::Patch;
use crate::lock::{FenceClock, Stored, Value};
use proptest::prelude::*;

const NOW: Moment = Moment::from_millis(1_763_000_000_000);

fn in_ms(millis: i64) -> Deadline {
    Deadline::from_millis(NOW.millis().checked_add_signed(millis).unwrap())
}

fn owner(name: &str) -> Owner<'_> {
    Owner::new(name.as_bytes()).unwrap()
}

fn share(number: u32) -> Share {
    Share::new(number).unwrap()
}

fn grant(name: &str, number: u64, left: i64, tolerates: u32) -> Grant<'_> {
    let fence = Fence::new(Fence::FIRST.number() + number).unwrap();
    Grant { owner: owner(name), fence, deadline: in_ms(left), share: share(tolerates) }
}

/// A line for each hold: the owner, what is left of the lease, and the share. Fences count from 0.
fn list(holds: &[(&str, i64, u32)]) -> Vec<u8> {
    let grants = holds.iter().zip(0..);
    let lines = grants.map(|(&(name, left, share), number)| grant(name, number, left, share));
    lines.flat_map(|grant| Value::of_line(&grant).as_bytes().to_vec()).collect()
}

fn holders<'v>(value: &'v [u8], limit: Option<Deadline>, asker: &str) -> Holders<'v> {
    Holders::read(value, limit, owner(asker), NOW, &mut FenceClock::new())
}

/// The value after this write.
fn written(value: &[u8], write: Write<'_>) -> (Vec<u8>, Deadline) {
    let Write::Edit(edit) = write else { panic!("not an edit: {write:?}") };
    if let Some(rewritten) = edit.rewritten(value) {
        return (rewritten, edit.expiry);
    }
    let told = |patches: &mut dyn Iterator<Item = (usize, Patch)>| {
        let mut value = value.to_vec();
        patches.for_each(|(at, patch)| {
            value[at..][..patch.as_bytes().len()].copy_from_slice(patch.as_bytes());
        });
        value
    };
    let replica = told(&mut edit.ends(value).chain(edit.over()));
    let mut value = value.to_vec();
    edit.patch(&mut value);
    assert_eq!(value, replica, "a replica is told what is written");
    value.extend_from_slice(edit.appended().as_ref().map_or(&[], Value::as_bytes));
    (value, edit.expiry)
}

#[test]
fn a_value_with_a_malformed_line_is_a_foreign_lock() {
    let good = list(&[("a", 50, 0), ("b", 20, 3)]);
    let torn = [&good[..good.len() - 1], &good[1..], &[&good[..], b"x"].concat(), b"\n"];
    for value in torn {
        let text = str::from_utf8(value).unwrap();
        let seen = holders(value, None, text);
        assert_eq!(seen.sole().map(|hold| (hold.owner, hold.fence)), Some((value, None)));
        assert!(seen.own().is_some() && !holders(value, None, "b").admit(share(0), 9), "{text}");
    }
}

#[test]
fn the_latest_lease_that_can_be_written_ends_when_the_clock_is_past_it() {
    let latest = Deadline::from_millis(line::LATEST);
    let grant = Grant { deadline: latest, ..grant("a", 0, 0, 0) };
    let value = Value::of_line(&grant);
    let holders_at =
        |millis| Holds::in_force(value.as_bytes(), None, Moment::from_millis(millis)).count();
    assert_eq!([0, 1, 2].map(|more| holders_at(line::LATEST - 1 + more)), [1, 1, 0]);
}

#[test]
fn a_change_of_the_own_hold_writes_nothing_else() {
    let clearing = |write: Write<'_>| match write {
        Write::Edit(edit) => edit.clearing,
        other => panic!("not an edit: {other:?}"),
    };
    let value = list(&[("a", 50, 0), ("b", 20, 0), ("c", -1, 0)]);
    let extended = holders(&value, Some(in_ms(50)), "a").extended(in_ms(60));
    assert_eq!(clearing(extended), Clearing::Nothing, "what has run out may stay");
    // Somebody gave the key an earlier expiry, which it keeps.
    let fence = Fence::new(Fence::FIRST.number() + 9).unwrap();
    let raised = holders(&value, Some(in_ms(10)), "a").raised(owner("a"), fence);
    assert_eq!(clearing(raised), Clearing::Nothing);
}

#[test]
fn the_newest_fence_is_learned_wherever_it_stands_and_one_that_is_not_credible_hides_none() {
    let mut lines = list(&[("a", 50, 0), ("b", 20, 0)]);
    let second = lines.len() / 2;
    lines[..16].copy_from_slice(b"1763000000000007");
    let learned = |value: &[u8]| {
        let mut fences = FenceClock::new();
        let stored = Stored::Text { value, deadline: Some(in_ms(50)) };
        let _ = stored.holders(owner("c"), NOW, &mut fences);
        fences.highest().map(Fence::number)
    };
    assert_eq!(learned(&lines), Some(1_763_000_000_000_007));
    lines[second..][..16].copy_from_slice(b"9007199254740991");
    assert_eq!(learned(&lines), Some(1_763_000_000_000_007));
}

/// What is left of the lease of a hold that was ended.
const ENDED: i64 = -1_763_000_000_000;

#[test]
fn nobody_is_let_in_beside_a_hold_that_is_over_by_this_clock_alone() {
    let earlier = Moment::from_millis(NOW.millis() - 9);
    let holders_of = |value: &[u8]| Holds::in_force(value, None, earlier).count();
    let value = list(&[("a", -1, 2), ("b", 20, 2)]);
    let seen = holders(&value, Some(in_ms(20)), "c");
    let (joined, _) = written(&value, seen.granted(&grant("c", 2, 30, 2)));
    assert_eq!(holders_of(&joined), 2);
    assert_eq!(joined[..value.len()], list(&[("a", ENDED, 2), ("b", 20, 2)]), "in their place");
    let many: Vec<_> = std::iter::repeat_n(("a", -1, 0), 65).chain([("b", 20, 0); 200]).collect();
    for (run_out, lines) in [(64, 265), (65, 201)] {
        let value = list(&many[65 - run_out..]);
        let seen = holders(&value, Some(in_ms(20)), "c");
        let (joined, _) = written(&value, seen.granted(&grant("c", 266, 30, 0)));
        assert_eq!((Holds::all(&joined).count(), holders_of(&joined)), (lines, 201));
    }
    let value = list(&[("a", ENDED, 2), ("b", 20, 2)]);
    let seen = holders(&value, Some(in_ms(20)), "c");
    let (joined, _) = written(&value, seen.granted(&grant("c", 2, 30, 2)));
    assert_eq!(joined[..value.len()], value, "it is not worth it");
    assert_eq!(holders_of(&joined), 2);
}

#[test]
fn lines_that_are_over_are_left_out_when_they_take_too_much_room() {
    let mut holds = vec![("a", ENDED, 0); 7];
    holds.push(("b", 20, 0));
    let value = list(&holds);
    let write = holders(&value, Some(in_ms(20)), "c").granted(&grant("c", 8, 30, 0));
    let (compacted, _) = written(&value, write);
    assert_eq!(compacted.len(), 2 * value.len() / holds.len());
    assert_eq!(Holds::all(&compacted).count(), 2);
    let few = list(&holds[3..]);
    let write = holders(&few, Some(in_ms(20)), "c").granted(&grant("c", 8, 30, 0));
    assert_eq!(Holds::all(&written(&few, write).0).count(), 6, "it is not worth it");
    let is_rewritten = |ended, live| {
        let lines = [vec![("a", ENDED, 0); ended], vec![("b", 20, 0); live]].concat();
        let value = list(&lines);
        let write = holders(&value, Some(in_ms(20)), "c").granted(&grant("c", 99, 30, 0));
        Holds::all(&written(&value, write).0).count() == live + 1
    };
    assert!(!is_rewritten(9, 8) && is_rewritten(10, 8), "half the room of the others, and some");
}

/// Some lines with few owners; some of the holds are over.
fn some_list() -> impl Strategy<Value = Vec<(&'static str, i64, u32)>> {
    let owners = prop::sample::select(vec!["a", "bb", "c\n", "1763000000000000 "]);
    prop::collection::vec((owners, -20..40_i64, 0..7_u32), 1..12)
}

proptest! {
    #[test]
    fn a_list_is_read_as_one_would_read_it_aloud(
        holds in some_list(),
        limit in prop::option::of(-5..60_i64),
        most in 1..9_usize,
        asked in 0..7_u32,
    ) {
        let value = list(&holds);
        let seen = holders(&value, limit.map(in_ms), "a");
        let ends = |left: i64| limit.map_or(left, |limit| limit.min(left));
        let live: Vec<_> = holds.iter().filter(|hold| ends(hold.1) >= 0).collect();
        let own = live.iter().rposition(|hold| hold.0 == "a");
        let others = live.len() - own.iter().count();
        prop_assert_eq!(seen.own().is_some(), own.is_some());
        prop_assert_eq!(seen.others, narrow(others));
        prop_assert_eq!(seen.next_end(), live.iter().map(|hold| in_ms(ends(hold.1))).min());
        let tolerated = |number: u32| match usize::try_from(number).unwrap() {
            0 => usize::MAX,
            number => number,
        };
        let shares = live.iter().enumerate().filter(|(at, _)| Some(*at) != own);
        let least = shares.map(|(_, hold)| tolerated(hold.2)).min().unwrap_or(usize::MAX);
        let admitted = others < least.min(tolerated(asked)).min(most);
        prop_assert_eq!(seen.admit(share(asked), most), admitted);
        let listed: Vec<_> = Holds::in_force(&value, limit.map(in_ms), NOW).collect();
        prop_assert_eq!(listed.len(), live.len());
    }

    #[test]
    fn any_other_string_is_held_by_its_whole_value(
        value in "[0-9]{15,17} [0-9]{13,15} [0-9]{4,6} [0-9]{2,4}:[a-z\n]{0,12}",
    ) {
        let value = value.as_bytes();
        let seen = holders(value, None, "nobody");
        let is_list = Holds::all(value).all(|hold| hold.owner.len() < value.len());
        prop_assert_eq!(seen.sole().is_some(), !is_list);
    }
}
