//! Hearing from the server that a key has changed, on a connection of its own: client-side caching
//! without the cache.
//!
//! What is heard is a reason to look, and nothing more: it may be lost, and it may come for
//! nothing.

use crate::link::Driver;
use crate::node::{Node, within};
use crate::verdict::{Verdict, verdict};
use crate::wire::Wire;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, PushInfo, PushKind, RedisError, cmd};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// How often a key that changes all the time is looked at.
const REST: Duration = Duration::from_millis(10);

/// Whether changes of a key are heard of.
pub(crate) enum Watch {
    /// Not yet, or not any more.
    Closed,
    Open(Tracked),
    /// The server has refused it.
    Refused,
}

/// A connection that is told when a key has changed that was read on it.
pub(crate) struct Tracked {
    connection: MultiplexedConnection,
    _driver: Driver,
    heard: UnboundedReceiver<PushInfo>,
}

impl Watch {
    /// The next change of this key is heard of from now on, if the server tells of it.
    pub(crate) async fn arm(&mut self, wire: &Wire, key: &str, limit: Duration) {
        if matches!(self, Self::Closed)
            && let Ok(node) = wire.node(key, limit, None).await
        {
            match Tracked::open(&node, limit).await {
                Ok(tracked) => *self = Self::Open(tracked),
                Err(error) if verdict(&error) == Verdict::Refused => *self = Self::Refused,
                Err(_) => {}
            }
        }
        if let Self::Open(tracked) = self {
            let read = within(limit, tracked.ask(cmd("GET").arg(key))).await;
            if let Err(error) = read {
                // A key of another type is not refused to whoever reads it later.
                let is_refused = error.code() == Some("NOPERM");
                *self = if is_refused { Self::Refused } else { Self::Closed };
            }
        }
    }

    /// Returns when something has changed, or after so long.
    pub(crate) async fn changed(&mut self, longest: Duration) {
        let Self::Open(tracked) = self else {
            return tokio::time::sleep(longest).await;
        };
        let told = tokio::time::timeout(longest, tracked.heard.recv()).await;
        match told {
            Ok(Some(PushInfo { kind: PushKind::Invalidate, .. })) => {}
            Ok(_) => *self = Self::Closed,
            Err(_) => return,
        }
        tokio::time::sleep(REST.min(longest)).await;
        if let Self::Open(tracked) = self {
            // What came meanwhile is looked at with this.
            while tracked.heard.try_recv().is_ok() {}
        }
    }
}

impl Tracked {
    async fn open(node: &Node, limit: Duration) -> Result<Self, RedisError> {
        let (hears, heard) = unbounded_channel();
        let (connection, driver) = node.tracking(hears, limit).await?;
        let mut tracked = Self { connection, _driver: driver, heard };
        within(limit, tracked.ask(cmd("CLIENT").arg("TRACKING").arg("ON"))).await?;
        Ok(tracked)
    }

    async fn ask(&mut self, command: &Cmd) -> Result<(), RedisError> {
        command.query_async::<redis::Value>(&mut self.connection).await.map(|_| ())
    }
}
