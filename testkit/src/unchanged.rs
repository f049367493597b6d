//! Proves that nothing changed.

use super::{Server, Snapshot, aof, error};

/// Runs `act`, and checks that it changes neither the data nor the append-only file of the server.
/// The server must keep such a file.
#[track_caller]
pub fn unchanged<T>(server: &Server, act: impl FnOnce() -> T) -> T {
    let before = (Snapshot::of(server), aof::lines(server));
    let outcome = act();
    assert_eq!((Snapshot::of(server), aof::lines(server)), before, "something changed");
    outcome
}

/// Sends each command on one connection, and checks that its reply is this error and that nothing changes.
#[track_caller]
pub fn assert_each_is_refused(server: &Server, table: &[(&str, &str)]) {
    let mut client = server.client();
    for (command, text) in table {
        let reply = unchanged(server, || client.cmd(*command));
        assert_eq!(reply, error(text), "{command}");
    }
}
