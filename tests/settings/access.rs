//! Who may connect, and which commands there are.

use super::{LONG, smoke};
use redis::Value;
use testkit::{Server, Setup, error, unchanged};

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
