//! The replication stream of a server, read byte for byte, as a replica reads it.
//!
//! A client cannot parse a snapshot or a command, because neither is a reply. To the server this
//! connection is a replica: the server sends a snapshot, and then every replicated command.

use super::Server;
use super::command_reader::{line, next_command, number};
use super::eventually::eventually;
use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Longer than a server takes to send a small snapshot.
const DEADLINE: Duration = Duration::from_secs(20);

/// Longer than the module waits before a broadcast.
const LATEST_MILLIS: i64 = 300;

const BARRIER: &str = "barrier";

/// A connection that receives what replicas receive.
pub struct ReplicationStream {
    reader: BufReader<UnixStream>,
}

impl ReplicationStream {
    /// Joins as a replica, and waits until the server lists this connection as one.
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

    /// What the server replicates until the module has had time for a broadcast. A write to
    /// `barrier`, a key in a slot of its own, marks the end.
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
                // Valkey sends PING to a replica that has just joined.
                command if is_of_the_link(&command) => {}
                command => commands.push(command),
            }
        }
    }

    /// Like `commands_up_to`, for a server that has all slots.
    pub fn commands(&mut self, server: &Server) -> Vec<String> {
        self.commands_up_to(server, BARRIER)
    }

    fn skip_snapshot(&mut self) {
        // The server sends empty lines while it prepares the snapshot.
        let length = loop {
            match line(&mut self.reader).expect("a snapshot") {
                empty if empty.is_empty() => {}
                line => break number(&line, '$'),
            }
        };
        self.reader.read_exact(&mut vec![0; length]).unwrap();
    }

    fn command(&mut self) -> String {
        let words = next_command(&mut self.reader).expect("the server ended the stream");
        let words: Vec<_> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
        words.join(" ")
    }
}

fn is_of_the_link(command: &str) -> bool {
    let name = command.split(' ').next().unwrap_or_default();
    ["SELECT", "PING"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// The number of replicas that receive commands.
fn online(server: &Server) -> usize {
    let text = server.client().info_text("replication");
    text.lines().filter(|line| line.starts_with("slave") && line.contains("state=online")).count()
}
