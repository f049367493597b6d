//! One server, or the primary that sentinels name: one connection for all requests, reopened after a loss.
//!
//! The redis crate's `ConnectionManager` also reconnects. But it does not report that, and keeps using a connection that
//! died silently. Here the next request opens another one after a missing answer, and after the server became a replica.

use super::{Endpoint, Line, Listener, Node, patient};
use crate::locked::locked;
use crate::measure;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use redis::aio::AsyncPushSender;
use redis::sentinel::SentinelClient;
use redis::{Client, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisError, Value, cmd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The time for sentinels. The redis crate waits 1.5 s for a silent one before it asks another.
const SENTINELS_WITHIN: Duration = Duration::from_secs(2);

type Opening = Shared<BoxFuture<'static, Result<Line, RedisError>>>;

pub(super) struct Single {
    source: Source,
    limit: Duration,
    name: Option<String>,
    /// Bound holds need a report of the connection's end.
    has_holds: bool,
    state: Mutex<State>,
}

#[derive(Clone)]
pub(super) enum Source {
    One(Endpoint),
    Sentinels(Arc<tokio::sync::Mutex<SentinelClient>>),
}

#[derive(Default)]
struct State {
    line: Option<Line>,
    opening: Option<Opening>,
    was_open: bool,
    is_closed: bool,
}

impl Single {
    pub(super) fn to(source: Source, limit: Duration, name: Option<String>) -> Arc<Self> {
        Arc::new(Self { source, limit, name, has_holds: false, state: Mutex::default() })
    }

    /// A connection for bound holds.
    pub(super) fn for_holds(source: Source, limit: Duration) -> Arc<Self> {
        Arc::new(Self { source, limit, name: None, has_holds: true, state: Mutex::default() })
    }

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
                // Spawned, because a caller that no longer polls this future would keep the sentinels locked for the others.
                let opening = tokio::spawn(Arc::clone(self).open());
                opening.map(|came| came.unwrap_or_else(|_| Err(closed()))).boxed().shared()
            };
            state.opening.get_or_insert_with(open).clone()
        };
        opening.await
    }

    /// Runs once for all callers.
    async fn open(self: Arc<Self>) -> Result<Line, RedisError> {
        let limit = match self.source {
            Source::One(_) => self.limit,
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
        let endpoint = match &self.source {
            Source::One(endpoint) => endpoint.clone(),
            Source::Sentinels(sentinels) => sentinels.lock().await.async_get_client().await?.into(),
        };
        let pushes = Arc::new(Pushes::default());
        let config = patient(Some(self.limit)).set_push_sender(Arc::clone(&pushes));
        let told = speaking_resp3(&endpoint)?;
        let (mut connection, pushes) = match told.open(&config).await {
            Ok(connection) => (connection, Some(pushes)),
            Err(error) if self.has_holds || !is_about_resp3(&error) => return Err(error),
            Err(_) => (endpoint.open(&patient(Some(self.limit))).await?, None),
        };
        let node = match pushes {
            Some(pushes) => {
                Node { gone: pushes.gone.clone(), pushes: Some(pushes), ..Node::new(endpoint) }
            }
            None => Node::new(endpoint),
        };
        let node = Arc::new(node);
        if let Some(name) = &self.name {
            let named = cmd("CLIENT").arg("SETNAME").arg(name).exec_async(&mut connection).await;
            match named {
                // Report a missing password here: to a longer request, the server replies only that the request is too long.
                Err(error) if error.code() == Some("NOAUTH") => return Err(error),
                // Without the permission, the connection stays unnamed.
                _ => {}
            }
        }
        Ok(Line::Own(connection, node))
    }

    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.give_up();
    }

    /// Makes the next request open another connection.
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

/// The server lacks RESP3, or the command that selects it.
fn is_about_resp3(error: &RedisError) -> bool {
    error.kind() == ErrorKind::RESP3NotSupported || matches!(error.code(), Some("ERR" | "NOPROTO"))
}

/// With RESP3, messages about grants come on the line, and the redis crate reports the end of a connection.
fn speaking_resp3(endpoint: &Endpoint) -> Result<Endpoint, RedisError> {
    let Some(client) = endpoint.client() else { return Ok(endpoint.clone()) };
    let info = client.get_connection_info();
    let redis = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    Client::open(info.clone().set_redis_settings(redis)).map(Endpoint::from)
}

#[derive(Default)]
pub(super) struct Pushes {
    pub(super) gone: CancellationToken,
    pub(super) listener: OnceLock<Listener>,
}

impl AsyncPushSender for Pushes {
    fn send(&self, PushInfo { kind, data }: PushInfo) -> Result<(), redis::aio::SendError> {
        match (kind, data.as_slice(), self.listener.get()) {
            (PushKind::Disconnection, ..) => self.gone.cancel(),
            (PushKind::Message, [_, Value::BulkString(message)], Some(listener)) => {
                listener(message);
            }
            _ => {}
        }
        Ok(())
    }
}
