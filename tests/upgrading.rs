//! To another build of the module, or to a server without it, and back again: by a restart and by a
//! promotion, while a lock is held and somebody waits for it.
//!
//! `LEASEHOLD_OTHER_MODULE` names the other build. Without it the other build is the same one.

mod cluster;

use crate::shared::{Hold, holds};
use redis::Value;
use std::env;
use std::path::PathBuf;
use testkit::{Server, Setup, Waiter, bulk_text, module, start_pair, wait_until_in_sync};

const LONG: u64 = 60_000;

/// Its file.
fn other_build() -> PathBuf {
    let file = env::var_os("LEASEHOLD_OTHER_MODULE").map(PathBuf::from);
    file.unwrap_or_else(|| module::path().to_owned())
}

/// They came with version 0.2.0, as `LOCK.HOLDERS` did.
fn has_shares_and_tickets(server: &Server) -> bool {
    let has_them = server.cmd("COMMAND INFO LOCK.HOLDERS") != Value::Array(vec![Value::Nil]);
    let is_this_build = other_build() == module::path();
    assert!(has_them || !is_this_build, "this build has them");
    has_them
}

/// What comes between two times of the build that is tested.
#[derive(Clone, Copy)]
enum Between {
    AnotherBuild,
    NoModule,
}

impl Between {
    fn setup(self) -> Setup {
        let setup = Server::builder().aof().tcp().without_module();
        match self {
            Self::NoModule => setup,
            // As in this build. In version 0.1.0 it is smaller unless it is set.
            Self::AnotherBuild => setup
                .config("loadmodule", &format!("{} fence-margin 15000", other_build().display())),
        }
    }

    /// What is held is left alone, also by clients that know nothing but `SET`. Who waits, if somebody can.
    fn look(self, server: &Server, locks: &mut Locks) -> Vec<Waiter> {
        let (waiters, takes) = match self {
            Self::AnotherBuild => (locks.go_on(server).into(), "LOCK.ACQUIRE alone zoe 60000"),
            Self::NoModule => {
                let value = bulk_text(&server.cmd("GET held"));
                assert_eq!(value, format!("{}:alice", locks.alices));
                assert!(matches!(server.cmd("PTTL held"), Value::Int(1..)));
                let unknown = server.cmd("LOCK.CHECK held alice");
                assert!(matches!(unknown, Value::ServerError(_)), "{unknown:?}");
                (Vec::new(), "SET alone zoe NX PX 60000")
            }
        };
        for key in ["held", "shared"] {
            assert_eq!(server.cmd(format!("SET {key} old-client NX PX 1000")), Value::Nil);
        }
        // What one holds for itself there, nobody shares here.
        let taken = server.cmd(takes);
        assert!(matches!(taken, Value::Okay | Value::Int(_)), "{taken:?}");
        waiters
    }
}

/// A lock that alice holds, one that several read, and the last fence of one that is free in between.
struct Locks {
    alices: u64,
    readers: Vec<Hold>,
    last: u64,
}

fn reads(key: &str, owner: &str) -> String {
    format!("LOCK.ACQUIRE {key} {owner} {LONG} SHARE 0")
}

impl Locks {
    fn on(server: &Server) -> Self {
        let mut client = server.client();
        let alices = client.grant("held", "alice", LONG);
        for owner in ["alice", "bob"] {
            client.fence(reads("shared", owner)).unwrap();
        }
        Self { alices, readers: holds(&mut client, "shared"), last: 0 }
    }

    /// They are held by the same fences, and fences of other grants grow. Carol waits for both.
    fn go_on(&mut self, server: &Server) -> [Waiter; 2] {
        let mut client = server.client();
        assert_eq!(client.check("held", "alice"), Some(self.alices));
        if has_shares_and_tickets(server) {
            assert_eq!(holds(&mut client, "shared"), self.readers);
        } else {
            // It is taken for somebody else's: nobody is let in, and nothing is changed.
            for owner in ["alice", "bob"] {
                assert_eq!(client.check("shared", owner), None);
                assert_eq!(client.acquire("shared", owner, LONG), None);
                assert!(!client.extend("shared", owner, LONG));
                assert!(!client.release("shared", owner));
            }
        }
        let fence = client.grant("free", "dave", LONG);
        assert!(client.release("free", "dave"));
        assert!(fence > self.last, "{fence} after {}", self.last);
        self.last = fence;
        ["held", "shared"].map(|key| {
            assert_eq!(client.acquire(key, "carol", LONG), None);
            Waiter::of(server, key, "carol")
        })
    }

    /// One more reads with the others; then carol has both, once all have let go.
    fn are_handed_on(mut self, server: &Server) {
        let mut client = server.client();
        let joined = client.fence(reads("shared", "dave")).unwrap();
        let before = std::mem::replace(&mut self.readers, holds(&mut client, "shared"));
        assert_eq!(self.readers[..2], before);
        assert!(before.iter().all(|reader| reader.fence < joined.cast_signed()));
        let [mut held, mut shared] = self.go_on(server);
        assert!(client.extend("held", "alice", LONG));
        assert!(client.release("held", "alice"));
        assert!(held.fence() > self.alices);
        for owner in ["alice", "dave", "bob"] {
            shared.assert_waits(server);
            assert!(client.release("shared", owner));
        }
        assert!(shared.fence() > joined);
        assert_eq!(client.fence(reads("alone", "dave")), None);
        assert!(client.release("alone", "zoe"));
        client.fence(reads("alone", "dave")).unwrap();
    }
}

/// By an error that begins with one of these words, or by the end of the connection.
#[track_caller]
fn assert_sent_away(waiters: impl IntoIterator<Item = Waiter>) {
    for mut waiter in waiters {
        match waiter.client.try_receive() {
            Err(_) => {}
            Ok(Value::ServerError(told)) if ["UNBLOCKED", "TRYAGAIN"].contains(&told.code()) => {}
            other => panic!("it was told {other:?}"),
        }
    }
}

const EITHER: [Between; 2] = [Between::AnotherBuild, Between::NoModule];

#[test]
fn a_restart_with_another_build_or_without_the_module_and_back_keeps_locks_and_their_fences() {
    for between in EITHER {
        let mut server = Server::builder().aof().tcp().start();
        let mut locks = Locks::on(&server);
        let waiters = locks.go_on(&server);
        server.stop();
        assert_sent_away(waiters);
        let mut other = between.setup().in_the_directory_of(&server).start();
        let waiters = between.look(&other, &mut locks);
        other.stop();
        assert_sent_away(waiters);
        server.start_again();
        locks.are_handed_on(&server);
    }
}

fn hand_over(primary: &Server, replica: &Server) {
    wait_until_in_sync(primary, replica);
    replica.promote();
    primary.follow(replica);
    wait_until_in_sync(replica, primary);
}

#[test]
fn a_promotion_to_another_build_or_a_server_without_the_module_and_back_keeps_locks_and_their_fences()
 {
    for between in EITHER {
        let (one, other) = start_pair(Server::builder().aof(), between.setup());
        let mut locks = Locks::on(&one);
        let waiters = locks.go_on(&one);
        hand_over(&one, &other);
        assert_sent_away(waiters);
        let waiters = between.look(&other, &mut locks);
        hand_over(&other, &one);
        assert_sent_away(waiters);
        locks.are_handed_on(&one);
    }
}
