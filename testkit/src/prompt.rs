//! redis-cli or valkey-cli at a terminal: what a person sees while typing.

use super::cli;
use super::server::Server;
use super::terminal::Terminal;
use std::process::Command;

/// The first version that asks the server about its commands.
const ASKS_SINCE: (u32, u32) = (7, 0);

const CONTROL_U: &str = "\x15";

pub struct Prompt {
    terminal: Terminal,
}

impl Server {
    /// The prompt of redis-cli or valkey-cli, connected to this server. `None`, with a line that
    /// says so, if there is no such program.
    pub fn prompt(&self) -> Option<Prompt> {
        let mut client = Command::new(cli::find(ASKS_SINCE)?);
        client
            .arg("-s")
            .arg(self.socket())
            .envs([("TERM", "xterm"), ("REDISCLI_HISTFILE", "/dev/null")])
            .envs([("REDISCLI_RCFILE", "/dev/null"), ("VALKEYCLI_HISTFILE", "/dev/null")]);
        let mut prompt = Prompt { terminal: Terminal::run(client) };
        // The program drops text that is typed before the prompt.
        prompt.terminal.shows("> ");
        Some(prompt)
    }
}

impl Prompt {
    pub fn types(&mut self, text: &str) {
        self.terminal.types(text);
    }

    /// Waits until this text follows the prompt, typed or as a hint.
    pub fn shows(&mut self, text: &str) {
        let whole = format!("> {text}");
        self.terminal.until(text, |seen| end_of_first_line(seen, |line| line.ends_with(&whole)));
    }

    /// Deletes the typed text.
    pub fn clears(&mut self) {
        self.types(CONTROL_U);
    }
}

/// The end of the first matching line. The line is redrawn after each key. It is complete when the
/// cursor returns to its start.
fn end_of_first_line(seen: &str, is_it: impl Fn(&str) -> bool) -> Option<usize> {
    let mut start = 0;
    seen.match_indices('\r').find_map(|(end, _)| {
        let line = without_colours(&seen[start..end]);
        start = end;
        is_it(&line).then_some(end)
    })
}

/// The line without the sequences that move the cursor and change colours: ESC, `[`, up to a
/// letter.
fn without_colours(line: &str) -> String {
    let mut parts = line.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let rest = part.find(|c: char| c.is_ascii_alphabetic()).map_or("", |end| &part[end + 1..]);
        text + rest
    })
}
