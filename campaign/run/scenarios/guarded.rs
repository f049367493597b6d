//! Scenarios `eviction`, `step` and `limits`: locks stay with their holder although the server
//! evicts them or its clock is set.

use crate::claims::Claims;
use crate::connection::{Lost, asked, is_gone};
use crate::probes::{
    Conversation, MOST, Probe, deletion_in_a_fall, deletion_in_a_step, evicted, evicted_unwaited,
    limited, transaction_in_a_step,
};
use crate::runner::Totals;
use std::time::{Duration, Instant};
use testkit::{Clock, Seed, Server, is_older_than};

/// A lock that the server evicts stays with its holder, whether or not somebody waits for it.
pub(crate) fn eviction(seed: u64, length: Duration) -> Totals {
    let policies = ["volatile-lru", "volatile-ttl", "volatile-random"];
    let policy = *Seed::of(seed).pick(&policies);
    let server = Server::builder().tcp().config("maxmemory-policy", policy).start();
    let (mut totals, conversations) = converse(&server, seed, length, evicted_somehow);
    totals.grants = 2 * conversations;
    totals.faults = conversations;
    totals
}

fn evicted_somehow(probe: &mut Probe<'_>) -> Result<(), Lost> {
    if is_older_than((7, 2)) || probe.seed.below(2) == 0 {
        evicted(probe)
    } else {
        evicted_unwaited(probe)
    }
}

/// How often the server reads its clock, about, while it hands a lock on.
const LOOKS: usize = 40;

/// Less than a millisecond.
const FALL: Duration = Duration::from_micros(900);

/// The clock is set back while a transaction that deletes a lock is open, or between any two reads
/// of it while a lock is handed on; or it falls back a little there.
pub(crate) fn step(seed: u64, length: Duration) -> Totals {
    let mut totals = Totals::default();
    let (begin, asked_before) = (Instant::now(), asked());
    let mut seed = Seed::of(seed);
    let mut conversations = 0;
    while begin.elapsed() < length && totals.wrong.is_empty() {
        let mut clock = Clock::new();
        // The routine, which comes so often, hides a fall.
        let (kind, hz) = *seed.pick(&[(0, "10"), (1, "10"), (2, "1")]);
        let mut server = Server::builder().tcp().clock(&clock).config("hz", hz).start();
        let claims = Claims::default();
        let by = Duration::from_secs(*seed.pick(&[30, 600, 3_600]));
        let looks = 1 + seed.below(LOOKS) as i64;
        if let Ok(mut probe) = Probe::connect(&claims, server.port(), 0, Seed::of(1), "t") {
            let done = match kind {
                0 => transaction_in_a_step(&mut probe, &mut || clock.step_back(by)),
                1 => deletion_in_a_step(&mut probe, &mut || clock.step_back_after(looks, by)),
                _ => deletion_in_a_fall(&mut probe, &mut || clock.step_back_after(looks, FALL)),
            };
            conversations += u64::from(done.is_ok());
        }
        totals.faults += 1;
        totals.wrong.extend(claims.take_unexcused(&[], 0, &[]));
        if !totals.wrong.is_empty() {
            // The server might never end by itself.
            server.kill();
        }
    }
    totals.operations = asked() - asked_before;
    totals.grants = conversations;
    totals.micros = begin.elapsed().as_micros();
    shows_something(&mut totals, conversations);
    totals
}

pub(super) fn shows_something(totals: &mut Totals, conversations: u64) {
    if conversations == 0 {
        totals.wrong.push("no conversation came to its end: that shows nothing".to_owned());
    }
}

/// Only so many may wait for a lock. No fault is made.
pub(crate) fn limits(seed: u64, length: Duration) -> Totals {
    let most = format!("max-waiters-per-lock {MOST}");
    let server = Server::builder().tcp().module_args(&most).start();
    let (mut totals, conversations) = converse(&server, seed, length, limited);
    totals.grants = 3 * conversations;
    totals
}

/// Repeats a conversation, and counts how often it came to its end.
pub(super) fn converse(
    server: &Server,
    seed: u64,
    length: Duration,
    what: Conversation,
) -> (Totals, u64) {
    let mut seed = Seed::of(seed);
    let mut totals = Totals::default();
    let (begin, asked_before) = (Instant::now(), asked());
    let (mut name, mut conversations) = (0, 0);
    while begin.elapsed() < length && totals.wrong.is_empty() {
        let claims = Claims::default();
        name += 1;
        let Ok(mut probe) =
            Probe::connect(&claims, server.port(), 0, seed.fork(), &format!("t{name}"))
        else {
            if is_gone(server.port()) {
                totals.wrong.push("L6: the server has ended by itself".to_owned());
            }
            continue;
        };
        while begin.elapsed() < length && probe.converse(what).is_ok() {
            conversations += 1;
        }
        totals.wrong.extend(claims.take_unexcused(&[], 0, &[]));
    }
    totals.operations = asked() - asked_before;
    totals.micros = begin.elapsed().as_micros();
    shows_something(&mut totals, conversations);
    (totals, conversations)
}
