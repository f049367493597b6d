//! The way to the server of a lock, over the redis crate.
//!
//! ```text
//!   requests of all locks ──► line ──► the server, the sentinels' primary, or the node of the key's slot
//!                              │
//!                              └─ node: opens connections beside it, for what a shared connection cannot do
//! ```
//!
//! A multiplexed connection of the redis crate answers in order, and is of no use for a subscription, for a request that
//! waits, and for a command that must not be repeated. For these there are connections beside it, to the same node.

mod cluster;
mod single;

use crate::locked::locked;
use crate::server::Place;
use crate::settings::Settings;
use cluster::{Cluster, Tap};
use redis::aio::{ConnectionManager, MultiplexedConnection, PubSub};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, Value};
use single::Single;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

pub(crate) struct Link {
    lines: Lines,
    limit: Duration,
    /// Connections that holds are bound to, by the node. A bound hold learns of the end of its connection.
    bonds: Mutex<HashMap<u64, Arc<Single>>>,
}

enum Lines {
    Single(Arc<Single>),
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
        let lines = match place {
            Place::Client(client) => Lines::Single(Single::to(client.clone(), limit, name)),
            Place::Sentinel(client) => {
                Lines::Single(Single::by_sentinels(Arc::clone(client), limit, name))
            }
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
        if bound == Bound::Yes {
            let node = self.node(key).await?;
            let line = self.bond(&node).line().await;
            if line.is_err() {
                self.doubt(&node, key).await;
            }
            return line;
        }
        match &self.lines {
            Lines::Single(single) => single.line().await,
            Lines::Manager(manager, _) => Ok(Line::Manager(manager.clone())),
            Lines::Cluster(cluster) => cluster.connection().await.map(Line::Cluster),
        }
    }

    /// A line that sends each request once. That of a cluster sends it again where it was not answered.
    pub(crate) async fn line_that_sends_once(&self, key: &[u8]) -> Result<Line, RedisError> {
        let is_cluster = matches!(self.lines, Lines::Cluster(_));
        self.line(key, if is_cluster { Bound::Yes } else { Bound::No }).await
    }

    /// The server that has the key, as far as is known.
    pub(crate) async fn node(&self, key: &[u8]) -> Result<Arc<Node>, RedisError> {
        match &self.lines {
            Lines::Single(single) => match single.line().await? {
                Line::Own(_, node) => Ok(node),
                Line::Manager(_) | Line::Cluster(_) => Err(nothing_beside()),
            },
            Lines::Manager(_, node) => node.clone().ok_or_else(nothing_beside),
            Lines::Cluster(cluster) => cluster.node(key).await,
        }
    }

    /// Whether connections can be opened beside the line.
    pub(crate) fn reaches_beside(&self) -> bool {
        !matches!(self.lines, Lines::Manager(_, None))
    }

    fn bond(&self, node: &Node) -> Arc<Single> {
        let mut bonds = locked(&self.bonds);
        // The bonds of nodes that are gone would be more and more.
        bonds.retain(|_, bond| !bond.is_forsaken());
        let bond =
            bonds.entry(node.id).or_insert_with(|| Single::that_tells(&node.client, self.limit));
        Arc::clone(bond)
    }

    /// Nothing can be opened beside the line to this node: it may be gone, and the line dead without having said so.
    async fn doubt(&self, node: &Node, key: &[u8]) {
        match &self.lines {
            Lines::Single(_) => node.gone.cancel(),
            Lines::Cluster(cluster) => {
                // The redis crate finds it out by a request.
                if let Ok(connection) = cluster.connection().await {
                    let look = redis::cmd("EXISTS").arg(key).take();
                    let _ = Line::Cluster(connection).send(key, &look).await;
                }
            }
            Lines::Manager(..) => {}
        }
    }

    /// The server has not answered in time, or is no primary any more: the next request is made on another connection.
    pub(crate) fn give_up(&self, line: &Line) {
        let Line::Own(_, node) = line else { return };
        node.gone.cancel();
    }

    /// Closes what was opened here.
    pub(crate) fn close(&self) {
        let mut bonds = locked(&self.bonds);
        bonds.drain().for_each(|(_, bond)| bond.close());
        drop(bonds);
        match &self.lines {
            Lines::Single(single) => single.close(),
            Lines::Cluster(cluster) => cluster.close(),
            Lines::Manager(..) => {}
        }
    }
}

impl Line {
    pub(crate) async fn send(&mut self, key: &[u8], command: &Cmd) -> Result<Value, RedisError> {
        match self {
            Self::Own(connection, _) => command.query_async(connection).await,
            Self::Manager(manager) => command.query_async(manager).await,
            Self::Cluster(connection) => {
                connection.route_command(command.clone(), to_primary_of(key)).await?.extract_error()
            }
        }
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
        Self { id: NEXT.fetch_add(1, Relaxed), client, gone: CancellationToken::new() }
    }

    /// A connection that does nothing else.
    pub(crate) async fn dedicated(&self) -> Result<MultiplexedConnection, RedisError> {
        self.client.get_multiplexed_async_connection_with_config(&patient(None)).await
    }

    pub(crate) async fn subscribe(&self, channel: &str) -> Result<PubSub, RedisError> {
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
