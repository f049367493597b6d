//! Commands that only the holder of a lock can run: `LOCK.GUARD key owner fence command [arg …]`.

mod against_bare;
mod calling;
mod cluster;
mod hostile;
mod keys;
mod modules;
mod observing;
mod refusing;
mod replying;
mod rights;
mod telling;
mod waiting;

use redis::Value;
use testkit::{Client, Server, strings};

const LONG: u64 = 60_000;
const NOT_HOLDER: &str =
    "NOTHOLDER this owner does not hold the lock by this fence, nothing was run";

/// A server whose lock `the-lock` is alice's, by this fence.
fn held() -> (Server, Client, u64) {
    held_on(Server::start())
}

fn held_on(server: Server) -> (Server, Client, u64) {
    let mut client = server.client();
    let fence = client.grant("the-lock", "alice", LONG);
    (server, client, fence)
}

/// The request that guards this command by alice's hold.
fn guarded(fence: u64, command: &str) -> String {
    format!("LOCK.GUARD the-lock alice {fence} {command}")
}

/// All that the server has, those of containers with their second word.
fn names_of_commands(client: &mut Client) -> Vec<String> {
    let Value::Array(commands) = client.cmd("COMMAND") else { panic!("no list") };
    let mut names = Vec::new();
    for command in commands {
        let Value::Array(parts) = command else { panic!("no command") };
        let name = strings(&Value::Array(parts[..1].to_vec())).remove(0);
        names.push(name);
        if let Some(Value::Array(subcommands)) = parts.get(9) {
            for subcommand in subcommands {
                let Value::Array(parts) = subcommand else { panic!("no subcommand") };
                names.push(strings(&Value::Array(parts[..1].to_vec())).remove(0).replace('|', " "));
            }
        }
    }
    names
}
