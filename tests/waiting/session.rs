//! Sessions of several clients with one server, written as if their terminals stood side by side.
//!
//! ```text
//! # what the session shows              alice holds k, by fence 1
//! LOCK.EXTEND k alice 500 -> 1
//! bob: LOCK.ACQUIRE k bob 500 BLOCK 0 -> waits        on a connection of bob's
//! LOCK.RELEASE k alice | LOCK.CHECK k bob -> 1 | fence 2          in one write
//! MULTI: DEL k | LOCK.CHECK k carol -> 1 | nil            in one transaction
//! bob: -> fence 2                      what he is told next
//! PTTL k -> 1..500
//! LOCK.WAITERS k -> soon nobody        asked again until it is so
//! bob leaves
//! ```
//!
//! `fence n` is the nth fence that is seen in the session, above all before it. `…` stands for any end of a reply.
//! `LOCK.WAITERS` and `LOCK.HOLDERS` show owners only, and `INFO` takes one of our counters.
//! `{bob}` is the number of his connection; one whose name ends in 3 speaks RESP3.

use super::LONG;
use redis::{RedisResult, Value};
use std::collections::HashMap;
use std::ops::RangeInclusive;
use testkit::waiter::{id_of, wait_until_parked};
use testkit::{Client, Server, Setup, bulk_text, encoded, eventually, field};

/// Each session has a server of its own, which is set up so.
#[track_caller]
pub(crate) fn play(setup: impl Fn() -> Setup, text: &str) {
    for session in text.split("# ").skip(1) {
        let (title, steps) = session.split_once('\n').unwrap();
        let mut session = Session::on(setup().start());
        for line in steps.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let step = session.step(line);
            step.unwrap_or_else(|shown| panic!("{title}\n{line}\nand not: {shown}"));
        }
    }
}

struct Session<'t> {
    server: Server,
    clients: HashMap<&'t str, (Client, i64)>,
    fences: Vec<i64>,
}

/// No other integer of a reply is as large as a fence.
const FENCES: RangeInclusive<i64> = 1_000_000_000_000_000..=9_007_199_254_740_991;

impl<'t> Session<'t> {
    fn on(server: Server) -> Self {
        let fence = server.client().grant("k", "alice", LONG).cast_signed();
        Self { server, clients: HashMap::new(), fences: vec![fence] }
    }

    fn step(&mut self, line: &'t str) -> Result<(), String> {
        if let Some(name) = line.strip_suffix(" leaves") {
            self.clients.remove(name).expect("it has come");
            return Ok(());
        }
        if let Some(millis) = line.strip_suffix(" ms pass") {
            let mut observer = self.server.client();
            let end = observer.now() + millis.parse::<i64>().unwrap();
            eventually("time passes", || if observer.now() < end { Err(()) } else { Ok(()) });
            return Ok(());
        }
        let (asked, expected) = line.rsplit_once("-> ").expect("a command -> its reply");
        let is_name = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c == '3');
        let named = asked.split_once(':').filter(|(name, _)| is_name(name));
        let (name, command) = named.unwrap_or(("", asked));
        match expected.strip_prefix("soon ") {
            None => self.ask(name, command.trim(), expected),
            Some(expected) => eventually(line, || self.ask(name, command.trim(), expected).map(Ok)),
        }
    }

    fn ask(&mut self, name: &'t str, command: &str, expected: &str) -> Result<(), String> {
        let server = &self.server;
        let (client, id) = self.clients.entry(name).or_insert_with(|| {
            let is_resp3 = name.ends_with('3');
            let mut client = if is_resp3 { server.client_resp3() } else { server.client() };
            let id = id_of(&mut client);
            (client, id)
        });
        let id = *id;
        if let Some(counter) = command.strip_prefix("INFO ") {
            let shown = client.counter(counter).to_string();
            return if shown == expected { Ok(()) } else { Err(shown) };
        }
        let command = self.clients.iter().fold(command.to_owned(), |command, (name, (_, id))| {
            command.replace(&format!("{{{name}}}"), &id.to_string())
        });
        let transaction = command.strip_prefix("MULTI: ");
        let lines = transaction.unwrap_or(&command).split(" | ");
        let mut lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
        let expected: Vec<_> = expected.split(" | ").collect();
        let (client, _) = self.clients.get_mut(name).expect("it is connected");
        let replies: Vec<_> = if transaction.is_some() {
            lines = [&["MULTI"], &lines[..], &["EXEC"]].concat();
            client.send_bytes(&in_one_write(&lines));
            lines = lines[1..lines.len() - 1].to_vec();
            (0..=lines.len()).for_each(|_| drop(client.receive()));
            match client.receive() {
                Value::Array(replies) => replies.into_iter().map(Ok).collect(),
                aborted => vec![Ok(aborted)],
            }
        } else {
            client.send_bytes(&in_one_write(&lines));
            if expected == ["waits"] {
                wait_until_parked(&self.server, id);
                return Ok(());
            }
            expected.iter().map(|_| client.try_receive()).collect()
        };
        let lines = lines.into_iter().chain(std::iter::repeat(""));
        let shown: Vec<_> =
            replies.iter().zip(lines).map(|(reply, line)| self.shown(line, reply)).collect();
        let all_fit = shown.len() == expected.len()
            && shown.iter().zip(expected).all(|(shown, expected)| fits(shown, expected));
        if all_fit { Ok(()) } else { Err(shown.join(" | ")) }
    }

    fn shown(&mut self, line: &str, reply: &RedisResult<Value>) -> String {
        match reply {
            Ok(rows @ Value::Array(_)) if line.starts_with("LOCK.WAITERS") => {
                listed(rows, &["kind", "owner"])
            }
            Ok(rows @ Value::Array(_)) if line.starts_with("LOCK.HOLDERS") => {
                listed(rows, &["owner"])
            }
            Ok(reply) => self.value(reply),
            Err(error) => {
                assert!(!error.is_timeout(), "{line}: no reply");
                "closed".to_owned()
            }
        }
    }

    fn value(&mut self, value: &Value) -> String {
        match value {
            Value::Nil => "nil".to_owned(),
            Value::Okay => "OK".to_owned(),
            Value::Int(number) => self.text(&number.to_string()),
            Value::SimpleString(text) => text.clone(),
            Value::BulkString(bytes) => self.text(&bytes.escape_ascii().to_string()),
            Value::Array(parts) | Value::Push { data: parts, .. } => {
                let parts: Vec<_> = parts.iter().map(|part| self.value(part)).collect();
                format!("[{}]", parts.join(", "))
            }
            Value::ServerError(told) => {
                format!("{} {}", told.code(), told.details().unwrap_or_default())
            }
            other => panic!("{other:?}"),
        }
    }

    fn text(&mut self, text: &str) -> String {
        let words = text.split(' ').map(|word| match word.parse() {
            Ok(fence) if FENCES.contains(&fence) => self.fence(fence),
            _ => word.to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    fn fence(&mut self, fence: i64) -> String {
        if self.fences.last().is_none_or(|last| fence > *last) {
            self.fences.push(fence);
        }
        let known = self.fences.iter().position(|known| *known == fence);
        known.map_or("fence that does not grow".to_owned(), |index| format!("fence {}", index + 1))
    }
}

fn in_one_write(lines: &[&str]) -> Vec<u8> {
    lines.iter().flat_map(|line| encoded(words(line))).collect()
}

/// Words, of which those with spaces are quoted, and `\n` ends a line.
fn words(line: &str) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    for (number, part) in line.split('"').enumerate() {
        match number % 2 {
            0 => parts.extend(part.split_whitespace()),
            _ => parts.push(part),
        }
    }
    parts.into_iter().map(|word| word.replace("\\n", "\n").into_bytes()).collect()
}

fn listed(rows: &Value, names: &[&str]) -> String {
    let Value::Array(rows) = rows else { panic!("{rows:?}") };
    let row = |row: &Value| {
        let fields = names.iter().map(|name| bulk_text(field(row, name).unwrap()));
        fields.collect::<Vec<_>>().join(" ")
    };
    match rows.iter().map(row).collect::<Vec<_>>().join(", ") {
        nobody if nobody.is_empty() => "nobody".to_owned(),
        somebody => somebody,
    }
}

fn fits(shown: &str, expected: &str) -> bool {
    let number = |text: &str| text.parse::<i64>().ok();
    match (expected.split_once(".."), expected.strip_suffix('…')) {
        (Some((least, most)), _) if number(least).is_some() => {
            number(shown).is_some_and(|shown| (number(least)..=number(most)).contains(&Some(shown)))
        }
        (_, Some(begin)) => shown.starts_with(begin),
        _ => shown == expected,
    }
}
