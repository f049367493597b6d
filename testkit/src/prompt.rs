//! redis-cli or valkey-cli at a terminal: what a person sees while typing.

use super::cli;
use super::server::Server;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Child, Command};
use std::ptr::null_mut;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use super::eventually::PATIENCE;

/// The first version that asks the server about its commands.
const ASKS_SINCE: (u32, u32) = (7, 0);

const CONTROL_U: &str = "\x15";

pub struct Prompt {
    process: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    seen: String,
}

impl Server {
    /// The prompt of a client that is connected to this server. `None`, with a line that says so,
    /// if there is no such client.
    pub fn prompt(&self) -> Option<Prompt> {
        let client = cli::find(ASKS_SINCE)?;
        let (ours, theirs) = terminal();
        let process = Command::new(client)
            .arg("-s")
            .arg(self.socket())
            .envs([("TERM", "xterm"), ("REDISCLI_HISTFILE", "/dev/null")])
            .envs([("REDISCLI_RCFILE", "/dev/null"), ("VALKEYCLI_HISTFILE", "/dev/null")])
            .stdin(theirs.try_clone().unwrap())
            .stdout(theirs.try_clone().unwrap())
            .stderr(theirs)
            .spawn()
            .unwrap();
        let (tell, screen) = mpsc::channel();
        let mut output = ours.try_clone().unwrap();
        // Not joined, because it ends with the terminal.
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = output.read(&mut bytes) {
                if tell.send(bytes[..len].to_vec()).is_err() {
                    return;
                }
            }
        });
        let mut prompt = Prompt { process, keyboard: ours, screen, seen: String::new() };
        // Text that is typed before the prompt is lost.
        prompt.until("the prompt", |seen| seen.find("> "));
        Some(prompt)
    }
}

impl Prompt {
    pub fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until this text is behind the prompt, typed or not.
    pub fn shows(&mut self, text: &str) {
        let whole = format!("> {text}");
        self.until(text, |seen| end_of_first_line(seen, |line| line.ends_with(&whole)));
    }

    /// Deletes what was typed.
    pub fn clears(&mut self) {
        self.types(CONTROL_U);
    }

    /// Reads until `end` finds the end of what is waited for.
    fn until(&mut self, what: &str, end: impl Fn(&str) -> Option<usize>) {
        loop {
            if let Some(end) = end(&self.seen) {
                self.seen.drain(..end);
                return;
            }
            let more = self.screen.recv_timeout(PATIENCE);
            let more =
                more.unwrap_or_else(|_| panic!("never shown: {what}; seen: {:?}", self.seen));
            self.seen.push_str(&String::from_utf8_lossy(&more));
        }
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The end of the first such line. The line is written anew after each key, and counts when the
/// cursor is moved back over it.
fn end_of_first_line(seen: &str, is_it: impl Fn(&str) -> bool) -> Option<usize> {
    let mut start = 0;
    seen.match_indices('\r').find_map(|(end, _)| {
        let line = without_colours(&seen[start..end]);
        start = end;
        is_it(&line).then_some(end)
    })
}

/// The line without what moves the cursor and changes colours: ESC, `[`, and on to a letter.
fn without_colours(line: &str) -> String {
    let mut parts = line.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let rest = part.find(|c: char| c.is_ascii_alphabetic()).map_or("", |end| &part[end + 1..]);
        text + rest
    })
}

/// Both ends of a terminal wide enough for every hint.
fn terminal() -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (-1, -1);
    let size = libc::winsize { ws_row: 24, ws_col: 250, ws_xpixel: 0, ws_ypixel: 0 };
    unsafe {
        let outcome = libc::openpty(
            &raw mut ours,
            &raw mut theirs,
            null_mut(),
            null_mut(),
            (&raw const size).cast_mut(),
        );
        assert_eq!(outcome, 0, "no terminal: {}", std::io::Error::last_os_error());
        (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
    }
}
