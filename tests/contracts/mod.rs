//! The contract of each command, in stories: what is sent, what comes back, and what is replicated.
//!
//! ```text
//!   LOCK.ACQUIRE k alice 60000 -> A | SET k {A}:alice PXAT +60000
//!   LOCK.ACQUIRE k bob 60000 -> nil
//! ```
//!
//! `+60000` is the moment so many milliseconds after the command, `…` whatever is replicated, and `-OWNER_LENGTH` the error of
//! that name, `x*256` a word of so many letters. Every row is played in RESP2 and in RESP3. Where nothing is replicated the data is the same as before, and those
//! who watch `k` are told of its changes and of nothing else.

mod acquire;
mod check;
mod contexts;
mod extend;
mod foreign;
mod info;
mod raise;
mod release;

use redis::Value;
use testkit::errors::{self, wrong_arity};
use testkit::{Row, Server, Session, Snapshot, aof, stories};

const LONG: u64 = 60_000;

const ERRORS: [(&str, &str); 7] = [
    ("OWNER_LENGTH", errors::OWNER_LENGTH),
    ("TTL_NOT_POSITIVE", errors::TTL_NOT_POSITIVE),
    ("TTL_ABOVE_LIMIT", errors::TTL_ABOVE_LIMIT),
    ("FENCE_NOT_A_NUMBER", errors::FENCE_NOT_A_NUMBER),
    ("UNKNOWN_OPTION", errors::UNKNOWN_OPTION),
    ("PATIENCE_OUT_OF_RANGE", errors::PATIENCE_OUT_OF_RANGE),
    ("WRONG_TYPE", errors::WRONG_TYPE),
];

/// Plays each story with no key in the server.
#[track_caller]
fn play(text: &str) {
    let with_errors = |text: String, (name, error): &(&str, &str)| text.replace(name, error);
    let text = ["255", "256"].iter().fold(text.to_owned(), |text, length| {
        text.replace(&format!("x*{length}"), &"x".repeat(length.parse().unwrap()))
    });
    let text = ERRORS.iter().fold(text, with_errors);
    // Freed lazily, a key whose lease ran out would be unlinked instead of deleted.
    let server = Server::builder().aof().config("lazyfree-lazy-expire", "no").start();
    for protocol in ["HELLO 2", "HELLO 3"] {
        let mut session = Session::of(&server, 0);
        session.step(protocol, "…");
        for (heading, rows) in stories(&text) {
            println!("# {heading}");
            server.cmd("FLUSHALL");
            session.forget_fences();
            rows.iter().for_each(|row| take(&server, &mut session, row));
        }
    }
}

#[track_caller]
fn take(server: &Server, session: &mut Session, Row { request, told }: &Row) {
    let length = aof::lines(server).len();
    let before = Snapshot::of(server);
    let mut watcher = server.client();
    watcher.cmd("WATCH k");
    // In a transaction the session itself cannot ask for the time.
    let from = server.client().now();
    let arity = wrong_arity(request.split(' ').next().unwrap());
    session.step(request, &told[0].replace("ARITY", &arity));
    let to = server.client().now();
    let expected = *told.get(1).unwrap_or(&"");
    if expected == "…" {
        return;
    }
    let lines = aof::lines(server)[length..].join(" ; ");
    let mut words: Vec<_> = lines.split(' ').collect();
    for (seen, told) in words.iter_mut().zip(expected.split(' ')) {
        let Some(millis) = told.strip_prefix('+').and_then(|it| it.parse::<i64>().ok()) else {
            continue;
        };
        if seen.parse().is_ok_and(|end| (from + millis..=to + millis).contains(&end)) {
            *seen = told;
        }
    }
    assert!(session.is_like(expected, &words.join(" ")), "{request} is told as {lines}");
    if expected.is_empty() {
        assert_eq!(Snapshot::of(server), before, "{request}");
    }
    let is_told = watcher.pipeline(&["MULTI", "EXEC"]).pop() == Some(Value::Nil);
    let changes = expected.split(' ').any(|word| word == "k");
    assert_eq!(is_told, changes, "{request}: whether watchers are told");
}
