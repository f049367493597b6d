//! Locks that several hold at a time: `LOCK.ACQUIRE … SHARE`, `LOCK.HOLDERS`, and what all else says of them.

mod admitting;
mod changing;
mod crowds;
mod strangers;
mod telling;

use redis::Value;
use testkit::{Client, Server, Snapshot, Waiter, field, start_pair, wait_until_in_sync};

const LONG: u64 = 60_000;

/// A primary with a file, a replica of it, and one without the module.
struct Scene {
    primary: Server,
    replica: Server,
    without: Server,
}

impl Scene {
    fn start() -> Self {
        let setup = Server::builder().aof().module_args("fence-margin 0");
        let (primary, replica) = start_pair(setup, Server::builder());
        let without = Server::builder().without_module().replica_of(&primary).start();
        Self { primary, replica, without }
    }

    fn client(&self) -> Client {
        self.primary.client()
    }

    /// Replicas have what the primary has, and it has the same once it has loaded its file.
    #[track_caller]
    fn agree(mut self) {
        let truth = Snapshot::of(&self.primary);
        for replica in [&self.replica, &self.without] {
            wait_until_in_sync(&self.primary, replica);
            assert_eq!(Snapshot::of(replica), truth);
        }
        self.primary.kill();
        self.primary.start_again();
        assert_eq!(Snapshot::of(&self.primary), truth);
    }
}

fn asks(key: &str, owner: &str, ttl: u64, share: u32) -> String {
    format!("LOCK.ACQUIRE {key} {owner} {ttl} SHARE {share}")
}

/// The fence, or nothing if there are too many.
fn share(client: &mut Client, owner: &str, ttl: u64, share: u32) -> Option<u64> {
    match client.cmd(asks("k", owner, ttl, share)) {
        Value::Int(fence) => Some(fence.try_into().unwrap()),
        Value::Nil => None,
        other => panic!("neither fence nor nil: {other:?}"),
    }
}

/// Waits without limit.
fn waits(server: &Server, owner: &str, share: u32) -> Waiter {
    Waiter::sends(server, &format!("{} BLOCK 0", asks("k", owner, LONG, share)))
}

/// Who holds `k`, oldest first.
fn holders(client: &mut Client) -> Vec<String> {
    let Value::Array(rows) = client.cmd("LOCK.HOLDERS k COUNT -1") else { panic!("no list") };
    let owner = |row: &Value| match field(row, "owner") {
        Some(Value::BulkString(owner)) => String::from_utf8_lossy(owner).into_owned(),
        other => panic!("no owner: {other:?}"),
    };
    rows.iter().map(owner).collect()
}

/// A number that `LOCK.INFO k` shows.
fn shows(client: &mut Client, name: &str) -> i64 {
    match field(&client.cmd("LOCK.INFO k"), name) {
        Some(&Value::Int(number)) => number,
        other => panic!("{name} is {other:?}"),
    }
}
