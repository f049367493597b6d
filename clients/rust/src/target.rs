//! Where the locks are.

use std::fmt;

/// One server, a cluster, or a group of servers that sentinels watch.
///
/// A plain address is a server:
///
/// ```
/// use leasehold_client::Target;
///
/// let server = Target::from("redis://127.0.0.1:6379");
/// let cluster = Target::cluster(["redis://127.0.0.1:7000", "redis://127.0.0.1:7001"]);
/// let watched = Target::sentinel(["redis://127.0.0.1:26379"], "mymaster");
/// ```
///
/// # A program that has a `redis::Client`
///
/// With the feature `redis`, a `redis::Client` or a `redis::ConnectionInfo` is a target too. The
/// locks are then on the server that the rest of the program uses, with the same user, password
/// and database, and nothing is configured twice. The connections are not shared: requests that
/// wait need connections of their own. `redis` is then a part of this crate's public interface:
/// it is version 1 of that crate.
#[cfg_attr(
    feature = "redis",
    doc = r#"
```
# include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/example.rs"));
use leasehold_client::Locks;

# #[tokio::main]
# async fn main() -> Result<(), Box<dyn std::error::Error>> {
# let server = Example::start();
# let url = server.url();
let client = redis::Client::open(url)?; // of the rest of the program
let locks = Locks::new(&client)?;
let guard = locks.lock("printer").await?;
# drop(guard);
# locks.settle().await;
# Ok(())
# }
```
"#
)]
///
/// Two things of such a client do not come along. Certificates that were given to
/// `redis::Client::build_with_tls` cannot be read back: `Locks::new` refuses such a client, and
/// `Settings::tls` takes the certificates with a `rediss://` address. Its settings of TCP are not
/// used.
#[derive(Clone)]
#[non_exhaustive]
pub enum Target {
    /// The server at this address: `redis://user:password@host:port/database`, `rediss://` for an encrypted connection,
    /// or `unix:///path`.
    Server(String),
    /// The server that the `redis` crate reaches so.
    #[cfg(feature = "redis")]
    Connection(Box<redis::ConnectionInfo>),
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

impl fmt::Debug for Target {
    /// Passwords belong in no log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = |urls: &[String]| urls.iter().map(|url| without_user(url)).collect::<Vec<_>>();
        match self {
            Self::Server(url) => f.debug_tuple("Server").field(&without_user(url)).finish(),
            Self::Cluster(urls) => f.debug_tuple("Cluster").field(&all(urls)).finish(),
            Self::Sentinel { urls, service, .. } => {
                let mut debug = f.debug_struct("Sentinel");
                debug.field("urls", &all(urls)).field("service", service).finish_non_exhaustive()
            }
            #[cfg(feature = "redis")]
            Self::Connection(info) => {
                f.debug_tuple("Connection").field(&info.addr().to_string()).finish()
            }
        }
    }
}

/// The address without the user and the password in it.
fn without_user(url: &str) -> String {
    let parts =
        url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?)));
    match parts {
        Some((scheme, (_, host))) => format!("{scheme}://{host}"),
        None => url.to_owned(),
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

#[cfg(feature = "redis")]
impl From<redis::ConnectionInfo> for Target {
    fn from(info: redis::ConnectionInfo) -> Self {
        Self::Connection(Box::new(info))
    }
}

#[cfg(feature = "redis")]
impl From<&redis::Client> for Target {
    fn from(client: &redis::Client) -> Self {
        client.get_connection_info().clone().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        let server = format!("{:?}", Target::from("rediss://alice:secret@db.example:6379/2"));
        assert_eq!(server, r#"Server("rediss://db.example:6379/2")"#);
        let cluster = format!("{:?}", Target::cluster(["redis://:s@cret@a:1", "redis://b:2"]));
        assert_eq!(cluster, r#"Cluster(["redis://a:1", "redis://b:2"])"#);
        assert_eq!(format!("{:?}", Target::from("unix:///run/x")), r#"Server("unix:///run/x")"#);
    }
}
