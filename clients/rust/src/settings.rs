//! What a client does unless a request says otherwise: from code, or from the environment.

use crate::Error;
use std::time::Duration;

/// Whether a lease is renewed while its guard lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renew {
    /// Each time a third of the ttl has passed.
    Every,
    /// Never: the lease ends a ttl after it was granted.
    Off,
    /// Each third, but the lock is held no longer than this in all.
    AtMost(Duration),
}

/// By what requests keep their places in the server's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Waiting {
    /// Tickets: all requests of a runtime share two connections to each server, and ask again now and then. A server that has
    /// no tickets, or does not let this user be told of grants, is waited for as with `Connections`.
    #[default]
    Tickets,
    /// A connection for each lock that is waited for, up to [`Settings::wait_connections`].
    Connections,
}

/// Defaults for all requests of a client.
///
/// [`Settings::from_env`] reads them from the environment. Nothing else does.
///
/// | variable | means | default |
/// |---|---|---|
/// | `LEASEHOLD_TTL_MS` | how long a lease lasts | 30000 |
/// | `LEASEHOLD_WAIT_MS` | how long `lock` waits | without limit |
/// | `LEASEHOLD_RENEW` | `on`, `off`, or how many milliseconds a lock may be held in all | `on` |
/// | `LEASEHOLD_PREFIX` | what the name of every lock begins with | nothing |
/// | `LEASEHOLD_RESPONSE_MS` | how long to wait for each answer of a server | 1000 |
/// | `LEASEHOLD_WITHIN_MS` | how long to go on trying when servers fail, for whoever does not wait | 3000 |
/// | `LEASEHOLD_UNREACHABLE_AFTER_MS` | how long to wait for a server that does not answer, for whoever waits | 30000 |
/// | `LEASEHOLD_SLICE_MS` | how often a request that waits is looked after | 5000 |
/// | `LEASEHOLD_WAITING` | by what requests keep their places in the queue: `tickets` or `connections` | `tickets` |
/// | `LEASEHOLD_WAIT_CONNECTIONS` | how many connections may wait at a time | 64 |
/// | `LEASEHOLD_CONNECTION_NAME` | what the names of connections begin with; nothing: they get none | `leasehold` |
/// | `LEASEHOLD_REPLICAS` | how many replicas must have heard of a grant | 0 |
/// | `LEASEHOLD_REPLICAS_WITHIN_MS` | how long they may take | 1000 |
///
/// ```
/// use leasehold_client::Settings;
/// use std::time::Duration;
///
/// let settings = Settings::default().ttl(Duration::from_secs(5)).prefix("lock:table:");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub(crate) ttl: Duration,
    pub(crate) wait: Option<Duration>,
    pub(crate) renew: Renew,
    pub(crate) prefix: String,
    pub(crate) response: Duration,
    pub(crate) within: Duration,
    pub(crate) unreachable_after: Duration,
    pub(crate) slice: Duration,
    pub(crate) waiting: Waiting,
    pub(crate) wait_connections: usize,
    pub(crate) connection_name: Option<String>,
    pub(crate) replicas: u64,
    pub(crate) replicas_within: Duration,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<crate::Tls>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(30),
            wait: None,
            renew: Renew::Every,
            prefix: String::new(),
            response: Duration::from_secs(1),
            within: Duration::from_secs(3),
            unreachable_after: Duration::from_secs(30),
            slice: Duration::from_secs(5),
            waiting: Waiting::Tickets,
            wait_connections: 64,
            connection_name: Some("leasehold".to_owned()),
            replicas: 0,
            replicas_within: Duration::from_secs(1),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

impl Settings {
    /// The defaults, as far as the environment has nothing else.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] names the first variable that has no sense.
    pub fn from_env() -> Result<Self, Error> {
        Self::from_variables(|name| std::env::var_os(name).map(|value| value.into_string()))
    }

    fn from_variables<E>(read: impl Fn(&str) -> Option<Result<String, E>>) -> Result<Self, Error> {
        let text = |name: &str| match read(name) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text)),
            Some(Err(_)) => Err(Error::setting(name, "it is no text")),
        };
        let millis = |name: &str, default: Duration| match text(name)? {
            None => Ok(default),
            Some(text) => whole_millis(name, &text),
        };
        let defaults = Self::default();
        let wait = match text("LEASEHOLD_WAIT_MS")? {
            None => None,
            Some(text) if text == "0" => Some(Duration::ZERO),
            Some(text) => Some(whole_millis("LEASEHOLD_WAIT_MS", &text)?),
        };
        let renew = match text("LEASEHOLD_RENEW")?.as_deref() {
            None | Some("on") => Renew::Every,
            Some("off") => Renew::Off,
            Some(text) => Renew::AtMost(whole_millis("LEASEHOLD_RENEW", text).map_err(|_| {
                Error::setting("LEASEHOLD_RENEW", "it must be on, off, or a number of milliseconds")
            })?),
        };
        let replicas = match text("LEASEHOLD_REPLICAS")? {
            None => 0,
            Some(text) => text.parse().map_err(|_| {
                Error::setting("LEASEHOLD_REPLICAS", "it must be a number of replicas")
            })?,
        };
        let waiting = match text("LEASEHOLD_WAITING")?.as_deref() {
            None | Some("tickets") => Waiting::Tickets,
            Some("connections") => Waiting::Connections,
            Some(_) => {
                return Err(Error::setting(
                    "LEASEHOLD_WAITING",
                    "it must be tickets or connections",
                ));
            }
        };
        let wait_connections = match text("LEASEHOLD_WAIT_CONNECTIONS")? {
            None => defaults.wait_connections,
            Some(text) => text.parse().ok().filter(|count| *count > 0).ok_or_else(|| {
                Error::setting("LEASEHOLD_WAIT_CONNECTIONS", "it must be a positive number")
            })?,
        };
        Ok(Self {
            ttl: millis("LEASEHOLD_TTL_MS", defaults.ttl)?,
            wait,
            renew,
            prefix: text("LEASEHOLD_PREFIX")?.unwrap_or_default(),
            response: millis("LEASEHOLD_RESPONSE_MS", defaults.response)?,
            within: millis("LEASEHOLD_WITHIN_MS", defaults.within)?,
            unreachable_after: millis(
                "LEASEHOLD_UNREACHABLE_AFTER_MS",
                defaults.unreachable_after,
            )?,
            slice: millis("LEASEHOLD_SLICE_MS", defaults.slice)?,
            waiting,
            wait_connections,
            connection_name: match text("LEASEHOLD_CONNECTION_NAME")? {
                None => defaults.connection_name,
                Some(name) => Some(name).filter(|name| !name.is_empty()),
            },
            replicas,
            replicas_within: millis("LEASEHOLD_REPLICAS_WITHIN_MS", defaults.replicas_within)?,
            #[cfg(feature = "tls")]
            tls: None,
        })
    }

    /// How long a lease lasts unless it is renewed.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long [`lock`](crate::Locks::lock) waits; without limit unless this is called.
    #[must_use]
    pub fn wait(mut self, patience: Duration) -> Self {
        self.wait = Some(patience);
        self
    }

    /// Whether leases are renewed.
    #[must_use]
    pub fn renew(mut self, renew: Renew) -> Self {
        self.renew = renew;
        self
    }

    /// Whom to trust, and who to be, on encrypted connections.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: crate::Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// What the name of every lock begins with on the server.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long to wait for each answer of a server. For a short ttl it is less: a fifth of that.
    #[must_use]
    pub fn response(mut self, limit: Duration) -> Self {
        self.response = limit;
        self
    }

    /// How long a request that does not wait goes on trying when servers fail, and how long a release is waited for.
    #[must_use]
    pub fn within(mut self, limit: Duration) -> Self {
        self.within = limit;
        self
    }

    /// How long a request that waits goes on while no server answers. That is apart from its patience for a lock that
    /// others hold, which has no limit unless one is set.
    #[must_use]
    pub fn unreachable_after(mut self, limit: Duration) -> Self {
        self.unreachable_after = limit;
        self
    }

    /// By what requests keep their places in the server's queue.
    ///
    /// ```
    /// use leasehold_client::{Settings, Waiting};
    /// let settings = Settings::default().waiting(Waiting::Connections);
    /// # let _ = settings;
    /// ```
    #[must_use]
    pub fn waiting(mut self, waiting: Waiting) -> Self {
        self.waiting = waiting;
        self
    }

    /// On how many connections this client may wait at a time, 64 unless this is called. It is of
    /// no account for tickets. Each connection serves one lock, however many tasks of a runtime want it.
    ///
    /// Requests for more locks than that queue in this process until one of the connections is
    /// free, and their patience counts. Meanwhile each of them only tries, at intervals of up to
    /// two seconds, and a try never overtakes the server's queue. A lock that others always queue
    /// for is then out of reach for as long as the connections wait for other locks. So choose
    /// more connections than there are locks that this client waits for at the same time, counted
    /// once for each runtime, or give all requests a [patience](Settings::wait) that ends.
    ///
    /// A server without the module keeps no queue, and nothing waits there: requests poll.
    #[must_use]
    pub fn wait_connections(mut self, most: usize) -> Self {
        self.wait_connections = most;
        self
    }

    /// What the names of connections begin with, as in `leasehold:requests` and `leasehold:waiting`; empty: they get
    /// none. Servers list connections with their names (`CLIENT LIST`).
    #[must_use]
    pub fn connection_name(mut self, name: impl Into<String>) -> Self {
        self.connection_name = Some(name.into()).filter(|name| !name.is_empty());
        self
    }

    /// How often a request that waits is looked after: a connection that died without a word costs no more than this.
    ///
    /// A ticket is asked for again as often, and its place is kept for three times as long, at least a second: when
    /// this program dies, its place may keep others waiting for that time. With more than 5,000 tickets at a server
    /// each is asked for less often, about a thousand a second in all, and kept for longer.
    #[must_use]
    pub fn slice(mut self, slice: Duration) -> Self {
        self.slice = slice;
        self
    }

    /// How many replicas must have heard of each grant, and how long they may take.
    #[must_use]
    pub fn replicas(mut self, count: u64, within: Duration) -> Self {
        self.replicas = count;
        self.replicas_within = within;
        self
    }

    pub(crate) fn checked(self) -> Result<Self, Error> {
        if self.wait_connections == 0 {
            return Err(Error::setting("wait_connections", "it must be at least 1"));
        }
        let is_name = |name: &String| name.bytes().all(|byte| byte.is_ascii_graphic());
        if !self.connection_name.as_ref().is_none_or(is_name) {
            let reason = "it must be of printable ASCII characters, without spaces";
            return Err(Error::setting("connection_name", reason));
        }
        let positive = [("ttl", self.ttl), ("response", self.response), ("slice", self.slice)];
        for (name, duration) in positive {
            if duration < Duration::from_millis(1) {
                return Err(Error::setting(name, "it must be at least a millisecond"));
            }
        }
        Ok(self)
    }
}

fn whole_millis(name: &str, text: &str) -> Result<Duration, Error> {
    match text.parse() {
        Ok(millis @ 1..) => Ok(Duration::from_millis(millis)),
        _ => Err(Error::setting(name, "it must be a positive number of milliseconds")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Result<Settings, Error> {
        Settings::from_variables(|asked| {
            let found = variables.iter().find(|(name, _)| *name == asked);
            found.map(|(_, value)| Ok::<_, ()>((*value).to_owned()))
        })
    }

    #[test]
    fn an_empty_environment_leaves_the_defaults() {
        assert_eq!(from(&[]).unwrap(), Settings::default());
    }

    #[test]
    fn every_variable_is_heard() {
        let millis = Duration::from_millis;
        let settings = from(&[
            ("LEASEHOLD_TTL_MS", "5000"),
            ("LEASEHOLD_WAIT_MS", "0"),
            ("LEASEHOLD_RENEW", "60000"),
            ("LEASEHOLD_PREFIX", "lock:table:"),
            ("LEASEHOLD_RESPONSE_MS", "1"),
            ("LEASEHOLD_WITHIN_MS", "2"),
            ("LEASEHOLD_UNREACHABLE_AFTER_MS", "4"),
            ("LEASEHOLD_SLICE_MS", "3"),
            ("LEASEHOLD_WAITING", "connections"),
            ("LEASEHOLD_WAIT_CONNECTIONS", "7"),
            ("LEASEHOLD_CONNECTION_NAME", "billing"),
            ("LEASEHOLD_REPLICAS", "2"),
            ("LEASEHOLD_REPLICAS_WITHIN_MS", "50"),
        ]);
        let expected = Settings {
            ttl: millis(5_000),
            wait: Some(Duration::ZERO),
            renew: Renew::AtMost(millis(60_000)),
            prefix: "lock:table:".to_owned(),
            response: millis(1),
            within: millis(2),
            unreachable_after: millis(4),
            slice: millis(3),
            waiting: Waiting::Connections,
            wait_connections: 7,
            connection_name: Some("billing".to_owned()),
            replicas: 2,
            replicas_within: millis(50),
            ..Settings::default()
        };
        assert_eq!(settings.unwrap(), expected);
        assert_eq!(from(&[("LEASEHOLD_RENEW", "off")]).unwrap().renew, Renew::Off);
        assert_eq!(from(&[("LEASEHOLD_WAITING", "tickets")]).unwrap().waiting, Waiting::Tickets);
        assert_eq!(from(&[("LEASEHOLD_RENEW", "on")]).unwrap().renew, Renew::Every);
    }

    #[test]
    fn a_bad_value_is_an_error_that_names_its_variable() {
        let bad = [
            ("LEASEHOLD_TTL_MS", "0"),
            ("LEASEHOLD_TTL_MS", "5s"),
            ("LEASEHOLD_WAIT_MS", "-1"),
            ("LEASEHOLD_RENEW", "maybe"),
            ("LEASEHOLD_RESPONSE_MS", ""),
            ("LEASEHOLD_WITHIN_MS", "x"),
            ("LEASEHOLD_SLICE_MS", "1.5"),
            ("LEASEHOLD_WAITING", "polling"),
            ("LEASEHOLD_WAIT_CONNECTIONS", "0"),
            ("LEASEHOLD_REPLICAS", "many"),
            ("LEASEHOLD_REPLICAS_WITHIN_MS", "0"),
        ];
        for (name, value) in bad {
            let error = from(&[(name, value)]).unwrap_err();
            assert!(matches!(&error, Error::Setting { name: named, .. } if named == name));
            assert!(error.to_string().starts_with(name), "{error}");
        }
    }

    /// In a process of its own, whose environment nobody else reads.
    #[test]
    fn the_environment_is_read() {
        const NAME: &str = "settings::tests::the_environment_is_read";
        if std::env::var_os("LEASEHOLD_TTL_MS").is_some() {
            assert_eq!(Settings::from_env().unwrap().ttl, Duration::from_millis(1_234));
            return;
        }
        let mut itself = std::process::Command::new(std::env::current_exe().unwrap());
        itself.args([NAME, "--exact"]).env("LEASEHOLD_TTL_MS", "1234");
        let output = itself.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
}
