//! Where the locks are.

/// One server, a cluster, or a group of servers that sentinels watch.
///
/// A plain address is a server:
///
/// ```
/// use leasehold_client::Target;
///
/// let target = Target::from("redis://127.0.0.1:6379");
/// assert_eq!(target, Target::Server("redis://127.0.0.1:6379".to_owned()));
///
/// let cluster = Target::cluster(["redis://127.0.0.1:7000", "redis://127.0.0.1:7001"]);
/// let watched = Target::sentinel(["redis://127.0.0.1:26379"], "mymaster");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// The server at this address: `redis://user:password@host:port/database`, `rediss://` for an encrypted connection,
    /// or `unix:///path`.
    Server(String),
    /// A cluster of which some nodes are at these addresses. The others are found through them.
    Cluster(Vec<String>),
    /// Whichever server the sentinels call the primary of the service.
    Sentinel {
        /// The addresses of sentinels.
        urls: Vec<String>,
        /// By which name they know the group of servers.
        service: String,
        /// User, password and database of the servers, and whether they are talked to encrypted, as an address whose
        /// host does not matter.
        server: Option<String>,
    },
}

impl Target {
    /// A cluster of which some nodes are at these addresses.
    pub fn cluster<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> Self {
        Self::Cluster(urls.into_iter().map(Into::into).collect())
    }

    /// The primary of this service, according to sentinels at these addresses.
    pub fn sentinel<U: Into<String>>(
        urls: impl IntoIterator<Item = U>,
        service: impl Into<String>,
    ) -> Self {
        let urls = urls.into_iter().map(Into::into).collect();
        Self::Sentinel { urls, service: service.into(), server: None }
    }
}

impl From<&str> for Target {
    fn from(url: &str) -> Self {
        Self::Server(url.to_owned())
    }
}

impl From<String> for Target {
    fn from(url: String) -> Self {
        Self::Server(url)
    }
}
