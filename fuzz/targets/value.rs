//! Any value of any key, with any expiry, at any time: every string says something about a lock.

#![no_main]

use libfuzzer_sys::fuzz_target;
use leasehold_core::lock::{Deadline, Fence, FenceClock, Hold, Moment, Owner, Proof, Stored, Value};

// The time, an expiry, and a value: sixteen digits and the rest, or the rest alone.
fuzz_target!(|input: (u64, Option<u64>, Option<u64>, &[u8])| {
    let (micros, millis, digits, rest) = input;
    let digits = digits.map(|number| format!("{:016}", number % (1 << 54))).unwrap_or_default();
    let value = &[digits.as_bytes(), rest].concat();
    let now = Moment::from_micros(micros);
    let deadline = millis.map(Deadline::from_millis);
    reads_back(value, deadline);
    is_learned(value, deadline, now);
});

/// What is read is what was written, to the byte: else two values could say the same, or one something else on a
/// replica.
fn reads_back(value: &[u8], deadline: Option<Deadline>) {
    let hold = Hold::read(value, deadline);
    match hold.fence {
        Some(fence) => {
            assert!(Fence::FIRST <= fence && fence <= Fence::LAST);
            let owner = Owner::new(hold.owner).expect("a grant is to an owner");
            assert_eq!(Value::new(fence, owner).as_bytes(), value);
            assert!(Value::LENGTHS.contains(&value.len()));
        }
        None => assert_eq!(hold.owner, value, "a foreign lock's holder is the whole value"),
    }
}

/// The hold in force is the one that was read, and later fences are above it, or it is not credible and was counted.
fn is_learned(value: &[u8], deadline: Option<Deadline>, now: Moment) {
    let mut fences = FenceClock::new();
    let read = Hold::read(value, deadline);
    let hold = Stored::Text { value, deadline }.hold(now, &mut fences).expect("a string");
    let has_passed = deadline.is_some_and(|deadline| now.millis() > deadline.millis());
    assert_eq!(hold, (!has_passed).then_some(read));
    let Some(fence) = read.fence else { return assert_eq!(fences.refused(), 0) };
    if FenceClock::is_credible(fence, now) {
        assert!(fences.highest() >= Some(fence));
    } else {
        assert_eq!((fences.refused(), fences.highest()), (1, None), "nobody poisons the clock");
    }
    let owner = Owner::new(read.owner).expect("a grant is to an owner");
    assert!(read.matches(&Proof { owner, fence: Some(fence.number()) }));
    assert!(!read.matches(&Proof { owner, fence: Some(fence.number() ^ 1) }));
}
