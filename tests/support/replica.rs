//! A primary and its replica.

use super::{Server, Setup, eventually};

/// A primary and a replica of it, in sync.
pub(crate) fn start_pair(primary: Setup, replica: Setup) -> (Server, Server) {
    let primary = primary.tcp().start();
    let replica = replica.replica_of(&primary).start();
    wait_until_in_sync(&primary, &replica);
    (primary, replica)
}

/// Waits until the replica has applied all that the primary has done so far.
pub(crate) fn wait_until_in_sync(primary: &Server, replica: &Server) {
    let field = |server: &Server, name| server.client().info_field("replication", name);
    let wanted = offset(field(primary, "master_repl_offset"));
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

fn offset(field: Option<String>) -> Option<i64> {
    field.map(|digits| digits.parse().unwrap())
}
