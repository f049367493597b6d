//! One server, and the connections to it: for each runtime one that all its requests share, and
//! those on which somebody waits.
//!
//! RESP, pipelines and URLs are the redis crate's, and so are the connections once they are open.
//! What it could do too and does not here, why, and the test that shows it:
//!
//! - Opening connections. A request that is dropped is given up in order: a release follows it on its
//!   own connection, which is then read until the server closes it. The crate closes at once, and
//!   hands out no stream. `crowds::a_dropped_request_leaves_no_lock_behind_on_a_connection_that_is_slow`
//! - TLS. That only one side speaks it is an error that says so.
//!   `tls::that_only_one_side_speaks_tls_is_an_error_that_says_so`
//! - Routing in a cluster. The crate's cluster connection has no connections to wait on, and does not
//!   know the key of a command of the module. `topology::guards_and_waiters_go_along_when_a_slot_moves`
//! - Redirections. A waiter that is sent on keeps its patience, and whoever asked must know whether a
//!   request may have been heard.
//!   `topology::guards_and_waiters_go_along_when_a_node_of_a_cluster_is_replaced`
//! - Sentinel. A primary that was replaced and still answers is left: sentinels are asked every
//!   second. `topology::a_client_that_still_reaches_a_replaced_primary_follows_the_sentinels`

use crate::connections::{Common, Connections, OfOne, Opening};
use crate::dialect::{Compares, Server};
use crate::features::{self, COMMANDS, Features, Info};
use crate::home::Home;
use crate::link::{Driver, Link};
use crate::measure;
use crate::poison::locked;
use crate::reading;
use crate::socket::{Encryption, Seen, Socket};
use crate::subscription::{Heard, Subscription};
use crate::verdict::{CROWDED, Verdict, verdict};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, ready};
use redis::aio::{AsyncPushSender, ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ProtocolVersion, RedisConnectionInfo, RedisError, Value,
    cmd, make_extension_error, pipe,
};
use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Waiting may fill a server up to this part of the clients that it takes, in percent. The rest is for those who hold
/// locks, and for everybody else.
const MOST_PERCENT: u64 = 80;

/// How long nobody tries to add a connection to a server that has little room left.
const CROWD_LASTS: Duration = Duration::from_millis(250);

/// What a connection is for; a part of its name on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// All requests that are answered at once.
    Requests,
    /// One request that waits.
    Waiting,
    /// Being told of grants.
    Grants,
    /// Asking a sentinel, which is no server of locks.
    Sentinel,
}

/// What all connections of a client have in common.
#[derive(Clone)]
pub(crate) struct Dialer {
    /// User, password, database.
    pub(crate) redis: RedisConnectionInfo,
    pub(crate) encryption: Option<Encryption>,
    /// What the names of connections begin with; without it they have none.
    pub(crate) name: Option<String>,
    pub(crate) features: Arc<Features>,
}

pub(crate) struct Node {
    pub(crate) address: String,
    at: ConnectionAddr,
    dialer: Dialer,
    purpose: Purpose,
    connections: Connections,
    /// The last connection to wait on that could not be opened.
    not_opened: Mutex<Option<Failed>>,
    /// It did not know a command of the module, and says nothing of what it knows.
    lacks_module: AtomicBool,
}

/// A try to connect that failed, and when: whoever queued up behind it need not repeat it.
struct Failed {
    at: Instant,
    error: RedisError,
}

impl Failed {
    /// The server has little room, and had it a moment ago.
    fn is_crowd(&self) -> bool {
        self.at.elapsed() < CROWD_LASTS && verdict(&self.error) == Verdict::Crowded
    }
}

impl Node {
    pub(crate) fn new(
        address: String,
        at: ConnectionAddr,
        dialer: Dialer,
        purpose: Purpose,
    ) -> Arc<Self> {
        Arc::new(Self {
            address,
            at,
            dialer,
            purpose,
            connections: Connections::default(),
            not_opened: Mutex::default(),
            lacks_module: AtomicBool::new(false),
        })
    }

    /// Ends its connections.
    pub(crate) fn hang_up(&self) {
        self.connections.hang_up();
    }

    /// The connection that all requests of this runtime share; nothing that blocks goes over it.
    pub(crate) async fn shared(self: &Arc<Self>, limit: Duration) -> Result<Link, RedisError> {
        let open = move |node: Arc<Self>| async move { node.open(node.purpose, limit).await };
        self.common(|ours| &mut ours.requests, open).await
    }

    /// The connection on which this runtime is told of grants.
    pub(crate) async fn subscription(
        self: &Arc<Self>,
        limit: Duration,
    ) -> Result<Arc<Subscription>, RedisError> {
        let open = move |node: Arc<Self>| async move { node.subscribe(limit).await.map(Arc::new) };
        let subscription = self.common(|ours| &mut ours.grants, open).await?;
        if !subscription.is_closed() {
            return Ok(subscription);
        }
        self.connections.forget_subscription(&subscription);
        self.common(|ours| &mut ours.grants, open).await
    }

    /// One that all share. Whoever asks first has it opened, by a task.
    async fn common<T, F>(
        self: &Arc<Self>,
        of: fn(&mut OfOne) -> &mut Common<T>,
        open: impl FnOnce(Arc<Self>) -> F,
    ) -> Result<T, RedisError>
    where
        T: Clone + Send + Sync + 'static,
        F: Future<Output = Result<T, RedisError>> + Send + 'static,
    {
        let home = Home::here();
        let common = self.connections.with(home, |ours| match &of(ours).open {
            Some(open) => Either::Left(ready(Ok(open.clone()))),
            None => {
                let begin = || self.begin_to_open(home, of, open(Arc::clone(self)));
                let opening = of(ours).opening.get_or_insert_with(begin);
                Either::Right(opening.opened.clone())
            }
        });
        common.await
    }

    fn begin_to_open<T: Clone + Send + Sync + 'static>(
        self: &Arc<Self>,
        home: Home,
        of: fn(&mut OfOne) -> &mut Common<T>,
        open: impl Future<Output = Result<T, RedisError>> + Send + 'static,
    ) -> Opening<T> {
        let node = Arc::clone(self);
        let opening = tokio::spawn(async move {
            let opened = open.await;
            let is_another = node.connections.with(home, |ours| {
                let ours = of(ours);
                // The client was closed meanwhile: nobody else is to have it.
                if ours.opening.take().is_none() {
                    return false;
                }
                ours.open = opened.as_ref().ok().cloned();
                opened.is_ok() && std::mem::replace(&mut ours.was_open, true)
            });
            if is_another {
                measure::reconnected();
            }
            opened
        });
        let (node, task) = (Arc::clone(self), opening.abort_handle());
        let opened = async move {
            // Its runtime may have ended.
            opening.await.unwrap_or_else(|_| {
                node.connections.with(home, |ours| of(ours).opening = None);
                Err(RedisError::from(io::Error::from(io::ErrorKind::ConnectionAborted)))
            })
        };
        let opened: BoxFuture<'static, _> = Box::pin(opened);
        Opening { opened: opened.shared(), task }
    }

    /// A connection for whoever is about to wait.
    pub(crate) async fn own(&self, limit: Duration) -> Result<Link, RedisError> {
        let home = Home::here();
        if let Some(link) = self.connections.take_idle(home) {
            return Ok(link);
        }
        let (asked, dialing) = (Instant::now(), self.connections.dialing(home));
        // Those who have it may not be driven.
        let _dialing = tokio::time::timeout(limit, dialing.acquire()).await;
        if let Some(link) = self.connections.take_idle(home) {
            return Ok(link);
        }
        if let Some(failed) = locked(&self.not_opened).as_ref()
            && (failed.at >= asked || failed.is_crowd())
        {
            return Err(failed.error.clone());
        }
        self.open(Purpose::Waiting, limit).await.inspect_err(|error| {
            let failed = Failed { at: Instant::now(), error: error.clone() };
            *locked(&self.not_opened) = Some(failed);
        })
    }

    /// It waits no more.
    pub(crate) fn give_back(&self, link: Link) {
        self.connections.keep_idle(link);
    }

    /// This connection has failed: the next one who asks opens another.
    pub(crate) fn forget(&self, link: &Link) {
        self.connections.forget(link);
    }

    /// The server did not know a command of the module.
    pub(crate) fn lacks_module(&self, link: &Link) {
        self.lacks_module.store(true, Relaxed);
        if let Some(run_id) = &link.run_id {
            self.dialer.features.forget(run_id);
        }
    }

    /// It has the module by now.
    pub(crate) fn has_module(&self) {
        self.lacks_module.store(false, Relaxed);
    }

    async fn open(&self, purpose: Purpose, limit: Duration) -> Result<Link, RedisError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let config = AsyncConnectionConfig::new();
        let (connection, driver, seen) = self.dial(&self.dialer.redis, config, limit).await?;
        let mut link = Link {
            id: NEXT.fetch_add(1, Relaxed),
            home: Home::here(),
            connection,
            driver: Arc::new(driver),
            seen,
            run_id: None,
            server: Server::Plain(Compares::Scripts),
            scripts: Arc::default(),
            tickets: Arc::default(),
        };
        if purpose != Purpose::Sentinel {
            let introduced = within(limit, self.introduce(&mut link, purpose)).await;
            introduced.map_err(|error| self.explained(error, &link.seen))?;
        }
        Ok(link)
    }

    /// A connection that is told what this sender is for: changes of the keys that it reads.
    pub(crate) async fn tracking(
        &self,
        told: impl AsyncPushSender,
        limit: Duration,
    ) -> Result<(MultiplexedConnection, Driver), RedisError> {
        self.dial_to_listen(told, "observing", limit).await
    }

    async fn subscribe(&self, limit: Duration) -> Result<Subscription, RedisError> {
        let heard = Arc::<Heard>::default();
        let told = Heard::told(&heard);
        let purpose = Purpose::Grants.to_string();
        let (mut connection, driver) = self.dial_to_listen(told, &purpose, limit).await?;
        let mut question = cmd("INFO");
        let asked = connection.req_packed_command(question.arg("clients"));
        check_room(&text(within(limit, asked).await?)?)?;
        Subscription::begin(connection, driver, heard, limit).await
    }

    /// A connection on which the server tells something to this sender.
    async fn dial_to_listen(
        &self,
        told: impl AsyncPushSender,
        purpose: &str,
        limit: Duration,
    ) -> Result<(MultiplexedConnection, Driver), RedisError> {
        let redis = self.dialer.redis.clone().set_protocol(ProtocolVersion::RESP3);
        let config = AsyncConnectionConfig::new().set_push_sender(told);
        let (mut connection, driver, _) = self.dial(&redis, config, limit).await?;
        if let Some(name) = &self.dialer.name {
            let mut command = cmd("CLIENT");
            command.arg("SETNAME").arg(format!("{name}:{purpose}")).set_no_response(true);
            connection.send_packed_command(&command).await?;
        }
        Ok((connection, driver))
    }

    async fn dial(
        &self,
        redis: &RedisConnectionInfo,
        config: AsyncConnectionConfig,
        limit: Duration,
    ) -> Result<(MultiplexedConnection, Driver, Arc<Seen>), RedisError> {
        let socket = Socket::connect(&self.at, self.dialer.encryption.as_ref(), limit).await?;
        let seen = socket.seen();
        // The limits are set for each request: those that wait have another one.
        let config = config.set_response_timeout(None);
        let opened = MultiplexedConnection::new_with_config(redis, socket, config);
        let (connection, driver) = within(limit, opened).await?;
        Ok((connection, Driver::start(driver), seen))
    }

    /// Finds out what the server has, and tells it what the connection is for.
    async fn introduce(&self, link: &mut Link, purpose: Purpose) -> Result<(), RedisError> {
        let mut questions = pipe();
        questions.cmd("INFO").arg("server").cmd("INFO").arg("clients");
        if let Some(name) = &self.dialer.name {
            questions.cmd("CLIENT").arg("SETNAME").arg(format!("{name}:{purpose}"));
        }
        let count = if self.dialer.name.is_some() { 3 } else { 2 };
        let mut texts = link.all(&questions, count).await?.into_iter().map(text);
        let info = texts.next().transpose()?.map(|text| Info::parse(&text)).unwrap_or_default();
        let clients = texts.next().transpose()?.unwrap_or_default();
        if info.has_client_setinfo() {
            link.introduce_library().await;
        }
        let features = &self.dialer.features;
        let known = info.run_id.as_deref().and_then(|run_id| features.of(run_id));
        link.server = match known {
            Some(server) => server,
            None => self.ask_commands(link, &info).await?,
        };
        if let Some(run_id) = &info.run_id {
            features.learn(run_id, link.server);
            link.scripts = features.scripts(run_id);
            link.tickets = features.tickets(run_id);
        }
        link.run_id = info.run_id;
        if purpose == Purpose::Waiting { check_room(&clients) } else { Ok(()) }
    }

    /// A server that expects TLS closes a connection that begins otherwise, most often without a word.
    fn explained(&self, error: RedisError, seen: &Seen) -> RedisError {
        let is_plain = matches!(self.at, ConnectionAddr::Tcp(..));
        if !is_plain || seen.something() || !error.is_connection_dropped() {
            return error;
        }
        let what = "the server hung up at once: if it speaks TLS on this port, use rediss://";
        RedisError::from(io::Error::new(io::ErrorKind::ConnectionAborted, what))
    }

    async fn ask_commands(&self, link: &Link, info: &Info) -> Result<Server, RedisError> {
        let known = match link.one(cmd("COMMAND").arg("INFO").arg(&COMMANDS)).await {
            Ok(commands) => info.server(&commands),
            Err(error) if is_forbidden(&error) => None,
            Err(error) => return Err(error),
        };
        let lacks_module = self.lacks_module.load(Relaxed);
        let guess = if lacks_module { Server::Plain(Compares::Scripts) } else { Server::Native };
        Ok(known.unwrap_or(guess))
    }
}

impl std::fmt::Display for Purpose {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Requests => "requests",
            Self::Waiting => "waiting",
            Self::Grants => "grants",
            Self::Sentinel => "sentinel",
        })
    }
}

/// Nothing, if the user may not see it.
fn text(reply: Value) -> Result<String, RedisError> {
    match reply.extract_error() {
        Ok(reply) => Ok(reading::text(&reply)),
        Err(error) if is_forbidden(&error) => Ok(String::new()),
        Err(error) => Err(error),
    }
}

/// The user may not use this command, or it has another name here.
fn is_forbidden(error: &RedisError) -> bool {
    error.code() == Some("NOPERM") || verdict(error) == Verdict::UnknownCommand
}

/// None is added to wait where there is little room left, by what `INFO clients` says.
fn check_room(clients: &str) -> Result<(), RedisError> {
    match features::clients(clients) {
        Some((connected, most))
            if connected.saturating_mul(100) > most.saturating_mul(MOST_PERCENT) =>
        {
            Err(crowded(connected, most))
        }
        _ => Ok(()),
    }
}

/// The same error as that of a server that takes no more clients at all.
fn crowded(connected: u64, most: u64) -> RedisError {
    let detail = format!("{CROWDED}: {connected} of {most} are connected, none is added to wait");
    make_extension_error("ERR".to_owned(), Some(detail))
}

/// What takes longer failed.
pub(crate) async fn within<T>(
    limit: Duration,
    asked: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, RedisError> {
    let too_long = |_| RedisError::from(io::Error::from(io::ErrorKind::TimedOut));
    tokio::time::timeout(limit, asked).await.map_err(too_long)?
}
