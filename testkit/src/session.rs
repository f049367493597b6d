//! Stories of what several clients send to a server and are told, as redis-cli shows it.
//!
//! ```text
//! # the lock goes on to who waits
//! LOCK.ACQUIRE k alice 60000 -> A                         a fence, above all fences before it
//! bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits          on bob's connection; no reply comes yet
//! LOCK.RELEASE k alice A-1 -> 0
//! LOCK.RELEASE k alice A; CLIENT KILL ID {bob} -> 1; 1    in one packet
//! MULTI: DEL k; LOCK.CHECK k dave -> 1; nil               in one transaction
//! GET k -> {B}:carol                                      the number of that fence
//! LOCK.INFO k -> until nil                                asked until this is the reply
//! PTTL k -> 1..500
//! INFO leasehold_grants -> 2                              one field
//! carol: -> C                                             the reply for which she waits
//! carol: leaves
//! 20 ms pass
//! ```
//!
//! An error is `-CODE` or `-CODE and its text`. `…` is whatever is no error, `…share 5` a reply with this in it (and not `share 50`), and `OK…` one
//! that begins so. A text that looks like a reply of another type is in quotes: `"5"` is no integer. Of holders and
//! waiters the owners are shown, `ticket(bob)` where no connection waits; of the log, `deleted(owner)`. A push message begins
//! with `>`. Whatever a connection is sent is told before it leaves, or before the story ends.

use super::eventually::eventually;
use super::reply::{bulk_text, field};
use super::request::encoded;
use super::waiter::{Waiter, id_of, is_parked, wait_until_parked};
use super::{Server, Setup};
use redis::Value;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::thread;
use std::time::Duration;

/// The connections to one server, by name, and the fences that they were told.
pub struct Session<'s> {
    server: &'s Server,
    database: u32,
    connections: BTreeMap<String, Waiter>,
    fences: BTreeMap<String, i64>,
    highest: i64,
}

/// No other integer of a reply is as large as a fence.
const FENCES: RangeInclusive<i64> = 1_000_000_000_000_000..=9_007_199_254_740_991;

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
        match line.strip_prefix("# ") {
            Some(heading) => stories.push((heading, Vec::new())),
            None => stories.last_mut().expect("a story begins with its heading").1.push(row(line)),
        }
    }
    assert!(!stories.is_empty(), "nothing is told");
    stories
}

fn row(line: &str) -> Row<'_> {
    let (request, told) = line.split_once("->").unwrap_or((line, ""));
    Row { request: request.trim(), told: told.split('|').map(str::trim).collect() }
}

impl<'s> Session<'s> {
    /// A session without connections. Each is opened when it first sends something, and selects this database.
    pub fn of(server: &'s Server, database: u32) -> Self {
        let (connections, fences) = Default::default();
        Self { server, database, connections, fences, highest: *FENCES.start() }
    }

    /// Plays each story of a text, in a database of its own.
    #[track_caller]
    pub fn play(server: &'s Server, text: &str) {
        for (database, (heading, rows)) in (0..).zip(stories(text)) {
            println!("# {heading}");
            let mut session = Self::of(server, database);
            rows.iter().for_each(|row| session.row(row));
        }
    }

    /// Plays each story of a text on a server of its own, after the rows of `opening`.
    #[track_caller]
    pub fn play_apart(setup: impl Fn() -> Setup, opening: &str, text: &str) {
        for (heading, rows) in stories(text) {
            println!("# {heading}");
            let server = setup().start();
            let mut session = Session::of(&server, 0);
            session.steps(opening);
            rows.iter().for_each(|row| session.row(row));
        }
    }

    fn row(&mut self, row: &Row<'_>) {
        assert_eq!(row.told.len(), 1, "only replies are told here: {}", row.request);
        self.step(row.request, row.told[0]);
    }

    /// Gives new fences the names of those before, which they are to be above all the same.
    pub fn forget_fences(&mut self) {
        self.fences.clear();
    }

    /// Takes these rows.
    #[track_caller]
    pub fn steps(&mut self, rows: &str) {
        for line in rows.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let row = row(line);
            self.step(row.request, row.told[0]);
        }
    }

    /// Sends a request and checks its reply.
    #[track_caller]
    pub fn step(&mut self, request: &str, reply: &str) {
        println!("{request} -> {reply}");
        if let Some(millis) = request.strip_suffix(" ms pass") {
            let mut observer = self.server.client();
            let begun = observer.now();
            observer.wait_until_past(begun + millis.parse::<i64>().unwrap() - 1);
            return;
        }
        let is_name =
            |name: &str| name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9'));
        let named = request.split_once(':').filter(|(name, _)| is_name(name));
        let (name, commands) = named.map_or(("", request), |(name, rest)| (name, rest.trim()));
        match (commands, reply) {
            ("leaves", "") => {
                let mut leaving = self.connections.remove(name).expect("it has sent something");
                assert_all_is_told(self.server, name, &mut leaving);
            }
            (_, "") => panic!("no reply is told of {request}"),
            ("", "closed") => self.connection(name).client.assert_closed(),
            ("", "waits") => {
                let id = self.connection(name).id;
                assert!(is_parked(&mut self.server.client(), id), "it waits no longer");
            }
            (_, "waits") => {
                let packet = self.packet(commands);
                let waiter = self.connection(name);
                waiter.client.send_bytes(&packet);
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
        let mut replies: Vec<_> = reply.split("; ").collect();
        let seen = match commands.strip_prefix("MULTI: ") {
            Some(commands) => self.transact(name, commands),
            None => {
                let packet = self.packet(commands);
                let sent = commands.split("; ").filter(|command| !command.is_empty()).count();
                let client = &mut self.connection(name).client;
                client.send_bytes(&packet);
                if reply == "…" {
                    replies.resize(sent.max(1), "…");
                }
                let is_silent = commands.contains("CLIENT REPLY");
                assert!(is_silent || replies.len() >= sent, "{commands}: a reply to each");
                replies.iter().map(|_| client.receive()).collect()
            }
        };
        if reply == "…" {
            replies.resize(seen.len(), "…");
        }
        let is_right = seen.len() == replies.len()
            && seen.iter().zip(replies).all(|(seen, reply)| self.check(seen, reply).is_ok());
        let shown = || seen.iter().map(shown).collect::<Vec<_>>().join("; ");
        if is_right { Ok(()) } else { Err(shown()) }
    }

    /// The replies of a transaction, or what is said in place of them.
    fn transact(&mut self, name: &str, commands: &str) -> Vec<Value> {
        let packet = self.packet(&format!("MULTI; {commands}; EXEC"));
        let client = &mut self.connection(name).client;
        client.send_bytes(&packet);
        (0..=commands.split("; ").count()).for_each(|_| drop(client.receive()));
        match client.receive() {
            Value::Array(replies) => replies,
            other => vec![other],
        }
    }

    fn check(&mut self, seen: &Value, reply: &str) -> Result<(), String> {
        let text = shown(seen);
        let is_right = match (seen, reply) {
            (Value::ServerError(_), "…") => false,
            (_, "…") => true,
            (Value::ServerError(told), _) if !reply.contains([' ', '…']) => {
                reply.strip_prefix('-') == Some(told.code())
            }
            (&Value::Int(fence), _) if is_fence(reply) => self.is_known(reply, fence),
            (Value::Int(number), _) if range(reply).is_some() => {
                range(reply).is_some_and(|range| range.contains(number))
            }
            _ => match (reply.strip_prefix('…'), reply.strip_suffix('…')) {
                (Some(part), _) => has(&text, part),
                (_, Some(start)) => self.behind(start, &text).is_some(),
                _ => self.is_like(reply, &text),
            },
        };
        if is_right { Ok(()) } else { Err(text) }
    }

    /// Whether this is the fence of that name. A new one is above all before it.
    fn is_known(&mut self, name: &str, fence: i64) -> bool {
        if let Some(known) = self.fences.get(name) {
            return *known == fence;
        }
        let is_next = fence > self.highest && FENCES.contains(&fence);
        if is_next {
            self.fences.insert(name.to_owned(), fence);
            self.highest = fence;
        }
        is_next
    }

    /// Whether a text is what a story tells, in which `{A}` is the number of a fence.
    pub fn is_like(&mut self, told: &str, text: &str) -> bool {
        self.behind(told, text) == Some("")
    }

    /// The rest of a text that begins with what a story tells.
    fn behind<'t>(&mut self, told: &str, text: &'t str) -> Option<&'t str> {
        let mut rest = text;
        for (number, part) in told.split(['{', '}']).enumerate() {
            rest = if number % 2 == 0 {
                rest.strip_prefix(part)?
            } else {
                let end = rest.find(|next: char| !next.is_ascii_digit()).unwrap_or(rest.len());
                let (digits, behind) = rest.split_at(end);
                self.is_known(part, digits.parse().ok()?).then_some(behind)?
            };
        }
        Some(rest)
    }

    /// The commands in the wire format.
    fn packet(&mut self, commands: &str) -> Vec<u8> {
        let commands = commands.split("; ").filter(|command| !command.is_empty());
        commands.flat_map(|command| encoded(self.words(command))).collect()
    }

    /// The words of a command. One in quotes may have spaces, and lines, which end with `\n`.
    fn words(&mut self, command: &str) -> Vec<Vec<u8>> {
        let (mut words, mut is_quoted) = (Vec::new(), false);
        for part in command.split('"') {
            if is_quoted {
                words.push(part.replace("\\n", "\n").into_bytes());
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
            Some(fence) => (fence + offset.parse::<i64>().unwrap()).to_string(),
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

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            for (name, open) in &mut self.connections {
                assert_all_is_told(self.server, name, open);
            }
        }
    }
}

/// Asserts that a connection was sent no more than the story told so far.
#[track_caller]
fn assert_all_is_told(server: &Server, name: &str, open: &mut Waiter) {
    // The server sends what came of earlier requests before it reads the second of these.
    let mut observer = server.client();
    (0..2).for_each(|_| drop(observer.cmd("PING")));
    open.client.set_deadline(Duration::from_millis(1));
    if let Ok(more) = open.client.try_receive() {
        panic!("{name}: is sent {}, which is not told", shown(&more));
    }
}

/// Whether a text has this part. A number at its end is a whole one.
fn has(text: &str, part: &str) -> bool {
    let is_digit = |letter: char| letter.is_ascii_digit();
    text.match_indices(part)
        .any(|(at, _)| !part.ends_with(is_digit) || !text[at + part.len()..].starts_with(is_digit))
}

/// A capital letter, and digits behind it.
fn is_fence(word: &str) -> bool {
    let digits = word.strip_prefix(|first: char| first.is_ascii_uppercase());
    digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// `1..500`, both included.
fn range(word: &str) -> Option<RangeInclusive<i64>> {
    let (least, most) = word.split_once("..")?;
    Some(least.parse().ok()?..=most.parse().ok()?)
}

fn shown(reply: &Value) -> String {
    match reply {
        Value::Int(number) => number.to_string(),
        Value::Nil => "nil".to_owned(),
        Value::Okay => "OK".to_owned(),
        Value::ServerError(told) => {
            format!("-{} {}", told.code(), told.details().unwrap_or_default())
        }
        Value::Push { kind, data } => {
            let words: Vec<_> = data.iter().map(item).collect();
            format!(">{kind} {}", words.join(" "))
        }
        Value::Array(items) | Value::Set(items) => {
            let words: Vec<_> = items.iter().map(item).collect();
            match items[..] {
                [] => "(empty)".to_owned(),
                // A list of one number is not a number.
                [Value::Int(_) | Value::Nil | Value::Okay] => format!("[{}]", words[0]),
                _ => words.join(" "),
            }
        }
        Value::BulkString(_) | Value::VerbatimString { .. } => quoted(bulk_text(reply)),
        Value::SimpleString(text) => quoted(text.clone()),
        other => format!("{other:?}"),
    }
}

/// In quotes if it looks like a reply of another type.
fn quoted(text: String) -> String {
    let others = ["", "nil", "OK", "(empty)"];
    let is_like_another = others.contains(&&*text) || text.starts_with(['-', '"']);
    if is_like_another || text.parse::<i64>().is_ok() { format!("\"{text}\"") } else { text }
}

fn item(item: &Value) -> String {
    let field = |name| field(item, name).map(shown);
    match item {
        Value::Array(fields) if matches!(fields[..], [Value::BulkString(_), _, ..]) => {
            match (field("event"), field("kind"), field("owner")) {
                (Some(kind), _, Some(owner)) => format!("{kind}({owner})"),
                (_, Some(kind), Some(owner)) if kind != "block" => format!("{kind}({owner})"),
                (_, _, Some(owner)) => owner,
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
    use std::panic::catch_unwind;

    fn play(text: &str) {
        Session::play(&Server::builder().without_module().start(), text);
    }

    #[test]
    fn a_fence_is_known_by_its_letter_and_its_number() {
        play(
            "
            # on two connections
            SET n 1000000000000005; INCR n; INCR n -> OK; A; B
            bob: SET n A-1; INCR n; SET k {A}:x -> OK; A; OK
            GET k; GET n; EXISTS gone; LRANGE gone 0 -1 -> {A}:x; \"{A}\"; 0; (empty)
            MULTI: GET k; STRLEN k -> …:x; 1..18
            bob: BLPOP list 0 -> waits
            RPUSH list x; INCR k -> 1; -ERR
            bob: -> list x
            bob: leaves
            1 ms pass
            ",
        );
    }

    #[test]
    fn a_story_that_is_not_so_fails_its_test() {
        let set = "SET n 1000000000000005; INCR n -> OK";
        let lower = format!("{set}; A\n{set}; B");
        for (what, story, told) in [
            ("another reply", "INCR n -> 2", "is answered \"1\", not \"2\""),
            ("a text", "SET n 5 -> OK\nGET n -> 5", "is answered \"\\\"5\\\"\", not \"5\""),
            ("a list", "EVAL \"return {1}\" 0 -> 1", "is answered \"[1]\", not \"1\""),
            ("an error is not whatever", "SET n x -> OK\nINCR n -> …", "is answered \"-ERR value"),
            (
                "a number is not the beginning of another",
                "ECHO \"share 5\" -> …share 5\nECHO \"share 50\" -> …share 5",
                "is answered \"share 50\", not \"…share 5\"",
            ),
            (
                "a push message is no list",
                "HELLO 3 -> …\nSUBSCRIBE channel -> subscribe channel 1",
                "is answered \">subscribe channel 1\", not \"subscribe channel 1\"",
            ),
            ("a fence that is not above those before", &lower, "not \"OK; B\""),
            ("nothing", "PING ->", "no reply is told of PING"),
            (
                "less than a connection is sent until it leaves",
                "bob: BLPOP list 0 -> waits\nRPUSH list x -> 1\nbob: leaves",
                "bob: is sent list x, which is not told",
            ),
            (
                "less than a connection is sent until the end",
                "SUBSCRIBE one two -> subscribe one 1",
                ": is sent subscribe two 2, which is not told",
            ),
        ] {
            let failure = catch_unwind(|| play(&format!("# {what}\n{story}"))).expect_err(what);
            let failure = failure.downcast_ref::<String>().expect("a text");
            assert!(failure.contains(told), "{what}: {failure}");
        }
    }
}
