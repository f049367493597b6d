//! The clients that the scenarios are run with, and what each needs to run here.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// As the table names it.
    pub(crate) name: String,
    pub(crate) command: Vec<String>,
    /// The server that its scenarios are played with, if it is one in memory; otherwise a real one.
    pub(crate) memory: Option<Vec<String>>,
    /// What is missing on this machine, if something is.
    pub(crate) missing: Option<String>,
}

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn path(name: &str) -> String {
    folder().join(name).to_str().unwrap().into()
}

fn succeeds(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Why scenarios whose names begin like that are not played with a server in memory.
const NOT_IN_MEMORY: [(&str, &[&str]); 11] = [
    ("a server in memory has no users", &["wrong-password", "no-password", "no-permission"]),
    ("a server in memory has no limits", &["out-of-memory", "queue-full"]),
    ("a server in memory has no disk", &["restart-within-ttl", "quorum-storm"]),
    ("it is in the process of its clients, which die with it", &["dead-waiter"]),
    (
        "a server in memory has no replicas",
        &["replicas", "too-few-replicas", "failover", "quorum-of-replicas", "quorum-not-ready"],
    ),
    ("locks in memory are on one server", &["quorum"]),
    (
        "locks in memory never lack the module",
        &[
            "plain",
            "without-scripts",
            "module-that",
            "old-module",
            "quorum-plain",
            "quorum-that-changes",
        ],
    ),
    (
        "a server in memory is alone, and has one database",
        &[
            "cluster",
            "slot-moves",
            "node-fails-over",
            "sentinel",
            "no-primary",
            "database",
            "tls",
            "cause-of-a-refused",
        ],
    ),
    ("a server in memory keeps texts alone", &["wrong-type", "guarded-and-refused"]),
    ("a server in memory counts nothing, and keeps no log", &["top-and-log", "out-of-the-queue"]),
    ("a server in memory publishes grants alone", &["observed", "without-channels"]),
];

impl Client {
    /// Why it is not to be asked for this.
    pub(crate) fn lacks(&self, scenario: &str) -> Option<&'static str> {
        let begins = |names: &[&str]| names.iter().any(|name| scenario.starts_with(name));
        let mut reasons = NOT_IN_MEMORY.iter().filter(|(_, names)| begins(names));
        // Several servers in memory of the crate for Rust are a quorum.
        let is_had = |names: &[&str]| self.name == "rust-memory" && names == ["quorum"];
        let reason = reasons.find(|(_, names)| !is_had(names));
        reason.filter(|_| self.memory.is_some()).map(|(why, _)| *why)
    }

    /// The same client with this server in memory.
    fn in_memory(&self, name: &str, server: Vec<String>) -> Self {
        Self { name: name.into(), memory: Some(server), ..self.clone() }
    }
}

/// Those whose packages are in this repository.
pub(crate) fn ours() -> Vec<Client> {
    let mut clients = vec![client("rust", vec![env!("CARGO_BIN_EXE_rust-adapter").into()], None)];
    let memory = vec![env!("CARGO_BIN_EXE_rust-memory-server").into()];
    let rust = clients[0].in_memory("rust-memory", memory);
    let missing = node_lacks();
    for library in ["ioredis", "node-redis"] {
        let command = vec!["node".into(), path("adapters/node/adapter.mjs"), library.into()];
        clients.push(client(library, command, missing.clone()));
    }
    let memory = vec!["node".into(), path("adapters/node/memory-server.mjs")];
    let node = clients[1].in_memory("node-memory", memory);
    let python = python();
    let missing = python_lacks(&python);
    for (name, adapter) in [("python", "threads"), ("python-asyncio", "coroutines")] {
        let command = vec![python.clone(), path(&format!("adapters/python/{adapter}.py"))];
        clients.push(client(name, command, missing.clone()));
    }
    let memory = vec![python, path("adapters/python/memory_server.py")];
    clients.extend([rust, node, clients[3].in_memory("python-memory", memory)]);
    let adapter = target().join("go/adapter");
    let missing =
        (!adapter.exists()).then(|| "the adapter is not built: make test-clients builds it".into());
    clients.push(client("go", vec![adapter.to_str().unwrap().into()], missing));
    let jar = path("adapters/java/target/adapter.jar");
    let missing = java_lacks(&jar);
    // It lives for seconds, so it is not worth while to compile it well.
    let quick = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-jar"].map(String::from);
    for (name, library) in [("java", "lettuce"), ("jedis", "jedis")] {
        let command = [&quick[..], &[jar.clone(), library.into()]].concat();
        clients.push(client(name, command, missing.clone()));
    }
    clients
}

fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| folder().join("../../target"), PathBuf::from)
}

fn client(name: &str, command: Vec<String>, missing: Option<String>) -> Client {
    Client { name: name.into(), command, memory: None, missing }
}

/// One that is given as `name=program argument …`.
pub(crate) fn given(words: &str) -> Client {
    let (name, command) = words.split_once('=').unwrap_or_else(|| {
        panic!("an adapter is given as name=program, with arguments behind spaces: {words}")
    });
    client(name, command.split(' ').map(Into::into).collect(), None)
}

fn node_lacks() -> Option<String> {
    let package = folder().join("../node");
    let is_new = "process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)";
    if !succeeds("node", &["-e", is_new]) {
        return Some("Node 20 or newer is not installed".into());
    }
    let parts = ["dist/esm/index.js", "node_modules/ioredis", "node_modules/redis"];
    let is_built = parts.iter().all(|part| package.join(part).exists());
    (!is_built).then(|| "the package is not built: npm install in clients/node".into())
}

fn java_lacks(jar: &str) -> Option<String> {
    if !succeeds("java", &["-version"]) {
        return Some("Java 17 or newer is not installed".into());
    }
    let is_built = Path::new(jar).exists();
    (!is_built).then(|| "the adapter is not built: mvn package in clients/java".into())
}

/// The one of `make test-clients`, which has what the package needs, unless another one is named.
fn python() -> String {
    env::var("PYTHON").unwrap_or_else(|_| {
        let python = target().join("python/bin/python");
        if python.exists() { python.to_str().unwrap().into() } else { "python3".into() }
    })
}

fn python_lacks(python: &str) -> Option<String> {
    let needs = "import sys, redis; sys.exit(sys.version_info < (3, 9))";
    (!succeeds(python, &["-c", needs])).then(|| {
        "Python 3.9 or newer with redis-py is not installed: make test-clients brings it".into()
    })
}
