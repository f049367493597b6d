//! To another build of the module, or to a server without it, and back again: by a restart and by a
//! promotion, while a lock is held and somebody waits for it.
//!
//! `LEASEHOLD_OTHER_MODULE` names the other build. Without it the other build is the same one.

mod cluster;

use crate::shared::{Hold, holds};
use redis::Value;
use std::env;
use std::path::PathBuf;
use testkit::{Client, Server, Setup, Waiter, bulk_text, module, start_pair, wait_until_in_sync};

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

    /// The lock of alice is there, and bob waits for it if he can.
    fn look(self, server: &Server, held: u64, last: &mut u64) -> Option<Waiter> {
        let mut client = server.client();
        match self {
            Self::AnotherBuild => Some(still_held(server, held, last)),
            Self::NoModule => {
                let value = bulk_text(&client.cmd("GET held"));
                assert_eq!(value, format!("{held}:alice"));
                assert!(matches!(client.cmd("PTTL held"), Value::Int(1..)));
                // Clients that know nothing but SET are kept out.
                assert_eq!(client.cmd("SET held old-client NX PX 1000"), Value::Nil);
                let unknown = client.cmd("LOCK.CHECK held alice");
                assert!(matches!(unknown, Value::ServerError(_)), "{unknown:?}");
                None
            }
        }
    }
}

/// Alice holds the lock by the same fence, fences of other grants grow, and bob asks and waits.
fn still_held(server: &Server, held: u64, last: &mut u64) -> Waiter {
    let mut client = server.client();
    assert_eq!(client.check("held", "alice"), Some(held));
    assert_eq!(client.acquire("held", "carol", LONG), None);
    *last = next_fence(&mut client, *last);
    Waiter::of(server, "held", "bob")
}

/// Of a lock that is free in between. Larger than the last one.
fn next_fence(client: &mut Client, last: u64) -> u64 {
    let fence = client.grant("free", "dave", LONG);
    assert!(client.release("free", "dave"));
    assert!(fence > last, "{fence} after {last}");
    fence
}

/// By an error that begins with one of these words, or by the end of the connection.
#[track_caller]
fn assert_sent_away(waiter: Option<Waiter>) {
    let Some(mut waiter) = waiter else { return };
    match waiter.client.try_receive() {
        Err(_) => {}
        Ok(Value::ServerError(told)) if ["UNBLOCKED", "TRYAGAIN"].contains(&told.code()) => {}
        other => panic!("it was told {other:?}"),
    }
}

/// Alice extends and releases, and bob has the lock.
fn hands_on(server: &Server, mut bob: Waiter, held: u64) {
    let mut client = server.client();
    assert!(client.extend("held", "alice", LONG));
    assert!(client.release("held", "alice"));
    let fence = bob.fence();
    assert!(fence > held);
    assert_eq!(client.check("held", "bob"), Some(fence));
}

/// There and back by restarts.
fn over_restarts(between: Between) {
    let mut server = Server::builder().aof().tcp().start();
    let held = server.client().grant("held", "alice", LONG);
    let mut last = 0;
    let bob = still_held(&server, held, &mut last);
    server.stop();
    assert_sent_away(Some(bob));

    let mut other = between.setup().in_the_directory_of(&server).start();
    let bob = between.look(&other, held, &mut last);
    other.stop();
    assert_sent_away(bob);

    server.start_again();
    let bob = still_held(&server, held, &mut last);
    hands_on(&server, bob, held);
}

/// There and back by promotions of a replica.
fn over_promotions(between: Between) {
    let (one, other) = start_pair(Server::builder().aof(), between.setup());
    let held = one.client().grant("held", "alice", LONG);
    let mut last = 0;
    let bob = still_held(&one, held, &mut last);
    hand_over(&one, &other);
    assert_sent_away(Some(bob));
    let bob = between.look(&other, held, &mut last);
    hand_over(&other, &one);
    assert_sent_away(bob);
    let bob = still_held(&one, held, &mut last);
    hands_on(&one, bob, held);
}

fn hand_over(primary: &Server, replica: &Server) {
    wait_until_in_sync(primary, replica);
    assert_eq!(replica.cmd("REPLICAOF NO ONE"), Value::Okay);
    assert_eq!(primary.cmd(format!("REPLICAOF 127.0.0.1 {}", replica.port())), Value::Okay);
    wait_until_in_sync(replica, primary);
}

const EITHER: [Between; 2] = [Between::AnotherBuild, Between::NoModule];

#[test]
fn a_restart_with_another_build_or_without_the_module_and_back_keeps_the_lock_and_its_fence() {
    EITHER.into_iter().for_each(over_restarts);
}

#[test]
fn a_promotion_to_another_build_or_a_server_without_the_module_and_back_keeps_the_lock_and_its_fence()
 {
    EITHER.into_iter().for_each(over_promotions);
}

/// Two read a lock. Returns who they are.
fn read_by_two(server: &Server) -> Vec<Hold> {
    let mut client = server.client();
    for owner in ["alice", "bob"] {
        let reply = client.cmd(format!("LOCK.ACQUIRE shared {owner} {LONG} SHARE 0"));
        assert!(matches!(reply, Value::Int(1..)), "{reply:?}");
    }
    holds(&mut client, "shared")
}

impl Between {
    /// Both still read the lock, or it is taken for somebody else's: nobody is let in, and nothing is changed.
    fn leaves_it_to_both(self, server: &Server, readers: &[Hold]) -> Option<Waiter> {
        let mut client = server.client();
        assert_eq!(client.cmd("SET shared old-client NX PX 1000"), Value::Nil);
        match self {
            Self::NoModule => return None,
            Self::AnotherBuild if has_shares_and_tickets(server) => {
                assert_eq!(holds(&mut client, "shared"), readers);
            }
            Self::AnotherBuild => {
                for owner in ["alice", "bob"] {
                    assert_eq!(client.check("shared", owner), None);
                    assert_eq!(client.acquire("shared", owner, LONG), None);
                    assert!(!client.extend("shared", owner, LONG));
                    assert!(!client.release("shared", owner));
                }
            }
        }
        assert_eq!(client.acquire("shared", "carol", LONG), None);
        Some(Waiter::of(server, "shared", "carol"))
    }

    /// What one holds for itself there, nobody shares here.
    fn takes_one_alone(self, server: &Server) {
        let taken = match self {
            Self::NoModule => server.cmd("SET alone zoe NX PX 60000"),
            Self::AnotherBuild => server.cmd("LOCK.ACQUIRE alone zoe 60000"),
        };
        assert!(matches!(taken, Value::Okay | Value::Int(_)), "{taken:?}");
    }
}

/// The two read it as before, and one more with them; then a writer has it.
fn goes_on_with_both(server: &Server, readers: &[Hold]) {
    let mut client = server.client();
    assert_eq!(holds(&mut client, "shared"), readers);
    let joins = |key| format!("LOCK.ACQUIRE {key} dave {LONG} SHARE 0");
    let Value::Int(joined) = client.cmd(joins("shared")) else { panic!("it is not let in") };
    assert!(readers.iter().all(|reader| reader.fence < joined));
    let mut writer = Waiter::of(server, "shared", "carol");
    for owner in ["alice", "dave", "bob"] {
        writer.assert_waits(server);
        assert!(client.release("shared", owner));
    }
    assert!(writer.fence() > joined.cast_unsigned());
    assert_eq!(client.cmd(joins("alone")), Value::Nil);
    assert!(client.release("alone", "zoe"));
    assert!(matches!(client.cmd(joins("alone")), Value::Int(1..)));
}

/// There and back by restarts, and then by promotions, with a lock that two read.
fn over_both_with_readers(between: Between) {
    let mut server = Server::builder().aof().tcp().start();
    let readers = read_by_two(&server);
    server.stop();
    let mut other = between.setup().in_the_directory_of(&server).start();
    let carol = between.leaves_it_to_both(&other, &readers);
    between.takes_one_alone(&other);
    other.stop();
    assert_sent_away(carol);
    server.start_again();
    goes_on_with_both(&server, &readers);

    let (one, other) = start_pair(Server::builder().aof(), between.setup());
    let readers = read_by_two(&one);
    hand_over(&one, &other);
    let carol = between.leaves_it_to_both(&other, &readers);
    between.takes_one_alone(&other);
    hand_over(&other, &one);
    assert_sent_away(carol);
    goes_on_with_both(&one, &readers);
}

#[test]
fn another_build_or_a_server_without_the_module_and_back_leave_a_lock_to_all_who_hold_it() {
    EITHER.into_iter().for_each(over_both_with_readers);
}
