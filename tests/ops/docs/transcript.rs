//! Sessions in the docs, run as they stand.
//!
//! ```text
//! $ redis-cli -3                             first line, optional: the connections speak RESP3
//! alice> LOCK.ACQUIRE printer alice 30000    each word before > is a connection of its own
//! (integer) 1795233601234567                 what follows is the reply, as redis-cli shows it
//! alice(TX)> SET page 17                     the same connection, between MULTI and EXEC
//! QUEUED
//! bob> LOCK.ACQUIRE printer bob 30000 BLOCK 0
//! (waiting)                                  bob is in the queue of the lock, and has no reply
//! # when the lease of printer has run out    ends that lease before the session goes on
//! bob< (integer) 1795233631500000            the reply comes; it may take more lines, indented alike
//! ```
//!
//! Between `(waiting)` and the reply a connection stays in the queue, or the page is wrong; at the end of a
//! transcript it may still be there. Each block has a server of its own. A block without a prompt is no
//! transcript, and may then not look like one either. Nothing here sleeps to be right.

use super::comparison::Dictionary;
use super::terminal;
use crate::page::Block;
use redis::{RedisResult, Value};
use std::collections::HashMap;
use testkit::{Client, Server, eventually, field, int};

const RESP3: &str = "$ redis-cli -3";
const WAITING: &str = "(waiting)";
/// What redis-cli says when it has lost its connection.
const CLOSED: &str = "Error: Server closed the connection";

struct Step<'p> {
    number: usize,
    action: Action<'p>,
    reply: Vec<&'p str>,
}

#[derive(Clone, Copy)]
enum Action<'p> {
    Send { connection: &'p str, line: &'p str },
    Hear { connection: &'p str },
    LetTheLeaseRunOut { key: &'p str },
}

/// Runs it to the first thing that differs from the page. `false` for a block that is something else.
pub(super) fn run(block: &Block<'_>) -> Result<bool, String> {
    let resp3 = block.lines.first() == Some(&RESP3);
    let place = |number: usize| format!("{}:{number}", block.page);
    let mut steps: Vec<Step<'_>> = Vec::new();
    for (number, &line) in (block.first_line..).zip(&block.lines).skip(usize::from(resp3)) {
        if let Some((action, reply)) = action(line) {
            steps.push(Step { number, action, reply: Vec::from_iter(reply) });
        } else if let Some(step) = steps.last_mut() {
            step.reply.push(line);
        } else if ["(integer)", "(nil)", "(error)"].iter().any(|mark| line.starts_with(mark)) {
            return Err(format!("{}: a reply without a prompt before it", place(number)));
        }
    }
    if !steps.iter().any(|step| matches!(step.action, Action::Send { .. })) {
        return Ok(false);
    }
    let server = Server::start();
    let mut session = Session {
        server: &server,
        resp3,
        connections: HashMap::new(),
        dictionary: Dictionary::default(),
    };
    for step in &steps {
        session.take(step).map_err(|complaint| format!("{}: {complaint}", place(step.number)))?;
    }
    let end = place(block.first_line + block.lines.len());
    session.all_still_wait().map_err(|complaint| format!("{end}: {complaint}"))?;
    let disorder = session.dictionary.disorder();
    disorder.map_or(Ok(true), |disorder| Err(format!("{}: {disorder}", place(block.first_line))))
}

/// A line that is no reply; with the first line of the reply if that stands in it.
fn action(line: &str) -> Option<(Action<'_>, Option<&str>)> {
    if let Some(key) =
        line.strip_prefix("# when the lease of ").and_then(|rest| rest.strip_suffix(" has run out"))
    {
        return Some((Action::LetTheLeaseRunOut { key }, None));
    }
    let is_word = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase());
    if let Some((connection, reply)) = line.split_once("< ").filter(|(name, _)| is_word(name)) {
        return Some((Action::Hear { connection }, Some(reply)));
    }
    let (prompt, line) = line.split_once("> ")?;
    let connection = prompt.strip_suffix("(TX)").unwrap_or(prompt);
    is_word(connection).then_some((Action::Send { connection, line }, None))
}

struct Session<'t> {
    server: &'t Server,
    resp3: bool,
    connections: HashMap<&'t str, Connection>,
    dictionary: Dictionary,
}

/// A connection of the page.
struct Connection {
    client: Client,
    id: Value,
    /// The command with which it waits.
    waits: Option<Vec<String>>,
}

impl Connection {
    /// Whether the queue of its lock has it.
    fn is_queued(&self, observer: &mut Client) -> bool {
        let key = self.waits.as_ref().and_then(|words| words.get(1));
        let Some(key) = key else { return false };
        match observer.cmd(["LOCK.WAITERS", key.as_str()]) {
            Value::Array(queue) => queue.iter().any(|row| field(row, "client") == Some(&self.id)),
            _ => false,
        }
    }
}

impl<'t> Session<'t> {
    fn take(&mut self, step: &Step<'t>) -> Result<(), String> {
        match step.action {
            Action::Send { connection, line } => {
                self.send(connection, line, step.reply.join("\n").trim_end())
            }
            Action::Hear { connection } => {
                let indent = " ".repeat(connection.len() + "< ".len());
                let line = |line: &&'t str| line.strip_prefix(&indent).unwrap_or(line);
                let lines: Vec<_> = step.reply.iter().map(line).collect();
                self.hear(connection, lines.join("\n").trim_end())
            }
            Action::LetTheLeaseRunOut { key } => {
                self.all_still_wait()?;
                self.let_the_lease_run_out(key)
            }
        }
    }

    fn send(&mut self, name: &'t str, line: &str, documented: &str) -> Result<(), String> {
        let connection = self.connections.entry(name).or_insert_with(|| {
            let mut client =
                if self.resp3 { self.server.client_resp3() } else { self.server.client() };
            Connection { id: client.cmd("CLIENT ID"), client, waits: None }
        });
        if connection.waits.is_some() {
            return Err(format!("{name} is still waiting"));
        }
        self.all_still_wait()?;
        let words = terminal::words(line);
        let words: Vec<_> = words.iter().map(|word| self.dictionary.translate(word)).collect();
        let connection = self.connections.get_mut(name).unwrap();
        connection.client.send(words.iter().cloned().map(String::into_bytes).collect::<Vec<_>>());
        connection.waits = Some(words);
        if documented == WAITING {
            let mut observer = self.server.client();
            let waits = eventually(&format!("{line}: it waits"), || {
                let is_queued = connection.is_queued(&mut observer);
                let is_answered = || connection.client.has_reply().unwrap_or(true);
                if is_queued || is_answered() { Ok(is_queued) } else { Err(()) }
            });
            if waits {
                return Ok(());
            }
        }
        self.hear(name, documented)
    }

    /// Compares the reply, for which the connection may have waited.
    fn hear(&mut self, name: &'t str, documented: &str) -> Result<(), String> {
        let connection = self.connections.get_mut(name).filter(|one| one.waits.is_some());
        let connection = connection.ok_or_else(|| format!("{name} is not waiting"))?;
        let words = connection.waits.take().unwrap();
        let live = shown(&connection.client.try_receive());
        let is_lease = words[0].eq_ignore_ascii_case("PTTL");
        if self.dictionary.accepts(documented, &live, is_lease) {
            return Ok(());
        }
        Err(format!("{}\nthe page:   {documented}\nthe server: {live}", words.join(" ")))
    }

    /// Whoever waits on the page waits on the server.
    fn all_still_wait(&self) -> Result<(), String> {
        let mut observer = self.server.client();
        let mut all = self.connections.iter();
        let gone = all.find(|(_, one)| one.waits.is_some() && !one.is_queued(&mut observer));
        gone.map_or(Ok(()), |(name, _)| {
            Err(format!("before this line {name} was answered, and the page has no \"{name}<\""))
        })
    }

    /// Brings the end of the lease near instead of waiting for it. It then runs out as any lease does.
    fn let_the_lease_run_out(&self, key: &str) -> Result<(), String> {
        let mut client = self.server.client();
        let grant = |client: &mut Client| client.info(key).map(|info| (info.owner, info.fence));
        let before = grant(&mut client);
        if client.cmd(["PEXPIRE", key, "1"]) != int(1) {
            return Err(format!("{key} has no lease to run out"));
        }
        // Then it is free, or the next one's.
        eventually("the lease runs out", || match grant(&mut client) {
            same if same == before => Err(same),
            _ => Ok(()),
        });
        Ok(())
    }
}

fn shown(answer: &RedisResult<Value>) -> String {
    match answer {
        Ok(reply) => terminal::shown(reply),
        Err(error) if error.is_timeout() => "no reply".to_owned(),
        Err(error) if error.is_connection_dropped() => CLOSED.to_owned(),
        Err(error) => panic!("a reply that cannot be read: {error}"),
    }
}

#[test]
fn a_page_that_is_wrong_about_waiting_is_found_out() {
    const HELD: &str = "alice> LOCK.ACQUIRE printer alice 30000\n(integer) 1795233601234567\n";
    const BOB: &str = "bob> LOCK.ACQUIRE printer bob 30000 BLOCK 0\n(waiting)\n";
    const FREE: &str = "alice> LOCK.RELEASE printer alice\n(integer) 1\n";
    const ANSWERED: &str = ": before this line bob was answered";
    for (parts, line, complaint) in [
        (&[BOB][..], 1, "(waiting)\nthe server: (integer)"),
        (&[HELD, BOB, FREE, "bob< (nil)"], 7, "(nil)\nthe server: (integer)"),
        (&[HELD, BOB, FREE, "alice> PING\nPONG\n", "bob< (integer) 1"], 7, ANSWERED),
        (&[HELD, BOB, FREE], 7, ANSWERED),
        (&[HELD, BOB, "bob> PING\nPONG"], 5, "bob is still waiting"),
        (&[HELD, "bob< (nil)"], 3, "bob is not waiting"),
    ] {
        let text = parts.concat();
        let lines = text.lines().collect();
        let block = Block { page: "page", first_line: 1, heading: "", language: "", lines };
        let told = run(&block).expect_err(&text);
        let begins = told.starts_with(&format!("page:{line}: "));
        assert!(begins && told.contains(complaint), "{parts:?}: {told}");
    }
}
