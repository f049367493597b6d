//! Locks that stay with their holder although the server lost them, or its clock was set.

use crate::claims::Claims;
use crate::connection::{Lost, asked, is_gone};
use crate::fight::Fought;
use crate::tellers::{
    Conversation, MOST, Teller, deletion_in_a_step, evicted, evicted_unwaited, limited,
    transaction_in_a_step,
};
use std::time::{Duration, Instant};
use testkit::{Clock, Seed, Server, is_older_than};

/// A lock is not given away because the server evicted it, whether or not somebody waits for it.
pub(crate) fn eviction(seed: u64, length: Duration) -> Fought {
    let policies = ["volatile-lru", "volatile-ttl", "volatile-random"];
    let policy = *Seed::of(seed).pick(&policies);
    let server = Server::builder().tcp().config("maxmemory-policy", policy).start();
    let (mut fought, conversations) = converse(&server, seed, length, evicted_somehow);
    fought.grants = 2 * conversations;
    fought.faults = conversations;
    fought
}

fn evicted_somehow(teller: &mut Teller<'_>) -> Result<(), Lost> {
    if is_older_than((7, 2)) || teller.seed.below(2) == 0 {
        evicted(teller)
    } else {
        evicted_unwaited(teller)
    }
}

/// So often the server looks at its clock, about, while it hands a lock on.
const LOOKS: usize = 40;

/// A clock that is set back while a transaction is open, in which a lock is deleted; or between any two looks at it, while
/// a lock is handed on.
pub(crate) fn step(seed: u64, length: Duration) -> Fought {
    let mut fought = Fought::default();
    let (begin, asked_before) = (Instant::now(), asked());
    let mut seed = Seed::of(seed);
    let mut conversations = 0;
    while begin.elapsed() < length && fought.wrong.is_empty() {
        let mut clock = Clock::new();
        let mut server = Server::builder().tcp().clock(&clock).start();
        let claims = Claims::default();
        let by = Duration::from_secs(*seed.pick(&[30, 600, 3_600]));
        let after = seed.below(2 * LOOKS);
        if let Ok(mut teller) = Teller::connect(&claims, server.port(), 0, Seed::of(1), "t") {
            let done = match after.checked_sub(LOOKS) {
                None => transaction_in_a_step(&mut teller, &mut || clock.step_back(by)),
                Some(looks) => deletion_in_a_step(&mut teller, &mut || {
                    clock.step_back_after(1 + looks as i64, by);
                }),
            };
            conversations += u64::from(done.is_ok());
        }
        fought.faults += 1;
        fought.wrong.extend(claims.take_unexcused(&[], 0, &[]));
        if !fought.wrong.is_empty() {
            // It might not end by itself.
            server.kill();
        }
    }
    fought.operations = asked() - asked_before;
    fought.grants = conversations;
    fought.micros = begin.elapsed().as_micros();
    shows_something(&mut fought, conversations);
    fought
}

pub(super) fn shows_something(fought: &mut Fought, conversations: u64) {
    if conversations == 0 {
        fought.wrong.push("no conversation came to its end: that shows nothing".to_owned());
    }
}

/// Only so many may wait for a lock. Nothing is done to the server.
pub(crate) fn limits(seed: u64, length: Duration) -> Fought {
    let most = format!("max-waiters-per-lock {MOST}");
    let server = Server::builder().tcp().module_args(&most).start();
    let (mut fought, conversations) = converse(&server, seed, length, limited);
    fought.grants = 3 * conversations;
    fought
}

/// The same, again and again, and how often that came to its end.
pub(super) fn converse(
    server: &Server,
    seed: u64,
    length: Duration,
    what: Conversation,
) -> (Fought, u64) {
    let mut seed = Seed::of(seed);
    let mut fought = Fought::default();
    let (begin, asked_before) = (Instant::now(), asked());
    let (mut name, mut conversations) = (0, 0);
    while begin.elapsed() < length && fought.wrong.is_empty() {
        let claims = Claims::default();
        name += 1;
        let Ok(mut teller) =
            Teller::connect(&claims, server.port(), 0, seed.fork(), &format!("t{name}"))
        else {
            if is_gone(server.port()) {
                fought.wrong.push("L6: the server has ended by itself".to_owned());
            }
            continue;
        };
        while begin.elapsed() < length && teller.converse(what).is_ok() {
            conversations += 1;
        }
        fought.wrong.extend(claims.take_unexcused(&[], 0, &[]));
    }
    fought.operations = asked() - asked_before;
    fought.micros = begin.elapsed().as_micros();
    shows_something(&mut fought, conversations);
    (fought, conversations)
}
