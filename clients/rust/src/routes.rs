//! Which server a lock is on, and how that is found out anew when it has changed.

use crate::features::Features;
use crate::link::Link;
use crate::node::{Dialer, Node, Purpose, within};
use crate::poison::locked;
use crate::slots::{Slots, slot_of};
use crate::socket::Encryption;
use crate::verdict::Verdict;
use crate::{Error, Settings, Target};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{
    ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError, Value, cmd,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::timeout;

pub(crate) struct Routes {
    kind: Kind,
    /// Whether all servers are talked to encrypted, and what else they have in common.
    like: ConnectionAddr,
    dialer: Dialer,
    nodes: Mutex<HashMap<String, Arc<Node>>>,
    /// What is known of the servers may be wrong.
    stale: AtomicBool,
    /// Held by whoever finds out.
    asking: tokio::sync::Mutex<()>,
}

enum Kind {
    Server(Arc<Node>),
    Cluster { seeds: Vec<String>, slots: Mutex<Slots> },
    Sentinel { sentinels: Vec<Arc<Node>>, service: String, primary: Mutex<Option<Arc<Node>>> },
}

impl Routes {
    pub(crate) fn new(target: &Target, settings: &Settings) -> Result<Self, Error> {
        let features = Arc::<Features>::default();
        let dialer = |info: &ConnectionInfo| -> Result<Dialer, Error> {
            Ok(Dialer {
                // The connection tells more of itself than the redis crate would.
                redis: info.redis_settings().clone().set_skip_set_lib_name(),
                encryption: encryption(info.addr(), settings)?,
                name: settings.connection_name.clone(),
                features: Arc::clone(&features),
            })
        };
        let server = |info: ConnectionInfo| -> Result<(Kind, ConnectionInfo), Error> {
            let (at, dialer) = (info.addr().clone(), dialer(&info)?);
            let node = Node::new(at.to_string(), at, dialer, Purpose::Requests);
            Ok((Kind::Server(node), info))
        };
        let (kind, like) = match target {
            Target::Server(url) => server(parsed(url)?)?,
            #[cfg(feature = "redis")]
            Target::Connection(info) => server(info.as_ref().clone())?,
            Target::Cluster(urls) => {
                let infos: Vec<_> = urls.iter().map(|url| parsed(url)).collect::<Result<_, _>>()?;
                let seeds = infos.iter().filter_map(address).collect();
                let like = infos.into_iter().next().ok_or_else(|| nobody("cluster"))?;
                (Kind::Cluster { seeds, slots: Mutex::default() }, like)
            }
            Target::Sentinel { urls, service, server } => {
                let sentinel = |url: &String| {
                    let info = parsed(url)?;
                    let (at, dialer) = (info.addr().clone(), dialer(&info)?);
                    Ok(Node::new(at.to_string(), at, dialer, Purpose::Sentinel))
                };
                let sentinels: Vec<_> = urls.iter().map(sentinel).collect::<Result<_, Error>>()?;
                if sentinels.is_empty() {
                    return Err(nobody("sentinel"));
                }
                let like = parsed(server.as_deref().unwrap_or("redis://127.0.0.1"))?;
                let service = service.clone();
                (Kind::Sentinel { sentinels, service, primary: Mutex::default() }, like)
            }
        };
        Ok(Self {
            kind,
            dialer: dialer(&like)?,
            like: like.addr().clone(),
            nodes: Mutex::default(),
            stale: AtomicBool::new(true),
            asking: Default::default(),
        })
    }

    /// What servers are called where none of them is known.
    pub(crate) fn name(&self) -> &str {
        match &self.kind {
            Kind::Server(node) => &node.address,
            Kind::Cluster { .. } => "cluster",
            Kind::Sentinel { service, .. } => service,
        }
    }

    /// Ends the connections to all servers.
    pub(crate) fn hang_up(&self) {
        match &self.kind {
            Kind::Server(node) => node.hang_up(),
            Kind::Cluster { .. } => {}
            Kind::Sentinel { sentinels, .. } => sentinels.iter().for_each(|node| node.hang_up()),
        }
        locked(&self.nodes).values().for_each(|node| node.hang_up());
    }

    /// The server that this lock is on, as far as is known.
    pub(crate) async fn node(&self, key: &str, limit: Duration) -> Result<Arc<Node>, RedisError> {
        if let Kind::Server(node) = &self.kind {
            return Ok(Arc::clone(node));
        }
        if let Some(node) = self.known(key)? {
            return Ok(node);
        }
        // Whoever finds out may be on a runtime that nobody drives.
        let _asking = timeout(limit, self.asking.lock()).await;
        // Somebody else may just have found out.
        if let Some(node) = self.known(key)? {
            return Ok(node);
        }
        match &self.kind {
            Kind::Server(_) => {}
            Kind::Cluster { seeds, slots } => self.ask_nodes(seeds, slots, limit).await?,
            Kind::Sentinel { sentinels, service, primary } => {
                let address = ask_sentinels(sentinels, service, limit).await?;
                *locked(primary) = Some(self.node_at(&address)?);
            }
        }
        self.stale.store(false, SeqCst);
        self.known(key)?.ok_or_else(|| unknown("no node has the slot"))
    }

    pub(crate) fn known(&self, key: &str) -> Result<Option<Arc<Node>>, RedisError> {
        if self.stale.load(SeqCst) {
            return Ok(None);
        }
        match &self.kind {
            Kind::Server(node) => Ok(Some(Arc::clone(node))),
            Kind::Sentinel { primary, .. } => Ok(locked(primary).clone()),
            Kind::Cluster { slots, .. } => {
                let address = locked(slots).address(slot_of(key)).map(str::to_owned);
                address.map(|address| self.node_at(&address)).transpose()
            }
        }
    }

    pub(crate) fn node_at(&self, address: &str) -> Result<Arc<Node>, RedisError> {
        if let Some(node) = locked(&self.nodes).get(address) {
            return Ok(Arc::clone(node));
        }
        let (host, port) = address.rsplit_once(':').ok_or_else(|| unknown("no address"))?;
        let port = port.parse().map_err(|_| unknown("no port"))?;
        let host = host.trim_matches(['[', ']']).to_owned();
        let at = match &self.like {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: tls_params.clone(),
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        let node = Node::new(address.to_owned(), at, self.dialer.clone(), Purpose::Requests);
        locked(&self.nodes).insert(address.to_owned(), Arc::clone(&node));
        Ok(node)
    }

    /// What a failure says about where things are.
    pub(crate) fn learn(&self, verdict: &Verdict, asked: Option<(&Node, Option<&Link>)>) {
        match verdict {
            Verdict::Broken | Verdict::Elsewhere | Verdict::UnknownCommand => {
                if let Some((node, Some(link))) = asked {
                    node.forget(link);
                    if *verdict == Verdict::UnknownCommand {
                        node.lacks_module(link);
                    }
                }
                self.stale.store(true, SeqCst);
            }
            // The next connection finds out what it has.
            Verdict::HasModule => {
                if let Some((node, Some(link))) = asked {
                    node.forget(link);
                    node.has_module();
                }
            }
            Verdict::Moved { slot, to } => {
                if let Kind::Cluster { slots, .. } = &self.kind {
                    let host = asked.and_then(|(node, _)| node.address.rsplit_once(':'));
                    let to = match (to.strip_prefix(':'), host) {
                        (Some(port), Some((host, _))) => format!("{host}:{port}"),
                        _ => to.clone(),
                    };
                    locked(slots).moved(*slot, to);
                }
            }
            Verdict::Again if matches!(self.kind, Kind::Cluster { .. }) => {
                self.stale.store(true, SeqCst);
            }
            _ => {}
        }
    }

    /// Whether one request may name all of these keys.
    pub(crate) fn are_together(&self, keys: &[String]) -> bool {
        let slots = || keys.windows(2).all(|two| matches!(two, [a, b] if slot_of(a) == slot_of(b)));
        !matches!(self.kind, Kind::Cluster { .. }) || slots()
    }

    /// Whether somebody else decides who is the primary, so that it is worth while to look again now and then.
    pub(crate) fn is_watched(&self) -> bool {
        matches!(self.kind, Kind::Sentinel { .. })
    }

    /// Asks who is the primary now: the sentinels may have chosen another one while the former one still answers. If
    /// they do not answer, nothing changes.
    pub(crate) async fn look_again(&self, limit: Duration) {
        if let Kind::Sentinel { sentinels, service, primary } = &self.kind
            && let Ok(address) = ask_sentinels(sentinels, service, limit).await
            && let Ok(node) = self.node_at(&address)
        {
            *locked(primary) = Some(node);
        }
    }

    async fn ask_nodes(
        &self,
        seeds: &[String],
        slots: &Mutex<Slots>,
        limit: Duration,
    ) -> Result<(), RedisError> {
        let mut addresses = locked(slots).addresses();
        // No node is asked first each time: it may be one that is cut off.
        let start = fastrand::usize(0..=addresses.len());
        addresses.rotate_left(start);
        addresses.extend(seeds.iter().cloned());
        let mut last = unknown("no node of the cluster is known");
        for address in addresses {
            match self.ask_node(&address, limit).await {
                Ok(seen) => {
                    *locked(slots) = seen;
                    return Ok(());
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn ask_node(&self, address: &str, limit: Duration) -> Result<Slots, RedisError> {
        let node = self.node_at(address)?;
        let link = node.shared(limit).await?;
        let reply = within(limit, link.one(cmd("CLUSTER").arg("SLOTS"))).await;
        let reply = reply.inspect_err(|_| node.forget(&link))?;
        let host = address.rsplit_once(':').map(|(host, _)| host).unwrap_or_default();
        Slots::parse(&reply, host).ok_or_else(|| unknown("the node knows of no slots"))
    }
}

/// All of them at once: one that does not answer keeps nobody from asking the others.
async fn ask_sentinels(
    sentinels: &[Arc<Node>],
    service: &str,
    limit: Duration,
) -> Result<String, RedisError> {
    let asked = sentinels.iter().map(|sentinel| ask_sentinel(sentinel, service, limit));
    let mut answers: FuturesUnordered<_> = asked.collect();
    let mut last = unknown("no sentinel knows the service");
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(Some(address)) => return Ok(address),
            Ok(None) => {}
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn ask_sentinel(
    sentinel: &Arc<Node>,
    service: &str,
    limit: Duration,
) -> Result<Option<String>, RedisError> {
    let link = sentinel.shared(limit).await?;
    let mut question = cmd("SENTINEL");
    question.arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    let reply = within(limit, link.one(&question)).await;
    match reply.inspect_err(|_| sentinel.forget(&link))? {
        Value::Array(parts) => match parts.as_slice() {
            [Value::BulkString(host), Value::BulkString(port)] => {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                Ok(Some(format!("{}:{}", text(host), text(port))))
            }
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

fn address(info: &ConnectionInfo) -> Option<String> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some(format!("{host}:{port}"))
        }
        _ => None,
    }
}

fn parsed(url: &str) -> Result<ConnectionInfo, Error> {
    url.into_connection_info().map_err(|error| bad_address(&error))
}

/// What encrypts connections to this address, if they are to be.
#[cfg(feature = "tls")]
fn encryption(to: &ConnectionAddr, settings: &Settings) -> Result<Option<Encryption>, Error> {
    match to {
        ConnectionAddr::TcpTls { insecure: true, .. } => {
            let what = "#insecure is not supported: name the certificates to trust, with Tls";
            Err(Error::setting("target", what))
        }
        // Its fields are private to the redis crate.
        ConnectionAddr::TcpTls { tls_params: Some(_), .. } => {
            let what =
                "the certificates of a redis::Client cannot be read: name them again, with Tls";
            Err(Error::setting("target", what))
        }
        ConnectionAddr::TcpTls { .. } => {
            settings.tls.clone().unwrap_or_default().connector().map(Some)
        }
        _ => Ok(None),
    }
}

#[cfg(not(feature = "tls"))]
fn encryption(_: &ConnectionAddr, _: &Settings) -> Result<Option<Encryption>, Error> {
    Ok(None)
}

/// Without the address itself, which may have a password in it.
fn bad_address(error: &RedisError) -> Error {
    Error::setting("target", &format!("no address of a server: {error}"))
}

fn nobody(kind: &str) -> Error {
    Error::setting("target", &format!("a {kind} needs at least one address"))
}

fn unknown(what: &'static str) -> RedisError {
    RedisError::from((ErrorKind::Io, what))
}
