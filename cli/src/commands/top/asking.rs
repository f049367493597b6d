//! One round of requests to one server.
//!
//! A round must be cheap for a server in trouble, so everything is bounded: figures and `LOCK.TOP`, one page of `SCAN`,
//! then `LOCK.INFO` of the contended locks (at most 128) and of up to `MOST_FOUND` locks without waiters. Each round
//! requests the next page of `SCAN`, so that in time all keys are scanned.

use super::reading;
use super::told::{Contention, Hold, Lock, Opened, Part, Round};
use crate::commands::ls::{MARK, escaped, is_lock};
use crate::servers::Server;
use redis::{RedisError, Value, cmd, pipe};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// How many keys one round scans.
const KEYS: u64 = 500;
/// How many locks without waiters are followed.
const MOST_FOUND: usize = 256;
/// How many queues are asked for their head.
const HEADS: usize = 64;
/// The most events, and the most holders and waiters of the opened lock, that one round requests.
const EVENTS: u64 = 64;
const OPENED: u64 = 100;

/// The end of a long name that the module has cut.
const CUT: &str = " more bytes)";

pub(crate) struct Asker {
    server: Server,
    prefix: String,
    cursor: u64,
    /// Locks found by scanning keys.
    found: BTreeSet<Vec<u8>>,
    /// Keys scanned in this pass over all keys.
    looked_at: u64,
    left_out: u64,
    /// The locks left out in the last pass; None until a pass is complete.
    last_left_out: Option<u64>,
}

/// The entries of `LOCK.TOP`: of this database, and of others.
type Contended = (BTreeMap<Vec<u8>, Contention>, Vec<Lock>);

impl Asker {
    pub(crate) fn new(server: Server) -> Self {
        let prefix = std::env::var("LEASEHOLD_PREFIX").unwrap_or_default();
        let found = BTreeSet::new();
        Self { server, prefix, cursor: 0, found, looked_at: 0, left_out: 0, last_left_out: None }
    }

    /// `opened` is the lock whose holders and waiters are shown.
    pub(crate) async fn round(&mut self, opened: Option<&[u8]>) -> Result<Round, RedisError> {
        let mut asked = pipe();
        asked.cmd("TIME");
        for section in ["server", "clients", "memory", "replication", "leasehold"] {
            asked.cmd("INFO").arg(section);
        }
        asked.cmd("CONFIG").arg("GET").arg("leasehold.max-tickets").cmd("DBSIZE");
        asked.cmd("LOCK.TOP").arg(-1).cmd("LOCK.LOG").arg(EVENTS);
        asked.add_command(self.scan());
        let told = self.server.ask_each(&mut asked).await?;
        let at = Instant::now();
        // For example, a server that requires a password refuses every command.
        if let Some(Err(error)) = told.first()
            && told.iter().all(Result::is_err)
        {
            return Err(error.clone());
        }
        let mut notes = Vec::new();
        let [clock, infos @ .., tickets, keys, top, log, page] = told.as_slice() else {
            return Err(std::io::Error::from(std::io::ErrorKind::InvalidData).into());
        };
        let facts = reading::facts(clock, infos, tickets);
        let has_module = facts.module.is_some() || top.is_ok();
        reading::note_refused(infos.first(), "INFO", &mut notes);
        if has_module {
            reading::note_refused(Some(top), "LOCK.TOP", &mut notes);
            reading::note_refused(Some(log), "LOCK.LOG", &mut notes);
        }
        reading::note_refused(Some(page), "SCAN", &mut notes);
        reading::note_refused(Some(keys), "DBSIZE", &mut notes);
        let keys = keys.as_ref().ok().and_then(reading::number).unwrap_or_default();
        self.look_through(page.as_ref().unwrap_or(&Value::Nil), keys, &mut notes).await?;
        let (contended, mut locks) = self.contended(top.as_ref().unwrap_or(&Value::Nil));
        locks.extend(self.look_at(&contended, opened, has_module, &mut notes).await?);
        let opened = match opened {
            Some(key) => self.open(key, has_module, &locks).await?,
            None => None,
        };
        let mut events = reading::events(log.as_ref().unwrap_or(&Value::Nil));
        events.retain(|event| event.name.starts_with(&self.prefix));
        for event in &mut events {
            event.name = self.name_of(event.name.as_bytes());
        }
        let part = Part {
            keys,
            looked_at: if self.last_left_out.is_some() { keys } else { self.looked_at.min(keys) },
            left_out: self.last_left_out.unwrap_or_default().max(self.left_out),
        };
        Ok(Round { at, facts, locks, events, opened, part, notes })
    }

    fn scan(&self) -> redis::Cmd {
        let pattern = format!("{}*", escaped(&self.prefix));
        let mut scan = cmd("SCAN");
        scan.arg(self.cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(KEYS);
        scan.arg("TYPE").arg("string");
        scan
    }

    /// Finds the locks among the keys of this page.
    async fn look_through(
        &mut self,
        page: &Value,
        all: u64,
        notes: &mut Vec<String>,
    ) -> Result<(), RedisError> {
        let Ok((next, keys)) = redis::from_redis_value::<(u64, Vec<Vec<u8>>)>(page.clone()) else {
            return Ok(());
        };
        let mut begins = pipe();
        for key in &keys {
            begins.cmd("GETRANGE").arg(key).arg(0).arg(MARK.saturating_sub(1));
        }
        let begins =
            if keys.is_empty() { Vec::new() } else { self.server.ask_each(&mut begins).await? };
        reading::note_refused(begins.first(), "GETRANGE", notes);
        for (key, begin) in keys.into_iter().zip(&begins) {
            if !begin.as_ref().is_ok_and(is_lock) || self.found.contains(&key) {
                continue;
            }
            if self.found.len() < MOST_FOUND {
                self.found.insert(key);
            } else {
                self.left_out = self.left_out.saturating_add(1);
            }
        }
        // COUNT includes keys of other types.
        self.looked_at = self.looked_at.saturating_add(KEYS).min(all);
        self.cursor = next;
        if next == 0 {
            self.last_left_out = Some(std::mem::take(&mut self.left_out));
            self.looked_at = 0;
        }
        Ok(())
    }

    fn contended(&self, top: &Value) -> Contended {
        let (mut here, mut elsewhere) = (BTreeMap::new(), Vec::new());
        for (key, database, contention) in reading::contended(top) {
            if !key.starts_with(self.prefix.as_bytes()) {
                continue;
            }
            let is_cut = key.ends_with(CUT.as_bytes());
            if database == self.server.database && !is_cut {
                here.insert(key, contention);
                continue;
            }
            let name = self.name_of(&key);
            let (name, why) = if is_cut {
                (name, "name too long")
            } else {
                (format!("{name} (database {database})"), "other database")
            };
            let (hold, waiters, oldest) = (Hold::Unknown(why), None, None);
            elsewhere.push(Lock { key, name, hold, waiters, oldest, contention });
        }
        (here, elsewhere)
    }

    /// Asks who holds these locks, and how many wait for them.
    async fn look_at(
        &mut self,
        contended: &BTreeMap<Vec<u8>, Contention>,
        opened: Option<&[u8]>,
        has_module: bool,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Lock>, RedisError> {
        let mut keys: BTreeSet<&[u8]> = contended.keys().map(Vec::as_slice).collect();
        keys.extend(self.found.iter().map(Vec::as_slice));
        keys.extend(opened);
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut asked = pipe();
        for key in &keys {
            if has_module {
                asked.cmd("LOCK.INFO").arg(*key);
            } else {
                asked.cmd("GET").arg(*key).cmd("PTTL").arg(*key);
            }
        }
        let told = self.server.ask_each(&mut asked).await?;
        let mut locks = Vec::new();
        let mut gone = Vec::new();
        for (key, told) in keys.iter().zip(told.chunks(if has_module { 1 } else { 2 })) {
            let (hold, waiters) = match told {
                [info] => {
                    reading::note_refused(Some(info), "LOCK.INFO", notes);
                    reading::of_info(info)
                }
                [value, left] => (reading::of_value(value, left), None),
                _ => (Hold::Free, None),
            };
            let contention = contended.get(*key).copied();
            if contention.is_none() && hold == Hold::Free && opened != Some(*key) {
                gone.push(key.to_vec());
                continue;
            }
            locks.push(Lock {
                key: key.to_vec(),
                name: self.name_of(key),
                hold,
                waiters,
                oldest: None,
                contention: contention.unwrap_or_default(),
            });
        }
        for key in gone {
            self.found.remove(&key);
        }
        self.look_at_heads(&mut locks).await?;
        Ok(locks)
    }

    /// Asks how long the heads of the longest queues have waited.
    async fn look_at_heads(&self, locks: &mut [Lock]) -> Result<(), RedisError> {
        let mut queues: Vec<_> =
            locks.iter_mut().filter(|lock| lock.waiters.is_some_and(|count| count > 0)).collect();
        queues.sort_by_key(|lock| std::cmp::Reverse(lock.waiters));
        queues.truncate(HEADS);
        if queues.is_empty() {
            return Ok(());
        }
        let mut asked = pipe();
        for lock in &queues {
            asked.cmd("LOCK.WAITERS").arg(&lock.key).arg("COUNT").arg(1);
        }
        let told = self.server.ask_each(&mut asked).await?;
        for (lock, told) in queues.into_iter().zip(told) {
            let waiters = told.map(|told| reading::waiters(&told)).unwrap_or_default();
            lock.oldest = waiters.first().map(|waiter| waiter.waited);
        }
        Ok(())
    }

    async fn open(
        &self,
        key: &[u8],
        has_module: bool,
        locks: &[Lock],
    ) -> Result<Option<Opened>, RedisError> {
        let key = key.to_vec();
        if !has_module {
            let hold = locks.iter().find(|lock| lock.key == key).map(|lock| &lock.hold);
            let holders = match hold {
                Some(Hold::Held { hold, .. }) => vec![hold.clone()],
                _ => Vec::new(),
            };
            return Ok(Some(Opened { key, holders, waiters: Vec::new() }));
        }
        let mut asked = pipe();
        asked.cmd("LOCK.HOLDERS").arg(&key).arg("COUNT").arg(OPENED);
        asked.cmd("LOCK.WAITERS").arg(&key).arg("COUNT").arg(OPENED);
        let told = self.server.ask_each(&mut asked).await?;
        let [Ok(holders), Ok(waiters)] = told.as_slice() else { return Ok(None) };
        let (holders, waiters) = (reading::holders(holders), reading::waiters(waiters));
        Ok(Some(Opened { key, holders, waiters }))
    }

    fn name_of(&self, key: &[u8]) -> String {
        let name = String::from_utf8_lossy(key);
        name.strip_prefix(&self.prefix).unwrap_or(&name).to_owned()
    }
}
