//! The setup of a server.

use super::clock::{self, Clock};
use super::tls::Identity;
use super::version::{is_older_than, server_binary};
use super::{Server, library, module};
use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

/// How clients reach the server. Every server listens on a unix socket too.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Transport {
    #[default]
    Unix,
    Tcp,
    Tls,
}

/// The kind of the process.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A server that is not in a cluster, with or without replicas.
    #[default]
    Alone,
    /// A node of a cluster.
    Node,
    Sentinel,
}

/// A chain of calls that ends with `start()` or `refuse()`.
#[derive(Clone, Default)]
pub struct Setup {
    configs: Vec<(String, String)>,
    env: Vec<(String, OsString)>,
    /// The program that runs the server, with its arguments. Empty to run it directly.
    runner: Vec<String>,
    /// The arguments after the module's path; `None` to start without the module.
    module: Option<Vec<String>>,
    pub(crate) dir: Option<Arc<TempDir>>,
    /// Whether the server listens on a TCP port.
    pub(crate) tcp: bool,
    pub(crate) transport: Transport,
    pub(crate) password: Option<String>,
    pub(crate) kind: Kind,
    pub(crate) expects_panics: bool,
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self { module: Some(Vec::new()), ..Self::default() }
    }

    /// A line of the configuration file.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.configs.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Keeps an append-only file. The server writes it before each reply but never forces it to
    /// disk, because in these tests processes die and machines do not.
    pub fn aof(self) -> Self {
        self.config("appendonly", "yes").config("appendfsync", "no")
    }

    /// Without the module.
    pub fn without_module(mut self) -> Self {
        self.module = None;
        self
    }

    /// With these arguments of `loadmodule`.
    pub fn module_args(mut self, args: &str) -> Self {
        self.module = Some(args.split_whitespace().map(str::to_owned).collect());
        self
    }

    /// With this variable in its environment.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Runs under another program, such as valgrind.
    pub fn under(mut self, runner: &[&str]) -> Self {
        self.runner = runner.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// Uses another server's directory, and loads the data in it.
    pub fn in_the_directory_of(mut self, other: &Server) -> Self {
        self.dir = Some(other.shared_dir());
        self
    }

    /// Also listens on a TCP port, as a primary must.
    pub fn tcp(mut self) -> Self {
        self.tcp = true;
        self
    }

    /// Also listens on a TCP port, and its clients use it.
    pub fn clients_over_tcp(mut self) -> Self {
        self.transport = Transport::Tcp;
        self.tcp()
    }

    /// Also listens on a TCP port with TLS, and its clients use it. Clients and server show each other a certificate.
    pub fn clients_over_tls(mut self) -> Self {
        self.transport = Transport::Tls;
        self.tcp()
    }

    /// Requires a password, which its clients give: see also `Server::stranger`.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.config("requirepass", password)
    }

    /// Follows this server, which must have a port.
    pub fn replica_of(self, primary: &Server) -> Self {
        self.replica_through(primary.port())
    }

    /// Follows the server behind this port, such as that of a proxy.
    pub fn replica_through(self, port: u16) -> Self {
        self.config("replicaof", &format!("127.0.0.1 {port}"))
    }

    /// A node of a cluster: see `cluster.rs`.
    pub(crate) fn node(mut self) -> Self {
        self.kind = Kind::Node;
        self.tcp().config("cluster-enabled", "yes")
    }

    /// A sentinel, which watches servers: see `sentinel.rs`.
    pub(crate) fn sentinel(mut self) -> Self {
        self.kind = Kind::Sentinel;
        self.tcp().without_module()
    }

    /// Uses a clock that the test can set.
    pub fn clock(self, clock: &Clock) -> Self {
        self.env(clock::PRELOAD, &*library::CLOCK_SHIM).env(clock::OFFSET_FILE, clock.file())
    }

    /// Notes what the server has forced to disk: see `power.rs`. Excludes a clock.
    pub fn power_may_fail(self) -> Self {
        self.env(clock::PRELOAD, &*library::POWER_SHIM)
    }

    /// Also loads a module through which a test calls commands as a module does.
    pub fn with_caller(self) -> Self {
        self.config("loadmodule", &quoted(&library::CALLER))
    }

    /// Like `with_caller`, with arguments for that module: see `caller_module.rs`.
    pub fn with_caller_that(self, arguments: &str) -> Self {
        self.config("loadmodule", &format!("{} {arguments}", quoted(&library::CALLER)))
    }

    /// Panics at this place. The log may then contain panics.
    pub fn panic_at(mut self, site: &str) -> Self {
        self.expects_panics = true;
        self.env("LEASEHOLD_PANIC_AT", site)
    }

    /// Starts the server and waits until it answers.
    pub fn start(self) -> Server {
        Server::started(self)
    }

    /// Starts a server that must end by itself, and returns its log.
    pub fn refuse(self) -> String {
        Server::refused(self)
    }

    /// The command that starts the server, without the server's arguments.
    pub(crate) fn command(&self) -> Command {
        let Some((program, args)) = self.runner.split_first() else {
            return Command::new(server_binary());
        };
        let mut command = Command::new(program);
        command.args(args).arg(server_binary());
        command
    }

    pub(crate) fn env_pairs(&self) -> &[(String, OsString)] {
        &self.env
    }

    /// The configuration file.
    pub(crate) fn file(&self, dir: &Path, socket: &Path, port: u16) -> String {
        let mut file = String::new();
        let mut line = |name: &str, value: &str| writeln!(file, "{name} {value}").unwrap();
        line("bind", "127.0.0.1");
        if self.transport == Transport::Tls {
            let identity = Identity::in_dir(dir);
            line("port", "0");
            line("tls-port", &port.to_string());
            line("tls-cert-file", &quoted(&identity.certificate));
            line("tls-key-file", &quoted(&identity.key));
            line("tls-ca-cert-file", &quoted(&identity.certificate));
        } else {
            line("port", &port.to_string());
        }
        line("unixsocket", &quoted(socket));
        line("dir", &quoted(dir));
        line("save", "\"\"");
        line("appendonly", "no");
        // A replica gets its data without the delay for other replicas, and loads the data while it arrives.
        line("repl-diskless-sync", "no");
        line("repl-diskless-load", "on-empty-db");
        line("hz", "100");
        if !is_older_than((7, 0)) {
            line("enable-debug-command", "yes");
            line("enable-module-command", "yes");
        }
        for (name, value) in &self.configs {
            line(name, value);
        }
        if let Some(args) = &self.module {
            line("loadmodule", &format!("{} {}", quoted(module::path()), args.join(" ")));
        }
        file
    }
}

fn quoted(path: &Path) -> String {
    format!("{:?}", path.to_str().expect("a path in UTF-8"))
}
