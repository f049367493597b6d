use super::*;
use crate::lock::Grace;

const NOW: Moment = Moment::from_millis(1_763_000_000_000);

const START: Monotonic = Monotonic::from_micros(0);

const CONNECTION: u64 = 7;

fn at(millis: u64) -> Now {
    Now { wall: NOW.plus_millis(millis), monotonic: START.plus_millis(millis) }
}

/// Binds a hold of this owner, to be looked at in 9 ms.
fn bind(bindings: &mut Bindings, name: Name<'_>, owner: &str, fence_number: u64) {
    bind_to(CONNECTION, bindings, name, owner, fence_number);
}

fn bind_to(
    connection: u64,
    bindings: &mut Bindings,
    name: Name<'_>,
    owner: &str,
    fence_number: u64,
) {
    let ephemeral = Ephemeral { connection, grace: Grace::from_millis(0).unwrap() };
    let (name, owner) = (name.into(), Owner::new(owner.as_bytes()).unwrap().into());
    let (since, demand, look) = (NOW, Demand::None, at(9).wall);
    bindings.bind(Binding { name, owner, fence_number, ephemeral, since, demand, look });
}

#[test]
fn a_hold_is_looked_at_when_it_is_time_or_when_all_are_in_doubt() {
    let mut bindings = Bindings::default();
    bind(&mut bindings, Name::new(0, b"k"), "a", 1);
    assert_eq!(bindings.next_due(at(8)), None);
    assert!(bindings.take_look(at(8).wall).is_none());
    assert_eq!(bindings.next_due(at(9)), Some(at(9).wall));
    let binding = bindings.take_look(at(9).wall).unwrap();
    assert_eq!(bindings.len(), 0);
    bindings.keep(binding, at(20).wall);
    assert_eq!((bindings.len(), bindings.next_due(at(19))), (1, None));
    bindings.doubt(None);
    assert_eq!(bindings.next_due(at(19)), Some(at(19).wall));
    assert!(bindings.take_look(at(10).wall).is_some());
    assert!(bindings.take_look(at(99).wall).is_none(), "it was taken");
}

#[test]
fn connections_that_have_ended_take_turns() {
    let mut bindings = Bindings::default();
    for (connection, fence) in [(1, 10), (1, 11), (1, 12), (2, 20), (3, 30)] {
        bind_to(connection, &mut bindings, Name::new(0, b"k"), "a", fence);
    }
    assert!(bindings.connection_ended(1, START) && bindings.connection_ended(2, START));
    let taken = std::iter::from_fn(|| bindings.take_ended());
    let fences: Vec<_> = taken.map(|(binding, _)| binding.fence_number).collect();
    assert_eq!(fences, [10, 20, 11, 12]);
}

#[test]
fn the_latest_hold_of_who_asks_is_taken_first_and_each_is_taken_once() {
    let name = Name::new(0, b"k");
    let asker = Owner::new(b"a").unwrap();
    let mut bindings = Bindings::default();
    for (owner, fence) in [("b", 1), ("a", 2), ("a", 4), ("c", 3)] {
        bind(&mut bindings, name, owner, fence);
    }
    bind(&mut bindings, Name::new(0, b"l"), "a", 5);
    assert!(bindings.take_ended_of(name, Some(asker), 9).is_empty());
    assert!(bindings.connection_ended(CONNECTION, START));
    assert!(bindings.has_ended_of(name, asker));
    assert!(!bindings.has_ended_of(name, Owner::new(b"z").unwrap()));
    let mut take = |most| {
        let taken = bindings.take_ended_of(name, Some(asker), most);
        taken.into_iter().map(|(binding, _)| binding.fence_number).collect::<Vec<_>>()
    };
    assert_eq!(take(1), [4]);
    assert_eq!(take(9), [2, 1, 3]);
    assert!(!bindings.has_ended_of(name, asker));
    assert_eq!(bindings.len(), 1, "that of the other lock");
}

#[test]
fn what_a_crowd_needed_is_not_kept_when_it_has_gone() {
    let mut bindings = Bindings::default();
    let key = |number: u64| number.to_le_bytes();
    let (owner, crowd) = (Owner::new(b"a").unwrap(), u64::try_from(KEPT).unwrap() * 3);
    for number in 0..crowd {
        bind(&mut bindings, Name::new(0, &key(number)), "a", number);
    }
    for number in 1..crowd {
        bindings.remove(Name::new(0, &key(number)), owner, number);
    }
    assert!(bindings.all.capacity() > KEPT);
    bindings.remove(Name::new(0, &key(0)), owner, 0);
    assert_eq!(bindings.all.capacity(), 0);
}

/// Keys that an attacker has searched for: a multiplying hash without a secret is 0 after their first bytes, whatever
/// the next bytes are.
fn keys_that_fall_together(count: u64) -> impl Iterator<Item = Vec<u8>> {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    const LENGTH: u64 = 32;
    let product = u128::from(1_u64.rotate_left(32) ^ LENGTH).wrapping_mul(u128::from(FACTOR));
    let folded = (product ^ product >> 64) & u128::from(u64::MAX);
    let first = u64::try_from(folded).unwrap().to_le_bytes();
    (0..count).map(move |number| [&first[..], &number.to_le_bytes(), &[b'x'; 16]].concat())
}

#[test]
fn nobody_can_choose_names_that_fall_together() {
    let mut bindings = Bindings::default();
    let keys: Vec<_> = keys_that_fall_together(1_000).collect();
    for (number, key) in (1..).zip(&keys) {
        bind(&mut bindings, Name::new(0, key), "a", number);
    }
    let most = keys.iter().map(|key| bindings.alike(Name::new(0, key)).count()).max();
    assert!(most <= Some(2), "{most:?} of {} are alike", keys.len());
}

#[test]
fn a_flush_makes_the_holds_of_its_database_be_looked_at_and_of_no_other() {
    let mut bindings = Bindings::default();
    for (db, fence) in [(0, 1), (1, 2), (1, 3), (2, 4)] {
        bind(&mut bindings, Name::new(db, &[b'0' + u8::try_from(fence).unwrap()]), "a", fence);
    }
    bindings.doubt(Some(7));
    assert_eq!(bindings.next_due(at(0)), None, "nothing is bound there");
    bindings.doubt(Some(1));
    let look = |bindings: &mut Bindings| {
        let binding = bindings.take_look(at(0).wall)?;
        let fence = binding.fence_number;
        bindings.keep(binding, at(9).wall);
        Some(fence)
    };
    let mut looked: Vec<_> = std::iter::from_fn(|| look(&mut bindings)).collect();
    looked.sort_unstable();
    assert_eq!(looked, [2, 3]);
    assert_eq!(bindings.next_due(at(0)), None);
    // Doubted again during the looks: each hold must be looked at since.
    bindings.doubt(None);
    let first = look(&mut bindings);
    bindings.doubt(Some(0));
    let looks = std::iter::from_fn(|| look(&mut bindings)).count();
    assert_eq!((first, looks), (Some(1), 4));
}

#[test]
fn holds_that_somebody_waits_for_come_first_when_their_connection_has_ended() {
    let mut bindings = Bindings::default();
    for (key, fence) in [(b"a", 1), (b"b", 2), (b"c", 3)] {
        bind(&mut bindings, Name::new(0, key), "a", fence);
    }
    bindings.demand(Name::new(0, b"c"));
    bindings.demand(Name::new(0, b"c"));
    bindings.raise(Name::new(0, b"c"), Owner::new(b"a").unwrap(), 3, 9);
    assert!(bindings.connection_ended(CONNECTION, START));
    bindings.demand(Name::new(0, b"b"));
    let ended = std::iter::from_fn(|| bindings.take_ended());
    let ended: Vec<_> = ended.map(|(binding, _)| binding.fence_number).collect();
    assert_eq!(ended, [2, 9, 1]);
    assert!(bindings.connections.is_empty());
}
