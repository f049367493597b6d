//! Proving that nothing happened.

use super::{Server, Snapshot, aof, error};

/// What a server holds and what its append-only file says must be the same after `act` as before. The
/// server keeps such a file.
#[track_caller]
pub fn unchanged<T>(server: &Server, act: impl FnOnce() -> T) -> T {
    let before = (Snapshot::of(server), aof::lines(server));
    let outcome = act();
    assert_eq!((Snapshot::of(server), aof::lines(server)), before, "something changed");
    outcome
}

/// Sends each command, all on one connection: each gets its error, and none changes anything.
#[track_caller]
pub fn assert_each_is_refused(server: &Server, table: &[(&str, &str)]) {
    let mut client = server.client();
    for (command, text) in table {
        let reply = unchanged(server, || client.cmd(*command));
        assert_eq!(reply, error(text), "{command}");
    }
}
