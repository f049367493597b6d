mod losing;
mod marking;
mod room;
mod several;
mod sharing;
mod tickets;

use super::super::fence::Fence;
use super::super::owner::Owner;
use super::*;
use crate::lock::{KeptName, Value};

const NOW: Moment = Moment::from_millis(1_763_000_000_000);
const KEY: &[u8] = b"orders:42";
const ROOMY: Room = Room::UNLIMITED;

const LIMITS: Limits = Limits { max_ttl: Ttl::LONGEST, max_holders: 1_000 };

/// A waiter's connection is a number.
type Connection = u32;

fn in_ms(millis: u64) -> Moment {
    NOW.plus_millis(millis)
}

const START: Monotonic = Monotonic::from_micros(0);

fn after_ms(millis: u64) -> Monotonic {
    START.plus_millis(millis)
}

/// The instant at which the wall clock shows this time, if nobody has set the clock.
fn at(wall: Moment) -> Now {
    Now { wall, monotonic: after_ms(wall.millis_since(NOW)) }
}

/// Settles as on a server without limits.
fn settle_with<'v>(
    queues: &mut Queues<Connection>,
    stored: Stored<'v>,
    now: Moment,
    fences: &mut FenceClock,
) -> Settled<'v> {
    queues.settle(Name::new(0, KEY), stored, at(now), LIMITS, fences)
}

fn touch(queues: &mut Queues<Connection>, key: &[u8], suspicion: Suspicion, now: Moment) {
    let _is_sooner = queues.suspect([key].into_iter(), || Some(suspicion), || now);
}

/// A lock marked for any cause.
fn take_marked(queues: &mut Queues<Connection>) -> Option<KeptName> {
    let due = [Cause::Due, Cause::Suspected, Cause::Doubted, Cause::Routine];
    let due = due.into_iter().find_map(|cause| queues.take_marked(cause))?;
    Some(due.name)
}

fn waiter(owner: &str, connection: Connection) -> Waiter<Connection> {
    Waiter {
        owner: Owner::new(owner.as_bytes()).unwrap().into(),
        ttl: Ttl::from_millis(30).unwrap(),
        share: Share::EXCLUSIVE,
        since: START,
        gives_up: None,
        ephemeral: None,
        wait: KeptWait::Blocked(connection),
    }
}

/// For a ticket, the connection that asked for it.
fn connection_of(waiter: &Waiter<Connection>) -> Connection {
    match &waiter.wait {
        KeptWait::Blocked(connection) => *connection,
        KeptWait::Ticket(ticket) => u32::try_from(ticket.client).unwrap(),
    }
}

fn with_patience(millis: u64, waiter: Waiter<Connection>) -> Waiter<Connection> {
    Waiter { gives_up: Some(after_ms(millis)), ..waiter }
}

/// Joins a queue, which then no longer counts as new.
#[track_caller]
fn join(queues: &mut Queues<Connection>, waiter: Waiter<Connection>) -> WaiterId {
    let Joined::Queued(id) = queues.join(Name::new(0, KEY), waiter) else {
        panic!("somebody of this owner waited")
    };
    for (_, queue) in &mut queues.queues {
        queue.begun = Some(Moment::from_micros(0));
    }
    id
}

/// A queue of these owners, whose connections are numbered from 1.
fn queue_of(owners: &[&str]) -> (Queues<Connection>, Vec<WaiterId>) {
    let mut queues = Queues::new();
    let ids =
        owners.iter().zip(1..).map(|(owner, number)| join(&mut queues, waiter(owner, number)));
    let ids = ids.collect();
    (queues, ids)
}

#[track_caller]
fn assert_queue(queues: &Queues<Connection>, connections: &[Connection]) {
    queues.check();
    let waiting: Vec<_> =
        queues.queue(Name::new(0, KEY)).map(|(waiter, _)| connection_of(waiter)).collect();
    assert_eq!(waiting, connections);
    assert_eq!(queues.waiters_for(Name::new(0, KEY)), connections.len());
}

fn held_by(owner: &str, deadline: Option<Moment>) -> Stored<'_> {
    let deadline = deadline.map(|end| Deadline::from_millis(end.millis()));
    Stored::Text { value: owner.as_bytes(), deadline }
}

/// Takes out the waiter whose turn it is, if there is one.
fn settle_at(
    queues: &mut Queues<Connection>,
    stored: Stored<'_>,
    now: Moment,
) -> Option<Connection> {
    let settled = settle_with(queues, stored, now, &mut FenceClock::new());
    take_out(queues, settled)
}

fn take_out(queues: &mut Queues<Connection>, settled: Settled<'_>) -> Option<Connection> {
    let turn = settled.turn?;
    assert!(!turn.is_for_several);
    queues.leave(turn.waiter).map(|departed| connection_of(&departed.waiter))
}

fn settle(queues: &mut Queues<Connection>, stored: Stored<'_>) -> Option<Connection> {
    settle_at(queues, stored, NOW)
}

#[track_caller]
fn assert_held(queues: &mut Queues<Connection>, stored: Stored<'_>) {
    assert_eq!(settle(queues, stored), None);
    queues.check();
}

#[track_caller]
fn assert_granted(next: Option<Connection>, connection: Connection) {
    assert_eq!(next, Some(connection));
}

#[test]
fn a_free_lock_goes_to_those_who_wait_in_the_order_in_which_they_came() {
    let (mut queues, _) = queue_of(&["b", "c", "a"]);
    for connection in [1, 2, 3] {
        assert_granted(settle(&mut queues, Stored::Nothing), connection);
    }
    assert_eq!(settle(&mut queues, Stored::Nothing), None);
    assert!(queues.is_empty());
}

#[test]
fn in_quarantine_a_free_lock_is_not_given_away_and_looked_at_when_that_ends() {
    let (mut queues, _) = queue_of(&["a"]);
    let mut fences = FenceClock::new();
    fences.quarantine(START, 70);
    let settled = settle_with(&mut queues, Stored::Nothing, NOW, &mut fences);
    assert!(settled.turn.is_none(), "{settled:?}");
    queues.check();
    assert_eq!(queues.next_due(at(NOW)), Some(in_ms(70)));
    assert!(queues.wake(at(in_ms(70)), 9).is_empty());
    fences.pass(after_ms(70));
    let settled = settle_with(&mut queues, Stored::Nothing, in_ms(70), &mut fences);
    assert_granted(take_out(&mut queues, settled), 1);
}

#[test]
fn a_lease_that_ran_out_frees_the_lock_whatever_the_key_still_says() {
    let (mut queues, _) = queue_of(&["a"]);
    assert_held(&mut queues, held_by("x", Some(NOW)));
    assert_granted(settle_at(&mut queues, held_by("x", Some(NOW)), in_ms(1)), 1);
}

#[test]
fn whoever_leaves_from_wherever_leaves_no_gap() {
    for (gone, left) in [(0, [2, 3]), (1, [1, 3]), (2, [1, 2])] {
        let (mut queues, ids) = queue_of(&["a", "b", "c"]);
        assert_eq!(
            queues.leave(ids[gone]).unwrap().waiter.owner,
            waiter(["a", "b", "c"][gone], 0).owner
        );
        assert_queue(&queues, &left);
        assert!(queues.leave(ids[gone]).is_none(), "nobody leaves twice");
        join(&mut queues, waiter("d", 4));
        assert_queue(&queues, &[left[0], left[1], 4]);
    }
}

#[test]
fn sent_away_they_leave_from_the_head_on() {
    let (mut queues, _) = queue_of(&["a", "b"]);
    assert_eq!(connection_of(&queues.leave_first(Name::new(0, KEY)).unwrap().waiter), 1);
    assert_eq!(connection_of(&queues.leave_first(Name::new(0, KEY)).unwrap().waiter), 2);
    assert!(queues.leave_first(Name::new(0, KEY)).is_none());
}

#[test]
fn all_leave_one_by_one_from_all_queues() {
    let (mut queues, _) = queue_of(&["a", "b"]);
    let _ = queues.join(Name::new(1, KEY), waiter("a", 3));
    let mut gone: Vec<_> =
        queues.leave_all().into_iter().map(|left| connection_of(&left.waiter)).collect();
    gone.sort_unstable();
    assert_eq!(gone, [1, 2, 3]);
    queues.check();
    assert!(queues.is_empty());
}

#[test]
fn an_owner_that_asks_again_takes_over_its_place_and_has_waited_as_long() {
    let mut queues = Queues::new();
    let former = join(&mut queues, with_patience(10, waiter("a", 1)));
    join(&mut queues, waiter("b", 2));
    let ttl = Ttl::from_millis(99).unwrap();
    let again = Waiter { ttl, since: after_ms(5), ..with_patience(20, waiter("a", 3)) };
    let joined = queues.join(Name::new(0, KEY), again);
    assert!(
        matches!(joined, Joined::InPlaceOf(id, KeptWait::Blocked(1)) if id == former),
        "{joined:?}"
    );
    assert_queue(&queues, &[3, 2]);
    let (first, _) = queues.queue(Name::new(0, KEY)).next().unwrap();
    assert_eq!((first.ttl, first.since, first.gives_up), (ttl, START, Some(after_ms(20))));
    assert!(
        queues.wake(at(in_ms(19)), usize::MAX).is_empty(),
        "the former patience counts no more"
    );
    assert_eq!(queues.wake(at(in_ms(20)), usize::MAX).len(), 1);
}

#[test]
fn the_same_owner_may_wait_for_several_locks() {
    let (mut queues, _) = queue_of(&["a"]);
    for (db, key) in [(1, KEY), (0, b"another")] {
        assert!(matches!(queues.join(Name::new(db, key), waiter("a", 2)), Joined::Queued(_)));
    }
    assert_queue(&queues, &[1]);
    assert_eq!(queues.waiters(), 3);
}

#[test]
fn a_lock_somebody_begins_to_wait_for_is_marked_until_it_was_looked_at() {
    let (mut queues, _) = queue_of(&["a"]);
    assert!(queues.is_marked(Name::new(0, KEY)));
    assert_held(&mut queues, held_by("x", None));
    assert!(!queues.is_marked(Name::new(0, KEY)));
    join(&mut queues, waiter("b", 2));
    assert!(!queues.has_marks(), "whoever joins a queue changes nothing about the lock");
}

#[test]
fn a_mark_is_for_a_lock_that_somebody_waits_for() {
    let (mut queues, _) = queue_of(&["a"]);
    assert_held(&mut queues, held_by("x", None));
    assert!(
        !queues.mark(Name::new(1, KEY))
            && !queues.mark(Name::new(0, b"another"))
            && !queues.has_marks()
    );
    assert!(queues.mark(Name::new(0, KEY)) && queues.is_marked(Name::new(0, KEY)));
    assert!(!queues.is_marked(Name::new(1, KEY)));
    let name = take_marked(&mut queues).unwrap();
    assert_eq!((name.db, &*name.key), (0, KEY));
    assert!(take_marked(&mut queues).is_none() && !queues.has_marks());
}

#[test]
fn the_longest_wait_is_that_of_the_oldest_at_the_head_of_any_queue() {
    let (mut queues, ids) = queue_of(&["a"]);
    let _ = queues.join(Name::new(0, b"another"), Waiter { since: after_ms(5), ..waiter("b", 2) });
    assert_eq!(queues.longest_since(), Some(START));
    assert_eq!(&*queues.leave(ids[0]).unwrap().name.key, KEY);
    assert_eq!(queues.longest_since(), Some(after_ms(5)));
    assert_eq!(queues.leave_all().len(), 1);
    assert_eq!(queues.longest_since(), None);
}

#[test]
fn a_touch_is_for_the_locks_of_that_name_in_every_database() {
    let (mut queues, _) = queue_of(&["a"]);
    let _ = queues.join(Name::new(1, KEY), waiter("a", 2));
    let _ = queues.join(Name::new(0, b"another"), waiter("a", 3));
    while take_marked(&mut queues).is_some() {}
    let words = [&b"orders:43"[..], b"SET"];
    assert!(!queues.suspect(words.into_iter(), || panic!("nobody waits for any of these"), || NOW));
    let words = [&b"orders:43"[..], KEY];
    assert!(!queues.suspect(words.into_iter(), || None, || NOW), "the command leaves locks alone");
    touch(&mut queues, b"orders:43", Suspicion::Freed, NOW);
    assert!(!queues.has_marks());
    touch(&mut queues, KEY, Suspicion::Freed, NOW);
    assert!(
        queues.is_marked(Name::new(0, KEY))
            && queues.is_marked(Name::new(1, KEY))
            && !queues.is_marked(Name::new(0, b"another"))
    );
}

#[test]
fn what_a_touch_is_about_is_noticed_after_twice_the_time_that_it_took() {
    let (mut queues, _) = queue_of(&["a"]);
    touch(&mut queues, KEY, Suspicion::Freed, NOW);
    let held = held_by("x", None);
    let mut now = NOW;
    for after in [2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024] {
        assert_eq!(settle_at(&mut queues, held, now), None);
        queues.check();
        assert!(
            queues.waiters_if_settled(Name::new(0, KEY)).is_none(),
            "a command does not overtake what was touched"
        );
        assert_eq!(queues.next_due(at(NOW)), Some(in_ms(after)));
        now = in_ms(after);
        assert!(queues.wake(at(now), 9).is_empty());
    }
    assert_eq!(settle_at(&mut queues, held, now), None);
    assert!(
        queues.waiters_if_settled(Name::new(0, KEY)).is_some(),
        "after a second it is forgotten"
    );
    assert_eq!(queues.next_due(at(NOW)), Some(now.plus_millis(RECHECK_MILLIS)));
}

#[test]
fn a_flush_marks_every_lock_of_its_database_or_of_all() {
    let (mut queues, _) = queue_of(&["a"]);
    let _ = queues.join(Name::new(1, KEY), waiter("a", 2));
    let mut dirty_after = |db| {
        while take_marked(&mut queues).is_some() {}
        queues.mark_all(db);
        [queues.is_marked(Name::new(0, KEY)), queues.is_marked(Name::new(1, KEY))]
    };
    assert_eq!(dirty_after(Some(0)), [true, false]);
    assert_eq!(dirty_after(Some(1)), [false, true]);
    assert_eq!(dirty_after(Some(2)), [false, false]);
    assert_eq!(dirty_after(None), [true, true]);
}

#[test]
fn patience_ends_on_time_and_in_batches_the_soonest_first() {
    let mut queues = Queues::new();
    for (number, millis) in (1..).zip([40, 10, 30, 20]) {
        join(&mut queues, with_patience(millis, waiter(&number.to_string(), number)));
    }
    join(&mut queues, waiter("without limit", 5));
    assert_held(&mut queues, held_by("x", None));
    let mut wake = |millis, at_most| {
        let ended = queues.wake(at(in_ms(millis)), at_most);
        queues.check();
        ended.into_iter().map(|left| connection_of(&left.waiter)).collect::<Vec<_>>()
    };
    assert_eq!(wake(9, 10), []);
    assert_eq!(wake(10, 10), [2]);
    assert_eq!(wake(999, 2), [4, 3]);
    assert_eq!(wake(999, 2), [1]);
    assert_queue(&queues, &[5]);
}

#[test]
fn a_held_lock_is_looked_at_when_its_lease_is_over_and_not_before() {
    let (mut queues, _) = queue_of(&["a"]);
    assert_held(&mut queues, held_by("x", Some(in_ms(50))));
    assert_eq!(queues.next_due(at(NOW)), Some(in_ms(51)));
    let _ = queues.wake(at(in_ms(50)), usize::MAX);
    assert!(!queues.has_marks());
    let _ = queues.wake(at(in_ms(51)), usize::MAX);
    assert!(queues.is_marked(Name::new(0, KEY)));
}

#[test]
fn a_held_lock_is_looked_at_every_second_at_the_latest() {
    let (mut queues, _) = queue_of(&["a"]);
    for stored in [held_by("x", Some(in_ms(60_000))), held_by("x", None), Stored::OtherType] {
        assert_held(&mut queues, stored);
        assert_eq!(queues.next_due(at(NOW)), Some(in_ms(1_000)));
    }
}

#[test]
fn a_clock_set_back_makes_every_lock_be_looked_at() {
    let (mut queues, _) = queue_of(&["a"]);
    // A request looks at the lock, and no time has passed since.
    let _ = settle_at(&mut queues, held_by("x", None), in_ms(3_600_000));
    let _ = queues.wake(at(NOW), usize::MAX);
    assert!(queues.is_marked(Name::new(0, KEY)));
    assert_held(&mut queues, held_by("x", None));
    assert_eq!(queues.next_due(at(NOW)), Some(in_ms(1_000)));
}

#[test]
fn what_is_postponed_is_left_alone_until_then() {
    let (mut queues, _) = queue_of(&["a"]);
    assert!(queues.mark(Name::new(0, KEY)));
    queues.postpone(Name::new(0, KEY), NOW, 10);
    queues.check();
    assert!(!queues.has_marks());
    assert_eq!(queues.next_due(at(NOW)), Some(in_ms(10)));
    let _ = queues.wake(at(in_ms(10)), usize::MAX);
    assert_eq!(take_marked(&mut queues).unwrap().db, 0);
    queues.postpone(Name::new(0, b"another"), NOW, 10);
}

#[test]
fn a_lock_that_was_deleted_is_free() {
    let (mut queues, _) = queue_of(&["a"]);
    assert_held(&mut queues, held_by("x", None));
    queues.mark(Name::new(0, KEY));
    assert_granted(settle(&mut queues, Stored::Nothing), 1);
}

#[test]
fn the_holder_itself_waits_no_longer_and_is_told_its_fence() {
    let (mut queues, _) = queue_of(&["b", "a"]);
    let value = Value::new(Fence::FIRST, Owner::new(b"a").unwrap());
    let deadline = Some(Deadline::from_millis(in_ms(10).millis()));
    let stored = Stored::Text { value: value.as_bytes(), deadline };
    let settled = settle_with(&mut queues, stored, NOW, &mut FenceClock::new());
    let own = settled.turn.as_ref().and_then(|turn| turn.holders.own().copied());
    assert_eq!(own.map(|own| own.fence_number()), Some(Fence::FIRST.number()));
    assert_granted(take_out(&mut queues, settled), 2);
    assert_held(&mut queues, stored);
    assert_queue(&queues, &[1]);
}

#[test]
fn the_holder_of_a_foreign_lock_waits_no_longer() {
    let (mut queues, _) = queue_of(&["a"]);
    for deadline in [None, Some(in_ms(31))] {
        assert_granted(settle(&mut queues, held_by("a", deadline)), 1);
        join(&mut queues, waiter("a", 1));
    }
}

#[test]
fn a_key_of_another_type_keeps_them_waiting() {
    let (mut queues, _) = queue_of(&["a"]);
    assert_held(&mut queues, Stored::OtherType);
    assert_queue(&queues, &[1]);
    assert_granted(settle(&mut queues, Stored::Nothing), 1);
}

#[test]
fn nothing_is_kept_when_everybody_is_gone() {
    let mut queues = Queues::new();
    let patient = |number: Connection| with_patience(10, waiter(&number.to_string(), number));
    let ids: Vec<_> = (1..=1_000).map(|number| join(&mut queues, patient(number))).collect();
    assert_held(&mut queues, held_by("x", Some(in_ms(5))));
    queues.mark(Name::new(0, KEY));
    for id in ids {
        assert!(queues.leave(id).is_some());
    }
    queues.check();
    assert!(queues.is_empty() && !queues.has_marks() && queues.next_due(at(NOW)).is_none());
    assert_eq!((queues.waiters.capacity(), queues.queues.capacity()), (0, 0));
    assert_eq!(queues.names.count(), 0);
    join(&mut queues, waiter("a", 1));
    assert_granted(settle(&mut queues, Stored::Nothing), 1);
}
