//! The run of one transcript on a server: its connections, and what they are told.
//!
//! A command that waits runs in a thread, so that the session goes on. Whether it waits is asked of the
//! server: `LOCK.WAITERS` lists the connection from the line that says `(waiting)` to the line with the
//! reply, whenever another line is about to be run. Nothing here sleeps to be right.

use super::comparison::Dictionary;
use super::terminal;
use redis::{RedisResult, Value};
use std::collections::HashMap;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use testkit::{Client, Server, Words, eventually, field, int};

/// What redis-cli says then.
const CLOSED: &str = "Error: Server closed the connection";

pub(super) struct Session<'t> {
    server: &'t Server,
    resp3: bool,
    connections: HashMap<&'t str, Connection>,
    dictionary: Dictionary,
}

/// A connection of the page.
struct Connection {
    id: Value,
    state: State,
}

enum State {
    /// Ready for a command.
    Idle(Client),
    Waiting(Waiting),
    /// The server has closed it.
    Gone,
}

/// A command on its way.
struct Waiting {
    line: String,
    /// The lock it waits for.
    key: Vec<u8>,
    answer: Receiver<(Client, RedisResult<Value>)>,
}

impl<'t> Session<'t> {
    pub(super) fn new(server: &'t Server, resp3: bool) -> Self {
        Self { server, resp3, connections: HashMap::new(), dictionary: Dictionary::default() }
    }

    /// Sends a command, and compares the reply.
    pub(super) fn send(
        &mut self,
        name: &'t str,
        line: &str,
        documented: &str,
    ) -> Result<(), String> {
        let words = self.translated(line);
        let mut client = self.take_idle(name);
        let answer = client.try_cmd(words);
        self.put(name, client, &answer);
        self.compare(line, documented, &answer)
    }

    /// Sends a command that has to wait, and sees that it does.
    pub(super) fn send_and_wait(&mut self, name: &'t str, line: &str) -> Result<(), String> {
        let words = self.translated(line);
        let key = words.get(1).cloned().ok_or("a command without a key cannot wait")?;
        let mut client = self.take_idle(name);
        let (tell, answer) = mpsc::channel();
        // Not joined: it ends when its reply comes, at the latest with the server.
        thread::spawn(move || {
            let reply = client.try_cmd(words);
            // Nobody listens any more when the transcript has ended.
            let _ = tell.send((client, reply));
        });
        let waiting = Waiting { line: line.to_owned(), key, answer };
        let mut observer = self.server.client();
        let connection = self.connections.get_mut(name).unwrap();
        let outcome = eventually(&format!("{line}: it waits"), || {
            if waiting.is_queued(&connection.id, &mut observer) {
                Ok(Ok(()))
            } else if let Ok((_, answer)) = waiting.answer.try_recv() {
                Ok(Err(difference(line, "(waiting)", &shown(&answer))))
            } else {
                Err(())
            }
        });
        connection.state = State::Waiting(waiting);
        outcome
    }

    /// Compares the reply for which a connection has waited.
    pub(super) fn hear(&mut self, name: &'t str, documented: &str) -> Result<(), String> {
        let connection = self.connections.get_mut(name).unwrap();
        let State::Waiting(waiting) = std::mem::replace(&mut connection.state, State::Gone) else {
            panic!("{name} waits for nothing, which the parser should have seen")
        };
        let (client, answer) = waiting.answer.recv().expect("the thread sends what comes");
        self.put(name, client, &answer);
        self.compare(&waiting.line, documented, &answer)
    }

    /// Whoever waits on the page waits on the server.
    pub(super) fn all_still_wait(&self) -> Result<(), String> {
        let mut observer = self.server.client();
        let gone = self.connections.iter().find(|(_, connection)| match &connection.state {
            State::Waiting(waiting) => !waiting.is_queued(&connection.id, &mut observer),
            State::Idle(_) | State::Gone => false,
        });
        gone.map_or(Ok(()), |(name, _)| {
            Err(format!("before this line {name} was answered, and the page has no \"{name}<\""))
        })
    }

    /// Brings the end of the lease near instead of waiting for it. It then runs out as any lease does.
    pub(super) fn let_the_lease_run_out(&self, key: &str) -> Result<(), String> {
        let mut client = self.server.client();
        let grant = |client: &mut Client| client.info(key).map(|info| (info.owner, info.fence));
        let before = grant(&mut client);
        if client.cmd(["PEXPIRE", key, "1"]) != int(1) {
            return Err(format!("{key} has no lease to run out"));
        }
        eventually("the lease runs out", || match grant(&mut client) {
            same if same == before => Err(same),
            // Free, or the next one's.
            _ => Ok(()),
        });
        Ok(())
    }

    /// Documented numbers that were in the wrong order.
    pub(super) fn disorder(&self) -> Option<String> {
        self.dictionary.disorder()
    }

    fn take_idle(&mut self, name: &'t str) -> Client {
        let connection = self.connections.entry(name).or_insert_with(|| {
            let mut client =
                if self.resp3 { self.server.client_resp3() } else { self.server.client() };
            Connection { id: client.cmd("CLIENT ID"), state: State::Idle(client) }
        });
        match std::mem::replace(&mut connection.state, State::Gone) {
            State::Idle(client) => client,
            State::Waiting(_) => panic!("{name} waits, which the parser should have seen"),
            State::Gone => panic!("the server has closed the connection of {name}"),
        }
    }

    /// A connection that was lost is not used again.
    fn put(&mut self, name: &'t str, client: Client, answer: &RedisResult<Value>) {
        if answer.is_ok() {
            self.connections.get_mut(name).unwrap().state = State::Idle(client);
        }
    }

    fn translated(&self, line: &str) -> Vec<Vec<u8>> {
        let words = terminal::words(line);
        let translate =
            |word: Vec<u8>| self.dictionary.translate(&String::from_utf8_lossy(&word)).into_bytes();
        words.into_iter().map(translate).collect()
    }

    fn compare(
        &mut self,
        line: &str,
        documented: &str,
        answer: &RedisResult<Value>,
    ) -> Result<(), String> {
        let is_lease = line.words()[0].eq_ignore_ascii_case(b"PTTL");
        let live = shown(answer);
        if self.dictionary.accepts(documented, &live, is_lease) {
            Ok(())
        } else {
            Err(difference(line, documented, &live))
        }
    }
}

impl Waiting {
    fn is_queued(&self, id: &Value, observer: &mut Client) -> bool {
        match observer.cmd([b"LOCK.WAITERS", self.key.as_slice()]) {
            Value::Array(queue) => queue.iter().any(|row| field(row, "client") == Some(id)),
            _ => false,
        }
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

fn difference(line: &str, documented: &str, live: &str) -> String {
    format!("{line}\nthe page:   {documented}\nthe server: {live}")
}
