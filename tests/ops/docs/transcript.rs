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
//! transcript, and may then not look like one either.

use super::markdown::Block;
use super::session::Session;
use std::collections::HashSet;
use testkit::Server;

const RESP3: &str = "$ redis-cli -3";
const WAITING: &str = "(waiting)";

pub(super) struct Transcript<'p> {
    resp3: bool,
    steps: Vec<Step<'p>>,
    /// `README.md:23`, behind the last line.
    end: String,
}

struct Step<'p> {
    /// `README.md:17`
    place: String,
    action: Action<'p>,
    reply: Vec<&'p str>,
}

enum Action<'p> {
    Send { connection: &'p str, line: &'p str },
    Hear { connection: &'p str },
    LetTheLeaseRunOut { key: &'p str },
}

impl<'p> Transcript<'p> {
    /// `None` for a block that is something else.
    pub(super) fn parse(block: &Block<'p>) -> Result<Option<Self>, String> {
        let resp3 = block.lines.first() == Some(&RESP3);
        let place = |number: usize| format!("{}:{number}", block.page);
        let mut steps: Vec<Step<'p>> = Vec::new();
        for (number, &line) in (block.first_line..).zip(&block.lines).skip(usize::from(resp3)) {
            if let Some((action, reply)) = action(line) {
                steps.push(Step { place: place(number), action, reply: Vec::from_iter(reply) });
            } else if let Some(step) = steps.last_mut() {
                step.reply.push(line);
            } else if ["(integer)", "(nil)", "(error)"].iter().any(|mark| line.starts_with(mark)) {
                return Err(format!("{}: a reply without a prompt before it", place(number)));
            }
        }
        check_turns(&steps)?;
        let end = place(block.first_line + block.lines.len());
        let sends = |step: &Step<'_>| matches!(step.action, Action::Send { .. });
        Ok(steps.iter().any(sends).then_some(Self { resp3, steps, end }))
    }

    /// Runs to the first thing that differs from the page.
    pub(super) fn run(&self, server: &Server) -> Result<(), String> {
        let mut session = Session::new(server, self.resp3);
        for step in &self.steps {
            step.run(&mut session).map_err(|complaint| format!("{}: {complaint}", step.place))?;
        }
        let rest = session.all_still_wait();
        rest.map_err(|complaint| format!("{}: {complaint}", self.end))?;
        match session.disorder() {
            None => Ok(()),
            Some(disorder) => Err(format!("{}: {disorder}", self.steps[0].place)),
        }
    }
}

impl<'p> Step<'p> {
    fn run(&self, session: &mut Session<'p>) -> Result<(), String> {
        match self.action {
            Action::Hear { connection } => session.hear(connection, &self.reply()),
            Action::Send { connection, line } => {
                session.all_still_wait()?;
                if self.waits() {
                    session.send_and_wait(connection, line)
                } else {
                    session.send(connection, line, &self.reply())
                }
            }
            Action::LetTheLeaseRunOut { key } => {
                session.all_still_wait()?;
                session.let_the_lease_run_out(key)
            }
        }
    }

    fn waits(&self) -> bool {
        self.reply().trim_end() == WAITING
    }

    fn reply(&self) -> String {
        let indent = match self.action {
            Action::Hear { connection } => " ".repeat(connection.len() + "< ".len()),
            Action::Send { .. } | Action::LetTheLeaseRunOut { .. } => String::new(),
        };
        let line = |line: &&'p str| line.strip_prefix(&indent).unwrap_or(line);
        let lines: Vec<_> = self.reply.iter().map(line).collect();
        lines.join("\n").trim_end().to_owned()
    }
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

/// Who waits says nothing, and only who waits hears something.
fn check_turns(steps: &[Step<'_>]) -> Result<(), String> {
    let mut waiting = HashSet::new();
    for step in steps {
        let wrong = match step.action {
            Action::Send { connection, .. } if waiting.contains(connection) => {
                Some(format!("{connection} is still waiting"))
            }
            Action::Hear { connection } if !waiting.remove(connection) => {
                Some(format!("{connection} is not waiting"))
            }
            Action::Send { connection, .. } => {
                if step.waits() {
                    waiting.insert(connection);
                }
                None
            }
            Action::Hear { .. } | Action::LetTheLeaseRunOut { .. } => None,
        };
        if let Some(wrong) = wrong {
            return Err(format!("{}: {wrong}", step.place));
        }
    }
    Ok(())
}

/// What comes of a page with these lines.
fn outcome(lines: &str) -> Result<(), String> {
    let block = Block { page: "page", first_line: 1, lines: lines.lines().collect() };
    Transcript::parse(&block)?.expect("a transcript").run(&Server::start())
}

#[test]
fn a_page_with_waiting_and_all_in_order_is_accepted() {
    let page = r#"alice> LOCK.ACQUIRE printer alice 30000
(integer) 1795233601234567
bob> LOCK.ACQUIRE printer * 30000 BLOCK 0
(waiting)
carol> LOCK.ACQUIRE printer carol 30000 BLOCK 20000
(waiting)
# when the lease of printer has run out
bob< 1) "5d0c6f1e-8a36-4c38-9f0e-3b1a4f0f6a51"
     2) (integer) 1795233631500000
alice> LOCK.RELEASE printer 5d0c6f1e-8a36-4c38-9f0e-3b1a4f0f6a51 1795233631500000
(integer) 1
carol< (integer) 1795233640000000
bob> LOCK.ACQUIRE printer bob 30000 BLOCK 0
(waiting)"#;
    assert_eq!(outcome(page), Ok(()));
}

#[test]
fn a_page_that_is_wrong_about_waiting_is_found_out() {
    const HELD: &str = "alice> LOCK.ACQUIRE printer alice 30000\n(integer) 1795233601234567\n";
    const BOB: &str = "bob> LOCK.ACQUIRE printer bob 30000 BLOCK 0\n(waiting)\n";
    const CAROL: &str = "carol> LOCK.ACQUIRE printer carol 30000 BLOCK 200\n(waiting)\n";
    const FREE: &str = "alice> LOCK.RELEASE printer alice\n(integer) 1\n";
    let of = |parts: &[&str]| outcome(&parts.concat()).expect_err(&parts.concat());

    let at_once = of(&[BOB]);
    assert!(
        at_once.starts_with("page:1: ") && at_once.contains("(waiting)\nthe server: (integer)")
    );
    let other = of(&[HELD, BOB, FREE, "bob< (nil)"]);
    assert!(other.starts_with("page:7: ") && other.contains("(nil)\nthe server: (integer)"));
    // Not carol's turn: she gives up.
    let overtaken =
        of(&[HELD, BOB, CAROL, FREE, "bob< (integer) 1795233601234568\n", "carol< (integer) 1"]);
    assert!(overtaken.starts_with("page:10: ") && overtaken.contains("the server: (nil)"));
    let same_fence = of(&[HELD, BOB, FREE, "bob< (integer) 1795233601234567"]);
    assert!(same_fence.starts_with("page:7: "));
    let smaller = of(&[HELD, BOB, FREE, "bob< (integer) 1795233601234566"]);
    assert!(smaller.contains("1795233601234566 < 1795233601234567 on the page"));
    let late = of(&[HELD, BOB, FREE, "alice> PING\nPONG\n", "bob< (integer) 1795233601234568"]);
    assert!(late.starts_with("page:7: before this line bob was answered"), "{late}");
    let never = of(&[HELD, BOB, FREE]);
    assert!(never.starts_with("page:7: before this line bob was answered"), "{never}");
    assert_eq!(of(&[HELD, BOB, "bob> PING\nPONG"]), "page:5: bob is still waiting");
    assert_eq!(of(&[HELD, "bob< (nil)"]), "page:3: bob is not waiting");
}
