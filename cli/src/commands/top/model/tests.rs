use super::super::rows::{Sort, rows, warnings};
use super::super::told::{Contention, Holder, Lock};
use super::*;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A first round, answered when the server's clock is at 100 s.
pub(crate) fn round(at: Instant) -> Round {
    let facts = Facts {
        module: Some("0.3.0".to_owned()),
        run: "first".to_owned(),
        clock: 100_000_000,
        most_waiters: Some(100),
        ..Facts::default()
    };
    let (locks, events, notes, part) = (Vec::new(), Vec::new(), Vec::new(), Part::default());
    Round { at, facts, locks, events, opened: None, part, notes }
}

/// A lock held since 90 s on the server's clock, with `left` seconds left.
pub(crate) fn lock(name: &str, left: Option<u64>, waiters: u64) -> Lock {
    let left = left.map(Duration::from_secs);
    let hold =
        Holder { owner: format!("owner of {name}"), fence: 90_000_000, left, share: Some(1) };
    Lock {
        key: name.as_bytes().to_vec(),
        name: name.to_owned(),
        hold: Hold::Held { hold, holders: 1 },
        waiters: Some(waiters),
        oldest: None,
        contention: Contention::default(),
    }
}

pub(crate) fn event(id: u64, what: &str) -> Event {
    let (name, owner) = ("x".to_owned(), "alice".to_owned());
    Event { id, time: 99_000, what: what.to_owned(), name, owner, millis: Some(5) }
}

/// A model that knows servers with these addresses.
pub(crate) fn model(addresses: &[&str], now: Instant) -> Model {
    let mut model = Model::new(vec!["place".to_owned()]);
    let addresses = addresses.iter().map(|&address| address.to_owned()).collect();
    model.hear(News::Servers { place: 0, addresses }, now);
    model
}

pub(crate) fn tell(model: &mut Model, address: &str, round: Round) {
    let now = round.at;
    model.hear(News::Answered { address: address.to_owned(), round: Box::new(round) }, now);
}

#[test]
fn rates_are_of_two_rounds_of_the_same_run() {
    let now = Instant::now();
    let mut model = model(&["a"], now);
    let mut tell_at = |seconds: u64, grants: u64, run: &str| {
        let mut round = round(now + Duration::from_secs(seconds));
        round.facts.grants = grants;
        round.facts.run = run.to_owned();
        tell(&mut model, "a", round);
        model.servers[0].rates.grants
    };
    assert_eq!(tell_at(0, 1_000, "first"), None);
    assert_eq!(tell_at(2, 1_005, "first"), Some(25));
    assert_eq!(tell_at(3, 1_005, "first"), Some(0));
    // The server has restarted, and its counter may already be higher than before.
    assert_eq!(tell_at(4, 2_000, "second"), None);
    // The counter was reset.
    assert_eq!(tell_at(5, 10, "second"), None);
    assert_eq!(tell_at(6, 20, "second"), Some(100));
}

#[test]
fn a_lease_is_as_long_as_the_longest_that_was_seen_of_its_grant() {
    let now = Instant::now();
    let mut model = model(&["a"], now);
    let mut seen = |left: Option<u64>, fence: u64| {
        let mut round = round(now);
        let mut lock = lock("x", left, 0);
        if let Hold::Held { hold, .. } = &mut lock.hold {
            hold.fence = fence;
        }
        round.locks = vec![lock];
        tell(&mut model, "a", round);
        model.servers[0].lease(b"x").map(|lease| lease.as_secs())
    };
    assert_eq!(seen(Some(20), 1), Some(20));
    assert_eq!(seen(Some(5), 1), Some(20));
    assert_eq!(seen(Some(30), 1), Some(30));
    assert_eq!(seen(Some(10), 2), Some(10));
    assert_eq!(seen(None, 2), None);
}

#[test]
fn each_event_is_told_once_and_what_came_too_fast_is_counted() {
    let now = Instant::now();
    let mut model = model(&["a", "b"], now);
    let mut tell_events = |address: &str, ids: &[u64], run: &str| {
        let mut round = round(now);
        round.facts.run = run.to_owned();
        round.events = ids.iter().rev().map(|id| event(*id, "deleted")).collect();
        tell(&mut model, address, round);
        (model.events.len(), model.losses, model.missed)
    };
    // Events from before the view began are shown, but not counted as losses.
    assert_eq!(tell_events("a", &[4, 5], "first"), (2, 0, 0));
    assert_eq!(tell_events("a", &[4, 5, 6], "first"), (3, 1, 0));
    assert_eq!(tell_events("a", &[9, 10], "first"), (5, 3, 2));
    assert_eq!(tell_events("b", &[4], "other"), (6, 3, 2));
    // The ids begin again with each start.
    assert_eq!(tell_events("a", &[1], "second"), (7, 4, 2));
    // The log was reset.
    assert_eq!(tell_events("a", &[], "second"), (7, 4, 2));
    assert_eq!(tell_events("a", &[2], "second"), (8, 5, 2));
    assert_eq!(model.events[0].at, now.checked_sub(SECOND));
}

#[test]
fn nothing_of_a_silent_server_is_true_any_more() {
    let now = Instant::now();
    let mut model = model(&["a"], now);
    let mut told = round(now);
    told.locks = vec![lock("x", Some(20), 0)];
    tell(&mut model, "a", told);
    let silent = |why: &str| News::Silent { address: "a".to_owned(), why: why.to_owned() };
    model.hear(silent("gone"), now + SECOND);
    model.hear(silent("still gone"), now + 5 * SECOND);
    // Silent since its last answer.
    let state = State::Silent { since: now, why: "still gone".to_owned() };
    assert_eq!(model.servers[0].state, state);
    assert!(rows(&model, Sort::Queue, false, "", now).is_empty());
    tell(&mut model, "a", round(now + 9 * SECOND));
    assert_eq!(
        (&model.servers[0].state, model.servers[0].rates),
        (&State::Answers, Rates::default())
    );
}

#[test]
fn servers_that_are_no_more_behind_an_address_are_forgotten_and_the_others_kept() {
    let now = Instant::now();
    let mut model = model(&["a", "b"], now);
    tell(&mut model, "b", round(now));
    model.hear(News::Lost { place: 0, why: "no answer".to_owned() }, now);
    assert_eq!(model.lost().collect::<Vec<_>>(), [("place", "no answer")]);
    assert_eq!(model.servers.len(), 2);
    let addresses = vec!["b".to_owned(), "c".to_owned()];
    model.hear(News::Servers { place: 0, addresses }, now);
    let known: Vec<_> = model.servers.iter().map(|server| server.address.as_str()).collect();
    assert_eq!((known, model.lost().count()), (vec!["b", "c"], 0));
    assert_eq!(model.servers[0].state, State::Answers);
}

#[test]
fn rows_go_on_between_rounds() {
    let now = Instant::now();
    let mut model = model(&["a"], now);
    let mut told = round(now);
    let mut waited_for = lock("x", Some(20), 2);
    waited_for.oldest = Some(8 * SECOND);
    told.locks = vec![waited_for];
    tell(&mut model, "a", told);
    let at = |later: Duration| rows(&model, Sort::Queue, false, "", now + later).remove(0);
    let row = at(Duration::ZERO);
    assert_eq!((row.held, row.left), (Some(10 * SECOND), Some(20 * SECOND)));
    assert!(!row.is_stuck());
    let row = at(2 * SECOND);
    assert_eq!((row.held, row.left), (Some(12 * SECOND), Some(18 * SECOND)));
    assert_eq!((row.waited, row.is_stuck()), (Some(10 * SECOND), true));
    assert_eq!(at(60 * SECOND).left, Some(Duration::ZERO));
}

#[test]
fn locks_are_sorted_and_filtered() {
    let now = Instant::now();
    let mut model = model(&["a"], now);
    let mut told = round(now);
    let mut free = lock("free", None, 0);
    free.hold = Hold::Free;
    told.locks =
        vec![free, lock("B", Some(30), 0), lock("a", Some(10), 1), lock("forever", None, 3)];
    tell(&mut model, "a", told);
    let by = |sort, is_reversed, filter: &str| -> Vec<String> {
        let rows = rows(&model, sort, is_reversed, filter, now);
        rows.iter().map(|row| row.lock.name.clone()).collect()
    };
    assert_eq!(by(Sort::Queue, false, ""), ["forever", "a", "B", "free"]);
    assert_eq!(by(Sort::Left, false, ""), ["a", "B", "forever", "free"]);
    assert_eq!(by(Sort::Left, true, "")[2..], ["B", "a"]);
    assert_eq!(by(Sort::Name, false, ""), ["B", "a", "forever", "free"]);
    assert_eq!(by(Sort::Name, false, "OWNER OF B"), ["B"]);
    assert!(rows(&model, Sort::Queue, false, "forever", now)[0].is_stuck());
}

#[test]
fn what_is_near_its_limit_is_said() {
    let now = Instant::now();
    let mut model = model(&["a"], now);
    let mut warned = |change: fn(&mut Facts)| {
        let mut told = round(now);
        change(&mut told.facts);
        tell(&mut model, "a", told);
        warnings(&model.servers[0])
    };
    assert_eq!(warned(|_| {}), Vec::<String>::new());
    assert_eq!(warned(|facts| facts.waiters = 79), Vec::<String>::new());
    assert_eq!(
        warned(|facts| facts.waiters = 80),
        ["waiters: 80 % of what leasehold.max-waiters allows"]
    );
    assert_eq!(warned(|facts| facts.most_waiters = Some(0)).len(), 1);
    assert_eq!(warned(|facts| facts.quarantine = 90 * SECOND).len(), 1);
    assert_eq!(warned(|facts| facts.evictions_pending = 1).len(), 1);
    assert_eq!(warned(|facts| facts.panics = 1).len(), 1);
    assert_eq!(warned(|facts| facts.is_replica = true).len(), 1);
    assert_eq!(warned(|facts| facts.module = None).len(), 1);
}
