//! The commands that the server in memory knows, and their replies: in RESP2, which clients read in RESP3, too, and messages
//! as RESP3 has them.

use super::host::{Host, InMemory};
use leasehold_core::command::{
    Also, Error, Reply, acquire, check, extend, guard, holders, info, parse_integer, raise,
    release, waiters,
};
use leasehold_core::engine::Host as _;
use leasehold_core::lock::{Checked, Deadline, Name, Seen, Ttl};
use redis::Value;
use std::fmt::Display;
use std::iter;
use uuid::Uuid;

impl Host {
    pub(super) fn execute(&self, id: u64, request: &[Value]) {
        self.asking.set(id);
        let words = request.iter().map(|word| match word {
            Value::BulkString(word) => word.as_slice(),
            _ => &[],
        });
        if let Err(error) = self.obey(&words.collect::<Vec<_>>()) {
            self.reply(&Reply::Error(error));
        }
        self.reconsider();
    }

    fn obey(&self, words: &[&[u8]]) -> Result<(), Error> {
        let [name, behind @ ..] = words else { return Err(Error::WrongArity) };
        let key = Name::new(0, behind.first().copied().unwrap_or_default());
        let (engine, lock, now) = (self.engine.on(self), self.beside(key), self.monotonic());
        match name.to_ascii_uppercase().as_slice() {
            b"LOCK.ACQUIRE" => {
                let request = acquire::Request::parse(words, &self.limits(), mint)?;
                let done = engine.change_or_wait(&self.locks(lock, request.also()), &request)?;
                self.reply(&request.reply(&done.decision)?.unwrap_or(Reply::Nil));
            }
            b"LOCK.RELEASE" => {
                let request = release::Request::parse(words)?;
                let done = engine.change(&self.locks(lock, request.also()), &request)?;
                self.reply(&release::reply(done.released));
            }
            b"LOCK.EXTEND" => {
                let request = extend::Request::parse(words, &self.limits())?;
                let done = engine.change(&self.locks(lock, request.also()), &request)?;
                self.reply(&extend::reply(&done.decision));
            }
            b"LOCK.RAISE" => {
                let request = raise::Request::parse(words)?;
                self.reply(&raise::reply(&engine.change(&[lock], &request)?.decision));
            }
            b"LOCK.CHECK" => self.reply(&check::reply(engine.check(&lock, &check::parse(words)?)?)),
            b"LOCK.GUARD" => match engine.check(&lock, &guard::parse(words)?)? {
                Checked::Holds { .. } => {
                    self.obey_beside(words.get(guard::COMMAND_AT..).unwrap_or_default())?;
                }
                Checked::NotHolder => return Err(Error::NotHolder),
            },
            b"LOCK.INFO" => {
                info::parse(words)?;
                engine.read(&lock, |holds, waiters, now| {
                    self.reply(&info::answer(holds, waiters, now));
                })?;
            }
            b"LOCK.HOLDERS" => {
                let count = holders::parse(words)?;
                engine.read(&lock, |holds, _, now| {
                    self.reply(&holders::answer(count, holds, now));
                })?;
            }
            b"LOCK.WAITERS" => {
                let count = waiters::parse(words)?;
                self.engine.with_queues(|queues| {
                    let queue = queues.queue(key);
                    self.reply(&waiters::answer(count, queue, |client| match *client {}, now));
                });
            }
            b"LOCK.TOP" | b"LOCK.LOG" => self.reply(&Reply::Array(Vec::new())),
            // There is no replica to wait for.
            b"WAIT" => self.reply(&Reply::Integer(0)),
            b"HELLO" => self.reply(&Reply::Map(vec![("proto", Reply::Integer(3))])),
            b"PING" => self.send(self.asking.get(), |out| line(out, "+", "PONG")),
            b"SUBSCRIBE" => {
                for channel in behind {
                    let count = self.subscribe(channel);
                    let words = [Reply::Bytes(b"subscribe"), Reply::Bytes(channel), count];
                    self.push(self.asking.get(), &words);
                }
            }
            b"CLIENT" => {
                if let [b"KILL", b"TYPE", kind, ..] = behind {
                    self.kill_others(*kind == b"pubsub");
                }
                self.reply(&Reply::Ok);
            }
            b"PUBSUB" => {
                let connections = self.connections.borrow();
                let channels = connections.values().flat_map(|each| &each.channels);
                self.reply(&Reply::Array(channels.map(|name| Reply::Bytes(name)).collect()));
            }
            b"INFO" => {
                let told = format!(
                    "run_id:{}\r\nprocess_id:{}\r\nconnected_clients:{}\r\n",
                    self.run_id.simple(),
                    std::process::id(),
                    self.connections.borrow().len()
                );
                self.reply(&Reply::Bytes(told.as_bytes()));
            }
            _ => self.obey_beside(words)?,
        }
        Ok(())
    }

    /// The commands that can be guarded.
    fn obey_beside(&self, words: &[&[u8]]) -> Result<(), Error> {
        let [name, key, behind @ ..] = words else { return Err(Error::WrongArity) };
        let (mut keys, now) = (self.keys.borrow_mut(), self.now());
        keys.retain(|_, seen| !seen.as_stored().is_free(now));
        let held = keys.get_mut(*key);
        match (name.to_ascii_uppercase().as_slice(), behind) {
            (b"GET", []) => self.reply(&held.map_or(Reply::Nil, |held| Reply::Bytes(&held.value))),
            (b"PTTL", []) => self.reply(&held.map_or(Reply::Integer(-2), |held| {
                let left = held.deadline.map(|deadline| deadline.millis_left(now));
                left.map_or(Reply::Integer(-1), Reply::number)
            })),
            (b"SET", [value]) => {
                keys.insert(key.to_vec(), Seen { value: (*value).into(), deadline: None });
                self.reply(&Reply::Ok);
            }
            (b"INCR", []) => {
                let number = held.as_ref().map_or(Some(0), |held| parse_integer(&held.value));
                let number = number.and_then(|number| number.checked_add(1));
                let number = number.ok_or(Error::WrongType)?;
                let deadline = held.and_then(|held| held.deadline);
                let value = number.to_string().into_bytes().into();
                keys.insert(key.to_vec(), Seen { value, deadline });
                self.reply(&Reply::number(number));
            }
            (b"DEL", others) => {
                let gone = iter::once(key).chain(others).filter_map(|key| keys.remove(*key));
                self.reply(&Reply::count(gone.count()));
            }
            (b"PEXPIRE", [millis]) => {
                let ttl = parse_integer(millis).and_then(Ttl::from_millis);
                let deadline = Deadline::after(now, ttl.ok_or(Error::TtlNotPositive)?);
                let set = held.map(|held| held.deadline = Some(deadline));
                self.reply(&Reply::count(set.iter().count()));
            }
            _ => self.send(self.asking.get(), |out| {
                let name = name.escape_ascii();
                line(out, "-", format!("ERR unknown command '{name}' in memory"));
            }),
        }
        // Any of the keys may be a lock that somebody waits for.
        self.engine.mark_all(None);
        Ok(())
    }

    fn locks<'n>(&'n self, first: InMemory<'n>, also: Option<&Also<'n>>) -> Vec<InMemory<'n>> {
        let others = also.into_iter().flat_map(|also| &also.keys);
        iter::once(first).chain(others.map(|&key| self.beside(Name::new(0, key)))).collect()
    }

    fn reply(&self, reply: &Reply<'_>) {
        self.send(self.asking.get(), |out| write(out, reply));
    }

    /// Sends something about a channel.
    pub(super) fn push(&self, id: u64, words: &[Reply<'_>]) {
        self.send(id, |out| {
            line(out, ">", words.len());
            words.iter().for_each(|word| write(out, word));
        });
    }
}

fn mint() -> acquire::MintedOwner {
    let mut text = [0; size_of::<acquire::MintedOwner>()];
    Uuid::new_v4().hyphenated().encode_lower(&mut text);
    text
}

fn write(out: &mut Vec<u8>, reply: &Reply<'_>) {
    match reply {
        Reply::Nil => line(out, "$", -1),
        Reply::Ok => line(out, "+", "OK"),
        Reply::Integer(number) => line(out, ":", number),
        Reply::Bytes(bytes) => {
            line(out, "$", bytes.len());
            out.extend_from_slice(bytes);
            line(out, "", "");
        }
        Reply::Array(items) => {
            line(out, "*", items.len());
            items.iter().for_each(|item| write(out, item));
        }
        Reply::Map(fields) => {
            line(out, "*", fields.len().saturating_mul(2));
            for (name, value) in fields {
                write(out, &Reply::Bytes(name.as_bytes()));
                write(out, value);
            }
        }
        Reply::Lines(lines) => {
            line(out, "*", lines.len());
            lines.iter().for_each(|text| line(out, "+", text));
        }
        Reply::Error(error) => line(out, "-", error),
    }
}

fn line(out: &mut Vec<u8>, mark: &str, text: impl Display) {
    out.extend_from_slice(format!("{mark}{text}\r\n").as_bytes());
}
