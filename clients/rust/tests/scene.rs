//! What most tests begin with.

use leasehold_client::{Guard, Locks, Settings};
use redis::Value;
use redis::cluster::ClusterClient;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use std::fmt::{self, Debug, Display};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};
use testkit::{Cluster, Proxy, Sentinels, Server, Setup, bulk_text, figure};
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Longer than anything here takes on a loaded machine. Reaching it means "never".
const PATIENCE: Duration = Duration::from_secs(20);

/// What closing a client returns that has released all.
pub(crate) const NOTHING: [String; 0] = [];

pub(crate) const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// What comes of it, unless it takes for ever.
#[track_caller]
pub(crate) fn soon<T>(expected: impl IntoFuture<Output = T>) -> impl Future<Output = T> {
    let whose = std::panic::Location::caller();
    async move {
        let came = tokio::time::timeout(PATIENCE, expected).await;
        came.unwrap_or_else(|_| panic!("it never came: {whose}"))
    }
}

/// Polls it so many times, whatever it waits for. Whether it is still under way.
pub(crate) async fn poll_times<F: Future + ?Sized>(mut begun: Pin<&mut F>, times: usize) -> bool {
    for _ in 0..times {
        let is_ready = poll_fn(|context| Poll::Ready(begun.as_mut().poll(context).is_ready()));
        if is_ready.await {
            return false;
        }
        tokio::task::yield_now().await;
    }
    true
}

/// Whether this is a process that was started for this test alone: otherwise it has been run in one with these variables,
/// separated by spaces.
pub(crate) fn is_alone(test: &str, variables: &str) -> bool {
    const ALONE: &str = "LEASEHOLD_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut itself = std::process::Command::new(std::env::current_exe().unwrap());
    itself.args([test, "--exact", "--nocapture"]).env(ALONE, "1");
    itself.envs(variables.split(' ').filter_map(|variable| variable.split_once('=')));
    let output = itself.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{error}");
    false
}

/// A runtime that stands still while nobody blocks on it.
pub(crate) fn standing() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A server with the module that clients reach over TCP.
pub(crate) fn server() -> Server {
    with_module().start()
}

pub(crate) fn with_module() -> Setup {
    Server::builder().tcp()
}

pub(crate) fn without_module() -> Setup {
    Server::builder().tcp().without_module()
}

/// Whether the server has the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    With,
    Without,
}

impl Kind {
    pub(crate) const BOTH: [Self; 2] = [Self::With, Self::Without];

    pub(crate) fn setup(self) -> Setup {
        match self {
            Self::With => with_module(),
            Self::Without => without_module(),
        }
    }

    pub(crate) fn start(self, count: usize) -> Vec<Server> {
        (0..count).map(|_| self.setup().start()).collect()
    }

    /// Notes what was measured on such a server.
    pub(crate) fn measured(self, what: &str, came: impl Display) {
        figure(&format!("figure: {what}, {self}: {came}"));
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::With => "with the module",
            Self::Without => "without the module",
        })
    }
}

pub(crate) fn both_kinds() -> [Server; 2] {
    [with_module().start(), without_module().start()]
}

pub(crate) fn client(port: u16) -> redis::Client {
    redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap()
}

/// A client of this server, as most have it.
pub(crate) fn locks(server: &Server) -> Locks {
    Locks::new(client(server.port()))
}

pub(crate) fn locks_with(server: &Server, settings: Settings) -> Locks {
    Locks::with_settings(client(server.port()), settings).unwrap()
}

/// One behind this link.
pub(crate) fn behind(proxy: &Proxy, settings: Settings) -> Locks {
    Locks::with_settings(client(proxy.port()), settings).unwrap()
}

/// How requests wait in the queue of a server with the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Tickets,
    /// As a user who may not be told of grants.
    Connections,
}

impl Way {
    pub(crate) const BOTH: [Self; 2] = [Self::Tickets, Self::Connections];

    /// A client that waits so, of the server on this port or behind it.
    pub(crate) fn locks(self, server: &Server, port: u16, settings: Settings) -> Locks {
        let client = match self {
            Self::Tickets => client(port),
            Self::Connections => {
                server.cmd("ACL SETUSER worker on >secret ~* +@all resetchannels");
                redis::Client::open(format!("redis://worker:secret@127.0.0.1:{port}")).unwrap()
            }
        };
        Locks::with_settings(client, settings).unwrap()
    }
}

/// A client of these, as most have it.
pub(crate) fn quorum(servers: &[Server]) -> Locks {
    quorum_with(servers, Settings::default())
}

pub(crate) fn quorum_with(servers: &[Server], settings: Settings) -> Locks {
    quorum_of(servers.iter().map(Server::port), settings)
}

pub(crate) fn quorum_of(ports: impl Iterator<Item = u16>, settings: Settings) -> Locks {
    let server = leasehold_client::Server::quorum(ports.map(client));
    Locks::with_settings(server, settings).unwrap()
}

pub(crate) fn cluster_locks(cluster: &Cluster, settings: Settings) -> Locks {
    let urls =
        cluster.nodes().iter().take(2).map(|node| format!("redis://127.0.0.1:{}", node.port()));
    Locks::with_settings(ClusterClient::new(urls.collect::<Vec<_>>()).unwrap(), settings).unwrap()
}

pub(crate) fn sentinel_locks(sentinels: &Sentinels, settings: Settings) -> Locks {
    sentinels_locks(sentinels.ports(), settings)
}

/// A client of the primary that sentinels on these ports name.
pub(crate) fn sentinels_locks(ports: impl IntoIterator<Item = u16>, settings: Settings) -> Locks {
    let addresses = ports.into_iter().map(|port| {
        let address = client(port);
        address.get_connection_info().addr().clone()
    });
    let builder = SentinelClientBuilder::new(addresses, "locks", SentinelServerType::Master);
    Locks::with_settings(builder.unwrap().build().unwrap(), settings).unwrap()
}

/// How long the server holds it from now on, in milliseconds.
pub(crate) fn ttl_of(server: &Server, key: &str) -> i64 {
    match server.cmd(["PTTL", key]) {
        Value::Int(left) => left,
        other => panic!("{other:?}"),
    }
}

/// What the server holds under this key.
pub(crate) fn held(server: &Server, key: &str) -> Option<String> {
    match server.cmd(["GET", key]) {
        Value::Nil => None,
        Value::BulkString(value) => Some(String::from_utf8(value).unwrap()),
        other => panic!("{other:?}"),
    }
}

/// Whether the server holds what this guard holds, with its fence.
pub(crate) fn is_held_by(server: &Server, key: &str, guard: &Guard) -> bool {
    let value = format!("{:016}:{}", u64::from(guard.fence()), guard.owner());
    held(server, key).as_ref() == Some(&value)
}

/// How many requests wait for this lock.
pub(crate) fn waiters(server: &Server, key: &str) -> usize {
    match server.cmd(["LOCK.WAITERS", key]) {
        Value::Array(waiters) => waiters.len(),
        other => panic!("{other:?}"),
    }
}

/// The connections that clients have, but for the one that looks.
pub(crate) fn connections(server: &Server) -> usize {
    let all = bulk_text(&server.cmd("CLIENT LIST")).lines().count();
    all.checked_sub(1).unwrap()
}

/// Ends every connection of every client.
pub(crate) fn cut_all(server: &Server) {
    for kind in ["normal", "pubsub"] {
        server.cmd(["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
    }
}

/// Looks until `probe` gives `Ok`, while everything else goes on.
pub(crate) async fn eventually<T, E: Debug>(
    what: &str,
    mut probe: impl FnMut() -> Result<T, E>,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match probe() {
            Ok(seen) => return seen,
            Err(seen) if Instant::now() > deadline => {
                panic!("never happened: {what}; last seen: {seen:?}")
            }
            Err(_) => sleep(millis(2)).await,
        }
    }
}

pub(crate) async fn eventually_free(server: &Server, key: &str) {
    eventually("the lock is free", || held(server, key).map_or(Ok(()), Err)).await;
}

pub(crate) async fn eventually_held(server: &Server, key: &str) -> String {
    eventually("the lock is held", || held(server, key).ok_or(())).await
}

pub(crate) async fn eventually_waiting(server: &Server, key: &str, count: usize) {
    eventually("so many wait", || {
        let seen = waiters(server, key);
        if seen == count { Ok(()) } else { Err(seen) }
    })
    .await;
}

/// The guard counts on almost all of this lease.
pub(crate) async fn eventually_renewed(guard: &Guard, ttl: Duration) {
    eventually("it is renewed", || match guard.valid_for() {
        left if left > ttl - ttl / 8 => Ok(()),
        left => Err((left, guard.loss())),
    })
    .await;
}
