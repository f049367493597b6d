//! Stories of what several clients send to a server and are told, as redis-cli shows it.
//!
//! ```text
//! # the lock goes on to who waits
//! LOCK.ACQUIRE k alice 60000 -> A                         a fence, above all fences before it
//! bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits          on bob's connection; no reply comes yet
//! LOCK.RELEASE k alice A-1 -> 0
//! LOCK.RELEASE k alice A; CLIENT KILL ID {bob} -> 1; 1    in one packet
//! GET k -> {B}:bob                                        the number of that fence
//! LOCK.INFO k -> until nil                                asked until this is the reply
//! INFO leasehold_grants -> 2                              one field
//! carol: -> C                                             the reply for which she waits
//! carol: leaves
//! ```
//!
//! An error is `-CODE` or `-CODE and its text`; where no reply is told, none is an error. Lists of holders and waiters are shown as their
//! owners, the log as `deleted(owner)`. `…share 5` is any reply with this in it.

use super::eventually::eventually;
use super::reply::{bulk_text, code, error, field};
use super::request::encoded;
use super::waiter::{Waiter, id_of, wait_until_parked};
use super::{Server, waiter::is_parked};
use redis::Value;
use std::collections::BTreeMap;

/// The connections to one server, by name, and the fences that they were told.
pub struct Session<'s> {
    server: &'s Server,
    database: u32,
    connections: BTreeMap<String, Waiter>,
    fences: BTreeMap<String, u64>,
}

/// One line of a story.
pub struct Row<'t> {
    /// What is sent.
    pub request: &'t str,
    /// The reply, and what else the story tells of the request.
    pub told: Vec<&'t str>,
}

/// The stories of a text, by their headings.
pub fn stories(text: &str) -> Vec<(&str, Vec<Row<'_>>)> {
    let mut stories: Vec<(&str, Vec<Row<'_>>)> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(heading) = line.strip_prefix("# ") {
            stories.push((heading, Vec::new()));
        } else {
            let (request, told) = line.split_once("->").unwrap_or((line, ""));
            let told = told.split('|').map(str::trim).collect();
            let row = Row { request: request.trim(), told };
            stories.last_mut().expect("a story begins with its heading").1.push(row);
        }
    }
    stories
}

impl<'s> Session<'s> {
    /// A session without connections. Each is opened when it first sends something, and selects
    /// this database.
    pub fn of(server: &'s Server, database: u32) -> Self {
        Self { server, database, connections: BTreeMap::new(), fences: BTreeMap::new() }
    }

    /// Plays each story of a text, in a database of its own.
    #[track_caller]
    pub fn play(server: &'s Server, text: &str) {
        for (database, (heading, rows)) in (0..).zip(stories(text)) {
            println!("# {heading}");
            let mut session = Self::of(server, database);
            rows.iter().for_each(|row| session.step(row.request, row.told[0]));
        }
    }

    /// Sends a request and checks its reply.
    #[track_caller]
    pub fn step(&mut self, request: &str, reply: &str) {
        println!("{request} -> {reply}");
        let (name, commands) = match request.split_once(':') {
            Some((name, commands)) if !name.contains(' ') => (name, commands.trim()),
            _ => ("", request),
        };
        match (commands, reply) {
            ("leaves", _) => drop(self.connections.remove(name).expect("it has sent something")),
            ("", "waits") => {
                let id = self.connection(name).id;
                assert!(is_parked(&mut self.server.client(), id), "it waits no longer");
            }
            (_, "waits") => {
                let words = self.words(commands);
                let waiter = self.connection(name);
                waiter.client.send(words);
                let id = waiter.id;
                wait_until_parked(self.server, id);
            }
            _ => match reply.strip_prefix("until ") {
                Some(reply) => eventually(request, || self.try_step(name, commands, reply)),
                None => self.try_step(name, commands, reply).unwrap_or_else(|seen| {
                    panic!("{request} is answered {seen:?}, not {reply:?}");
                }),
            },
        }
    }

    /// The connection of this name.
    fn connection(&mut self, name: &str) -> &mut Waiter {
        let open = || {
            let mut client = self.server.client();
            if self.database > 0 {
                client.cmd(format!("SELECT {}", self.database));
            }
            let id = id_of(&mut client);
            Waiter { client, id }
        };
        self.connections.entry(name.to_owned()).or_insert_with(open)
    }

    /// The error is what the server replied.
    fn try_step(&mut self, name: &str, commands: &str, reply: &str) -> Result<(), String> {
        if let Some(counter) = commands.strip_prefix("INFO leasehold_") {
            let counted = Value::Int(self.connection(name).client.counter(counter).cast_signed());
            return self.check(&counted, reply);
        }
        let commands: Vec<_> = commands.split("; ").collect();
        let replies: Vec<_> = reply.split("; ").collect();
        if commands != [""] {
            let bytes = commands.iter().flat_map(|command| encoded(self.words(command))).collect();
            let bytes: Vec<u8> = bytes;
            self.connection(name).client.send_bytes(&bytes);
        }
        let seen: Vec<_> =
            commands.iter().map(|_| self.connection(name).client.receive()).collect();
        if reply.is_empty() {
            let refused = seen.iter().find(|seen| matches!(seen, Value::ServerError(_)));
            return refused.map_or(Ok(()), |refused| Err(shown(refused)));
        }
        assert_eq!(replies.len(), seen.len(), "{commands:?}: as many replies");
        seen.iter().zip(replies).try_for_each(|(seen, reply)| self.check(seen, reply))
    }

    fn check(&mut self, seen: &Value, reply: &str) -> Result<(), String> {
        let reply = &*self.numbered(reply);
        let is_right = match (seen, reply.strip_prefix('-')) {
            (Value::ServerError(_), Some(text)) if text.contains(' ') => *seen == error(text),
            (Value::ServerError(_), Some(text)) => code(seen.clone()) == text,
            (&Value::Int(fence @ 2..), _) if is_fence(reply) => {
                let fence = fence.cast_unsigned();
                let highest = self.fences.values().max().copied().unwrap_or(0);
                match self.fences.get(reply) {
                    Some(known) => *known == fence,
                    None => {
                        self.fences.insert(reply.to_owned(), fence);
                        fence > highest
                    }
                }
            }
            _ => match reply.strip_prefix('…') {
                Some(part) => shown(seen).contains(part),
                None => shown(seen) == reply,
            },
        };
        if is_right { Ok(()) } else { Err(shown(seen)) }
    }

    /// The words of a command. One in quotes may have spaces.
    fn words(&mut self, command: &str) -> Vec<Vec<u8>> {
        let (mut words, mut is_quoted) = (Vec::new(), false);
        for part in command.split('"') {
            if is_quoted {
                words.push(part.as_bytes().to_vec());
            } else {
                let parts = part.split(' ').filter(|word| !word.is_empty());
                words.extend(parts.map(|word| self.word(word).into_bytes()));
            }
            is_quoted = !is_quoted;
        }
        words
    }

    fn word(&mut self, word: &str) -> String {
        let word = self.numbered(word);
        if let Some(name) = word.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            return self.connection(name).id.to_string();
        }
        let (name, offset) = word.split_at(word.find(['+', '-']).unwrap_or(word.len()));
        match self.fences.get(name) {
            Some(fence) if offset.is_empty() => fence.to_string(),
            Some(fence) => (fence.cast_signed() + offset.parse::<i64>().unwrap()).to_string(),
            None => word,
        }
    }

    /// With the number in place of `{A}`.
    fn numbered(&self, text: &str) -> String {
        self.fences.iter().fold(text.to_owned(), |text, (name, fence)| {
            text.replace(&format!("{{{name}}}"), &fence.to_string())
        })
    }
}

/// A capital letter, and digits behind it.
fn is_fence(word: &str) -> bool {
    let digits = word.strip_prefix(|first: char| first.is_ascii_uppercase());
    digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

fn shown(reply: &Value) -> String {
    match reply {
        Value::Int(number) => number.to_string(),
        Value::Nil => "nil".to_owned(),
        Value::Okay => "OK".to_owned(),
        Value::ServerError(told) => {
            format!("-{} {}", told.code(), told.details().unwrap_or_default())
        }
        Value::Array(items) | Value::Set(items) => {
            let words: Vec<_> = items.iter().map(item).collect();
            if words.is_empty() { "(empty)".to_owned() } else { words.join(" ") }
        }
        Value::BulkString(_) | Value::VerbatimString { .. } => bulk_text(reply),
        Value::SimpleString(text) => text.clone(),
        other => format!("{other:?}"),
    }
}

fn item(item: &Value) -> String {
    match item {
        Value::Array(fields) if matches!(fields[..], [Value::BulkString(_), _, ..]) => {
            match (field(item, "event"), field(item, "owner")) {
                (Some(event), Some(owner)) => format!("{}({})", shown(event), shown(owner)),
                (None, Some(owner)) => shown(owner),
                _ => format!("[{}]", shown(item)),
            }
        }
        Value::Array(_) => format!("[{}]", shown(item)),
        other => shown(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn play(text: &str) {
        Session::play(&Server::builder().without_module().start(), text);
    }

    #[test]
    fn a_fence_is_known_by_its_letter_and_its_number() {
        play(
            "
            # on two connections
            SET n 5; INCR n; INCR n -> OK; A; B
            bob: SET n A-1; INCR n; SET k {A}:x -> OK; A; OK
            GET k; EXISTS gone; LRANGE gone 0 -1 -> {A}:x; 0; (empty)
            bob: BLPOP list 0 -> waits
            RPUSH list x; INCR k -> 1; -ERR
            bob: -> list x
            ",
        );
    }

    #[test]
    #[should_panic(expected = "is answered \"1\", not \"2\"")]
    fn a_story_that_tells_another_reply_fails_its_test() {
        play("# one\nINCR n -> 2");
    }

    #[test]
    #[should_panic(expected = "is answered \"6\", not \"OK; B\"")]
    fn a_fence_that_is_no_higher_than_one_before_fails_its_test() {
        play("# two\nSET n 6; INCR n -> OK; A\nSET n 5; INCR n -> OK; B");
    }
}
