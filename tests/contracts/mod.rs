//! The contract of each command, in tables: what is sent, what comes back, and what is replicated.
//!
//! ```text
//!   ["LOCK.ACQUIRE k alice 60000", "(integer) F", "SET k F:alice PXAT +60000"]
//!   ["LOCK.ACQUIRE k bob 60000",   "(nil)",       ""]
//! ```
//!
//! - `F`, `G` and `H` are fences: where one first comes back, it is above all before it, and it is the same from then on.
//!   `F+1` is a number beside it.
//! - `+60000` is the moment so many milliseconds after the command. `x*256` is a word of 256 letters.
//! - `until` before a command repeats it until it has this reply. `…` stands for whatever follows.
//!
//! Every row is played in RESP2 and in RESP3. Where nothing is replicated the data is the same as before, and those who
//! watch `k` are told of its changes and of nothing else.

mod acquire;
mod check;
mod contexts;
mod extend;
mod foreign;
mod info;
mod raise;
mod release;

use redis::Value;
use std::collections::HashMap;
use testkit::errors::wrong_arity;
use testkit::{Client, Server, Snapshot, aof, eventually};

const LONG: u64 = 60_000;

/// As a reply: the server's error for a wrong number of words.
const ARITY: &str = "wrong arity";

type Row = [&'static str; 3];

/// What a story shows, and its rows.
type Story = (&'static str, &'static [Row]);

/// Plays each story with no key in the server.
#[track_caller]
fn play(stories: &[Story]) {
    // Freed lazily, a key whose lease ran out would be unlinked instead of deleted.
    let server = Server::builder().aof().config("lazyfree-lazy-expire", "no").start();
    for client in [server.client(), server.client_resp3()] {
        let mut player = Player { server: &server, client, fences: HashMap::new(), highest: 0 };
        for (what, rows) in stories {
            player.client.cmd("FLUSHALL");
            player.fences.clear();
            rows.iter().for_each(|row| player.take(what, row));
        }
    }
}

struct Player<'s> {
    server: &'s Server,
    client: Client,
    fences: HashMap<char, u64>,
    highest: u64,
}

impl Player<'_> {
    #[track_caller]
    fn take(&mut self, what: &str, row @ &[sent, reply, replicated]: &Row) {
        let told = aof::lines(self.server).len();
        let before = Snapshot::of(self.server);
        let mut watcher = self.server.client();
        watcher.cmd("WATCH k");
        // In a transaction the player itself cannot ask for the time.
        let from = self.server.client().now();
        let seen = self.send(sent, reply);
        let span = (from, self.server.client().now());
        let name = sent.split(' ').next().unwrap();
        let expected = if reply == ARITY { wrong_arity(name) } else { reply.to_owned() };
        assert!(self.is_like(&expected, &seen, span), "{what}: {row:?}: {seen}");
        if replicated == "…" {
            return;
        }
        let lines = aof::lines(self.server)[told..].join(" ; ");
        assert!(self.is_like(replicated, &lines, span), "{what}: {row:?} is told as {lines}");
        if replicated.is_empty() {
            assert_eq!(Snapshot::of(self.server), before, "{what}: {row:?}");
        }
        let is_told = watcher.pipeline(&["MULTI", "EXEC"]).pop() == Some(Value::Nil);
        let changes = replicated.split(' ').any(|word| word == "k");
        assert_eq!(is_told, changes, "{what}: {row:?}: whether watchers are told");
    }

    fn send(&mut self, sent: &str, reply: &str) -> String {
        let words = |sent: &str| -> Vec<_> {
            let word = |word| match self.filled(word).split_once('*') {
                Some((letter, count)) if !letter.is_empty() => {
                    letter.repeat(count.parse().unwrap()).into_bytes()
                }
                _ if word == "\"\"" => Vec::new(),
                _ => self.filled(word).into_bytes(),
            };
            sent.split(' ').map(word).collect()
        };
        let Some(asked) = sent.strip_prefix("until ") else {
            let words = words(sent);
            return shown(&self.client.cmd(words));
        };
        let words = words(asked);
        let client = &mut self.client;
        eventually(sent, || {
            let seen = shown(&client.cmd(words.clone()));
            // Whether it is the right fence is seen after that.
            if seen.split(' ').next() == reply.split(' ').next() { Ok(seen) } else { Err(seen) }
        })
    }

    fn is_like(&mut self, row: &str, seen: &str, span: (i64, i64)) -> bool {
        if let Some(start) = row.strip_suffix('…') {
            return seen.starts_with(start);
        }
        let (row, seen) = (row.split(' '), seen.split(' '));
        let words: Vec<_> = row.clone().zip(seen.clone()).collect();
        row.count() == seen.count()
            && words.into_iter().all(|(row, seen)| self.is_word(row, seen, span))
    }

    fn is_word(&mut self, row: &str, seen: &str, (from, to): (i64, i64)) -> bool {
        if let Some(millis) = row.strip_prefix('+').and_then(|millis| millis.parse::<i64>().ok()) {
            return seen.parse().is_ok_and(|end| (from + millis..=to + millis).contains(&end));
        }
        if let Some(name) = fence_in(row).filter(|name| !self.fences.contains_key(name)) {
            let Ok(fence) = seen.split(':').next().unwrap().parse() else { return false };
            assert!(
                seen.len() >= 16 && fence > self.highest,
                "{fence} is not above {}",
                self.highest
            );
            self.highest = fence;
            self.fences.insert(name, fence);
        }
        self.filled(row) == seen
    }

    /// The word with the fence that it names.
    fn filled(&self, word: &str) -> String {
        let Some(name) = fence_in(word) else { return word.to_owned() };
        let (fence, rest) = (self.fences[&name], &word[1..]);
        match rest.parse::<i64>() {
            Ok(more) => (fence.cast_signed() + more).to_string(),
            Err(_) => format!("{fence}{rest}"),
        }
    }
}

/// `F`, `F:alice` and `F+1` name a fence.
fn fence_in(word: &str) -> Option<char> {
    let mut letters = word.chars();
    let name = letters.next().filter(|name| ('F'..='H').contains(name))?;
    matches!(letters.next(), None | Some(':' | '+' | '-')).then_some(name)
}

/// A reply as redis-cli shows it, without quotes, the items of a list in a row.
fn shown(reply: &Value) -> String {
    match reply {
        Value::Nil => "(nil)".to_owned(),
        Value::Okay => "OK".to_owned(),
        Value::Int(number) => format!("(integer) {number}"),
        Value::SimpleString(text) => text.clone(),
        Value::BulkString(bytes) => bytes.escape_ascii().to_string(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(" "),
        Value::Map(pairs) => {
            pairs.iter().map(|(name, value)| shown(name) + " " + &shown(value)).collect()
        }
        Value::ServerError(error) => {
            format!("{} {}", error.code(), error.details().unwrap_or_default())
        }
        other => panic!("{other:?}"),
    }
}
