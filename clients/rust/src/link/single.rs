//! One server, or the primary that sentinels name: a connection for all requests, opened anew when it is lost.
//!
//! The redis crate has a connection that opens itself anew, its `ConnectionManager`. That one does not tell when it has done
//! so, and it goes on with a connection that is dead without having said so. Here the next request opens another one: after
//! an answer that did not come in time, and after a server that has become a replica.

use super::{Line, Node, patient};
use crate::locked::locked;
use crate::measure;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use redis::aio::AsyncPushSender;
use redis::sentinel::SentinelClient;
use redis::{Client, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisError, cmd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long sentinels may take. The redis crate waits for one that is silent, for a second and a half, before it heeds another.
const SENTINELS_WITHIN: Duration = Duration::from_secs(2);

type Opening = Shared<BoxFuture<'static, Result<Line, RedisError>>>;

pub(super) struct Single {
    source: Source,
    limit: Duration,
    name: Option<String>,
    /// Whether the server tells of the end of the connection. Requests tell of it otherwise.
    tells: bool,
    state: Mutex<State>,
}

#[derive(Clone)]
pub(super) enum Source {
    Client(Box<Client>),
    Sentinels(Arc<tokio::sync::Mutex<SentinelClient>>),
}

#[derive(Default)]
struct State {
    line: Option<Line>,
    opening: Option<Opening>,
    /// There was a line before.
    was_open: bool,
    is_closed: bool,
}

impl Single {
    pub(super) fn to(source: Source, limit: Duration, name: Option<String>) -> Arc<Self> {
        Arc::new(Self { source, limit, name, tells: false, state: Mutex::default() })
    }

    /// A connection whose node is gone as soon as its end is noticed.
    pub(super) fn that_tells(source: Source, limit: Duration) -> Arc<Self> {
        Arc::new(Self { source, limit, name: None, tells: true, state: Mutex::default() })
    }

    /// The line, if it is open.
    pub(super) fn open_line(&self) -> Option<Line> {
        self.state().open_line()
    }

    pub(super) async fn line(self: &Arc<Self>) -> Result<Line, RedisError> {
        let opening = {
            let mut state = self.state();
            if state.is_closed {
                return Err(closed());
            }
            if let Some(line) = state.open_line() {
                return Ok(line);
            }
            let open = || {
                // A task of its own: those who ask for it may go, and others wait for what it has locked.
                let opening = tokio::spawn(Arc::clone(self).open());
                opening.map(|came| came.unwrap_or_else(|_| Err(closed()))).boxed().shared()
            };
            state.opening.get_or_insert_with(open).clone()
        };
        opening.await
    }

    /// However many ask for it, it is opened once.
    async fn open(self: Arc<Self>) -> Result<Line, RedisError> {
        let limit = match self.source {
            Source::Client(_) => self.limit,
            Source::Sentinels(_) => self.limit.saturating_add(SENTINELS_WITHIN),
        };
        let opened = tokio::time::timeout(limit, self.connect()).await;
        let opened = opened.unwrap_or_else(|_| Err(crate::error::unanswered()));
        let mut state = self.state();
        state.opening = None;
        if let (Ok(line), false) = (&opened, state.is_closed) {
            state.line = Some(line.clone());
            if std::mem::replace(&mut state.was_open, true) {
                measure::reconnected();
            }
        }
        opened
    }

    async fn connect(&self) -> Result<Line, RedisError> {
        let client = match &self.source {
            Source::Client(client) => Client::clone(client),
            Source::Sentinels(sentinels) => sentinels.lock().await.async_get_client().await?,
        };
        let client = if self.tells { speaking_resp3(client)? } else { client };
        let node = Arc::new(Node::new(client));
        let mut config = patient(Some(self.limit));
        if self.tells {
            config = config.set_push_sender(End(node.gone.clone()));
        }
        let mut connection =
            node.client.get_multiplexed_async_connection_with_config(&config).await?;
        if let Some(name) = &self.name {
            let named = cmd("CLIENT").arg("SETNAME").arg(name).exec_async(&mut connection).await;
            match named {
                // Of a request with more words the server says only that it is too long for somebody unknown.
                Err(error) if error.code() == Some("NOAUTH") => return Err(error),
                // A user who may not is not named.
                _ => {}
            }
        }
        Ok(Line::Own(connection, node))
    }

    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.give_up();
    }

    /// The next request is made on another connection.
    pub(super) fn give_up(&self) {
        if let Some(node) = self.state().line.take().as_ref().and_then(Line::node) {
            node.gone.cancel();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }
}

impl State {
    fn open_line(&mut self) -> Option<Line> {
        let line = self.line.as_ref()?;
        if line.node().is_some_and(|node| !node.gone.is_cancelled()) {
            return Some(line.clone());
        }
        self.line = None;
        None
    }
}

fn closed() -> RedisError {
    (ErrorKind::Io, "the connection was closed").into()
}

/// Only by that protocol does the redis crate tell of the end of a connection.
fn speaking_resp3(client: Client) -> Result<Client, RedisError> {
    let info = client.get_connection_info();
    let redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    Client::open(info.clone().set_redis_settings(redis))
}

/// What the redis crate tells of the end of a connection.
struct End(CancellationToken);

impl AsyncPushSender for End {
    fn send(&self, info: PushInfo) -> Result<(), redis::aio::SendError> {
        if info.kind == PushKind::Disconnection {
            self.0.cancel();
        }
        Ok(())
    }
}
