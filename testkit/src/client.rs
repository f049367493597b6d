//! The connection that tests use. Tests decide which bytes are sent, and see each reply as it came. The crate `redis`
//! parses the replies.

use super::eventually::{becomes, eventually, until};
use super::reply::{field, int, micros, number};
use super::request::{Words, all_encoded, encoded};
use super::transport::{Transport, Uninterrupted, has_arrived, reset};
use redis::{Parser, RedisResult, Value};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{self, ErrorKind, Read};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A reply that takes longer is taken for missing.
const REPLY_DEADLINE: Duration = Duration::from_secs(20);

/// A connection to one server.
pub struct Client {
    transport: Box<dyn Transport>,
    parser: Parser,
}

/// The fields of `LOCK.INFO` for a held lock. If several owners hold it, the first five fields describe the hold that
/// has lasted longest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// The owner that holds the lock.
    pub owner: Vec<u8>,
    /// The number of the grant.
    pub fence: u64,
    /// What is left of the lease, in milliseconds.
    pub ttl: i64,
    /// The end of the lease, in Unix milliseconds.
    pub deadline: i64,
    /// The number of waiters.
    pub waiters: i64,
    /// The number of holders.
    pub holders: i64,
    /// The smallest share of its holders; 0 if none has a limit.
    pub share: i64,
}

impl Client {
    /// Connects to a unix socket.
    pub fn over_unix(socket: &Path) -> io::Result<Self> {
        Self::over(UnixStream::connect(socket)?)
    }

    /// Connects to a TCP port.
    pub fn over_tcp(address: impl ToSocketAddrs) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Self::over(stream)
    }

    pub(crate) fn over(transport: impl Transport + 'static) -> io::Result<Self> {
        transport.set_deadline(Some(REPLY_DEADLINE))?;
        Ok(Self { transport: Box::new(transport), parser: Parser::new() })
    }

    /// Sets how long to wait for each reply.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.transport.set_deadline(Some(deadline)).unwrap();
    }

    /// Sends a command and waits for its reply, which may be an error. Losing the connection ends the test.
    pub fn cmd(&mut self, words: impl Words) -> Value {
        let words = words.words();
        self.try_cmd(words.clone()).unwrap_or_else(|error| panic!("{}: {error}", shown(&words)))
    }

    /// Like `cmd`, for a connection that may be lost.
    pub fn try_cmd(&mut self, words: impl Words) -> RedisResult<Value> {
        self.transport.write_all(&encoded(words))?;
        self.parser.parse_value(Uninterrupted(&mut *self.transport))
    }

    /// Sends bytes that need not be a command.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.transport.write_all(bytes).unwrap();
    }

    /// Like `send_bytes`, for a connection that may be lost.
    pub fn try_send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.transport.write_all(bytes)
    }

    /// Sends a command without waiting for its reply: see `receive`.
    pub fn send(&mut self, words: impl Words) {
        self.send_bytes(&encoded(words));
    }

    /// Sends all commands in one write, without waiting for their replies: see `receive`.
    pub fn send_all(&mut self, commands: &[&str]) {
        self.send_bytes(&all_encoded(commands));
    }

    /// Waits for the next reply or push message.
    pub fn receive(&mut self) -> Value {
        self.try_receive().unwrap()
    }

    /// Like `receive`, for a connection that may be lost.
    pub fn try_receive(&mut self) -> RedisResult<Value> {
        self.parser.parse_value(Uninterrupted(&mut *self.transport))
    }

    /// Whether a reply has arrived. The caller has read all earlier replies. The end of the connection is an error.
    pub fn has_reply(&self) -> io::Result<bool> {
        has_arrived(self.transport.as_fd())
    }

    /// Closes the sending half of the connection.
    pub fn end_sending(&mut self) {
        self.transport.shut_down(Shutdown::Write).unwrap();
    }

    /// Ends the connection with a reset, as after a crash of the machine.
    pub fn reset(mut self) {
        reset(self.as_fd());
        // Without the word by which it is shut down.
        self.transport = Box::new(UnixStream::pair().unwrap().0);
    }

    /// Waits until the server has closed the connection, and checks that it sent nothing before.
    #[track_caller]
    pub fn assert_closed(&mut self) {
        match Uninterrupted(&mut *self.transport).read(&mut [0; 16]) {
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => panic!("it was not closed: {other:?}"),
        }
    }

    /// Sends all commands in one write, then reads all replies.
    pub fn pipeline(&mut self, commands: &[&str]) -> Vec<Value> {
        self.send_all(commands);
        commands
            .iter()
            .map(|command| {
                let reply = self.parser.parse_value(Uninterrupted(&mut *self.transport));
                reply.unwrap_or_else(|error| panic!("{command}: {error}"))
            })
            .collect()
    }

    /// Executes the commands between MULTI and EXEC, and returns the replies inside EXEC's reply.
    pub fn transaction(&mut self, commands: &[&str]) -> Vec<Value> {
        let whole = [&["MULTI"], commands, &["EXEC"]].concat();
        match self.pipeline(&whole).pop() {
            Some(Value::Array(replies)) => replies,
            other => panic!("EXEC of {commands:?}: {other:?}"),
        }
    }

    /// `LOCK.ACQUIRE`: the fence, or `None` when another owner has the lock.
    pub fn acquire(
        &mut self,
        key: impl AsRef<[u8]>,
        owner: impl AsRef<[u8]>,
        ttl: u64,
    ) -> Option<u64> {
        let ttl = ttl.to_string();
        self.fence([b"LOCK.ACQUIRE", key.as_ref(), owner.as_ref(), ttl.as_bytes()])
    }

    /// A command that replies with a fence or nil.
    #[track_caller]
    pub fn fence(&mut self, words: impl Words) -> Option<u64> {
        match self.cmd(words) {
            Value::Nil => None,
            Value::Int(fence) => Some(fence.try_into().unwrap()),
            other => panic!("neither a fence nor nil: {other:?}"),
        }
    }

    /// `LOCK.ACQUIRE` of a lock that is free or already the owner's.
    #[track_caller]
    pub fn grant(&mut self, key: impl AsRef<[u8]>, owner: impl AsRef<[u8]>, ttl: u64) -> u64 {
        self.acquire(key, owner, ttl).expect("another owner has the lock")
    }

    /// `LOCK.RELEASE`: whether the owner held the lock.
    pub fn release(&mut self, key: impl AsRef<[u8]>, owner: impl AsRef<[u8]>) -> bool {
        one_or_zero(&self.cmd([b"LOCK.RELEASE", key.as_ref(), owner.as_ref()]))
    }

    /// `LOCK.EXTEND`: whether the owner holds the lock.
    pub fn extend(&mut self, key: impl AsRef<[u8]>, owner: impl AsRef<[u8]>, ttl: u64) -> bool {
        let ttl = ttl.to_string();
        one_or_zero(&self.cmd([b"LOCK.EXTEND", key.as_ref(), owner.as_ref(), ttl.as_bytes()]))
    }

    /// `LOCK.CHECK`: the fence, or `None` when that owner does not hold the lock.
    pub fn check(&mut self, key: impl AsRef<[u8]>, owner: impl AsRef<[u8]>) -> Option<u64> {
        self.fence([b"LOCK.CHECK", key.as_ref(), owner.as_ref()])
    }

    /// `LOCK.INFO`: `None` when the lock is free.
    pub fn info(&mut self, key: impl AsRef<[u8]>) -> Option<LockInfo> {
        let reply = self.cmd([b"LOCK.INFO", key.as_ref()]);
        if reply == Value::Nil {
            return None;
        }
        let number = |name| number(&reply, name);
        let Some(Value::BulkString(owner)) = field(&reply, "owner") else {
            panic!("no owner in {reply:?}")
        };
        Some(LockInfo {
            owner: owner.clone(),
            fence: number("fence").try_into().unwrap(),
            ttl: number("ttl"),
            deadline: number("deadline"),
            waiters: number("waiters"),
            holders: number("holders"),
            share: number("share"),
        })
    }

    /// The server's clock, in Unix milliseconds.
    pub fn now(&mut self) -> i64 {
        (micros(&self.cmd("TIME")).unwrap() / 1_000).cast_signed()
    }

    /// Waits for the next millisecond of the server's clock, and returns it.
    pub fn next_millisecond(&mut self) -> i64 {
        let begun = self.now();
        self.wait_until_past(begun)
    }

    /// Waits until the server's clock is past this Unix millisecond, and returns the time.
    #[track_caller]
    pub fn wait_until_past(&mut self, moment: i64) -> i64 {
        until("time passes", || self.now(), |now| *now > moment)
    }

    /// One field of one section of INFO.
    pub fn info_field(&mut self, section: &str, name: &str) -> Option<String> {
        let text = self.info_text(section);
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map(str::to_owned)
    }

    /// One number of one section of INFO.
    #[track_caller]
    pub fn info_number(&mut self, section: &str, name: &str) -> u64 {
        let field = self.info_field(section, name);
        field.unwrap_or_else(|| panic!("INFO {section} has no {name}")).parse().unwrap()
    }

    /// How often each command was executed so far, INFO included.
    pub fn executed(&mut self) -> BTreeMap<String, u64> {
        let text = self.info_text("commandstats");
        let lines = text.lines().filter_map(|line| line.strip_prefix("cmdstat_"));
        lines
            .map(|line| {
                let (name, rest) = line.split_once(":calls=").unwrap();
                (name.to_owned(), rest.split(',').next().unwrap().parse().unwrap())
            })
            .collect()
    }

    /// Waits until this many clients wait for a lock.
    #[track_caller]
    pub fn wait_until_waiters(&mut self, wanted: u64) {
        becomes("so many wait", wanted, || self.counter("waiters"));
    }

    /// Makes the server save its data, by `BGSAVE` or `BGREWRITEAOF`, and waits until it has done so.
    #[track_caller]
    pub fn save_by(&mut self, command: &str) {
        let reply = self.cmd(command);
        assert!(!matches!(reply, Value::ServerError(_)), "{command}: {reply:?}");
        let text = self.wait_until_saved();
        for status in ["rdb_last_bgsave_status:ok", "aof_last_bgrewrite_status:ok"] {
            assert!(text.contains(status), "{command}: {text}");
        }
    }

    /// Waits until no save is running or scheduled. Returns what INFO then says about persistence.
    #[track_caller]
    pub fn wait_until_saved(&mut self) -> String {
        eventually("the data is saved", || {
            let text = self.info_text("persistence");
            let busy = [
                "rdb_bgsave_in_progress:1",
                "aof_rewrite_in_progress:1",
                "aof_rewrite_scheduled:1",
            ];
            if busy.into_iter().any(|busy| text.contains(busy)) { Err(text) } else { Ok(text) }
        })
    }

    /// The text of one section of INFO.
    pub fn info_text(&mut self, section: &str) -> String {
        match self.cmd(["INFO", section]) {
            Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Value::VerbatimString { text, .. } => text,
            other => panic!("INFO {section}: {other:?}"),
        }
    }

    /// One number of `INFO leasehold`.
    pub fn counter(&mut self, name: &str) -> u64 {
        self.info_number("leasehold", &format!("leasehold_{name}"))
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.transport.as_fd()
    }
}

/// Shuts the connection down, so that the server sees its end at once. Closing the descriptor is not enough: a
/// process that another test is just starting has a copy until exec.
impl Drop for Client {
    fn drop(&mut self) {
        // Fails if the server has already closed the connection.
        let _closed = self.transport.shut_down(Shutdown::Both);
    }
}

fn one_or_zero(reply: &Value) -> bool {
    assert!(*reply == int(0) || *reply == int(1), "neither 1 nor 0: {reply:?}");
    *reply == int(1)
}

fn shown(words: &[Vec<u8>]) -> String {
    let words: Vec<_> = words.iter().map(|word| word.escape_ascii().to_string()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_connection_is_seen_while_another_process_has_a_copy_of_it() {
        let (ours, mut servers) = UnixStream::pair().unwrap();
        let _copy = ours.try_clone().unwrap();
        servers.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        drop(Client::over(ours).unwrap());
        assert_eq!(servers.read(&mut [0; 1]).unwrap(), 0);
    }
}
