//! The environment variables that the program reads, and those that it sets for a command.

use crate::exit_code::Of;

pub(super) struct Variable {
    pub(super) name: &'static str,
    pub(super) of: Of,
    pub(super) text: &'static str,
}

const fn heeded(name: &'static str, of: Of, text: &'static str) -> Variable {
    Variable { name, of, text }
}

/// The subcommands that run a command.
const RUNNING: Of = Of::These(&["run", "elect"]);

/// The subcommands that take locks.
const TAKING: Of = Of::These(&["run", "elect", "mcp"]);

/// The client's variables, which its `Settings` list, and those of the address and of TLS.
pub(super) const HEEDED: [Variable; 16] = [
    heeded("LEASEHOLD_URL", Of::Asking, "The address, unless --url gives another."),
    heeded(
        "LEASEHOLD_PREFIX",
        Of::Asking,
        "What the name of every lock begins with on the server.",
    ),
    heeded(
        "LEASEHOLD_TTL_MS",
        RUNNING,
        "How long a lease lasts unless it is renewed, 30000 by default.",
    ),
    heeded("LEASEHOLD_WAIT_MS", Of::These(&["run"]), "How long to wait, without limit by default."),
    heeded(
        "LEASEHOLD_RENEW",
        RUNNING,
        "on, the default, off, or how many milliseconds a lock may be held in all.",
    ),
    heeded(
        "LEASEHOLD_REPLICAS",
        TAKING,
        "How many replicas must have heard of a grant, 0 by default.",
    ),
    heeded("LEASEHOLD_REPLICAS_WITHIN_MS", TAKING, "How long they may take, 1000 by default."),
    heeded(
        "LEASEHOLD_RESPONSE_TIMEOUT_MS",
        Of::Asking,
        "How long to wait for each answer of a server, 1000 by default.",
    ),
    heeded(
        "LEASEHOLD_RETRY_FOR_MS",
        Of::Asking,
        "How long to go on trying when servers fail, 3000 by default.",
    ),
    heeded(
        "LEASEHOLD_UNREACHABLE_AFTER_MS",
        TAKING,
        "The same while one waits for a lock, 30000 by default.",
    ),
    heeded(
        "LEASEHOLD_CHECK_EVERY_MS",
        TAKING,
        "How often a request that waits is looked after, 5000 by default.",
    ),
    heeded(
        "LEASEHOLD_QUEUE",
        TAKING,
        "off: who waits tries again and again instead of queueing, on by default.",
    ),
    heeded(
        "LEASEHOLD_WAIT_CONNECTIONS",
        TAKING,
        "How many connections may wait at a time, 64 by default.",
    ),
    heeded(
        "LEASEHOLD_CONNECTION_NAME",
        Of::Asking,
        "The name of the connection for requests, leasehold by default; nothing: it gets none.",
    ),
    heeded(
        "SSL_CERT_FILE",
        Of::Asking,
        "Whom to trust, unless --cacert says so: a file in PEM format.",
    ),
    heeded("SSL_CERT_DIR", Of::Asking, "The same: a folder of such files."),
];

/// The variables that a command under a lock gets.
pub(super) const SET: [Variable; 4] = [
    heeded("LEASEHOLD_NAME", RUNNING, "The lock."),
    heeded("LEASEHOLD_OWNER", RUNNING, "As whom it is held."),
    heeded(
        "LEASEHOLD_FENCE",
        RUNNING,
        "The fence of the grant. Send it along with each write, so that the store can refuse a late one.",
    ),
    heeded(
        "LEASEHOLD_DEADLINE",
        RUNNING,
        "When the first lease ends, in Unix milliseconds. It is renewed.",
    ),
];
