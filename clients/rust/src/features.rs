//! What a server can do, found out without a command that it could refuse.
//!
//! `INFO` tells which process answers, and `COMMAND INFO` which commands it has. A server that has the module keeps it as
//! long as its process lives, so it is asked for its commands once; one that has not is asked on each connection, for
//! the module may be loaded any time. Where a user may not use these commands, the module is taken to be there until the
//! server says that it does not know a command.

use crate::dialect::scripts::Scripts;
use crate::dialect::{Compares, Server, millis};
use crate::poison::locked;
use redis::Value;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The commands that are asked for, in this order.
pub(crate) const COMMANDS: [&str; 3] = ["LOCK.ACQUIRE", "DELEX", "DELIFEQ"];

/// What has been found out about servers, by their run ids.
#[derive(Default)]
pub(crate) struct Features {
    known: Mutex<HashMap<String, Server>>,
    scripts: Mutex<HashMap<String, Arc<Scripts>>>,
    tickets: Mutex<HashMap<String, Arc<Tickets>>>,
}

/// How long a server that has refused tickets is not asked for any: its operator may change what a user may do.
const REFUSAL_LASTS: Duration = Duration::from_secs(60);

/// For so long places are kept without being told of grants. Then requests wait on connections.
const UNHEARD_FOR: Duration = Duration::from_secs(10);

/// Whether a server gives tickets to this user, and for how long. No command tells: the first request does.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    refused: Mutex<Option<Instant>>,
    /// Since when there has been no way to be told of grants.
    unheard: Mutex<Option<Instant>>,
    /// In milliseconds; 0 is unknown.
    longest: AtomicU64,
}

impl Tickets {
    pub(crate) fn refuse(&self) {
        *locked(&self.refused) = Some(Instant::now());
    }

    pub(crate) fn are_refused(&self) -> bool {
        locked(&self.refused).is_some_and(|at| at.elapsed() < REFUSAL_LASTS)
    }

    pub(crate) fn heard(&self) {
        *locked(&self.unheard) = None;
    }

    /// No connection could be opened for being told of grants. Something in between may not let it through.
    pub(crate) fn not_heard(&self) {
        let since = *locked(&self.unheard).get_or_insert_with(Instant::now);
        if since.elapsed() >= UNHEARD_FOR {
            self.heard();
            self.refuse();
        }
    }

    pub(crate) fn limit(&self, longest: Duration) {
        self.longest.store(millis(longest), Relaxed);
    }

    pub(crate) fn longest(&self) -> Duration {
        match self.longest.load(Relaxed) {
            0 => Duration::MAX,
            millis => Duration::from_millis(millis),
        }
    }
}

impl Features {
    pub(crate) fn of(&self, run_id: &str) -> Option<Server> {
        self.known().get(run_id).copied()
    }

    pub(crate) fn learn(&self, run_id: &str, server: Server) {
        let mut known = self.known();
        match server {
            Server::Native => known.insert(run_id.to_owned(), server),
            Server::Plain(_) => known.remove(run_id),
        };
    }

    /// The server did not know a command that it was thought to have.
    pub(crate) fn forget(&self, run_id: &str) {
        self.known().remove(run_id);
    }

    /// Those that the server has run, as far as its connections have seen.
    pub(crate) fn scripts(&self, run_id: &str) -> Arc<Scripts> {
        let mut scripts = locked(&self.scripts);
        Arc::clone(scripts.entry(run_id.to_owned()).or_default())
    }

    pub(crate) fn tickets(&self, run_id: &str) -> Arc<Tickets> {
        let mut tickets = locked(&self.tickets);
        Arc::clone(tickets.entry(run_id.to_owned()).or_default())
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Server>> {
        locked(&self.known)
    }
}

/// What `INFO` says of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Info {
    pub(crate) run_id: Option<String>,
    redis: Option<(u32, u32)>,
    valkey: Option<(u32, u32)>,
}

impl Info {
    pub(crate) fn parse(text: &str) -> Self {
        let field = |name: &str| field(text, name);
        Self {
            run_id: field("run_id").filter(|id| !id.is_empty()).map(str::to_owned),
            redis: field("redis_version").and_then(version),
            valkey: field("valkey_version").and_then(version),
        }
    }

    /// Whether clients can tell by which library they are written.
    pub(crate) fn has_client_setinfo(&self) -> bool {
        self.redis >= Some((7, 2))
    }

    /// What `COMMAND INFO` said of [`COMMANDS`].
    pub(crate) fn server(&self, commands: &Value) -> Option<Server> {
        let Value::Array(known) = commands else { return None };
        let [acquire, delex, delifeq] = known.as_slice() else { return None };
        let is_known = |command: &Value| !matches!(command, Value::Nil);
        if is_known(acquire) {
            return Some(Server::Native);
        }
        // No command tells whether `SET` knows the option.
        let sets_if_equal = self.valkey >= Some((8, 1));
        Some(Server::Plain(match (is_known(delex), is_known(delifeq)) {
            (true, _) => Compares::Delex,
            (false, true) => Compares::Delifeq,
            (false, false) if sets_if_equal => Compares::Set,
            (false, false) => Compares::Scripts,
        }))
    }
}

/// How many clients are connected, and how many may be; none if it does not say.
pub(crate) fn clients(text: &str) -> Option<(u64, u64)> {
    let number = |name| field(text, name).and_then(|value| value.parse().ok());
    Some((number("connected_clients")?, number("maxclients")?))
}

fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.').map(str::parse);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Value = Value::Nil;

    fn there() -> Value {
        Value::Array(vec![Value::BulkString(b"name".to_vec())])
    }

    #[test]
    fn a_server_is_known_by_its_run_id_and_version() {
        let info =
            Info::parse("# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.1.2\r\nrun_id:af\r\n");
        assert_eq!(info.run_id.as_deref(), Some("af"));
        assert!(info.has_client_setinfo());
        assert!(!Info::parse("redis_version:7.0.15\r\n").has_client_setinfo());
        assert!(!Info::parse("").has_client_setinfo());
    }

    #[test]
    fn what_a_server_has_follows_from_its_commands() {
        let info = |text| Info::parse(text);
        let said = |known: [Value; 3]| Value::Array(known.to_vec());
        let plain = |compares| Some(Server::Plain(compares));
        let redis = info("redis_version:8.6.0");
        assert_eq!(redis.server(&said([there(), there(), NONE])), Some(Server::Native));
        assert_eq!(redis.server(&said([NONE, there(), NONE])), plain(Compares::Delex));
        assert_eq!(redis.server(&said([NONE, NONE, NONE])), plain(Compares::Scripts));
        let valkey = info("valkey_version:9.1.0");
        assert_eq!(valkey.server(&said([NONE, NONE, there()])), plain(Compares::Delifeq));
        let valkey = info("valkey_version:8.1.0");
        assert_eq!(valkey.server(&said([NONE, NONE, NONE])), plain(Compares::Set));
        assert_eq!(valkey.server(&Value::Nil), None);
    }

    #[test]
    fn only_a_server_with_the_module_is_not_asked_again() {
        let features = Features::default();
        features.learn("a", Server::Native);
        features.learn("b", Server::Plain(Compares::Scripts));
        assert_eq!(features.of("a"), Some(Server::Native));
        assert_eq!(features.of("b"), None);
        features.forget("a");
        assert_eq!(features.of("a"), None);
    }

    #[test]
    fn how_full_a_server_is_can_be_read() {
        assert_eq!(clients("connected_clients:7\r\nmaxclients:300\r\n"), Some((7, 300)));
        assert_eq!(clients("connected_clients:7\r\n"), None);
    }
}
