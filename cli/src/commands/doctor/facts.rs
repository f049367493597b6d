//! What servers say about themselves.

use crate::connecting::Connection;
use crate::exit_code::Failure;
use crate::servers::{self, Server};
use redis::{RedisError, Value, cmd};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The settings that every server has.
pub(super) const SETTINGS: [&str; 7] = [
    "maxmemory",
    "maxmemory-policy",
    "appendonly",
    "appendfsync",
    "min-replicas-to-write",
    "min-replicas-max-lag",
    "replica-read-only",
];

/// The module's settings, which CONFIG GET includes since Redis 7.0.
const SETTINGS_OF_MODULE: [&str; 3] =
    ["leasehold.fence-margin", "leasehold.quarantine-ms", "leasehold.max-tickets"];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Role {
    Primary,
    Replica,
    /// INFO names no role.
    #[default]
    Unknown,
}

/// Host and port.
pub(super) type At = (String, u16);

#[derive(Default)]
pub(super) struct Facts {
    pub(super) address: String,
    /// The server's run id.
    run: Option<String>,
    pub(super) server: String,
    /// The first version that its authors have mended, if this one is older.
    pub(super) patched_from: Option<String>,
    /// None if the server has no module.
    pub(super) module: Option<String>,
    pub(super) role: Role,
    /// The primary, if this server is a replica.
    primary: Option<At>,
    pub(super) is_cut_off: bool,
    pub(super) never_leads: bool,
    pub(super) replicas: u64,
    named_replicas: Vec<At>,
    /// Whether the server belongs to a cluster whose other nodes were not asked.
    pub(super) is_one_of_cluster: bool,
    /// How far the server's clock is ahead of this machine's, in milliseconds.
    pub(super) clock: i64,
    pub(super) settings: BTreeMap<String, String>,
    /// Why the server refused to tell its settings.
    pub(super) refusal: Option<RedisError>,
    pub(super) waiters: u64,
    pub(super) most_waiters: Option<u64>,
    pub(super) tickets: u64,
}

/// The servers that answered, and those that did not.
pub(super) struct Examined {
    pub(super) all: Vec<Facts>,
    /// Servers that did not answer: the role that another server gave them, and why they could not be asked.
    pub(super) not_reached: Vec<(At, Role, Failure)>,
}

/// Examines the servers of the address, the primary of a replica among them, and all replicas, including
/// replicas of replicas.
pub(super) async fn examine_all(connection: &Connection) -> Result<Examined, Failure> {
    let (mut all, mut not_reached) = (Vec::<Facts>::new(), Vec::new());
    let mut next = VecDeque::new();
    for server in servers::primaries(connection).await? {
        let mut facts = examine(&server).await?;
        facts.is_one_of_cluster &= connection.urls_of_cluster().is_none();
        next.push_back((facts, true));
    }
    while let Some((facts, asks_primary)) = next.pop_front() {
        if all.iter().any(|known| known.is_same(&facts)) {
            continue;
        }
        let primary = facts.primary.iter().filter(|_| asks_primary).map(|at| (at, Role::Primary));
        let replicas = facts.named_replicas.iter().map(|at| (at, Role::Replica));
        for (at, role) in primary.chain(replicas) {
            match examine_other(connection, at).await {
                // A replica that its primary has named need not name that primary again.
                Ok(other) => next.push_back((other, role == Role::Primary)),
                Err(failure) => not_reached.push((at.clone(), role, failure)),
            }
        }
        all.push(facts);
    }
    Ok(Examined { all, not_reached })
}

async fn examine_other(connection: &Connection, (host, port): &At) -> Result<Facts, Failure> {
    let mut facts = examine(&servers::other(connection, host, *port).await?).await?;
    facts.is_one_of_cluster = false;
    Ok(facts)
}

async fn examine(server: &Server) -> Result<Facts, Failure> {
    let info =
        server.ask(cmd("INFO").arg("everything")).await.map_err(|error| server.failure(&error))?;
    let mut facts = read_info(&text(&info));
    facts.address.clone_from(&server.address);
    facts.clock = clock_of(server).await?;
    for name in SETTINGS.into_iter().chain(SETTINGS_OF_MODULE) {
        match server.ask(cmd("CONFIG").arg("GET").arg(name)).await {
            Ok(told) => facts.settings.extend(pairs(told)),
            Err(error) => facts.refusal = Some(error),
        }
    }
    Ok(facts)
}

fn read_info(info: &str) -> Facts {
    let field = |name: &str| {
        let value = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.to_owned());
        info.lines().find_map(value)
    };
    let number = |name: &str| field(name).and_then(|value| value.parse().ok());
    let is = |name: &str, value: &str| field(name).as_deref() == Some(value);
    let version = match (field("valkey_version"), field("redis_version")) {
        (Some(version), _) => format!("Valkey {version}"),
        (None, Some(version)) => format!("Redis {version}"),
        (None, None) => "unknown".to_owned(),
    };
    let replicas = number("connected_slaves").unwrap_or_default();
    let port = field("master_port").and_then(|port| port.parse().ok());
    Facts {
        run: field("run_id").filter(|run| !run.is_empty()),
        server: version,
        role: match field("role").as_deref() {
            Some("master") => Role::Primary,
            Some("slave") => Role::Replica,
            _ => Role::Unknown,
        },
        primary: field("master_host").zip(port),
        is_cut_off: is("master_link_status", "down"),
        never_leads: is("slave_priority", "0"),
        replicas,
        named_replicas: (0..replicas)
            .filter_map(|index| address_in(&field(&format!("slave{index}"))?))
            .collect(),
        is_one_of_cluster: is("cluster_enabled", "1"),
        patched_from: number("leasehold_server_patched_from").filter(|from| *from > 0).map(dotted),
        module: module_of(info),
        waiters: number("leasehold_waiters").unwrap_or_default(),
        most_waiters: number("leasehold_effective_max_waiters"),
        tickets: number("leasehold_tickets").unwrap_or_default(),
        ..Facts::default()
    }
}

/// Paths in the reply may not be UTF-8.
fn text(reply: &Value) -> String {
    match reply {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    }
}

fn pairs(reply: Value) -> BTreeMap<String, String> {
    redis::from_redis_value(reply).unwrap_or_default()
}

/// `module:name=leasehold,ver=100,api=1,…`
fn module_of(info: &str) -> Option<String> {
    let line = info.lines().find_map(|line| line.strip_prefix("module:name=leasehold,ver="))?;
    line.split(',').next()?.parse().ok().map(dotted)
}

/// 10203 is 1.2.3.
fn dotted(number: u64) -> String {
    let part = |of: u64| number.checked_div(of).unwrap_or_default() % 100;
    format!("{}.{}.{}", part(10_000), part(100), part(1))
}

/// `ip=10.0.0.7,port=6379,state=online,…`
fn address_in(line: &str) -> Option<At> {
    let part = |name: &str| line.split(',').find_map(|part| part.strip_prefix(name));
    Some((part("ip=")?.to_owned(), part("port=")?.parse().ok()?))
}

/// Assumes that the server read its clock halfway between the request and the reply.
async fn clock_of(server: &Server) -> Result<i64, Failure> {
    let (begun, asked) = (Instant::now(), SystemTime::now());
    let told = server.ask(&cmd("TIME")).await.map_err(|error| server.failure(&error))?;
    let half = begun.elapsed().checked_div(2).unwrap_or_default();
    let (seconds, micros): (u64, u64) = redis::from_redis_value(told).unwrap_or_default();
    let theirs = Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros));
    let ours = asked.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_add(half);
    let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    Ok(millis(theirs).saturating_sub(millis(ours)))
}

impl Facts {
    pub(super) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    pub(super) fn is(&self, name: &str, value: &str) -> bool {
        self.setting(name) == Some(value)
    }

    pub(super) fn margin(&self) -> Option<Duration> {
        let told = self.setting("leasehold.fence-margin").and_then(|margin| margin.parse().ok());
        told.map(Duration::from_millis)
    }

    pub(super) fn most_tickets(&self) -> Option<u64> {
        self.setting("leasehold.max-tickets").and_then(|most| most.parse().ok())
    }

    /// Whether the module does not tell this setting.
    pub(super) fn hides(&self, setting: &str) -> bool {
        self.module.is_some() && self.setting(setting).is_none()
    }

    /// How many replicas the server counts without naming them.
    pub(super) fn unnamed_replicas(&self) -> u64 {
        let named = u64::try_from(self.named_replicas.len()).unwrap_or(u64::MAX);
        self.replicas.saturating_sub(named)
    }

    /// Compares run ids, because one server may have several addresses.
    fn is_same(&self, other: &Self) -> bool {
        match (&self.run, &other.run) {
            (Some(one), Some(other)) => one == other,
            _ => self.address == other.address,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_info_says_is_read() {
        assert_eq!(
            module_of("a:1\r\nmodule:name=leasehold,ver=10203,api=1").as_deref(),
            Some("1.2.3")
        );
        assert_eq!(module_of("module:name=other,ver=1"), None);
        let line = "ip=10.0.0.7,port=6380,state=online,offset=1,lag=0";
        assert_eq!(address_in(line), Some(("10.0.0.7".to_owned(), 6_380)));
        let facts = read_info(
            "role:slave\r\nmaster_host:h\r\nmaster_port:6\r\nmaster_link_status:down\r\n",
        );
        assert_eq!(
            (facts.role, facts.primary.as_ref(), facts.is_cut_off),
            (Role::Replica, Some(&("h".to_owned(), 6)), true)
        );
        let facts =
            read_info("role:master\r\nconnected_slaves:2\r\nslave0:ip=::1,port=7,lag=0\r\n");
        assert_eq!((facts.role, facts.unnamed_replicas()), (Role::Primary, 1));
        assert_eq!(read_info("redis_mode:sentinel").role, Role::Unknown);
    }

    #[test]
    fn a_path_that_is_no_text_hides_nothing_else() {
        let info = Value::BulkString(b"config_file:/\xff\r\nrole:master\r\n".to_vec());
        assert_eq!(read_info(&text(&info)).role, Role::Primary);
    }
}
