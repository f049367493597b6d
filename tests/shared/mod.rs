//! Locks that several hold at a time: `LOCK.ACQUIRE … SHARE`, `LOCK.HOLDERS`, and what all else says of them.

mod crowds;
mod ending;
mod evicting;
mod leaving;
mod limits;
mod moving;
mod promoting;
mod sharing;
mod strangers;
mod telling;

use redis::Value;
use testkit::{
    Client, Server, Session, Snapshot, Waiter, field, number, start_pair, wait_until_in_sync,
};

const LONG: u64 = 60_000;

/// A primary with a file, a replica of it, and one without the module.
pub(crate) struct Scene {
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

    /// Waits until both replicas have all that the primary has done.
    fn sync(&self) {
        for replica in [&self.replica, &self.without] {
            wait_until_in_sync(&self.primary, replica);
        }
    }

    /// Both replicas have what the primary has. So has the primary once it has saved all to a file and loaded that, and once it
    /// was killed and has read again which commands changed something.
    #[track_caller]
    fn agree(mut self) {
        let truth = (Snapshot::of(&self.primary), all_holds(&self.primary));
        self.sync();
        assert_eq!(Snapshot::of(&self.without), truth.0);
        let seen = |server: &Server| (Snapshot::of(server), all_holds(server));
        assert_eq!(seen(&self.replica), truth);
        assert_eq!(self.primary.cmd("DEBUG RELOAD"), Value::Okay);
        assert_eq!(seen(&self.primary), truth);
        self.primary.kill();
        self.primary.start_again();
        assert_eq!(seen(&self.primary), truth);
    }

    /// Plays stories at the primary, and checks that the others agree then.
    #[track_caller]
    pub(crate) fn play(text: &str) {
        let scene = Self::start();
        Session::play(&scene.primary, text);
        scene.agree();
    }
}

/// Who holds `k` in each database.
fn all_holds(server: &Server) -> Vec<Vec<Hold>> {
    let mut client = server.client();
    let mut holds_in = |database: u32| {
        client.cmd(format!("SELECT {database}"));
        holds(&mut client, "k")
    };
    (0..16).map(&mut holds_in).collect()
}

/// One row of `LOCK.HOLDERS`, without what is left of the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) owner: Vec<u8>,
    pub(crate) fence: i64,
    deadline: i64,
    share: i64,
}

/// Who holds this lock, oldest first.
#[track_caller]
pub(crate) fn holds(client: &mut Client, key: &str) -> Vec<Hold> {
    rows(&client.cmd(["LOCK.HOLDERS", key, "COUNT", "-1"]))
}

/// What `LOCK.HOLDERS` replied.
#[track_caller]
fn rows(reply: &Value) -> Vec<Hold> {
    let Value::Array(rows) = reply else { panic!("no list: {reply:?}") };
    let hold = |row: &Value| {
        let number = |name| number(row, name);
        let Some(Value::BulkString(owner)) = field(row, "owner") else { panic!("{row:?}") };
        let (fence, deadline, share) = (number("fence"), number("deadline"), number("share"));
        Hold { owner: owner.clone(), fence, deadline, share }
    };
    rows.iter().map(hold).collect()
}

/// The owners that hold `k`, oldest first.
#[track_caller]
fn holders(client: &mut Client) -> Vec<String> {
    let text = |hold: Hold| String::from_utf8_lossy(&hold.owner).into_owned();
    holds(client, "k").into_iter().map(text).collect()
}

fn asks(key: &str, owner: &str, ttl: u64, share: u32) -> String {
    format!("LOCK.ACQUIRE {key} {owner} {ttl} SHARE {share}")
}

/// The fence, or nothing if there are too many.
#[track_caller]
fn share(client: &mut Client, owner: &str, ttl: u64, share: u32) -> Option<u64> {
    client.fence(asks("k", owner, ttl, share))
}

/// Waits without limit.
fn waits(server: &Server, owner: &str, share: u32) -> Waiter {
    Waiter::sends(server, &format!("{} BLOCK 0", asks("k", owner, LONG, share)))
}

/// Gives this hold of `k` a lease of so many milliseconds, and returns when that ends.
#[track_caller]
fn shorten(client: &mut Client, owner: &str, millis: u64) -> i64 {
    let extend = format!("LOCK.EXTEND k {owner} {millis}");
    let replies = client.transaction(&[&extend, "LOCK.HOLDERS k COUNT -1"]);
    let hold = rows(&replies[1]).into_iter().find(|hold| hold.owner == owner.as_bytes());
    hold.unwrap_or_else(|| panic!("{owner} does not hold it: {replies:?}")).deadline
}
