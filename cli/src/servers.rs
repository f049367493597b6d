//! Commands to each server separately. The client of the locks talks only to the server that has the lock.

use crate::connecting::{Connection, ServerUrl, address, failed, usage};
use crate::exit_code::{Code, Failure};
use redis::aio::MultiplexedConnection;
use redis::cluster_routing::Slot;
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, Value, cmd};
use std::ops::RangeInclusive;
use std::time::Duration;
use tokio::time::timeout;

/// How long a reply may take. A scan of a thousand keys takes far less.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

pub(crate) struct Server {
    pub(crate) address: String,
    /// The number of the selected database.
    pub(crate) database: u64,
    connection: MultiplexedConnection,
}

impl Server {
    pub(crate) async fn ask(&self, command: &Cmd) -> Result<Value, RedisError> {
        let mut connection = self.connection.clone();
        within(command.query_async(&mut connection)).await
    }

    pub(crate) async fn ask_all(&self, pipeline: &Pipeline) -> Result<Vec<Value>, RedisError> {
        let mut connection = self.connection.clone();
        within(pipeline.query_async(&mut connection)).await
    }

    /// Like `ask_all`, but each command has its own error.
    pub(crate) async fn ask_each(
        &self,
        pipeline: &mut Pipeline,
    ) -> Result<Vec<Result<Value, RedisError>>, RedisError> {
        let mut connection = self.connection.clone();
        within(pipeline.ignore_errors().query_async(&mut connection)).await
    }

    pub(crate) fn failure(&self, error: &RedisError) -> Failure {
        failed(&self.address, error)
    }
}

/// All servers that have keys: one, or the primaries of a cluster.
pub(crate) async fn primaries(connection: &Connection) -> Result<Vec<Server>, Failure> {
    connection.check()?;
    let mut servers = Vec::new();
    for url in urls_of_primaries(connection, &[]).await? {
        servers.push(open(connection, &url).await?);
    }
    Ok(servers)
}

/// The addresses of these servers. A cluster is asked through the nodes in its address, then through `others`.
pub(crate) async fn urls_of_primaries(
    connection: &Connection,
    others: &[String],
) -> Result<Vec<String>, Failure> {
    Ok(urls_of(&parts(connection, others).await?))
}

pub(crate) fn urls_of(parts: &[(Slots, String)]) -> Vec<String> {
    let mut urls: Vec<_> = parts.iter().map(|(_, url)| url.clone()).collect();
    urls.sort();
    urls.dedup();
    urls
}

pub(crate) async fn of_key(connection: &Connection, key: &str) -> Result<Server, Failure> {
    let wanted = Some(Slot::for_key(key));
    let is_it = |slots: &Slots| slots.clone().any(|slot| Slot::new(slot) == wanted);
    let found = parts(connection, &[]).await?.into_iter().find(|(slots, _)| is_it(slots));
    let none = || Failure::new(Code::Refused, "no node of the cluster has the slot of this lock");
    let (_, url) = found.ok_or_else(none)?;
    open(connection, &url).await
}

pub(crate) type Slots = RangeInclusive<u16>;

/// The slots of each primary, and its address.
pub(crate) async fn parts(
    connection: &Connection,
    others: &[String],
) -> Result<Vec<(Slots, String)>, Failure> {
    if let Some(urls) = connection.urls_of_sentinels()? {
        let service = urls.service.as_str();
        let asked = cmd("SENTINEL").arg("get-master-addr-by-name").arg(service).take();
        let sentinel = first_of(connection, &urls.sentinels).await?;
        let told = sentinel.ask(&asked).await.map_err(|error| sentinel.failure(&error))?;
        let (host, port): (String, u16) = redis::from_redis_value(told).map_err(|_| {
            let text = format!("{} knows no service {service}", sentinel.address);
            Failure::new(Code::Refused, text)
        })?;
        return Ok(vec![(0..=u16::MAX, urls.server.at(&host, port))]);
    }
    let Some(mut urls) = connection.urls_of_cluster() else {
        return Ok(vec![(0..=u16::MAX, connection.url.clone())]);
    };
    urls.nodes.extend_from_slice(others);
    let node = first_of(connection, &urls.nodes).await?;
    let slots = node.ask(cmd("CLUSTER").arg("SLOTS")).await;
    let slots = slots.map_err(|error| node.failure(&error))?;
    let Value::Array(ranges) = slots else {
        return Err(Failure::new(Code::Refused, format!("{} is in no cluster", node.address)));
    };
    let asked = host_of(&node.address);
    Ok(ranges.iter().filter_map(|range| part(range, asked, &urls.server)).collect())
}

/// Another server, at the host and port that one of the servers told.
pub(crate) async fn other(
    connection: &Connection,
    host: &str,
    port: u16,
) -> Result<Server, Failure> {
    let server = match (connection.urls_of_sentinels()?, connection.urls_of_cluster()) {
        (Some(urls), _) => urls.server,
        (None, Some(urls)) => urls.server,
        (None, None) => connection.url_of_others()?,
    };
    open(connection, &server.at(host, port)).await
}

/// A range of CLUSTER SLOTS: first slot, last slot, and servers, the primary first. A node that does not know its own
/// name has the host that was asked.
fn part(range: &Value, asked: &str, server: &ServerUrl) -> Option<(Slots, String)> {
    let Value::Array(range) = range else { return None };
    let [first, last, Value::Array(primary), ..] = range.as_slice() else { return None };
    let [host, port, ..] = primary.as_slice() else { return None };
    let number = |value: &Value| redis::from_redis_value(value.clone()).ok();
    let host: String = redis::from_redis_value(host.clone()).unwrap_or_default();
    let host = if matches!(host.as_str(), "" | "?") { asked } else { &host };
    Some((number(first)?..=number(last)?, server.at(host, number(port)?)))
}

/// The host in the address of a server.
fn host_of(address: &str) -> &str {
    let place = address.split_once("://").map_or(address, |(_, place)| place);
    let host = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => host,
        _ => place,
    };
    host.trim_matches(['[', ']'])
}

/// The first server that can be reached.
async fn first_of(connection: &Connection, urls: &[String]) -> Result<Server, Failure> {
    let mut last = usage("--url: an address of a cluster or of sentinels names at least one host");
    for url in urls {
        match open(connection, url).await {
            Ok(server) => return Ok(server),
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

pub(crate) async fn open(connection: &Connection, url: &str) -> Result<Server, Failure> {
    let client = connection.client(url)?;
    connect(&client, url).await.map_err(|error| failed(&address(url), &error))
}

pub(crate) async fn connect(client: &Client, url: &str) -> Result<Server, RedisError> {
    let settings = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ANSWER_WITHIN))
        .set_response_timeout(Some(ANSWER_WITHIN));
    let opened = within(client.get_multiplexed_async_connection_with_config(&settings)).await?;
    let database = client.get_connection_info().redis_settings().db();
    let database = u64::try_from(database).unwrap_or_default();
    Ok(Server { address: address(url), database, connection: opened })
}

async fn within<T>(answer: impl Future<Output = Result<T, RedisError>>) -> Result<T, RedisError> {
    match timeout(ANSWER_WITHIN, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
    }
}
