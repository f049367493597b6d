//! Commands that the server runs only while the lock is held: `LOCK.GUARD`.
//!
//! ```text
//!   look for the server, connect      tried again until it is time to give up; the loss of the lock ends it
//!   send LOCK.GUARD                   once
//!     answered                        its reply, or the error as the server said it
//!     answered: not executed here     sent again, to where the server says
//!     not answered                    never sent again: it may have been run
//! ```

use crate::dialect::Dialect;
use crate::lease::Lease;
use crate::link::Link;
use crate::node::{Node, within};
use crate::validity::later;
use crate::verdict::{Verdict, verdict};
use crate::wire::{Failure, Try};
use crate::{AllGuard, Error, Guard, Loss};
use redis::{Cmd, FromRedisValue, RedisError, Value};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(feature = "redis")]
impl Guard {
    /// Has the server run this command if the lock is still this guard's, and returns its reply.
    ///
    /// The server looks at the lock and runs the command in one step. So a program that was paused for longer than its lease
    /// changes nothing when it goes on: the server refuses what it sends, and the guard is [lost](Guard::lost) at once.
    ///
    /// **It needs the module**, in a version that has `LOCK.GUARD`: on any other server this fails with
    /// [`Error::Refused`], and nothing is run. The command goes to the server of the lock and to its database, and
    /// names keys in full: [`Settings::prefix`](crate::Settings::prefix) is for locks. In a cluster its keys are in the
    /// slot of the lock, by a hash tag, as in `{page}:lock` and `{page}:front`.
    ///
    /// Commands that change the lock itself, such as `LOCK.EXTEND` or `SET` of its key, go past the guard, which counts
    /// on the lease as before: use [`extend`](Guard::extend) and [`release`](Guard::release).
    ///
    /// The server decides which commands can be run so. Those that wait, such as `BLPOP`, behave as in a transaction;
    /// transactions, scripts and what belongs to a connection are refused. A hold that is shared guards as any other.
    /// Replies are those of the protocol of the connection, RESP2 unless the address says `?protocol=resp3`. They come
    /// on the connection of all requests of this client: renewals wait behind a large one.
    ///
    /// With the feature `redis`.
    ///
    /// ```no_run
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// # let body = "<p>news</p>";
    /// let guard = locks.lock("{page}:lock").await?;
    /// let write = redis::cmd("SET").arg("{page}:front").arg(body).take();
    /// match guard.run_command::<()>(&write).await {
    ///     Ok(()) => println!("written"),
    ///     Err(Error::NotRun { loss, .. }) => println!("nothing was written: {loss:?}"),
    ///     Err(Error::Unanswered { reason }) => println!("perhaps written, once: {reason}"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// | Error | Was it run? | When |
    /// |---|---|---|
    /// | [`NotRun`](Error::NotRun) | no | the lock is lost. If that is known here, the server is not asked; else it has said so, and now it is known here too. |
    /// | [`Unreachable`](Error::Unreachable) | no | for as long as [`Settings::within`](crate::Settings::within) nobody could be sent it, or whoever was sent it did not execute it, as in a failover |
    /// | [`Unanswered`](Error::Unanswered) | perhaps, once | it was sent, and no answer came within [`Settings::response`](crate::Settings::response), or the connection ended. It is not sent again. It may still be run later, also behind what is sent after it, for as long as the lock is this guard's on the server: not once it has been released, or somebody else has had it. |
    /// | [`Refused`](Error::Refused) | no, or it failed | the server said so, in these words: the error of the command itself, too |
    /// | [`UnexpectedReply`](Error::UnexpectedReply) | yes | the reply is no `T` |
    ///
    /// Dropped before it is done, this is as good as [`Unanswered`](Error::Unanswered).
    pub async fn run_command<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        decoded(self.reply_to(words(command)).await?)
    }

    /// The command as its words.
    pub(crate) async fn reply_to(&self, words: Vec<Vec<u8>>) -> Result<Value, Error> {
        let Lease { key, owner, fence, .. } = &*self.hold.lease;
        let mut guarded = redis::cmd("LOCK.GUARD");
        guarded.arg(key).arg(owner).arg(*fence).arg(words);
        let until = later(Instant::now(), self.hold.orders.within());
        let limits = self.hold.wire.limits(Duration::MAX, Some(until));
        let once = |this| self.send_guarded(&guarded, limits.each, this);
        self.hold.wire.try_on(limits, once).await?
    }

    /// A failure is what may be tried again.
    async fn send_guarded(
        &self,
        guarded: &Cmd,
        each: Duration,
        this: Try,
    ) -> Result<Result<Value, Error>, Failure> {
        let wire = &self.hold.wire;
        let sent = this.sent();
        let (node, link) = tokio::select! {
            biased;
            // Also if its end has come while this went on: nothing is sent after that.
            loss = self.lost() => return Ok(Err(self.not_run(loss))),
            connected = self.connected(each, this) => connected?,
        };
        if link.server.dialect() == Dialect::Plain {
            return Ok(Err(refused(
                "a guarded command needs the module, which this server does not have",
            )));
        }
        let asked = Some((&*node, Some(&link)));
        let reply = within(each, link.send(guarded, sent)).await;
        let error = match reply {
            Ok(reply) => {
                wire.answered(&node);
                return Ok(Ok(reply));
            }
            Err(error) => error,
        };
        if error.code().is_none() {
            let Failure { error, .. } = wire.failed(error, asked);
            return Ok(Err(Error::Unanswered { reason: error.to_string() }));
        }
        if is_not_executed(&error) {
            return Err(wire.failed(error, asked));
        }
        wire.answered(&node);
        Ok(Err(match error.code() {
            Some("NOTHOLDER") => {
                let loss = self.loss().unwrap_or(Loss::Taken);
                self.hold.lease.lose(loss);
                self.not_run(loss)
            }
            _ if is_unknown(&error) => {
                refused("a guarded command needs a newer module than this server has")
            }
            _ => Error::refused(&error),
        }))
    }

    /// A connection to the server of the lock, on which nothing has been seen of an end.
    async fn connected(&self, each: Duration, this: Try) -> Result<(Arc<Node>, Link), Failure> {
        let Self { hold, .. } = self;
        let node = hold.wire.node(&hold.lease.key, each, this.redirected).await?;
        let link = hold.wire.shared(&node, each).await?;
        if link.is_driven() && !link.ended().is_cancelled() {
            return Ok((node, link));
        }
        let ended = RedisError::from(io::Error::from(io::ErrorKind::ConnectionAborted));
        Err(hold.wire.failed(ended, Some((&node, Some(&link)))))
    }

    fn not_run(&self, loss: Loss) -> Error {
        Error::NotRun { name: self.name().to_owned(), loss }
    }
}

#[cfg(feature = "redis")]
impl AllGuard {
    /// Has the server run this command if the lock of this name is still this guard's, and returns its reply:
    /// [`Guard::run_command`]. The name is that of the lock that protects what the command writes. In a cluster the keys of the
    /// command are in its slot.
    ///
    /// If any of the locks is known to be lost, nothing is sent. The server looks at the one that is named.
    ///
    /// With the feature `redis`.
    ///
    /// ```no_run
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// # use leasehold_client::{Error, Locks};
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Error> {
    /// # let server = Example::start();
    /// # let locks = Locks::connect(server.url()).await?;
    /// let guard = locks.lock_all(["{bank}:anna", "{bank}:ben"]).await?;
    /// let give = redis::cmd("HINCRBY").arg("{bank}:accounts").arg("anna").arg(10).take();
    /// let balance: i64 = guard.run_command("{bank}:anna", &give).await?;
    /// # let _ = balance;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Guard::run_command`], and [`Error::Setting`] if there is no lock of this name among these.
    pub async fn run_command<T: FromRedisValue>(
        &self,
        name: &str,
        command: &Cmd,
    ) -> Result<T, Error> {
        let unknown =
            || Error::setting("name", "it must be that of one of the locks of this guard");
        let of_name = self.guards.iter().find(|guard| guard.name() == name).ok_or_else(unknown)?;
        let lost = self.guards.iter().find_map(|guard| Some(guard.not_run(guard.loss()?)));
        match lost {
            Some(not_run) => Err(not_run),
            None => of_name.run_command(command).await,
        }
    }
}

/// What of it is to be sent, a cursor that it has included.
pub(crate) fn words(command: &Cmd) -> Vec<Vec<u8>> {
    let packed = redis::parse_redis_value(&command.get_packed_command());
    let Ok(Value::Array(words)) = packed else { return Vec::new() };
    let bytes = |word| if let Value::BulkString(bytes) = word { Some(bytes) } else { None };
    words.into_iter().filter_map(bytes).collect()
}

pub(crate) fn decoded<T: FromRedisValue>(reply: Value) -> Result<T, Error> {
    T::from_redis_value(reply).map_err(|error| Error::UnexpectedReply { reason: error.to_string() })
}

/// Whether the server says that it did not execute it here and now, so that it may be sent again.
fn is_not_executed(error: &RedisError) -> bool {
    let at_this_server = ["READONLY", "TRYAGAIN", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "BUSY"];
    let is_redirected = matches!(verdict(error), Verdict::Moved { .. } | Verdict::Ask { .. });
    is_redirected || error.code().is_some_and(|code| at_this_server.contains(&code))
}

/// Whether the server does not know `LOCK.GUARD`. Of a guarded command that it does not know it says something else.
fn is_unknown(error: &RedisError) -> bool {
    verdict(error) == Verdict::UnknownCommand && error.detail() != Some("unknown command to guard")
}

fn refused(reason: &str) -> Error {
    Error::Refused { reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: &str, detail: &str) -> RedisError {
        let reply = redis::parse_redis_value(format!("-{code} {detail}\r\n").as_bytes());
        reply.and_then(Value::extract_error).unwrap_err()
    }

    #[test]
    fn words_are_sent_as_they_are_and_cursors_too() {
        let command = redis::cmd("SSCAN").arg(b"a\r\n\0").cursor_arg(17).arg("").take();
        assert_eq!(words(&command), [&b"SSCAN"[..], b"a\r\n\0", b"17", b""]);
        assert!(words(&Cmd::new()).is_empty());
    }

    #[test]
    fn only_what_was_not_executed_is_sent_again() {
        for (code, detail) in [
            ("MOVED", "7 127.0.0.1:7001"),
            ("ASK", "7 127.0.0.1:7001"),
            ("TRYAGAIN", "Multiple keys request during rehashing of slot"),
            ("READONLY", "You can't write against a read only replica."),
            ("LOADING", "Redis is loading the dataset in memory"),
        ] {
            assert!(is_not_executed(&error(code, detail)), "{code}");
        }
        // A guarded command may say these by itself.
        for code in ["QUEUEFULL", "REPLACED", "NOREPLICAS", "MISCONF", "BUSYKEY", "ERR", "OOM"] {
            assert!(!is_not_executed(&error(code, "…")), "{code}");
        }
    }

    #[test]
    fn an_older_module_is_told_from_a_command_that_does_not_exist() {
        for detail in ["unknown command `LOCK.GUARD`, with args", "unknown command 'LOCK.GUARD'"] {
            assert!(is_unknown(&error("ERR", detail)), "{detail}");
        }
        assert!(!is_unknown(&error("ERR", "unknown command to guard")));
    }

    #[test]
    fn a_reply_of_another_type_says_what_came() {
        assert_eq!(decoded::<u64>(Value::BulkString(b"17".to_vec())).unwrap(), 17);
        let text = decoded::<u64>(Value::BulkString(b"news".to_vec())).unwrap_err();
        assert!(matches!(text, Error::UnexpectedReply { .. }), "{text:?}");
    }
}
