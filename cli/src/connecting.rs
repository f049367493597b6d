//! How servers are reached, what messages call them, and what their errors mean to a person.

use crate::arguments::EMPTY;
use crate::exit_code::{Code, Failure};
use crate::output::printable;
use clap::{Args, ValueHint};
use leasehold_client::{Error, Locks, Server, Settings};
use redis::cluster::{ClusterClient, TlsMode};
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{Client, ClientTlsConfig, ConnectionAddr, ErrorKind, RedisError, TlsCertificates};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Args, Clone)]
#[command(next_help_heading = "Server")]
pub(crate) struct Connection {
    /// Where the locks are: redis://[user:password@]host:port[/db], rediss:// with TLS, unix:///path,
    /// redis+cluster://host:port[,host:port…], redis+sentinel://host:port[,host:port…]/service[/db]
    #[arg(long, global = true, env = "LEASEHOLD_URL", hide_env_values = true)]
    #[arg(default_value = "redis://127.0.0.1:6379")]
    pub(crate) url: String,
    /// Trust only servers with a certificate signed by one of these, in PEM format
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cacert: Option<PathBuf>,
    /// Show servers this certificate, in PEM format
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// The key of that certificate
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "cert")]
    pub(crate) key: Option<PathBuf>,
}

/// How long servers may take to answer when the locks are closed.
const CLOSE_WITHIN: Duration = Duration::from_secs(3);

/// The locks, and the name that messages use for their servers.
pub(crate) struct Place {
    pub(crate) locks: Locks,
    pub(crate) name: String,
}

struct Address<'a> {
    is_encrypted: bool,
    /// `user:password`, if the address has any.
    user: Option<&'a str>,
    hosts: Vec<&'a str>,
    path: &'a str,
}

impl Connection {
    /// Called only by subcommands that ask servers. For the others, an empty variable is no error.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.url.is_empty() {
            return Err(usage(&format!("--url, or LEASEHOLD_URL: {EMPTY}")));
        }
        Ok(())
    }

    pub(crate) fn open(&self) -> Result<Place, Failure> {
        self.check()?;
        let settings = Settings::from_env().map_err(|error| usage(&error.to_string()))?;
        let name = self.name();
        let locks = Locks::with_settings(self.server(&settings)?, settings)
            .map_err(|error| usage(&error.to_string()))?;
        Ok(Place { locks, name })
    }

    fn server(&self, settings: &Settings) -> Result<Server, Failure> {
        let failed = |error| unusable(&self.name(), &error);
        if let Some(ClusterUrls { nodes, .. }) = self.urls_of_cluster() {
            let limit = settings.response_timeout;
            let mut builder = ClusterClient::builder(nodes.iter().map(String::as_str))
                .connection_timeout(limit)
                .response_timeout(limit);
            if let Some(certificates) = self.certificates()? {
                builder = builder.certs(certificates);
            }
            return builder.build().map(Server::from).map_err(failed);
        }
        match self.urls_of_sentinels()? {
            Some(urls) => self.sentinels(&urls)?.build().map(Server::from).map_err(failed),
            None => self.client(&self.url).map(Server::from),
        }
    }

    fn sentinels(&self, urls: &SentinelUrls) -> Result<SentinelClientBuilder, Failure> {
        let of = |url: &String| Ok(self.client(url)?.get_connection_info().addr().clone());
        let addresses = urls.sentinels.iter().map(of);
        let addresses = addresses.collect::<Result<Vec<_>, Failure>>()?;
        let server = self.client(&urls.server.at("sentinel", 0))?;
        let (address, told) =
            (server.get_connection_info().addr(), server.get_connection_info().redis_settings());
        let builder =
            SentinelClientBuilder::new(addresses, &urls.service, SentinelServerType::Master);
        let mut builder = builder
            .map_err(|error| unusable(&self.name(), &error))?
            .set_client_to_redis_db(told.db());
        if let Some(user) = told.username() {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = told.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if let ConnectionAddr::TcpTls { .. } = address {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
        }
        if let Some(certificates) = self.certificates()? {
            builder = builder.set_client_to_redis_certificates(certificates);
        }
        Ok(builder)
    }

    pub(crate) fn client(&self, url: &str) -> Result<Client, Failure> {
        let is_encrypted = url.starts_with("rediss:") || url.starts_with("valkeys:");
        let client = match self.certificates()? {
            Some(certificates) if is_encrypted => Client::build_with_tls(url, certificates),
            _ => Client::open(url),
        };
        client.map_err(|error| unusable(&address(url), &error))
    }

    pub(crate) fn name(&self) -> String {
        address(&self.url)
    }

    /// The addresses of a cluster, if this is the address of one.
    pub(crate) fn urls_of_cluster(&self) -> Option<ClusterUrls> {
        let address = self.address("cluster")?;
        let nodes = address.urls(address.user);
        Some(ClusterUrls { nodes, server: address.server_url("") })
    }

    /// The addresses of sentinels, if this is the address of some.
    pub(crate) fn urls_of_sentinels(&self) -> Result<Option<SentinelUrls>, Failure> {
        let Some(address) = self.address("sentinel") else { return Ok(None) };
        let (service, database) = address.path.split_once('/').unwrap_or((address.path, "0"));
        if service.is_empty() {
            return Err(usage("--url: a sentinel's address ends with the name of the service"));
        }
        let (sentinels, service) = (address.urls(None), service.to_owned());
        Ok(Some(SentinelUrls { sentinels, service, server: address.server_url(database) }))
    }

    /// The address of another server, with the same user, password and database.
    pub(crate) fn url_of_others(&self) -> Result<ServerUrl, Failure> {
        let url = self.url.split_once("://").filter(|(scheme, _)| !scheme.contains("unix"));
        let Some((scheme, rest)) = url else {
            return Err(usage(
                "the address is a socket, which reaches no other server: name this one by host and port",
            ));
        };
        let (user, rest) =
            rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
        let user = user.map_or(String::new(), |user| format!("{user}@"));
        let after = rest.split_once('/').map_or(String::new(), |(_, path)| format!("/{path}"));
        Ok(ServerUrl { before: format!("{scheme}://{user}"), after })
    }

    fn certificates(&self) -> Result<Option<TlsCertificates>, Failure> {
        let root_cert = self.cacert.as_deref().map(read_certificates).transpose()?;
        let client_tls = match (&self.cert, &self.key) {
            (Some(certificate), Some(key)) => Some(ClientTlsConfig {
                client_cert: read_certificates(certificate)?,
                client_key: read(key)?,
            }),
            _ => None,
        };
        let has_any = root_cert.is_some() || client_tls.is_some();
        Ok(has_any.then_some(TlsCertificates { client_tls, root_cert }))
    }

    fn address(&self, kind: &str) -> Option<Address<'_>> {
        let (scheme, rest) = self.url.split_once("://")?;
        let (scheme, of_kind) = scheme.split_once('+')?;
        let is_encrypted = match scheme {
            "redis" | "valkey" => false,
            "rediss" | "valkeys" => true,
            _ => return None,
        };
        let (user, rest) = match rest.rsplit_once('@') {
            Some((user, rest)) => (Some(user), rest),
            None => (None, rest),
        };
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let hosts = hosts.split(',').filter(|host| !host.is_empty()).collect();
        (of_kind == kind).then_some(Address { is_encrypted, user, hosts, path })
    }
}

pub(crate) struct ClusterUrls {
    pub(crate) nodes: Vec<String>,
    pub(crate) server: ServerUrl,
}

/// The addresses of sentinels, and what the addresses of the servers that they watch have in common.
pub(crate) struct SentinelUrls {
    pub(crate) sentinels: Vec<String>,
    pub(crate) service: String,
    pub(crate) server: ServerUrl,
}

/// An address without the host and port, which other servers tell.
pub(crate) struct ServerUrl {
    before: String,
    after: String,
}

impl ServerUrl {
    pub(crate) fn at(&self, host: &str, port: u16) -> String {
        // An IPv6 address.
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let port = if port == 0 { String::new() } else { format!(":{port}") };
        format!("{}{host}{port}{}", self.before, self.after)
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(file).map_err(|error| usage(&format!("{}: {error}", file.display())))
}

/// Checks for a certificate. Nothing else reports a file without one, and then no server would be trusted.
fn read_certificates(file: &Path) -> Result<Vec<u8>, Failure> {
    let read = read(file)?;
    if String::from_utf8_lossy(&read).contains("-----BEGIN CERTIFICATE-----") {
        return Ok(read);
    }
    Err(usage(&format!("{}: there is no certificate in PEM format", file.display())))
}

/// The name of a server in messages: its address without user and password. Accepts invalid addresses too.
pub(crate) fn address(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    // The address of a socket has the user and password after the path.
    let rest =
        if scheme.contains("unix") { rest.split('?').next().unwrap_or_default() } else { rest };
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    let place = place.split('?').next().unwrap_or_default();
    printable(&if scheme.is_empty() { place.to_owned() } else { format!("{scheme}://{place}") })
}

impl Address<'_> {
    fn server_url(&self, database: &str) -> ServerUrl {
        let user = self.user.map_or(String::new(), |user| format!("{user}@"));
        let after = if database.is_empty() { String::new() } else { format!("/{database}") };
        ServerUrl { before: format!("{}{user}", self.scheme()), after }
    }

    fn scheme(&self) -> &'static str {
        if self.is_encrypted { "rediss://" } else { "redis://" }
    }

    fn urls(&self, user: Option<&str>) -> Vec<String> {
        let user = user.map_or(String::new(), |user| format!("{user}@"));
        self.hosts.iter().map(|host| format!("{}{user}{host}", self.scheme())).collect()
    }
}

impl Place {
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.locks.settings().prefix)
    }

    /// Releases what is still held, and closes the connections. Returns the locks that could not be released.
    pub(crate) async fn close(&self) -> Vec<String> {
        self.locks.close(CLOSE_WITHIN).await
    }

    /// What went wrong, where, and what to do.
    pub(crate) fn failure(&self, error: Error) -> Failure {
        let name = &self.name;
        match error {
            Error::Unreachable { source } => unreachable(name, &source),
            Error::Refused { source } => refused(name, &source),
            error @ Error::TooFewReplicas { .. } => Failure::new(
                Code::Unreachable,
                format!(
                    "{name}: {error}. Nothing was run. Look at its replicas, or ask for fewer."
                ),
            ),
            error @ (Error::Busy { .. } | Error::TooLate { .. }) => {
                Failure::new(Code::NotObtained, format!("{name}: {error}"))
            }
            error @ Error::Setting { .. } => usage(&error.to_string()),
            error @ Error::Lost { .. } => Failure::new(Code::Lost, format!("{name}: {error}")),
            error => Failure::new(Code::Internal, format!("{name}: {error}")),
        }
    }
}

pub(crate) fn usage(text: &str) -> Failure {
    Failure::new(Code::Usage, text)
}

/// Whether asking again may help.
pub(crate) fn is_silence(error: &Error) -> bool {
    matches!(error, Error::Unreachable { .. })
}

/// A server has not answered, or has answered with an error.
pub(crate) fn failed(name: &str, error: &RedisError) -> Failure {
    if error.is_io_error() { unreachable(name, error) } else { refused(name, error) }
}

fn unreachable(name: &str, error: &RedisError) -> Failure {
    let reason = error.to_string();
    let is_encrypted = name.starts_with("rediss") || name.starts_with("valkeys");
    let says = |words: &[&str]| words.iter().any(|word| reason.contains(word));
    let remedy = if says(&["not valid for name"]) {
        "Use a name that is in its certificate."
    } else if says(&["peer certificate"]) {
        "Name the file of those who have signed its certificate by --cacert."
    } else if is_encrypted && says(&["CertificateRequired", "UnknownCA", "roken pipe"]) {
        "If the server asks for a certificate, name one that it trusts by --cert and --key."
    } else if is_encrypted && error.is_timeout() {
        "If it does not speak TLS on this port, use redis://; otherwise start it, or look at the way to it."
    } else if !is_encrypted && says(&["reset by peer"]) {
        "If it speaks TLS on this port, use rediss://."
    } else if error.kind() == ErrorKind::MasterNameNotFoundBySentinel {
        "Look at the name of the service in the address, and at its primary."
    } else {
        "Start the server, or name another one by --url or LEASEHOLD_URL."
    };
    let reason = printable(reason.trim_end_matches(['.', '?']));
    Failure::new(Code::Unreachable, format!("no answer from {name}: {reason}. {remedy}"))
}

fn refused(name: &str, error: &RedisError) -> Failure {
    let remedy = match error.kind() {
        // The key does not belong to the certificate. No server was asked.
        ErrorKind::InvalidClientConfig => return unusable(name, error),
        // The redis crate passes on the server's error code only in one of the two RESP versions.
        ErrorKind::AuthenticationFailed => what_to_do("WRONGPASS"),
        _ => what_to_do(error.code().unwrap_or_default()),
    };
    let reason = match remedy == what_to_do("WRONGPASS") {
        true => "it knows no such user and password".to_owned(),
        false => printable(&words(error)),
    };
    Failure::new(Code::Refused, format!("{name} refused: {reason}{remedy}"))
}

/// The server's error. For a pipeline, the first command that the server refused.
fn words(error: &RedisError) -> String {
    let said = error.clone().into_server_errors();
    match said.as_deref().and_then(<[_]>::first) {
        Some((_, said)) => format!("{} {}", said.code(), said.details().unwrap_or_default()),
        None => error.to_string(),
    }
}

/// The address or the certificates are invalid.
fn unusable(name: &str, error: &RedisError) -> Failure {
    usage(&format!("{name}: {}", error.to_string().replace(" - InvalidClientConfig", "")))
}

fn what_to_do(code: &str) -> &'static str {
    match code {
        "NOAUTH" => ". Put the password into the address: redis://:password@host:port",
        "WRONGPASS" => ". Look at user and password in the address.",
        "NOPERM" => ". The user needs the commands and keys that docs/cli.md lists: ACL SETUSER.",
        "WRONGTYPE" => ". The key is not a lock: choose another name.",
        "MOVED" | "CROSSSLOT" => {
            ". It is a node of a cluster: use redis+cluster://host:port, and names with one {hash tag}."
        }
        "QUEUEFULL" => ". Too many wait: see leasehold.max-waiters in docs/configuration.md.",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(url: &str) -> Connection {
        Connection { url: url.to_owned(), cacert: None, cert: None, key: None }
    }

    #[test]
    fn addresses_of_clusters_and_sentinels_are_taken_apart() {
        let cluster = to("rediss+cluster://u:p@a:1,b:2").urls_of_cluster().unwrap();
        assert_eq!(cluster.nodes, ["rediss://u:p@a:1", "rediss://u:p@b:2"]);
        let url = "redis+sentinel://u:p@a:1,b:2/main/3";
        let sentinels = to(url).urls_of_sentinels().unwrap().unwrap();
        assert_eq!(sentinels.sentinels, ["redis://a:1", "redis://b:2"]);
        assert_eq!(sentinels.service, "main");
        assert_eq!(sentinels.server.at("c", 4), "redis://u:p@c:4/3");
        assert!(to("redis+sentinel://a:1").urls_of_sentinels().is_err());
        for url in ["redis://h:1/2", "unix:///run/x", "rediss+cluster://u:p@a:1,b:2", url] {
            assert!(to(url).server(&Settings::default()).is_ok(), "{url}");
        }
    }

    #[test]
    fn no_password_is_in_the_name() {
        assert_eq!(to("redis://alice:s@cret@h:1/2").name(), "redis://h:1/2");
        assert_eq!(to("redis://h:1").name(), "redis://h:1");
        assert_eq!(to("alice:s@cret@h:1").name(), "h:1");
        assert_eq!(to("redis:alice:secret@h:1").name(), "h:1");
        assert_eq!(to("unix:///s?user=alice&pass=se@cret").name(), "unix:///s");
        assert_eq!(to("redis://h:1/2?pass=secret").name(), "redis://h:1/2");
    }
}
