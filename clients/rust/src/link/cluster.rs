//! A cluster. The redis crate finds the node of a key and follows moved slots.
//!
//! The crate does not reveal that node, and opens no further connection to it. So this file gives it connections that know
//! their node and answer a made-up command themselves. The answer names the node that the crate uses for a key.

use super::{Node, to_primary_of};
use crate::locked::locked;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::cluster_async::{ClusterConnection, Connect};
use redis::{
    Arg, AsyncConnectionConfig, Client, Cmd, ErrorKind, IntoConnectionInfo, Pipeline, RedisError,
    RedisFuture, Value, cmd,
};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Weak};

const WHICH_NODE: &str = "LEASEHOLD.NODE";

/// The nodes of all clusters, by the number in that answer.
static NODES: LazyLock<Mutex<HashMap<u64, Weak<Node>>>> = LazyLock::new(Mutex::default);

type Opening = Shared<BoxFuture<'static, Result<ClusterConnection<Tap>, RedisError>>>;

pub(super) struct Cluster {
    client: ClusterClient,
    opening: Mutex<Option<Opening>>,
}

impl Cluster {
    pub(super) fn of(client: ClusterClient) -> Self {
        Self { client, opening: Mutex::default() }
    }

    pub(super) async fn connection(&self) -> Result<ClusterConnection<Tap>, RedisError> {
        let opening = {
            let mut known = locked(&self.opening);
            known.take_if(|opening| matches!(opening.peek(), Some(Err(_))));
            let client = self.client.clone();
            let open = async move { client.get_async_generic_connection().await.map_err(plainly) };
            // The opening is shared: a caller may give up before the redis crate does, and the next caller continues it.
            known.get_or_insert_with(|| open.boxed().shared()).clone()
        };
        opening.await
    }

    pub(super) async fn node(&self, key: &[u8]) -> Result<Arc<Node>, RedisError> {
        let which =
            self.connection().await?.route_command(cmd(WHICH_NODE), to_primary_of(key)).await?;
        let Value::Int(id) = which else { return Err(no_node()) };
        let known = nodes().get(&id.cast_unsigned()).and_then(Weak::upgrade);
        known.ok_or_else(no_node)
    }

    pub(super) fn close(&self) {
        *locked(&self.opening) = None;
    }
}

/// The redis crate mentions a wrong password only in the details.
fn plainly(error: RedisError) -> RedisError {
    match error.detail() {
        Some(detail) if detail.contains("AuthenticationFailed") => {
            (ErrorKind::AuthenticationFailed, "Password authentication failed").into()
        }
        _ => error,
    }
}

/// A cluster connection that knows its node.
#[derive(Clone)]
pub(crate) struct Tap {
    connection: MultiplexedConnection,
    known: Arc<Known>,
}

/// Keeps a node registered until its last connection is gone.
struct Known(Arc<Node>);

impl Drop for Known {
    fn drop(&mut self) {
        nodes().remove(&self.0.id);
        self.0.gone.cancel();
    }
}

impl Connect for Tap {
    fn connect_with_config<'a, T>(info: T, config: AsyncConnectionConfig) -> RedisFuture<'a, Self>
    where
        T: IntoConnectionInfo + Send + 'a,
    {
        async move {
            let client = Client::open(info.into_connection_info()?)?;
            let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
            let node = Arc::new(Node::new(client.into()));
            nodes().insert(node.id, Arc::downgrade(&node));
            Ok(Self { connection, known: Arc::new(Known(node)) })
        }
        .boxed()
    }
}

impl ConnectionLike for Tap {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        if let Some(Arg::Simple(name)) = command.args_iter().next()
            && name == WHICH_NODE.as_bytes()
        {
            let id = Value::Int(self.known.0.id.cast_signed());
            return std::future::ready(Ok(id)).boxed();
        }
        self.connection.req_packed_command(command)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.connection.req_packed_commands(commands, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }
}

fn nodes() -> MutexGuard<'static, HashMap<u64, Weak<Node>>> {
    locked(&NODES)
}

fn no_node() -> RedisError {
    (ErrorKind::ClusterConnectionNotFound, "the node of this lock is not known").into()
}
