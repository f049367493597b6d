//! Sessions in the docs, run as they stand.
//!
//! ```text
//! $ redis-cli -3                             first line, optional: the connections speak RESP3
//! alice> LOCK.ACQUIRE printer alice 30000    each word before > is a connection of its own
//! (integer) 1795233601234567                 what follows is the reply, as redis-cli shows it
//! alice(TX)> SET page 17                     the same connection, between MULTI and EXEC
//! QUEUED
//! # when the lease of printer has run out    ends that lease before the session goes on
//! ```
//!
//! Each block has a server of its own. A block without a prompt is no transcript, and may then not
//! look like one either.

use super::comparison::Dictionary;
use super::markdown::Block;
use super::terminal;
use crate::support::{Client, Server, eventually};
use redis::Value;
use std::collections::HashMap;

const RESP3: &str = "$ redis-cli -3";

pub(super) struct Transcript<'p> {
    resp3: bool,
    steps: Vec<Step<'p>>,
}

struct Step<'p> {
    /// `README.md:17`
    place: String,
    action: Action<'p>,
    reply: Vec<&'p str>,
}

enum Action<'p> {
    Send { connection: &'p str, line: &'p str },
    LetTheLeaseRunOut { key: &'p str },
}

impl<'p> Transcript<'p> {
    /// `None` for a block that is something else.
    pub(super) fn parse(block: &Block<'p>) -> Result<Option<Self>, String> {
        let resp3 = block.lines.first() == Some(&RESP3);
        let mut steps: Vec<Step<'p>> = Vec::new();
        for (number, &line) in (block.first_line..).zip(&block.lines).skip(usize::from(resp3)) {
            let place = format!("{}:{number}", block.page);
            if let Some(action) = action(line) {
                steps.push(Step { place, action, reply: vec![] });
            } else if let Some(step) = steps.last_mut() {
                step.reply.push(line);
            } else if ["(integer)", "(nil)", "(error)"].iter().any(|mark| line.starts_with(mark)) {
                return Err(format!("{place}: a reply without a prompt before it"));
            }
        }
        let sends = |step: &Step<'_>| matches!(step.action, Action::Send { .. });
        Ok(steps.iter().any(sends).then_some(Self { resp3, steps }))
    }

    /// Runs to the first thing that differs from the page.
    pub(super) fn run(&self, server: &Server) -> Result<(), String> {
        let mut connections = HashMap::new();
        let mut dictionary = Dictionary::default();
        for step in &self.steps {
            let complaint = match step.action {
                Action::Send { connection, line } => {
                    let client = connections.entry(connection).or_insert_with(|| {
                        if self.resp3 { server.client_resp3() } else { server.client() }
                    });
                    send(client, line, &step.reply, &mut dictionary)
                }
                Action::LetTheLeaseRunOut { key } => {
                    let_the_lease_run_out(&mut server.client(), key)
                }
            };
            complaint.map_err(|complaint| format!("{}: {complaint}", step.place))?;
        }
        match dictionary.disorder() {
            None => Ok(()),
            Some(disorder) => Err(format!("{}: {disorder}", self.steps[0].place)),
        }
    }
}

fn action(line: &str) -> Option<Action<'_>> {
    if let Some(key) =
        line.strip_prefix("# when the lease of ").and_then(|rest| rest.strip_suffix(" has run out"))
    {
        return Some(Action::LetTheLeaseRunOut { key });
    }
    let (prompt, line) = line.split_once("> ")?;
    let connection = prompt.strip_suffix("(TX)").unwrap_or(prompt);
    let is_word = !connection.is_empty() && connection.chars().all(|c| c.is_ascii_lowercase());
    is_word.then_some(Action::Send { connection, line })
}

fn send(
    client: &mut Client,
    line: &str,
    documented: &[&str],
    dictionary: &mut Dictionary,
) -> Result<(), String> {
    let words = terminal::words(line);
    let is_lease = words[0].eq_ignore_ascii_case(b"PTTL");
    let translated =
        words.iter().map(|word| dictionary.translate(&String::from_utf8_lossy(word)).into_bytes());
    let live = terminal::shown(&client.cmd(translated.collect::<Vec<_>>()));
    let documented = documented.join("\n");
    let documented = documented.trim_end();
    if dictionary.accepts(documented, &live, is_lease) {
        Ok(())
    } else {
        Err(format!("{line}\nthe page:   {documented}\nthe server: {live}"))
    }
}

/// Brings the end of the lease near instead of waiting for it. It then runs out as any lease does.
fn let_the_lease_run_out(client: &mut Client, key: &str) -> Result<(), String> {
    if client.cmd(["PEXPIRE", key, "1"]) != Value::Int(1) {
        return Err(format!("{key} has no lease to run out"));
    }
    eventually("the lease runs out", || match client.cmd(["LOCK.INFO", key]) {
        Value::Nil => Ok(()),
        held => Err(held),
    });
    Ok(())
}
