//! Who may connect, and which commands there are.

use super::{LONG, smoke};
use redis::Value;
use std::net::{IpAddr, UdpSocket};
use testkit::{Server, Setup, announce, error, unchanged};

const ONE_OF_EACH: [&str; 9] = [
    "LOCK.ACQUIRE k bob 60000",
    "LOCK.ACQUIRE k bob 60000 BLOCK 1000",
    "LOCK.ACQUIRE free bob 60000",
    "LOCK.EXTEND k alice 60000",
    "LOCK.CHECK k alice",
    "LOCK.GUARD k alice 0 SET other v",
    "LOCK.INFO k",
    "LOCK.WAITERS k",
    "LOCK.RELEASE k alice",
];

#[test]
fn a_server_with_a_password() {
    smoke(&Server::builder().password("open-sesame").start());
}

#[test]
fn who_has_not_given_the_password_learns_and_changes_nothing() {
    let server = Server::builder().aof().password("open-sesame").start();
    server.client().grant("k", "alice", LONG);
    let mut stranger = server.stranger();
    for command in ONE_OF_EACH {
        let reply = unchanged(&server, || stranger.cmd(command));
        assert_eq!(reply, error("NOAUTH Authentication required."), "{command}");
    }
    assert_eq!(stranger.cmd("AUTH open-sesame"), Value::Okay);
    assert!(stranger.release("k", "alice"));
}

#[test]
fn a_server_that_trusts_only_its_own_machine() {
    smoke(&Server::builder().clients_over_tcp().config("protected-mode", "yes").start());
}

#[test]
fn who_comes_from_outside_to_a_server_without_a_password_is_sent_away() {
    let Some(address) = address_of_this_machine() else {
        return announce("skipped: this machine has no address but the loopback's");
    };
    let setup = Server::builder().aof().clients_over_tcp().on_every_address();
    let server = setup.config("protected-mode", "yes").start();
    server.client().grant("k", "alice", LONG);
    unchanged(&server, || {
        let mut stranger = server.stranger_at(address);
        // It is told before it has asked for anything, and may be gone before it has.
        let _ = stranger.try_send_bytes(b"LOCK.RELEASE k alice\r\n");
        let Ok(Value::ServerError(told)) = stranger.try_receive() else { panic!("not refused") };
        assert_eq!(told.code(), "DENIED");
        stranger.assert_closed();
    });
}

/// The address others know this machine by. Nothing is sent to find out.
fn address_of_this_machine() -> Option<IpAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    socket.connect(("192.0.2.1", 9)).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback()).then_some(address)
}

/// The server reads `rename-command` before it loads modules, and stops at a name it does not know yet. This is
/// no doing of the module's; the docs name the ACL instead.
#[test]
fn no_server_starts_with_a_command_of_a_module_renamed() {
    for renamed in ["LOCK.ACQUIRE \"\"", "LOCK.RELEASE LOCK.GIVEBACK"] {
        let log = Server::builder().config("rename-command", renamed).refuse();
        assert!(log.contains("No such command in rename-command"), "{log}");
    }
}

#[test]
fn a_command_is_taken_away_by_the_acl_instead_from_the_file_too() {
    let rules = "default on nopass ~* &* +@all -lock.acquire";
    let server = Server::builder().aof().config("user", rules).start();
    let mut client = server.client();
    for refused in ["LOCK.ACQUIRE k alice 60000", "LOCK.ACQUIRE k alice 60000 BLOCK 0"] {
        let reply = unchanged(&server, || client.cmd(refused));
        let Value::ServerError(error) = &reply else { panic!("{refused}: {reply:?}") };
        assert_eq!(error.code(), "NOPERM", "{refused}");
    }
    assert_eq!(client.info("k"), None, "the others are there");
    assert_eq!(client.cmd("ACL SETUSER default +lock.acquire"), Value::Okay);
    client.grant("k", "alice", LONG);
}

/// Those that the module itself has the server run, and what operators like to hide.
#[test]
fn a_server_that_hides_other_commands() {
    let hidden = ["GETRANGE", "EXISTS", "COMMAND", "CONFIG", "MODULE", "FLUSHALL", "KEYS", "DEBUG"];
    let hide = |setup: Setup, name: &&str| setup.config("rename-command", &format!("{name} \"\""));
    let server = hidden.iter().fold(Server::builder(), hide).start();
    smoke(&server);
    let reply = server.cmd("GETRANGE k 0 1");
    assert!(matches!(reply, Value::ServerError(_)), "{reply:?}");
}
