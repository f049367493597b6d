mod several;

use super::*;
use crate::lock::{Monotonic, Value};

const NOW: Moment = Moment::from_millis(1_763_000_000_000);

fn owner(name: &str) -> Owner<'_> {
    Owner::new(name.as_bytes()).unwrap()
}

fn ttl(millis: u64) -> Ttl {
    Ttl::from_millis(millis).unwrap()
}

fn in_ms(millis: u64) -> Deadline {
    Deadline::after(NOW, ttl(millis))
}

/// The holders as `asker` sees them, if `holder` has an exclusive hold.
fn held_by(holder: &'static str, deadline: Option<Deadline>, asker: &str) -> Holders<'static> {
    let value = Value::new(Fence::FIRST, owner(holder)).as_bytes().to_vec();
    Holders::read(value.leak(), deadline, owner(asker), NOW, &mut FenceClock::new())
}

const RELEASED: Released<'static> = Released::Released { fence: Some(Fence::FIRST) };

fn until(deadline: Deadline) -> Extended<'static> {
    Extended::Until { fence: Some(Fence::FIRST), deadline }
}

fn proof(name: &str) -> Proof<'_> {
    Proof { owner: owner(name), fence: None }
}

fn wanted(name: &str, millis: u64, share: u32) -> Wanted<'_> {
    let share = Share::new(share).unwrap();
    Wanted { owner: owner(name), ttl: ttl(millis), share }
}

/// Acquires one lock exclusively, on a server that allows many holders.
fn ask<'r>(
    holders: &Holders<'_>,
    others: usize,
    name: &'r str,
    millis: u64,
    fences: &mut FenceClock,
) -> Acquired<'r> {
    let standing = Standing::new(holders, others, Share::EXCLUSIVE, 1_000);
    let decision = acquire(&[standing], &wanted(name, millis, 1), NOW, fences);
    match decision.outcome(0, holders, NOW) {
        Some(Outcome::Acquire(acquired)) => acquired,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_free_lock_is_granted_with_the_next_fence() {
    let mut fences = FenceClock::new();
    let Acquired::Granted { grant: first, .. } = ask(&Holders::NOBODY, 0, "a", 5, &mut fences)
    else {
        panic!("a free lock was refused")
    };
    assert_eq!(first.deadline, in_ms(5));
    let Acquired::Granted { grant: second, .. } = ask(&Holders::NOBODY, 0, "a", 5, &mut fences)
    else {
        panic!("a free lock was refused")
    };
    assert!(first.fence < second.fence);
}

#[test]
fn another_owner_gets_nothing_and_no_fence_is_used() {
    let mut fences = FenceClock::new();
    let holders = |asker| held_by("a", Some(in_ms(9)), asker);
    assert_eq!(ask(&holders("b"), 0, "b", 5, &mut fences), Acquired::Refused(owner("b")));
    assert_eq!(fences.mint(NOW).fence().unwrap().number(), NOW.micros());
}

#[test]
fn a_free_lock_that_others_wait_for_is_not_for_the_taking() {
    let mut fences = FenceClock::new();
    assert_eq!(ask(&Holders::NOBODY, 1, "b", 5, &mut fences), Acquired::Refused(owner("b")));
    let holders = |asker| held_by("a", Some(in_ms(9)), asker);
    let again = ask(&holders("a"), 1, "a", 5, &mut fences);
    assert!(matches!(again, Acquired::Again { .. }));
}

#[test]
fn the_holder_gets_its_fence_again_and_the_later_of_the_two_leases() {
    let mut fences = FenceClock::new();
    let mut again = |deadline, asked| {
        let holders = |asker| held_by("a", deadline, asker);
        ask(&holders("a"), 0, "a", asked, &mut fences)
    };
    let told = |longer| {
        let (fence_number, share) = (Fence::FIRST.number(), Share::EXCLUSIVE);
        Acquired::Again { owner: owner("a"), fence_number, longer, share }
    };
    assert_eq!(again(Some(in_ms(5)), 6), told(Some(in_ms(6))));
    assert_eq!(again(Some(in_ms(6)), 6), told(None));
    assert_eq!(again(Some(in_ms(7)), 6), told(None));
    assert_eq!(again(None, 6), told(None));
}

#[test]
fn in_quarantine_only_those_who_hold_a_lock_have_their_way() {
    let mut fences = FenceClock::new();
    fences.quarantine(Monotonic::from_micros(0), 9);
    assert_eq!(ask(&Holders::NOBODY, 0, "a", 5, &mut fences), Acquired::Refused(owner("a")));
    let holders = |asker| held_by("a", Some(in_ms(5)), asker);
    let again = ask(&holders("a"), 0, "a", 9, &mut fences);
    assert!(matches!(again, Acquired::Again { longer: Some(_), .. }));
    assert_eq!(extend_one(&holders("a"), &proof("a"), ttl(9), NOW), until(in_ms(9)));
    assert_eq!(release(&holders("a"), &proof("a")), RELEASED);
}

#[test]
fn a_free_lock_without_a_fence_left_is_not_granted() {
    let late = Moment::from_micros(Fence::LAST.number() + 1);
    let wanted = wanted("a", 5, 1);
    let fences = &mut FenceClock::new();
    let free = Standing::new(&Holders::NOBODY, 0, Share::EXCLUSIVE, 1_000);
    assert_eq!(acquire(&[free], &wanted, late, fences), Decision::NoFenceLeft);
}

#[test]
fn only_the_holder_releases() {
    let holders = |asker| held_by("a", None, asker);
    assert_eq!(release(&holders("a"), &proof("a")), RELEASED);
    assert!(matches!(release(&holders("b"), &proof("b")), Released::NotHolder(_)));
    assert!(matches!(release(&Holders::NOBODY, &proof("a")), Released::NotHolder(_)));
}

#[test]
fn only_the_holder_extends_and_may_shorten() {
    let holders = |asker| held_by("a", Some(in_ms(9)), asker);
    assert_eq!(extend_one(&holders("a"), &proof("a"), ttl(20), NOW), until(in_ms(20)));
    assert_eq!(extend_one(&holders("a"), &proof("a"), ttl(2), NOW), until(in_ms(2)));
    assert!(matches!(extend_one(&holders("b"), &proof("b"), ttl(20), NOW), Extended::NotHolder(_)));
    assert!(matches!(
        extend_one(&Holders::NOBODY, &proof("a"), ttl(20), NOW),
        Extended::NotHolder(_)
    ));
}

#[test]
fn a_check_tells_the_holder_its_fence() {
    let holders = |asker| held_by("a", None, asker);
    let fence_number = Fence::FIRST.number();
    assert_eq!(check(&holders("a"), &proof("a")), Checked::Holds { fence_number });
    assert_eq!(check(&holders("b"), &proof("b")), Checked::NotHolder);
    assert_eq!(check(&Holders::NOBODY, &proof("a")), Checked::NotHolder);
}
