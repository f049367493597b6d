//! Any value of any key, with any expiry, at any time: every string says something about a lock.

#![no_main]

use leasehold_core::lock::{
    Deadline, Fence, FenceClock, Hold, Holds, Moment, Owner, Share, Stored, Value, newest_fence,
};
use libfuzzer_sys::fuzz_target;

/// One of several holds: its fence, its deadline, how many it tolerates, and its owner.
type Line<'a> = (u64, u64, u32, &'a [u8]);

// The time, an expiry, lines, and what is behind them: sixteen digits and the rest, or the rest alone.
fuzz_target!(|input: (u64, Option<u64>, Vec<Line<'_>>, Option<u64>, &[u8])| {
    let (micros, millis, lines, digits, rest) = input;
    let lines = lines.into_iter().flat_map(line).collect::<Vec<_>>();
    let digits = digits.map(|number| format!("{:016}", number % (1 << 54))).unwrap_or_default();
    let value = &[&lines, digits.as_bytes(), rest].concat();
    let now = Moment::from_micros(micros);
    let deadline = millis.map(Deadline::from_millis);
    reads_back(value);
    is_learned(value, deadline, now);
    everybody_sees_the_same(value, deadline, now);
});

fn line((fence, deadline, share, owner): Line<'_>) -> Vec<u8> {
    let fence = fence % (1 << 54);
    let len = owner.len() % 1_000;
    let head = format!("{fence:016} {:014} {share:05} {len:03}:", deadline % 100_000_000_000_000);
    [head.as_bytes(), owner, b"\n"].concat()
}

/// What is read is what was written, to the byte: else two values could say the same, or one something else on a
/// replica.
fn reads_back(value: &[u8]) {
    let written: Vec<u8> = Holds::all(value).flat_map(|hold| bytes_of(&hold)).collect();
    assert_eq!(written, value);
}

fn bytes_of(hold: &Hold<'_>) -> Vec<u8> {
    let Some(fence) = hold.fence else { return hold.owner.to_vec() };
    assert!(Fence::FIRST <= fence && fence <= Fence::LAST);
    let owner = Owner::new(hold.owner).expect("a grant is to an owner");
    match hold.deadline {
        None => Value::new(fence, owner).as_bytes().to_vec(),
        // A line may say that it tolerates nobody, which the module never writes.
        Some(deadline) => {
            let share = hold.share;
            let other = if share == Share::EXCLUSIVE { Share::UNLIMITED } else { share };
            let value = Value::of_hold(fence, owner, Some(deadline), other);
            let mut bytes = value.as_bytes().to_vec();
            bytes[32..37].copy_from_slice(format!("{:05}", share.number()).as_bytes());
            bytes
        }
    }
}

/// Later fences are above those that are met, or they are not credible and are counted.
fn is_learned(value: &[u8], deadline: Option<Deadline>, now: Moment) {
    let mut fences = FenceClock::new();
    let stored = Stored::Text { value, deadline };
    let in_force = stored.holds(now, &mut fences).expect("a string").count();
    let has_passed = deadline.is_some_and(|deadline| now.millis() > deadline.millis());
    assert!(in_force == 0 || !has_passed);
    let Some(newest) = newest_fence(value) else { return assert_eq!(fences.refused(), 0) };
    if FenceClock::is_credible(newest, now) {
        assert!(fences.highest() >= Some(newest));
    } else {
        assert!(fences.refused() > 0, "nobody poisons the clock");
        assert!(fences.highest().is_none_or(|fence| FenceClock::is_credible(fence, now)));
    }
}

/// Whoever is listed sees its own hold, and nobody else does.
fn everybody_sees_the_same(value: &[u8], deadline: Option<Deadline>, now: Moment) {
    let stored = Stored::Text { value, deadline };
    let mut fences = FenceClock::new();
    let holds: Vec<_> = stored.holds(now, &mut fences).expect("a string").collect();
    for owner in holds.iter().filter_map(|hold| Owner::new(hold.owner)).take(9) {
        let seen = stored.holders(owner, now, &mut fences).expect("a string");
        let last = holds.iter().rev().find(|hold| hold.is_held_by(owner));
        assert_eq!(seen.own(), last);
        assert!(!seen.is_free());
        assert_eq!(seen.next_end(), holds.iter().filter_map(|hold| hold.deadline).min());
        let is_alone = holds.len() == 1;
        assert_eq!(seen.admit(Share::EXCLUSIVE, 1), is_alone, "nobody is beside a writer");
    }
}
