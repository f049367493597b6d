//! Connections to the server of a lock, over the redis crate.
//!
//! ```text
//!   requests of all locks ──► line ──► the server, the sentinels' primary, or the node of the key's slot
//!                              │
//!                              └─ node: opens connections beside it, for what a shared connection cannot do
//! ```
//!
//! A multiplexed connection of the redis crate answers in order, so it cannot serve a blocking request, or a command that
//! must not be repeated. Those use connections beside it, to the same node. Messages about grants come on the line if it is
//! the client's own connection and speaks RESP3, otherwise on a subscription beside it.

mod cluster;
mod single;

use crate::clock::within;
use crate::locked::locked;
use crate::server::Place;
use crate::settings::Settings;
#[cfg(feature = "testing")]
use crate::testing::MemoryServer;
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

pub(crate) type Listener = Box<dyn Fn(&[u8]) + Send + Sync>;

type Bond = (Arc<Node>, Arc<Single>);

pub(crate) struct Link {
    lines: Lines,
    limit: Duration,
    /// Connections for bound holds, by node, if the line is not the client's own.
    bonds: Mutex<HashMap<u64, Bond>>,
}

enum Lines {
    /// The line, and the connection for bound holds, which reports its end.
    Single(Arc<Single>, Arc<Single>),
    Manager(ConnectionManager, Option<Arc<Node>>),
    Cluster(Box<Cluster>),
}

#[derive(Clone)]
pub(crate) enum Line {
    Own(MultiplexedConnection, Arc<Node>),
    Manager(ConnectionManager),
    Cluster(ClusterConnection<Tap>),
}

/// What connections are opened to.
#[derive(Clone)]
enum Endpoint {
    Client(Box<Client>),
    #[cfg(feature = "testing")]
    Memory(MemoryServer),
}

/// A server to which further connections can be opened. For a single server, a node lasts as long as its line.
pub(crate) struct Node {
    pub(crate) id: u64,
    endpoint: Endpoint,
    /// Cancelled when its line is lost.
    pub(crate) gone: CancellationToken,
    /// Receives pushes on its line, if the line speaks RESP3.
    pushes: Option<Arc<Pushes>>,
}

/// Whether a hold is bound to the connection of its request.
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
            Place::Client(client) => single(Source::One(client.clone().into())),
            #[cfg(feature = "testing")]
            Place::Memory(server) => single(Source::One(Endpoint::Memory(server.clone()))),
            Place::Sentinel(client) => single(Source::Sentinels(Arc::clone(client))),
            Place::Cluster(client) => Lines::Cluster(Box::new(Cluster::of(client.clone()))),
            Place::Manager(manager, client) => Lines::Manager(
                manager.clone(),
                client.clone().map(|client| Arc::new(Node::new(client.into()))),
            ),
        };
        Self { lines, limit, bonds: Mutex::default() }
    }

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

    /// A line that sends each request once. The redis crate's cluster connection repeats unanswered requests.
    pub(crate) async fn line_that_sends_once(&self, key: &[u8]) -> Result<Line, RedisError> {
        self.line(key, if self.is_cluster() { Bound::Yes } else { Bound::No }).await
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.lines, Lines::Cluster(_))
    }

    /// The server of the key, as far as known.
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

    /// The line, if it is open and the client's own.
    pub(crate) fn own_line(&self) -> Option<Line> {
        match &self.lines {
            Lines::Single(single, _) => single.open_line(),
            _ => None,
        }
    }

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

    /// Makes the redis crate check the node of this key, which it does only with a request. Single servers need no check.
    pub(crate) async fn doubt(&self, key: &[u8]) {
        let Lines::Cluster(cluster) = &self.lines else { return };
        let look = cmd("EXISTS").arg(key).take();
        let looking = async { Line::Cluster(cluster.connection().await?).send(key, &look).await };
        // The result does not matter.
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
            let source = Source::One(node.endpoint.clone());
            (node, Single::for_holds(source, self.limit))
        });
        Ok(Arc::clone(bond))
    }

    /// Drops a line whose server did not answer in time, or is no primary any more. The next request opens another one.
    pub(crate) fn give_up(&self, line: &Line) {
        let Line::Own(_, node) = line else { return };
        node.gone.cancel();
    }

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
            // Boxed, because this rare future is large.
            Self::Cluster(connection) => {
                let routed = connection.route_command(command.clone(), to_primary_of(key));
                Box::pin(routed).await?.extract_error()
            }
        }
    }

    /// Subscribes, and passes the messages to the listener. False if this line cannot subscribe.
    pub(crate) async fn subscribe(
        &mut self,
        channel: &str,
        listener: Listener,
    ) -> Result<bool, RedisError> {
        let Self::Own(connection, node) = self else { return Ok(false) };
        let Some(pushes) = &node.pushes else { return Ok(false) };
        // Repeated calls have the same channel and listener.
        let _ = pushes.listener.set(listener);
        connection.subscribe(channel).await.map(|()| true)
    }

    /// The node of the client's own connection.
    pub(crate) fn node(&self) -> Option<&Arc<Node>> {
        match self {
            Self::Own(_, node) => Some(node),
            Self::Manager(_) | Self::Cluster(_) => None,
        }
    }
}

impl Endpoint {
    async fn open(
        &self,
        config: &AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, RedisError> {
        match self {
            Self::Client(client) => {
                client.get_multiplexed_async_connection_with_config(config).await
            }
            #[cfg(feature = "testing")]
            Self::Memory(server) => server.open(config.clone()).await,
        }
    }

    /// None for a server in memory, which speaks RESP3 and has one database.
    fn client(&self) -> Option<&Client> {
        match self {
            Self::Client(client) => Some(client),
            #[cfg(feature = "testing")]
            Self::Memory(_) => None,
        }
    }
}

impl From<Client> for Endpoint {
    fn from(client: Client) -> Self {
        Self::Client(Box::new(client))
    }
}

impl Node {
    fn new(endpoint: Endpoint) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT.fetch_add(1, Relaxed),
            endpoint,
            gone: CancellationToken::new(),
            pushes: None,
        }
    }

    /// The channel of keyspace events about a key.
    pub(crate) fn channel_of(&self, key: &[u8]) -> Vec<u8> {
        let info = self.endpoint.client().map(Client::get_connection_info);
        let db = info.map_or(0, |info| info.redis_settings().db());
        [format!("__keyspace@{db}__:").as_bytes(), key].concat()
    }

    pub(crate) async fn dedicated(&self) -> Result<MultiplexedConnection, RedisError> {
        self.endpoint.open(&patient(None)).await
    }

    pub(crate) async fn subscribe(&self, channel: &[u8]) -> Result<PubSub, RedisError> {
        let client = self.endpoint.client().ok_or_else(nothing_beside)?;
        let mut subscription = client.get_async_pubsub().await?;
        subscription.subscribe(channel).await?;
        Ok(subscription)
    }
}

/// The redis crate must not time out: its timeouts look like refusals. Callers limit the wait.
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
