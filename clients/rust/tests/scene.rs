//! What most tests begin with.

use leasehold_client::{Guard, Locks, Quorum, Request, Settings, Waiting};
use redis::Value;
use std::fmt::{self, Debug, Display};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};
use testkit::{Server, Setup, figure};
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep;

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Longer than anything here takes on a loaded machine. Reaching it means "never".
const PATIENCE: Duration = Duration::from_secs(20);

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

/// Begins it, and leaves it there.
pub(crate) async fn poll_once<F: Future>(mut begun: Pin<&mut F>) {
    poll_fn(|context| {
        assert!(begun.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
}

/// A runtime that stands still while nobody blocks on it.
pub(crate) fn standing() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

pub(crate) const WAYS: [Waiting; 2] = [Waiting::Tickets, Waiting::Connections];

/// Those of a client that waits so.
pub(crate) fn by(way: Waiting) -> Settings {
    Settings::default().waiting(way)
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

    /// Notes what was measured on such a server: `docs/verification.md` has a table of it.
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

pub(crate) fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

/// A client of this server, as most have it.
pub(crate) async fn locks(server: &Server) -> Locks {
    locks_with(server, Settings::default()).await
}

pub(crate) async fn locks_with(server: &Server, settings: Settings) -> Locks {
    Locks::connect_with(url(server.port()), settings).await.unwrap()
}

/// The same, and it is not connected on any runtime yet.
pub(crate) fn client(server: &Server) -> Locks {
    Locks::new(url(server.port())).unwrap()
}

/// Has it granted on this runtime.
pub(crate) fn lock(runtime: &Runtime, request: Request) -> Guard {
    runtime.block_on(async { soon(request).await.unwrap() })
}

/// A client of these, as most have it.
pub(crate) async fn quorum(servers: &[Server]) -> Quorum {
    Quorum::connect(servers.iter().map(|server| url(server.port()))).await.unwrap()
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

/// How many requests wait for this lock.
pub(crate) fn waiters(server: &Server, key: &str) -> i64 {
    server.client().info(key).map_or(0, |info| info.waiters)
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

pub(crate) async fn eventually_waiting(server: &Server, key: &str, count: i64) {
    eventually("so many wait", || {
        let seen = waiters(server, key);
        if seen == count { Ok(()) } else { Err(seen) }
    })
    .await;
}
