//! Proves that nothing changed.

use super::{Server, Snapshot, aof, error};

/// Runs `act`, and checks that the data and the append-only file of the server are the same as
/// before. The server keeps such a file.
#[track_caller]
pub fn unchanged<T>(server: &Server, act: impl FnOnce() -> T) -> T {
    let before = (Snapshot::of(server), aof::lines(server));
    let outcome = act();
    assert_eq!((Snapshot::of(server), aof::lines(server)), before, "something changed");
    outcome
}

/// Sends each command on one connection, and checks that it gets its error and changes nothing.
#[track_caller]
pub fn assert_each_is_refused(server: &Server, table: &[(&str, &str)]) {
    let mut client = server.client();
    for (command, text) in table {
        let reply = unchanged(server, || client.cmd(*command));
        assert_eq!(reply, error(text), "{command}");
    }
}
