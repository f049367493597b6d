//! The defaults of a client, from code or from the environment.

use crate::error::Error;
use std::time::Duration;

/// Whether the client renews a lease while its guard lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renew {
    /// After each third of the ttl.
    Always,
    /// Never: the lease ends one ttl after the grant.
    Never,
    /// After each third of the ttl, until the lock has been held for this time.
    For(Duration),
}

/// The defaults of a client's requests. Only [`from_env`](Self::from_env) reads the environment.
///
/// | Field | Variable | Default |
/// |---|---|---|
/// | `ttl` | `LEASEHOLD_TTL_MS` | 30 s |
/// | `wait` | `LEASEHOLD_WAIT_MS` | without limit |
/// | `renew` | `LEASEHOLD_RENEW`: `on`, `off`, or milliseconds | `Always` |
/// | `prefix` | `LEASEHOLD_PREFIX` | nothing |
/// | `response_timeout` | `LEASEHOLD_RESPONSE_TIMEOUT_MS` | 1 s |
/// | `retry_for` | `LEASEHOLD_RETRY_FOR_MS` | 3 s |
/// | `unreachable_after` | `LEASEHOLD_UNREACHABLE_AFTER_MS` | 30 s |
/// | `check_every` | `LEASEHOLD_CHECK_EVERY_MS` | 5 s |
/// | `queue` | `LEASEHOLD_QUEUE`: `on` or `off` | on |
/// | `wait_connections` | `LEASEHOLD_WAIT_CONNECTIONS` | 64 |
/// | `connection_name` | `LEASEHOLD_CONNECTION_NAME` | `leasehold` |
/// | `replicas` | `LEASEHOLD_REPLICAS` | 0 |
/// | `replicas_within` | `LEASEHOLD_REPLICAS_WITHIN_MS` | 1 s |
///
/// ```
/// use leasehold_client::Settings;
/// use std::time::Duration;
///
/// let settings = Settings { ttl: Duration::from_secs(5), prefix: "lock:table:".into(), ..Settings::default() };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long a lease lasts without a renewal.
    pub ttl: Duration,
    /// How long a request waits while others hold the lock; none for no limit.
    pub wait: Option<Duration>,
    /// Whether the client renews leases.
    pub renew: Renew,
    /// The prefix of the key of each lock.
    pub prefix: String,
    /// How long to wait for each answer. After that the client retries on another connection.
    pub response_timeout: Duration,
    /// How long the client retries tries, extensions, releases and lookups while servers fail.
    pub retry_for: Duration,
    /// How long a waiting request goes on while no server answers.
    pub unreachable_after: Duration,
    /// How often a waiting request checks its place in the queue. The server keeps the place for three times as long.
    pub check_every: Duration,
    /// Whether a waiting request takes a place in the server's queue. Otherwise it tries again and again, and shares the
    /// lock with clients that do the same.
    pub queue: bool,
    /// The most connections that wait at a time, where the server has no tickets.
    pub wait_connections: usize,
    /// The name of the request connection in `CLIENT LIST`; none leaves it unnamed.
    pub connection_name: Option<String>,
    /// How many replicas must acknowledge a grant; see [`Request::replicas`](crate::Request::replicas).
    pub replicas: u64,
    /// The time for replicas to acknowledge a grant.
    pub replicas_within: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(30),
            wait: None,
            renew: Renew::Always,
            prefix: String::new(),
            response_timeout: Duration::from_secs(1),
            retry_for: Duration::from_secs(3),
            unreachable_after: Duration::from_secs(30),
            check_every: Duration::from_secs(5),
            queue: true,
            wait_connections: 64,
            connection_name: Some("leasehold".to_owned()),
            replicas: 0,
            replicas_within: Duration::from_secs(1),
        }
    }
}

impl Settings {
    /// The defaults, with the values of the environment.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] names the first invalid variable.
    pub fn from_env() -> Result<Self, Error> {
        Self::from_variables(|name| std::env::var_os(name).map(|value| value.into_string()))
    }

    fn from_variables<E>(read: impl Fn(&str) -> Option<Result<String, E>>) -> Result<Self, Error> {
        let text = |name: &str| match read(name) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text)),
            Some(Err(_)) => Err(Error::setting(name, "it is no text")),
        };
        let number = |name: &str| match text(name)?.map(|text| text.parse()) {
            None => Ok(None),
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => Err(Error::setting(name, "it must be a whole number")),
        };
        let millis = |name: &str| Ok(number(name)?.map(Duration::from_millis));
        let mut settings = Self::default();
        for (name, field) in [
            ("LEASEHOLD_TTL_MS", &mut settings.ttl),
            ("LEASEHOLD_RESPONSE_TIMEOUT_MS", &mut settings.response_timeout),
            ("LEASEHOLD_RETRY_FOR_MS", &mut settings.retry_for),
            ("LEASEHOLD_UNREACHABLE_AFTER_MS", &mut settings.unreachable_after),
            ("LEASEHOLD_CHECK_EVERY_MS", &mut settings.check_every),
            ("LEASEHOLD_REPLICAS_WITHIN_MS", &mut settings.replicas_within),
        ] {
            if let Some(given) = millis(name)? {
                if given.is_zero() {
                    return Err(Error::setting(name, "it must be at least 1"));
                }
                *field = given;
            }
        }
        settings.wait = millis("LEASEHOLD_WAIT_MS")?.or(settings.wait);
        settings.replicas = number("LEASEHOLD_REPLICAS")?.unwrap_or(settings.replicas);
        if let Some(most) = number("LEASEHOLD_WAIT_CONNECTIONS")? {
            settings.wait_connections = usize::try_from(most).unwrap_or(usize::MAX);
        }
        settings.queue = match text("LEASEHOLD_QUEUE")?.as_deref() {
            None | Some("on") => true,
            Some("off") => false,
            Some(_) => return Err(Error::setting("LEASEHOLD_QUEUE", "it must be on or off")),
        };
        settings.renew = match text("LEASEHOLD_RENEW")?.as_deref() {
            None | Some("on") => Renew::Always,
            Some("off") => Renew::Never,
            Some(text) => Renew::For(text.parse().map(Duration::from_millis).map_err(|_| {
                Error::setting("LEASEHOLD_RENEW", "it must be on, off, or a number of milliseconds")
            })?),
        };
        if let Some(prefix) = text("LEASEHOLD_PREFIX")? {
            settings.prefix = prefix;
        }
        if let Some(name) = text("LEASEHOLD_CONNECTION_NAME")? {
            settings.connection_name = Some(name).filter(|name| !name.is_empty());
        }
        settings.checked()
    }

    pub(crate) fn checked(self) -> Result<Self, Error> {
        for (name, duration) in [
            ("response_timeout", self.response_timeout),
            ("retry_for", self.retry_for),
            ("unreachable_after", self.unreachable_after),
            ("check_every", self.check_every),
        ] {
            if duration < Duration::from_millis(1) {
                return Err(Error::setting(name, "it must be at least a millisecond"));
            }
        }
        if self.wait_connections == 0 {
            return Err(Error::setting("wait_connections", "it must be at least 1"));
        }
        let is_name = |name: &String| name.bytes().all(|byte| (b'!'..=b'~').contains(&byte));
        if !self.connection_name.as_ref().is_none_or(is_name) {
            return Err(Error::setting(
                "connection_name",
                "it must have no spaces, and no letters but those of ASCII",
            ));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(given: &[(&str, &str)]) -> Result<Settings, Error> {
        let value =
            |name: &str| given.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        Settings::from_variables(|name| value(name).map(|value| Ok::<_, ()>(value.to_owned())))
    }

    #[test]
    fn an_empty_environment_gives_the_defaults() {
        assert_eq!(from(&[]).unwrap(), Settings::default());
    }

    #[test]
    fn each_variable_is_one_field() {
        let settings = from(&[
            ("LEASEHOLD_TTL_MS", "5000"),
            ("LEASEHOLD_WAIT_MS", "0"),
            ("LEASEHOLD_RENEW", "60000"),
            ("LEASEHOLD_PREFIX", "app:"),
            ("LEASEHOLD_QUEUE", "off"),
            ("LEASEHOLD_WAIT_CONNECTIONS", "7"),
            ("LEASEHOLD_CONNECTION_NAME", ""),
            ("LEASEHOLD_REPLICAS", "2"),
        ]);
        let expected = Settings {
            ttl: Duration::from_secs(5),
            wait: Some(Duration::ZERO),
            renew: Renew::For(Duration::from_secs(60)),
            prefix: "app:".into(),
            queue: false,
            wait_connections: 7,
            connection_name: None,
            replicas: 2,
            ..Settings::default()
        };
        assert_eq!(settings.unwrap(), expected);
    }

    #[test]
    fn a_variable_without_a_sense_is_named() {
        for (name, value) in [
            ("LEASEHOLD_TTL_MS", "soon"),
            ("LEASEHOLD_TTL_MS", "0"),
            ("LEASEHOLD_WAIT_MS", "-1"),
            ("LEASEHOLD_RENEW", "maybe"),
            ("LEASEHOLD_QUEUE", "no"),
        ] {
            let error = from(&[(name, value)]).unwrap_err();
            assert!(matches!(&error, Error::Setting { setting, .. } if setting == name), "{error}");
        }
        assert!(from(&[("LEASEHOLD_WAIT_CONNECTIONS", "0")]).is_err());
        assert!(from(&[("LEASEHOLD_CONNECTION_NAME", "a b")]).is_err());
    }
}
