//! Everything that a server holds, for comparison.

use super::Server;
use super::client::Client;
use super::eventually::eventually;
use super::version::is_older_than;
use redis::Value;
use std::collections::BTreeMap;
use std::fmt;

const DATABASES: u32 = 16;
const NO_SUCH_KEY: i64 = -2;

/// Every key of every database. Servers with equal data have equal snapshots.
#[derive(Clone, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<(u32, Vec<u8>), Entry>);

#[derive(Clone, PartialEq, Eq)]
struct Entry {
    /// The bytes of a string, or the server's own serialization of another type.
    value: Vec<u8>,
    /// The expiry in Unix milliseconds, or -1 for none.
    deadline: i64,
}

impl Snapshot {
    /// What the server holds now.
    pub fn of(server: &Server) -> Self {
        let mut client = server.client();
        let mut entries = BTreeMap::new();
        // In a cluster, a replica would redirect to its primary without READONLY. Elsewhere the command has no effect.
        client.cmd("READONLY");
        for database in 0..DATABASES {
            if client.cmd(format!("SELECT {database}")) != Value::Okay {
                // A cluster has only the first database.
                break;
            }
            let Value::Array(keys) = client.cmd("KEYS *") else { panic!("KEYS gave no list") };
            for key in keys {
                let Value::BulkString(key) = key else { panic!("{key:?} is no key") };
                // A key may just have expired.
                if let Some(entry) = entry(&mut client, &key) {
                    entries.insert((database, key), entry);
                }
            }
        }
        Self(entries)
    }

    /// The number of keys.
    pub fn size(&self) -> usize {
        self.0.len()
    }
}

fn entry(client: &mut Client, key: &[u8]) -> Option<Entry> {
    let value = match client.cmd([b"GET", key]) {
        // Not a string.
        Value::ServerError(_) => client.cmd([b"DUMP", key]),
        value => value,
    };
    let deadline = deadline(client, key);
    match value {
        Value::BulkString(value) if deadline != NO_SUCH_KEY => Some(Entry { value, deadline }),
        Value::BulkString(_) | Value::Nil => None,
        other => panic!("{}: {other:?}", key.escape_ascii()),
    }
}

/// The expiry of a key in Unix milliseconds: -1 without expiry, -2 without such a key.
pub fn deadline(client: &mut Client, key: &[u8]) -> i64 {
    if !is_older_than((7, 0)) {
        return match client.cmd([b"PEXPIRETIME", key]) {
            Value::Int(deadline) => deadline,
            other => panic!("PEXPIRETIME: {other:?}"),
        };
    }
    // Exact if the clock showed the same millisecond before and after.
    eventually("a key is looked at within one millisecond", || {
        let before = client.now();
        let Value::Int(left) = client.cmd([b"PTTL", key]) else { panic!("PTTL gave no number") };
        if left < 0 {
            return Ok(left);
        }
        match client.now() {
            now if now == before => Ok(before + left),
            now => Err(now - before),
        }
    })
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((database, key), entry) in &self.0 {
            let (key, value) = (key.escape_ascii(), entry.value.escape_ascii());
            write!(f, "\n  {database} {key} = {value} until {}", entry.deadline)?;
        }
        Ok(())
    }
}
