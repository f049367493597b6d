//! The way to the server of a lock, over the redis crate.
//!
//! ```text
//!   requests of all locks ──► line ──► the server, the sentinels' primary, or the node of the key's slot
//!                              │
//!                              └─ node: opens connections beside it, for what a shared connection cannot do
//! ```
//!
//! A multiplexed connection of the redis crate answers in order, and is of no use for a request that waits, and for a command
//! that must not be repeated. For these there are connections beside it, to the same node. Grants are told on the line where
//! it is a connection of our own that speaks RESP3; where not, on a subscription beside it.

mod cluster;
mod single;

use crate::clock::within;
use crate::locked::locked;
use crate::server::Place;
use crate::settings::Settings;
use cluster::{Cluster, Tap};
use redis::aio::{ConnectionManager, MultiplexedConnection, PubSub};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, Value, cmd};
use single::{Pushes, Single, Source};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What a message on a subscribed channel is given to.
pub(crate) type Listener = Box<dyn Fn(&[u8]) + Send + Sync>;

type Bond = (Arc<Node>, Arc<Single>);

pub(crate) struct Link {
    lines: Lines,
    limit: Duration,
    /// Connections that holds are bound to, where the line is none of our own: by the node.
    bonds: Mutex<HashMap<u64, Bond>>,
}

enum Lines {
    /// The line, and the connection that holds are bound to: a bound hold learns of its end.
    Single(Arc<Single>, Arc<Single>),
    Manager(ConnectionManager, Option<Arc<Node>>),
    Cluster(Box<Cluster>),
}

/// A connection that requests are made on.
#[derive(Clone)]
pub(crate) enum Line {
    Own(MultiplexedConnection, Arc<Node>),
    Manager(ConnectionManager),
    Cluster(ClusterConnection<Tap>),
}

/// A server that may be connected to beside the line: for a single server, as long as the line to it stands.
pub(crate) struct Node {
    pub(crate) id: u64,
    client: Client,
    /// The line to it is lost.
    pub(crate) gone: CancellationToken,
    /// What comes on the line to it that is no answer, if it can.
    pushes: Option<Arc<Pushes>>,
}

/// Whether the hold is bound to the connection that the request is made on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    No,
    Yes,
}

impl Link {
    pub(crate) fn to(place: &Place, settings: &Settings) -> Self {
        let (limit, name) = (settings.response_timeout, settings.connection_name.clone());
        let single = |source: Source| {
            Lines::Single(Single::to(source.clone(), limit, name), Single::for_holds(source, limit))
        };
        let lines = match place {
            Place::Client(client) => single(Source::Client(Box::new(client.clone()))),
            Place::Sentinel(client) => single(Source::Sentinels(Arc::clone(client))),
            Place::Cluster(client) => Lines::Cluster(Box::new(Cluster::of(client.clone()))),
            Place::Manager(manager, client) => Lines::Manager(
                manager.clone(),
                client.clone().map(|client| Arc::new(Node::new(client))),
            ),
        };
        Self { lines, limit, bonds: Mutex::default() }
    }

    /// The line for requests about this key.
    pub(crate) async fn line(&self, key: &[u8], bound: Bound) -> Result<Line, RedisError> {
        match (&self.lines, bound) {
            (Lines::Single(single, _), Bound::No) => match single.open_line() {
                Some(line) => Ok(line),
                None => Box::pin(single.line()).await,
            },
            (Lines::Manager(manager, _), Bound::No) => Ok(Line::Manager(manager.clone())),
            (Lines::Cluster(cluster), Bound::No) => {
                Box::pin(cluster.connection()).await.map(Line::Cluster)
            }
            (_, Bound::Yes) => Box::pin(self.bound_line(key)).await,
        }
    }

    /// A line that sends each request once. That of a cluster sends it again where it was not answered.
    pub(crate) async fn line_that_sends_once(&self, key: &[u8]) -> Result<Line, RedisError> {
        self.line(key, if self.is_cluster() { Bound::Yes } else { Bound::No }).await
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.lines, Lines::Cluster(_))
    }

    /// The server that has the key, as far as is known.
    pub(crate) async fn node(&self, key: &[u8]) -> Result<Arc<Node>, RedisError> {
        match &self.lines {
            Lines::Single(..) => {
                let line = self.line(key, Bound::No).await?;
                line.node().cloned().ok_or_else(nothing_beside)
            }
            Lines::Manager(_, node) => node.clone().ok_or_else(nothing_beside),
            Lines::Cluster(cluster) => Box::pin(cluster.node(key)).await,
        }
    }

    /// The line, if it is open and one of our own.
    pub(crate) fn own_line(&self) -> Option<Line> {
        match &self.lines {
            Lines::Single(single, _) => single.open_line(),
            _ => None,
        }
    }

    /// Whether connections can be opened beside the line.
    pub(crate) fn reaches_beside(&self) -> bool {
        !matches!(self.lines, Lines::Manager(_, None))
    }

    async fn bound_line(&self, key: &[u8]) -> Result<Line, RedisError> {
        let line = self.bond(key).await?.line().await;
        if line.is_err() {
            self.doubt(key).await;
        }
        line
    }

    /// The node of this key may be gone. The redis crate finds that out by a request; the connections of a single server
    /// find it out by themselves.
    pub(crate) async fn doubt(&self, key: &[u8]) {
        let Lines::Cluster(cluster) = &self.lines else { return };
        let look = cmd("EXISTS").arg(key).take();
        let looking = async { Line::Cluster(cluster.connection().await?).send(key, &look).await };
        // What comes of it does not matter.
        let _ = within(self.limit, Box::pin(looking)).await;
    }

    async fn bond(&self, key: &[u8]) -> Result<Arc<Single>, RedisError> {
        if let Lines::Single(_, bond) = &self.lines {
            return Ok(Arc::clone(bond));
        }
        let node = self.node(key).await?;
        let mut bonds = locked(&self.bonds);
        bonds.retain(|_, (node, _)| !node.gone.is_cancelled());
        let (_, bond) = bonds.entry(node.id).or_insert_with(|| {
            let source = Source::Client(Box::new(node.client.clone()));
            (node, Single::for_holds(source, self.limit))
        });
        Ok(Arc::clone(bond))
    }

    /// The server has not answered in time, or is no primary any more: the next request is made on another connection.
    pub(crate) fn give_up(&self, line: &Line) {
        let Line::Own(_, node) = line else { return };
        node.gone.cancel();
    }

    /// Closes what was opened here.
    pub(crate) fn close(&self) {
        let mut bonds = locked(&self.bonds);
        bonds.drain().for_each(|(_, (_, bond))| bond.close());
        drop(bonds);
        match &self.lines {
            Lines::Single(line, bond) => {
                line.close();
                bond.close();
            }
            Lines::Cluster(cluster) => cluster.close(),
            Lines::Manager(..) => {}
        }
    }
}

impl Line {
    pub(crate) async fn send(&mut self, key: &[u8], command: &Cmd) -> Result<Value, RedisError> {
        match self {
            Self::Own(connection, _) => {
                connection.send_packed_command(command).await?.extract_error()
            }
            Self::Manager(manager) => command.query_async(manager).await,
            // In a box, because it is large, and few requests are of this kind.
            Self::Cluster(connection) => {
                let routed = connection.route_command(command.clone(), to_primary_of(key));
                Box::pin(routed).await?.extract_error()
            }
        }
    }

    /// Has messages of this channel be given to the listener. False: not on this line.
    pub(crate) async fn subscribe(
        &mut self,
        channel: &str,
        listener: Listener,
    ) -> Result<bool, RedisError> {
        let Self::Own(connection, node) = self else { return Ok(false) };
        let Some(pushes) = &node.pushes else { return Ok(false) };
        // There is one channel and one listener, however often it is subscribed to.
        let _ = pushes.listener.set(listener);
        connection.subscribe(channel).await.map(|()| true)
    }

    /// The node of a connection of our own.
    pub(crate) fn node(&self) -> Option<&Arc<Node>> {
        match self {
            Self::Own(_, node) => Some(node),
            Self::Manager(_) | Self::Cluster(_) => None,
        }
    }
}

impl Node {
    fn new(client: Client) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT.fetch_add(1, Relaxed),
            client,
            gone: CancellationToken::new(),
            pushes: None,
        }
    }

    /// Where the server tells what becomes of a key, if it is set to.
    pub(crate) fn channel_of(&self, key: &[u8]) -> Vec<u8> {
        let db = self.client.get_connection_info().redis_settings().db();
        [format!("__keyspace@{db}__:").as_bytes(), key].concat()
    }

    /// A connection that does nothing else.
    pub(crate) async fn dedicated(&self) -> Result<MultiplexedConnection, RedisError> {
        self.client.get_multiplexed_async_connection_with_config(&patient(None)).await
    }

    pub(crate) async fn subscribe(&self, channel: &[u8]) -> Result<PubSub, RedisError> {
        let mut subscription = self.client.get_async_pubsub().await?;
        subscription.subscribe(channel).await?;
        Ok(subscription)
    }
}

/// Answers are waited for here, and not in the redis crate: what it gives up on, it does not tell from what was refused.
fn patient(connect_within: Option<Duration>) -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(connect_within)
}

fn to_primary_of(key: &[u8]) -> RoutingInfo {
    RoutingInfo::SingleNode(SingleNodeRoutingInfo::SpecificNode(Route::with_key(
        key,
        SlotAddr::Master,
    )))
}

fn nothing_beside() -> RedisError {
    (
        ErrorKind::InvalidClientConfig,
        "no connection can be opened beside this one: give the client along with it",
    )
        .into()
}
