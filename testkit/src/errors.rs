//! The error texts, as users see them.

#![allow(missing_docs, reason = "each text says what it is")]

use super::version::is_older_than;

pub const OWNER_LENGTH: &str = "ERR owner must be 1 to 255 bytes long";
pub const TTL_NOT_POSITIVE: &str = "ERR ttl must be a positive integer (milliseconds)";
pub const TTL_ABOVE_LIMIT: &str =
    "ERR ttl must be at most 86400000 milliseconds (config leasehold.max-ttl)";
pub const FENCE_NOT_A_NUMBER: &str = "ERR fence must be an integer from 0 to 9007199254740991";
pub const UNKNOWN_OPTION: &str = "ERR unknown option, expected SHARE holders, BLOCK milliseconds, TICKET milliseconds, \
     NOTIFY channel, EPHEMERAL grace or ALSO numkeys key [key ...], each at most once";
pub const PATIENCE_OUT_OF_RANGE: &str =
    "ERR BLOCK must be an integer from 0 to 3153600000000 (milliseconds)";
pub const SCRIPT_REPEATED: &str =
    "ERR no lock changes in a script that replicas repeat (config lua-replicate-commands)";
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
pub const INTERNAL: &str = "ERR internal error, see the server's log";

/// The server's error for a wrong number of arguments. Up to 6.2 it shows the command as it was typed.
pub fn wrong_arity(command: &str) -> String {
    let shown =
        if is_older_than((7, 0)) { command.to_owned() } else { command.to_ascii_lowercase() };
    format!("ERR wrong number of arguments for '{shown}' command")
}
