//! What operators see: `INFO leasehold`, `LOCK.TOP`, `LOCK.LOG` and the key events.
//!
//! All of it is told after the fact, so each test does something to a lock, and then asks what was told of
//! it: all that should be, and nothing else.

mod crash;
mod events;
mod figures;
mod lateness;
mod log;
mod ordinary;
mod times;
mod top;
mod waits;

pub(crate) use events::Listener;

use crate::waiting::short_of_memory;
use redis::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use testkit::{Client, Clock, Server, Session, Setup, eventually, number, stories, until};

/// The figures of `INFO leasehold`, and which of them have moved since the last look.
pub(crate) struct Figures {
    client: Client,
    last: BTreeMap<String, u64>,
}

/// What moves with time alone.
const UNSTEADY: [&str; 2] = ["fence_ahead_us", "longest_wait_us"];

/// What moves the times of holds and of waits.
const ENDS_A_HOLD: [&str; 1] = ["releases"];
const ENDS_A_WAIT: [&str; 3] = ["waits_granted", "waits_timed_out", "waits_abandoned"];

impl Figures {
    pub(crate) fn of(server: &Server) -> Self {
        let mut client = server.client();
        let last = all(&mut client);
        Self { client, last }
    }

    #[track_caller]
    fn assert_nothing_counted(&self) {
        let no_counts =
            ["version", "server_patched_from", "effective_max_waiters", "fence_ahead_us"];
        let counts = |name: &str| !no_counts.contains(&name);
        let counted: Vec<_> =
            self.last.iter().filter(|(name, value)| counts(name) && **value > 0).collect();
        assert!(counted.is_empty(), "{counted:?}");
    }

    /// Exactly these have moved since the last look, and by so much. The times of holds and waits may move
    /// with what ends one, and not else.
    #[track_caller]
    pub(crate) fn moved(&mut self, expected: &[(&str, i64)]) {
        let now = all(&mut self.client);
        let moves = |names: &[&str]| expected.iter().any(|(name, _)| names.contains(name));
        let times = [("hold_us_", moves(&ENDS_A_HOLD)), ("wait_us_", moves(&ENDS_A_WAIT))];
        let is_free_to_move = |name: &str| {
            UNSTEADY.contains(&name)
                || times.iter().any(|(prefix, moves)| *moves && name.starts_with(prefix))
        };
        let difference = |(name, value): (&String, &u64)| {
            let by = value.cast_signed() - self.last[name].cast_signed();
            (by != 0 && !is_free_to_move(name)).then(|| (name.clone(), by))
        };
        let moved: BTreeMap<_, _> = now.iter().filter_map(difference).collect();
        let expected: BTreeMap<_, _> =
            expected.iter().map(|&(name, by)| (name.to_owned(), by)).collect();
        assert_eq!(moved, expected);
        self.last = now;
    }

    fn get(&mut self, name: &str) -> u64 {
        self.client.counter(name)
    }
}

/// A server that publishes all events there are, but those of misses.
fn telling() -> Setup {
    Server::builder().config("notify-keyspace-events", "KEA")
}

/// What servers publish of their own accord, some of them at times of their own.
const NEWS: [&str; 5] = ["new", "overwritten", "type_changed", "expire", "expired"];

/// The figures of a hand-off to somebody who waits.
const HANDED_OFF: &str = "grants+1 hand_offs+1 waits_granted+1 waiters-1";

/// Plays each story on a server of its own, after the rows of `opening`. Behind the reply, a row may tell which figures
/// have moved since a row last told of them, and what was published, in the order of that. `-` is nothing.
#[track_caller]
pub(crate) fn play(args: &str, opening: &str, text: &str) {
    for (heading, rows) in stories(&text.replace("HANDED_OFF", HANDED_OFF)) {
        println!("# {heading}");
        let server = telling().module_args(args).start();
        let mut session = Session::of(&server, 0);
        session.steps(opening);
        let (mut figures, mut listener) = (Figures::of(&server), Listener::on(&server));
        for row in rows {
            session.step(row.request, row.told[0]);
            if let Some(moved) = row.told.get(1).filter(|moved| !moved.is_empty()) {
                figures.moved(&moves(moved));
            }
            if let Some(published) = row.told.get(2) {
                assert_eq!(listener.heard_of_locks(), *published);
            }
        }
    }
}

/// `waiters-1` of each word. What is named twice moves by the sum.
fn moves(text: &str) -> Vec<(&str, i64)> {
    let mut moves: BTreeMap<&str, i64> = BTreeMap::new();
    for word in text.split(' ').filter(|word| *word != "-") {
        let (name, by) = word.split_at(word.find(['+', '-']).unwrap());
        *moves.entry(name).or_default() += by.parse::<i64>().unwrap();
    }
    moves.into_iter().filter(|(_, by)| *by != 0).collect()
}

/// Every field, without the name of the module in front.
fn all(client: &mut Client) -> BTreeMap<String, u64> {
    let text = client.info_text("leasehold");
    let field = |line: &str| {
        let (name, value) = line.strip_prefix("leasehold_")?.split_once(':')?;
        Some((name.to_owned(), value.parse().unwrap()))
    };
    let fields: BTreeMap<_, _> = text.lines().filter_map(field).collect();
    assert!(fields.len() > UNSTEADY.len(), "{text}");
    fields
}

/// Waits until the lease has run out.
fn let_run_out(client: &mut Client, key: &str) {
    eventually("the lease runs out", || client.info(key).map_or(Ok(()), Err));
}

/// Takes the memory away until the server has evicted a lock, and gives it back. How often one was put back.
fn evict(client: &mut Client, figures: &mut Figures) -> i64 {
    short_of_memory::evict(client);
    // One that was evicted last is put back a moment later. Nothing else has an end, and may be evicted.
    eventually("each is put back", || {
        let evicted = client.info_number("stats", "evicted_keys");
        let restored = figures.get("evictions_restored");
        if restored == evicted { Ok(()) } else { Err((restored, evicted)) }
    });
    figures.get("evictions_restored").cast_signed()
}

/// For how many milliseconds the first in the queue of this lock has waited.
fn waited(client: &mut Client, key: &str) -> i64 {
    let queue = client.cmd(format!("LOCK.WAITERS {key} COUNT 1"));
    let Value::Array(rows) = queue else { panic!("not a queue: {queue:?}") };
    number(&rows[0], "waited")
}

/// Waits until the first in the queue of this lock has waited so many milliseconds. Waits go by a clock that
/// no test can set.
fn until_waited(client: &mut Client, key: &str, millis: i64) {
    until("it has waited for so long", || waited(client, key), |waited| *waited >= millis);
}

/// Steps the clock, and waits until the server knows.
fn pass(client: &mut Client, clock: &mut Clock, duration: Duration) {
    clock.step_forward(duration);
    clock.wait_until_known(client);
}
