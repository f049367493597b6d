//! The connections of the probes: one can ask whether a reply has arrived without waiting for it.

use redis::Value;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use testkit::{Client, field};

/// The name that all of them give to the server (`CLIENT SETNAME`).
pub(crate) const PROBE_NAME: &str = "probe";

/// How many lock commands all of them have sent.
static ASKED: AtomicU64 = AtomicU64::new(0);

pub(crate) fn asked() -> u64 {
    ASKED.load(SeqCst)
}

/// A reply that takes longer never comes.
const REPLY_DEADLINE: Duration = Duration::from_secs(5);

/// The connection was lost, or the server cannot be asked just now.
pub(crate) struct Lost;

pub(crate) struct Connection {
    client: Client,
    /// The port that it was opened to.
    pub(crate) port: u16,
    /// Its `CLIENT ID`.
    pub(crate) id: i64,
}

impl Connection {
    /// Connects to a database of the server at this port.
    pub(crate) fn connect(port: u16, database: u32) -> Result<Self, Lost> {
        let mut client = Client::over_tcp(("127.0.0.1", port)).map_err(|_| Lost)?;
        client.set_deadline(REPLY_DEADLINE);
        let mut connection = Self { client, port, id: 0 };
        let name = format!("CLIENT SETNAME {PROBE_NAME}");
        let asked = [format!("SELECT {database}"), name, "CLIENT ID".to_owned()];
        let Some(Value::Int(id)) = connection.all(&asked)?.pop() else { return Err(Lost) };
        connection.id = id;
        Ok(connection)
    }

    /// Sends all commands in one write, as inline commands: words with spaces or quotes need quotes around them.
    pub(crate) fn send(&mut self, commands: &[String]) -> Result<(), Lost> {
        let of_locks = commands.iter().filter(|command| command.starts_with("LOCK."));
        ASKED.fetch_add(of_locks.count() as u64, SeqCst);
        let lines: String = commands.iter().map(|command| format!("{command}\r\n")).collect();
        self.client.try_send_bytes(lines.as_bytes()).map_err(|_| Lost)
    }

    /// Waits for a reply. An error reply ends a conversation, as a lost connection does.
    pub(crate) fn receive(&mut self) -> Result<Value, Lost> {
        match self.receive_any()? {
            Value::ServerError(_) => Err(Lost),
            value => Ok(value),
        }
    }

    /// Waits for a reply, which may be an error.
    pub(crate) fn receive_any(&mut self) -> Result<Value, Lost> {
        self.client.try_receive().map_err(|_| Lost)
    }

    pub(crate) fn all(&mut self, commands: &[String]) -> Result<Vec<Value>, Lost> {
        self.send(commands)?;
        commands.iter().map(|_| self.receive()).collect()
    }

    pub(crate) fn ask(&mut self, command: &str) -> Result<Value, Lost> {
        self.send(&[command.to_owned()])?;
        self.receive()
    }

    /// Whether a reply has arrived. No other reply may be under way.
    pub(crate) fn has_reply(&self) -> Result<bool, Lost> {
        self.client.has_reply().map_err(|_| Lost)
    }

    /// The server's own clock, in microseconds.
    pub(crate) fn time(&mut self) -> Result<u64, Lost> {
        micros(&self.ask("TIME")?)
    }
}

/// The owners that wait, oldest first, from a reply to `LOCK.WAITERS`.
pub(crate) fn owners(queue: &Value) -> Result<Vec<String>, Lost> {
    let Value::Array(rows) = queue else { return Err(Lost) };
    Ok(rows.iter().filter_map(|row| text(row, "owner")).collect())
}

fn text(row: &Value, name: &str) -> Option<String> {
    match field(row, name) {
        Some(Value::BulkString(text)) => String::from_utf8(text.clone()).ok(),
        _ => None,
    }
}

/// The time in microseconds, from a reply to `TIME`.
pub(crate) fn micros(time: &Value) -> Result<u64, Lost> {
    testkit::micros(time).ok_or(Lost)
}

/// Whether the server at this port is a replica.
pub(crate) fn is_replica(port: u16) -> bool {
    let role = Connection::connect(port, 0).and_then(|mut connection| connection.ask("ROLE"));
    let Ok(Value::Array(role)) = role else { return false };
    role.first() == Some(&Value::BulkString(b"slave".to_vec()))
}

/// Whether no process listens on this port.
pub(crate) fn is_gone(port: u16) -> bool {
    Client::over_tcp(("127.0.0.1", port))
        .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}
