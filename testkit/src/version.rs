//! The server under test, and what it lacks.

use super::Server;
use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Once};

struct Product {
    binary: PathBuf,
    /// The output of `--version`.
    line: String,
    valkey: bool,
    version: (u32, u32),
}

static PRODUCT: LazyLock<Product> = LazyLock::new(|| {
    let binary = find_binary();
    let output = Command::new(&binary).arg("--version").output();
    let output = output.unwrap_or_else(|error| panic!("cannot run {binary:?}: {error}"));
    let line = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let version =
        version_in(&line, " v=").unwrap_or_else(|| panic!("{binary:?} says only {line:?}"));
    // Valkey 7.2 prints `Server v=7.2.7`, without a name.
    Product { valkey: !line.starts_with("Redis"), binary, line, version }
});

/// The server under test: `LEASEHOLD_SERVER`, or the one in PATH.
pub fn server_binary() -> &'static Path {
    &PRODUCT.binary
}

pub(crate) fn version_line() -> &'static str {
    &PRODUCT.line
}

/// The product and version, such as `redis 7.0`.
pub fn server_name() -> String {
    let Product { valkey, version: (major, minor), .. } = &*PRODUCT;
    format!("{} {major}.{minor}", if *valkey { "valkey" } else { "redis" })
}

/// `Redis` or `Valkey`, and the full version, such as `8.6.3`.
pub fn full_version() -> (&'static str, &'static str) {
    let Product { valkey, line, .. } = &*PRODUCT;
    let version = line.split(" v=").nth(1).and_then(|rest| rest.split(' ').next());
    (if *valkey { "Valkey" } else { "Redis" }, version.expect("checked by PRODUCT"))
}

/// Whether the server is older than `since`. If so, prints what goes untested.
pub fn lacks(since: (u32, u32), what: &str) -> bool {
    is_missing(is_older_than(since), since, what)
}

/// Whether a module's settings cannot be changed while the server runs. If so, prints what goes untested.
pub fn lacks_settings() -> bool {
    lacks((7, 0), "CONFIG SET of a module's setting")
}

/// Whether the server lacks NOTIFY, which reports the grant of a ticket. If so, prints what goes untested.
pub fn lacks_notify() -> bool {
    lacks((7, 0), "NOTIFY")
}

/// Whether the server has no vector sets. If so, prints what goes untested.
pub fn lacks_vector_sets() -> bool {
    lacks_either((8, 0), NEVER, "vector sets")
}

/// As a version: the product has never had the feature.
pub const NEVER: (u32, u32) = (u32::MAX, 0);

/// Like `lacks`, for something that Redis and Valkey have since different versions.
pub fn lacks_either(redis: (u32, u32), valkey: (u32, u32), what: &str) -> bool {
    let since = of_product(redis, valkey);
    is_missing(PRODUCT.version < since, since, what)
}

fn of_product(redis: (u32, u32), valkey: (u32, u32)) -> (u32, u32) {
    if PRODUCT.valkey { valkey } else { redis }
}

fn is_missing(missing: bool, since: (u32, u32), what: &str) -> bool {
    if missing {
        let since = match since {
            NEVER => String::new(),
            (major, minor) => format!(" (since {major}.{minor})"),
        };
        announce(&format!("skipped on {}: {what}{since}", version_line()));
    }
    missing
}

/// Whether the server is Valkey and at least of this version.
pub fn is_valkey_since(version: (u32, u32)) -> bool {
    PRODUCT.valkey && PRODUCT.version >= version
}

/// Whether key events would put clients into the wrong database. Then the module does not learn
/// fences from commands: see `misplaces_clients` in `src/ffi/server_flavor.rs`.
pub fn misplaces_clients() -> bool {
    let does = is_valkey_since((8, 1)) && !is_valkey_since((9, 1));
    if does {
        announce(&format!(
            "skipped on {}: fences learned from commands (since 9.1)",
            version_line()
        ));
    }
    does
}

/// Whether the server may crash when `CLIENT UNBLOCK` names a client that `CLIENT PAUSE` holds back,
/// even without a module. Among earlier versions, only late patch releases do not crash.
pub fn may_crash_when_a_paused_client_is_unblocked() -> bool {
    let may = PRODUCT.version < of_product((8, 2), (9, 0));
    if may {
        static ANNOUNCED: Once = Once::new();
        ANNOUNCED.call_once(|| {
            announce(&format!(
                "skipped on {}: CLIENT UNBLOCK beside CLIENT PAUSE (since 8.2; Valkey since 9.0)",
                version_line()
            ));
        });
    }
    may
}

/// Whether the server was built without a feature, so that it refuses a line of configuration. If so,
/// prints what goes untested.
pub fn lacks_setting(name: &str, value: &str, what: &str) -> bool {
    // The server stops at the first line that it refuses, or lists all of them.
    let setup = Server::builder().without_module().config(name, value);
    let log = setup.config("no-such-setting", "x").refuse();
    built_without(what, log.contains(&format!(">>> '{name} {value}")))
}

/// Like `lacks_setting`, for TLS. Later servers accept TLS settings even without TLS.
pub fn lacks_tls() -> bool {
    // The server ends either way: it lacks TLS, or a certificate.
    let log = Server::builder().without_module().config("tls-port", "1").refuse();
    let signs = [">>> 'tls-port 1'", "Failed finding TLS support"];
    built_without("TLS", signs.iter().any(|sign| log.contains(sign)))
}

fn built_without(what: &str, lacks: bool) -> bool {
    if lacks {
        announce(&format!("skipped on {}: {what} (built without)", version_line()));
    }
    lacks
}

/// Whether the server is older than this version of Redis. Every Valkey has the features of Redis
/// 7.2, from which it was forked. Valkey 8.0 has what Redis 7.4 offers modules, because both had been
/// in work before the fork.
pub fn is_older_than(version: (u32, u32)) -> bool {
    let level = match (PRODUCT.valkey, PRODUCT.version) {
        (false, version) => version,
        (true, (..8, _)) => (7, 2),
        (true, _) => (7, 4),
    };
    level < version
}

/// Prints at once. The test runner hides `eprintln!` output unless the test fails.
#[expect(clippy::explicit_write, reason = "see above")]
pub fn announce(line: &str) {
    let current = std::thread::current();
    let test = current.name().unwrap_or("?");
    writeln!(std::io::stderr(), "[{test}] {line}").unwrap();
}

fn find_binary() -> PathBuf {
    if let Some(chosen) = env::var_os("LEASEHOLD_SERVER") {
        return chosen.into();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    ["redis-server", "valkey-server"]
        .iter()
        .flat_map(|name| env::split_paths(&path).map(move |folder| folder.join(name)))
        .find(|candidate| candidate.is_file())
        .expect("no redis-server or valkey-server in PATH; LEASEHOLD_SERVER= names one elsewhere")
}

/// The version in a line: `Redis server v=7.0.15 sha=…` is (7, 0), with ` v=` for `mark`.
pub(crate) fn version_in(line: &str, mark: &str) -> Option<(u32, u32)> {
    let mut parts = line.split(mark).nth(1)?.split(['.', ' ']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}
