//! What most scenarios begin with.

use crate::adapter::Adapter;
use crate::clients::Client;
use crate::program::Program;
use redis::Value as Reply;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;
use testkit::{Cluster, Sentinels, Server, Setup, eventually};

pub(crate) const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Longer than any scenario.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// What a deadline may be missed by on a loaded machine.
pub(crate) const SLACK: Duration = Duration::from_millis(1_500);

/// One client in one scenario.
pub(crate) struct Scene<'c> {
    client: &'c Client,
    /// Those that can run here, for scenarios in which several meet.
    all: &'c [Client],
    adapters: RefCell<Vec<Arc<Adapter>>>,
}

thread_local! {
    /// The server in memory that the scenario of this thread is played with.
    static MEMORY: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

impl<'c> Scene<'c> {
    pub(crate) fn of(client: &'c Client, all: &'c [Client]) -> Self {
        MEMORY.set(client.memory.clone());
        Self { client, all, adapters: RefCell::default() }
    }

    pub(crate) fn client_name(&self) -> &str {
        &self.client.name
    }

    /// A process that has no client yet.
    pub(crate) fn adapter(&self) -> Arc<Adapter> {
        self.adapter_of(self.client)
    }

    fn adapter_of(&self, client: &Client) -> Arc<Adapter> {
        let adapter = Adapter::start(&client.name, &client.command);
        self.adapters.borrow_mut().push(Arc::clone(&adapter));
        adapter
    }

    #[track_caller]
    pub(crate) fn open(&self, place: &Value) -> Program {
        Program::open(self.adapter(), place)
    }

    /// A program on this server, with the usual settings.
    #[track_caller]
    pub(crate) fn program(&self, server: &Server) -> Program {
        self.open(&at(server))
    }

    #[track_caller]
    pub(crate) fn program_with(&self, server: &Server, settings: Value) -> Program {
        self.open(&with(at(server), settings))
    }

    /// One program of each language that there is here; on a server in memory, one of its own.
    #[track_caller]
    pub(crate) fn programs_of_all(&self, server: &Server) -> Vec<Program> {
        let open = |client| Program::open(self.adapter_of(client), &at(server));
        if self.client.memory.is_some() {
            return vec![open(self.client)];
        }
        self.all.iter().filter(|client| client.memory.is_none()).map(open).collect()
    }

    /// A server whose messages come on a connection of their own: a client that would have them come with its answers cannot
    /// choose the protocol for that. Others need the command.
    pub(crate) fn server_that_tells_beside(&self) -> Server {
        match self.client_name() {
            "rust" | "go" => with_module().config("rename-command", "HELLO \"\"").start(),
            _ => server(),
        }
    }

    pub(crate) fn conversations(&self) -> String {
        self.adapters.borrow().iter().map(|adapter| adapter.conversation()).collect()
    }
}

pub(crate) fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

/// A place with these settings.
pub(crate) fn with(mut place: Value, settings: Value) -> Value {
    place["settings"] = settings;
    place
}

pub(crate) fn at(server: &Server) -> Value {
    at_port(server.port())
}

pub(crate) fn at_port(port: u16) -> Value {
    json!({ "url": url(port) })
}

/// Independent servers that listen at these ports.
pub(crate) fn at_quorum(ports: impl Iterator<Item = u16>) -> Value {
    let urls: Vec<_> = ports.map(url).collect();
    json!({ "quorum": urls })
}

pub(crate) fn as_user(server: &Server, user: &str, password: &str) -> Value {
    json!({ "url": format!("redis://{user}:{password}@127.0.0.1:{}", server.port()) })
}

pub(crate) fn at_cluster(cluster: &Cluster) -> Value {
    let urls: Vec<_> = cluster.nodes().iter().map(|node| url(node.port())).collect();
    json!({ "cluster": urls })
}

pub(crate) fn at_sentinels(sentinels: &Sentinels) -> Value {
    let urls: Vec<_> = sentinels.ports().into_iter().map(url).collect();
    json!({ "sentinel": { "urls": urls, "service": "locks" } })
}

pub(crate) fn with_module() -> Setup {
    let program: Vec<String> = MEMORY.with_borrow(|memory| memory.clone().unwrap_or_default());
    let words: Vec<_> = program.iter().map(String::as_str).collect();
    Server::builder().tcp().under(&words)
}

pub(crate) fn server() -> Server {
    with_module().start()
}

pub(crate) fn plain_server() -> Server {
    with_module().without_module().start()
}

/// How long the server holds it from now on, in milliseconds: -2 if it does not.
pub(crate) fn ttl_of(server: &Server, key: &str) -> i64 {
    match server.cmd(["PTTL", key]) {
        Reply::Int(left) => left,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn is_held(server: &Server, key: &str) -> bool {
    ttl_of(server, key) != -2
}

/// Ends every connection but the one that does this.
pub(crate) fn cut_all(client: &mut testkit::Client) {
    for kind in ["normal", "pubsub"] {
        client.cmd(["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
    }
}

/// Lets the first take it from the second.
pub(crate) fn take_away(server: &Server, key: &str) {
    assert_eq!(server.cmd(["DEL", key]), Reply::Int(1));
}

#[track_caller]
pub(crate) fn until_free(server: &Server, key: &str) {
    eventually("the lock is free", || if is_held(server, key) { Err(()) } else { Ok(()) });
}

#[track_caller]
pub(crate) fn until_waiting(server: &Server, key: &str, count: i64) {
    let mut client = server.client();
    eventually("so many wait", || match client.info(key).map_or(0, |info| info.waiters) {
        seen if seen == count => Ok(()),
        seen => Err(seen),
    });
}

/// Until it came to that, in the time between these two.
#[track_caller]
pub(crate) fn assert_took(took: Duration, least: Duration, most: Duration) {
    assert!(took >= least, "{took:?} is less than {least:?}");
    assert!(took <= most + SLACK, "{took:?} is more than {most:?}");
}
