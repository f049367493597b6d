//! The servers of a client, from clients and connections of the redis crate.

use redis::Client;
use redis::aio::ConnectionManager;
use redis::cluster::ClusterClient;
use redis::sentinel::SentinelClient;
use std::fmt;
use std::sync::Arc;
use tokio::sync::Mutex;

/// The servers that hold the locks. Made from a client or a connection of the redis crate, which the program sets up.
///
/// | From | For |
/// |---|---|
/// | [`redis::Client`] | one server |
/// | [`SentinelClient`] | the primary that sentinels name |
/// | [`ClusterClient`] | a cluster |
/// | [`ConnectionManager`] | one server, over a connection that the program has already |
/// | [`Server::quorum`] | most of several servers that know nothing of each other |
/// | `&testing::MemoryServer` | locks in memory, with the feature `testing` |
///
/// The client opens one connection for all requests and messages about grants. In a cluster, the messages take one more
/// connection to each node. A connection manager does not reveal its address, so the client can open nothing beside it:
/// waiting requests poll four times a second, and [`ephemeral`](crate::Request::ephemeral),
/// [`replicas`](crate::Request::replicas) and [`run_command`](crate::Guard::run_command) are refused. `(manager, client)`
/// has all of them.
#[derive(Clone)]
pub struct Server {
    pub(crate) places: Vec<Place>,
    pub(crate) is_quorum: bool,
}

#[derive(Clone)]
pub(crate) enum Place {
    Client(Client),
    Sentinel(Arc<Mutex<SentinelClient>>),
    Cluster(ClusterClient),
    Manager(ConnectionManager, Option<Client>),
    #[cfg(feature = "testing")]
    Memory(crate::testing::MemoryServer),
}

impl Server {
    /// A majority of these independent servers, an odd number: Redlock, with fences that grow. A lock survives the loss of
    /// any minority.
    ///
    /// Each server has its own queue, so requests poll instead. Only exclusive locks of one name are supported.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
    /// use leasehold_client::{Locks, Server};
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let servers = [Example::start(), Example::start(), Example::start()];
    /// # let urls = servers.each_ref().map(Example::url);
    /// let clients = urls.map(|url| redis::Client::open(url));
    /// let locks = Locks::new(Server::quorum(clients.into_iter().collect::<Result<Vec<_>, _>>()?));
    /// let guard = locks.lock("printer").await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn quorum<S: Into<Self>>(servers: impl IntoIterator<Item = S>) -> Self {
        let places = servers.into_iter().flat_map(|server| server.into().places).collect();
        Self { places, is_quorum: true }
    }
}

impl From<Place> for Server {
    fn from(place: Place) -> Self {
        Self { places: vec![place], is_quorum: false }
    }
}

impl From<Client> for Server {
    fn from(client: Client) -> Self {
        Place::Client(client).into()
    }
}

impl From<SentinelClient> for Server {
    fn from(client: SentinelClient) -> Self {
        Place::Sentinel(Arc::new(Mutex::new(client))).into()
    }
}

impl From<ClusterClient> for Server {
    fn from(client: ClusterClient) -> Self {
        Place::Cluster(client).into()
    }
}

impl From<ConnectionManager> for Server {
    fn from(manager: ConnectionManager) -> Self {
        Place::Manager(manager, None).into()
    }
}

impl From<(ConnectionManager, Client)> for Server {
    fn from((manager, client): (ConnectionManager, Client)) -> Self {
        Place::Manager(manager, Some(client)).into()
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client(_) => "Client",
            Self::Sentinel(_) => "Sentinel",
            Self::Cluster(_) => "Cluster",
            Self::Manager(..) => "Manager",
            #[cfg(feature = "testing")]
            Self::Memory(_) => "Memory",
        })
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.places).finish()
    }
}
