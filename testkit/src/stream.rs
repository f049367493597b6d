//! The replication stream of a server, read as a replica reads it, byte for byte.
//!
//! To the server it is a replica: it was sent a snapshot, and then is sent every command that is replicated.

use super::Server;
use super::eventually::eventually;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Longer than any server takes to send a snapshot of next to nothing.
const DEADLINE: Duration = Duration::from_secs(20);

/// Longer than the module waits before it says something by itself.
const LATEST_MILLIS: i64 = 300;

const BARRIER: &str = "barrier";

/// A connection that hears what replicas are told.
pub struct Stream {
    reader: BufReader<UnixStream>,
}

impl Stream {
    /// Joins as a replica, and waits until the server has it among its replicas.
    pub fn of(server: &Server) -> Self {
        let mut client = server.client();
        client.cmd("CONFIG SET repl-ping-replica-period 3600");
        let before = online(server);
        let mut socket = UnixStream::connect(server.socket()).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        socket.write_all(b"SYNC\r\n").unwrap();
        let mut stream = Self { reader: BufReader::new(socket) };
        stream.skip_snapshot();
        eventually("the stream is that of a replica", || match online(server) {
            now if now > before => Ok(()),
            now => Err(now),
        });
        stream
    }

    /// What the server replicates until the module, too, has had time to say something, with `barrier`, a key of
    /// a slot of its own, as the last.
    pub fn commands_up_to(&mut self, server: &Server, barrier: &str) -> Vec<String> {
        let mut client = server.client();
        let begun = client.now();
        eventually("the module has had its time", || match client.now() - begun {
            passed if passed > LATEST_MILLIS => Ok(()),
            passed => Err(passed),
        });
        client.cmd(["SET", barrier, "reached"]);
        let last = format!("SET {barrier} reached");
        let mut commands = Vec::new();
        loop {
            match self.command() {
                command if command == last => return commands,
                // Valkey says PING to a replica that has just joined.
                command if is_of_the_link(&command) => {}
                command => commands.push(command),
            }
        }
    }

    /// The same of a server that has all slots.
    pub fn commands(&mut self, server: &Server) -> Vec<String> {
        self.commands_up_to(server, BARRIER)
    }

    fn skip_snapshot(&mut self) {
        // Empty lines say that the server is still at it.
        let length = loop {
            let line = self.line();
            if let Some(digits) = line.strip_prefix('$') {
                break digits.parse().unwrap_or_else(|_| panic!("a snapshot of {digits}"));
            }
            assert_eq!(line, "", "instead of a snapshot");
        };
        let mut snapshot = vec![0; length];
        self.reader.read_exact(&mut snapshot).unwrap();
    }

    fn command(&mut self) -> String {
        let count = loop {
            let line = self.line();
            if let Some(digits) = line.strip_prefix('*') {
                break digits.parse().unwrap();
            }
            assert_eq!(line, "", "instead of a command");
        };
        let words: Vec<_> = (0..count).map(|_: usize| self.word()).collect();
        words.join(" ")
    }

    fn word(&mut self) -> String {
        let line = self.line();
        let length: usize = line.strip_prefix('$').unwrap().parse().unwrap();
        let mut word = vec![0; length + 2];
        self.reader.read_exact(&mut word).unwrap();
        word[..length].escape_ascii().to_string()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let length = self.reader.read_line(&mut line).unwrap();
        assert_ne!(length, 0, "the server ended the stream");
        line.trim_end().to_owned()
    }
}

fn is_of_the_link(command: &str) -> bool {
    let name = command.split(' ').next().unwrap_or_default();
    ["SELECT", "PING"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// How many replicas are sent commands.
fn online(server: &Server) -> usize {
    let text = server.client().info_text("replication");
    text.lines().filter(|line| line.starts_with("slave") && line.contains("state=online")).count()
}
