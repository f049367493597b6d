//! One server, and the connections to it: one that all share, and those on which somebody waits.

use crate::dialect::{Compares, Question, Server, number};
use crate::verdict::{Verdict, verdict};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, Value, cmd, pipe};
use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many connections are kept for the next ones who wait.
const MOST_IDLE: usize = 32;

/// Whether the server is to be told that the client was sent here by another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    ByItself,
    ByAnotherNode,
}

pub(crate) struct Node {
    pub(crate) address: String,
    pub(crate) client: Client,
    shared: tokio::sync::Mutex<Shared>,
    idle: Mutex<Vec<Link>>,
}

#[derive(Default)]
struct Shared {
    link: Option<Link>,
    /// The last try to connect that failed, and when: whoever queued up behind it need not repeat it.
    failed: Option<(Instant, RedisError)>,
}

/// A connection, and what it found out about the server. Closed when the last copy is dropped.
#[derive(Clone)]
pub(crate) struct Link {
    id: u64,
    connection: MultiplexedConnection,
    pub(crate) server: Server,
}

impl Node {
    pub(crate) fn new(address: String, client: Client) -> Arc<Self> {
        Arc::new(Self { address, client, shared: Default::default(), idle: Mutex::default() })
    }

    /// The connection that all share; nothing that blocks goes over it.
    pub(crate) async fn shared(&self, limit: Duration) -> Result<Link, RedisError> {
        let asked = Instant::now();
        let mut shared = self.shared.lock().await;
        if let Some(link) = &shared.link {
            return Ok(link.clone());
        }
        if let Some((_, error)) = shared.failed.as_ref().filter(|(failed, _)| *failed >= asked) {
            return Err(error.clone());
        }
        match Link::open(&self.client, limit).await {
            Ok(link) => {
                shared.link = Some(link.clone());
                Ok(link)
            }
            Err(error) => {
                shared.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// A connection for whoever is about to wait.
    pub(crate) async fn own(&self, limit: Duration) -> Result<Link, RedisError> {
        let idle = self.idle().pop();
        match idle {
            Some(link) => Ok(link),
            None => Link::open(&self.client, limit).await,
        }
    }

    /// It waits no more.
    pub(crate) fn give_back(&self, link: Link) {
        let mut idle = self.idle();
        if idle.len() < MOST_IDLE {
            idle.push(link);
        }
    }

    /// This connection has failed: the next one who asks opens another.
    pub(crate) fn forget(&self, link: &Link) {
        // Whoever has it locked is opening another one at this moment.
        if let Ok(mut shared) = self.shared.try_lock() {
            shared.link.take_if(|known| known.id == link.id);
        }
        // Those that were opened before it are no better.
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Link>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    pub(crate) async fn open(client: &Client, limit: Duration) -> Result<Self, RedisError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // The limits are set for each request: those that wait have another one.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limit))
            .set_response_timeout(None);
        let opening = client.get_multiplexed_async_connection_with_config(&config);
        let connection = within(limit, opening).await?;
        let mut link = Self {
            id: NEXT.fetch_add(1, Relaxed),
            connection,
            server: Server::Plain(Compares::Scripts),
        };
        link.server = within(limit, link.find_out()).await?;
        Ok(link)
    }

    /// Commands without arguments: a server that has them complains of that, and one that has not does not know them.
    async fn find_out(&self) -> Result<Server, RedisError> {
        let probes = ["LOCK.ACQUIRE", "DELEX", "DELIFEQ"].map(cmd);
        let mut pipeline = pipe();
        probes.into_iter().for_each(|probe| {
            pipeline.add_command(probe);
        });
        let mut knows = Vec::new();
        for reply in self.all(&pipeline, 3).await? {
            match reply.extract_error() {
                Err(error) if verdict(&error) == Verdict::UnknownCommand => knows.push(false),
                Err(error) if verdict(&error) == Verdict::Refused => knows.push(true),
                // It says so whatever it is asked, as while loading.
                Err(error) => return Err(error),
                Ok(_) => knows.push(true),
            }
        }
        if knows.first() == Some(&true) {
            return Ok(Server::Native);
        }
        let compares = match knows.get(1..) {
            Some([true, _]) => Compares::Delex,
            Some([_, true]) => Compares::Delifeq,
            _ if self.sets_if_equal().await? => Compares::Set,
            _ => Compares::Scripts,
        };
        Ok(Server::Plain(compares))
    }

    /// Valkey 8.1 and 8.2, by their version: no wrong words tell whether `SET` knows this option.
    async fn sets_if_equal(&self) -> Result<bool, RedisError> {
        let info: Value = self.one(cmd("INFO").arg("server")).await?;
        let text = match info {
            Value::BulkString(text) => String::from_utf8_lossy(&text).into_owned(),
            Value::VerbatimString { text, .. } => text,
            _ => String::new(),
        };
        let version = text.lines().find_map(|line| line.strip_prefix("valkey_version:"));
        let mut parts = version.unwrap_or_default().split('.').map(|part| part.parse::<u32>());
        let (major, minor) = (parts.next(), parts.next());
        Ok(matches!((major, minor), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (8, 1)))
    }

    /// One answer to one question, about this lock.
    pub(crate) async fn ask(
        &self,
        key: &str,
        question: Question<'_>,
        sent: Sent,
    ) -> Result<Option<u64>, RedisError> {
        let answer = self.send(self.server.command(key, question), sent).await;
        let answer = match answer {
            Err(error) if verdict(&error) == Verdict::UnknownScript => {
                self.send(self.server.command_in_full(key, question), sent).await
            }
            answer => answer,
        };
        number(&answer?)
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

    pub(crate) async fn send(&self, command: Cmd, sent: Sent) -> Result<Value, RedisError> {
        if sent == Sent::ByItself {
            return self.one(&command).await;
        }
        let mut pipeline = pipe();
        pipeline.cmd("ASKING").add_command(command);
        let replies = self.all(&pipeline, 2).await?;
        replies.into_iter().next_back().unwrap_or(Value::Nil).extract_error()
    }

    pub(crate) async fn one(&self, command: &Cmd) -> Result<Value, RedisError> {
        self.connection.clone().req_packed_command(command).await?.extract_error()
    }

    async fn all(&self, pipeline: &Pipeline, count: usize) -> Result<Vec<Value>, RedisError> {
        self.connection.clone().req_packed_commands(pipeline, 0, count).await
    }
}

/// What takes longer failed.
pub(crate) async fn within<T>(
    limit: Duration,
    asked: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, RedisError> {
    let too_long = |_| RedisError::from(io::Error::from(io::ErrorKind::TimedOut));
    tokio::time::timeout(limit, asked).await.map_err(too_long)?
}
