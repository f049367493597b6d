//! A connection, and what is sent on it.

use crate::dialect::scripts::Scripts;
use crate::dialect::{Question, Server, number};
use crate::features::Tickets;
use crate::home::Home;
use crate::socket::Seen;
use crate::verdict::{Verdict, verdict};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisError, Value, cmd, pipe};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Whether the server is to be told that the client was sent here by another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    ByItself,
    ByAnotherNode,
}

/// A connection, and what was found out about the server. Closed when the last copy is dropped.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) id: u64,
    /// The runtime that drives it.
    pub(crate) home: Home,
    pub(crate) connection: MultiplexedConnection,
    pub(crate) driver: Arc<Driver>,
    pub(crate) seen: Arc<Seen>,
    pub(crate) run_id: Option<String>,
    pub(crate) server: Server,
    pub(crate) scripts: Arc<Scripts>,
    pub(crate) tickets: Arc<Tickets>,
}

/// The task that sends and receives. A connection that is dropped is closed at once, whatever is under way on it.
pub(crate) struct Driver {
    task: JoinHandle<()>,
    /// Fires when the connection has ended, from either side, or was given up.
    ended: CancellationToken,
}

impl Driver {
    pub(crate) fn start(drive: impl Future<Output = ()> + Send + 'static) -> Self {
        let ended = CancellationToken::new();
        // Dropped also when the task is aborted, or its runtime ends.
        let guard = ended.clone().drop_guard();
        let task = tokio::spawn(async move {
            let _guard = guard;
            drive.await;
        });
        Self { task, ended }
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.task.is_finished()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Whether something that was sent on a connection may still take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what may still be executed may still be granted"]
pub(crate) enum Left {
    /// The server has closed its side too, after it executed what had reached it.
    NothingComes,
    Unknown,
}

impl Link {
    /// Not if its runtime has ended.
    pub(crate) fn is_driven(&self) -> bool {
        self.driver.is_running()
    }

    /// Nothing more is sent on it, though answers may still come.
    pub(crate) fn give_up(&self) {
        self.driver.ended.cancel();
    }

    /// Fires when the connection has ended, or was given up.
    pub(crate) fn ended(&self) -> CancellationToken {
        self.driver.ended.clone()
    }

    /// That of the process at the other end.
    pub(crate) fn run_id(&self) -> Option<&str> {
        self.run_id.as_deref()
    }

    /// One answer to one question, about this lock.
    pub(crate) async fn ask(
        &self,
        key: &str,
        question: Question<'_>,
        sent: Sent,
    ) -> Result<Option<u64>, RedisError> {
        self.server.check(question)?;
        let Some(script) = self.server.script(question) else {
            return number(&self.send(&self.server.command(key, question), sent).await?);
        };
        if self.scripts.knows(script) {
            let answer = self.send(&self.server.command(key, question), sent).await;
            match answer {
                Err(error) if verdict(&error) == Verdict::UnknownScript => self.scripts.forget(),
                answer => return number(&answer?),
            }
        }
        let answer = self.send(&self.server.command_in_full(key, question), sent).await?;
        self.scripts.learn(script);
        number(&answer)
    }

    /// Takes the lock, and says how many replicas have heard of it within so long. The first number is none if it is
    /// not to be had.
    pub(crate) async fn acquire_heard(
        &self,
        key: &str,
        question: Question<'_>,
        sent: Sent,
        replicas: u64,
        within: Duration,
    ) -> Result<(Option<u64>, u64), RedisError> {
        self.server.check(question)?;
        let mut pipeline = pipe();
        if sent == Sent::ByAnotherNode {
            pipeline.cmd("ASKING").ignore();
        }
        pipeline.add_command(self.server.command_in_full(key, question));
        pipeline.cmd("WAIT").arg(replicas).arg(crate::dialect::millis(within));
        let expected = if sent == Sent::ByAnotherNode { 3 } else { 2 };
        let replies = self.all(&pipeline, expected).await?;
        let mut replies = replies.into_iter().rev().map(Value::extract_error);
        let heard = replies.next().unwrap_or(Ok(Value::Nil));
        let fence = number(&replies.next().unwrap_or(Ok(Value::Nil))?)?;
        if fence.is_none() {
            return Ok((None, 0));
        }
        Ok((fence, number(&heard?)?.unwrap_or_default()))
    }

    pub(crate) async fn send(&self, command: &Cmd, sent: Sent) -> Result<Value, RedisError> {
        if sent == Sent::ByItself {
            return self.one(command).await;
        }
        let mut pipeline = pipe();
        pipeline.cmd("ASKING").add_command(command.clone());
        let replies = self.all(&pipeline, 2).await?;
        replies.into_iter().next_back().unwrap_or(Value::Nil).extract_error()
    }

    pub(crate) async fn one(&self, command: &Cmd) -> Result<Value, RedisError> {
        self.connection.clone().req_packed_command(command).await?.extract_error()
    }

    /// Nobody waits for the answers.
    pub(crate) async fn introduce_library(&self) {
        let (name, version) = (env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        for (field, value) in [("LIB-NAME", name), ("LIB-VER", version)] {
            let mut command = cmd("CLIENT");
            command.arg("SETINFO").arg(field).arg(value).set_no_response(true);
            // A connection that has failed says so to whoever uses it.
            let _ = self.connection.clone().send_packed_command(&command).await;
        }
    }

    pub(crate) async fn all(
        &self,
        pipeline: &Pipeline,
        count: usize,
    ) -> Result<Vec<Value>, RedisError> {
        self.connection.clone().req_packed_commands(pipeline, 0, count).await
    }

    /// Sends a last question, if there is one, waits for no answer, and closes the connection. The server executes what
    /// was sent in order, and then closes its side: nothing that was sent on this connection can take effect after that.
    /// Whoever waits on it leaves the queue at once.
    pub(crate) async fn leave(
        self,
        key: &str,
        last: Option<Question<'_>>,
        limit: Duration,
    ) -> Left {
        let last = last.map(|last| self.server.command_in_full(key, last));
        let Self { mut connection, driver, seen, .. } = self;
        let leaving = async {
            if let Some(mut last) = last {
                // Once it is on its way the connection can be closed behind it.
                let _ = connection.send_packed_command(last.set_no_response(true)).await;
            }
            drop(connection);
            if let Some(mut driver) = Arc::into_inner(driver) {
                let _ = (&mut driver.task).await;
            }
        };
        let _ = tokio::time::timeout(limit, leaving).await;
        if seen.the_end() { Left::NothingComes } else { Left::Unknown }
    }
}
