//! A primary and its replica.

use super::eventually::patiently;
use super::{Server, Setup, bulk_text, eventually};
use std::time::Duration;

/// Starts a primary and its replica, in sync.
pub fn start_pair(primary: Setup, replica: Setup) -> (Server, Server) {
    let primary = primary.tcp().start();
    let replica = replica.replica_of(&primary).start();
    wait_until_in_sync(&primary, &replica);
    (primary, replica)
}

/// Waits until the replica has applied everything that the primary has done so far.
pub fn wait_until_in_sync(primary: &Server, replica: &Server) {
    let wanted = eventually("the primary says where it is", || {
        field(primary, "master_repl_offset").ok_or("it does not")
    });
    let wanted = offset(Some(wanted));
    eventually("the replica is in sync", || {
        let link = field(replica, "master_link_status");
        let reached = offset(field(replica, "slave_repl_offset"));
        if link.as_deref() == Some("up") && reached >= wanted {
            Ok(())
        } else {
            Err(format!("link {link:?}, {reached:?} of {wanted:?}"))
        }
    });
}

/// Waits until the server is a `master`, or a `slave`.
pub fn wait_until_it_is(server: &Server, role: &str) {
    eventually(&format!("the server is a {role}"), || match role_of(server) {
        Some(seen) if seen == role => Ok(()),
        seen => Err(seen),
    });
}

/// The role in INFO replication, `master` or `slave`, if the server answers.
pub fn role_of(server: &Server) -> Option<String> {
    field(server, "role")
}

/// Waits until the replica, whose clock is behind by `behind`, has received the fence clock of its
/// primary. The error is how far ahead of its own clock the replica's fence clock is, and how far
/// it should be. The replica's lift at its own start is less than that.
pub fn fences_become_known(
    primary: &Server,
    replica: &Server,
    behind: Duration,
    patience: Duration,
) -> Result<(), (Duration, Duration)> {
    let ahead = |server: &Server| Duration::from_micros(server.client().counter("fence_ahead_us"));
    patiently(patience, || {
        // To a clock that is behind, the same fence is further ahead. The distance shrinks with
        // time, so the replica is asked first.
        let known = ahead(replica);
        let wanted = ahead(primary) + behind;
        if known + A_MILLISECOND >= wanted { Ok(()) } else { Err((known, wanted)) }
    })
}

/// Some servers give modules the time only in whole milliseconds.
const A_MILLISECOND: Duration = Duration::from_millis(1);

/// A field of INFO replication. `None` also if the connection ends: all connections end when
/// sentinels change a server's role.
pub(crate) fn field(server: &Server, name: &str) -> Option<String> {
    let text = bulk_text(&server.client().try_cmd("INFO replication").ok()?);
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.map(str::to_owned)
}

fn offset(field: Option<String>) -> Option<i64> {
    field.map(|digits| digits.parse().unwrap())
}
