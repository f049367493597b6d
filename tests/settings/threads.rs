//! Threads that read and write for the server.

use super::{LONG, smoke};
use redis::Value;
use testkit::crowd::Crowd;
use testkit::{Cluster, Server, Setup, bulk, eventually, int, is_valkey_since};

/// So many at once that threads are worth their while.
const BUSY: usize = 64;

fn with_threads(setup: Setup) -> Setup {
    // Later servers read in threads as a matter of course, and take this as said.
    let setup = setup.config("io-threads", "4").config("io-threads-do-reads", "yes");
    // It uses its threads only while it finds itself busy, and a test may not make it so.
    let is_lazy = is_valkey_since((9, 0));
    if is_lazy { setup.config("io-threads-always-active", "yes") } else { setup }
}

#[test]
fn a_server_with_4_threads() {
    let server = with_threads(Server::builder()).start();
    smoke(&server);
    let mut crowd = Crowd::of(&server, BUSY);
    let mut latest = 0;
    eventually("threads have read and written", || {
        everybody_in_turn(&server, &mut crowd, &mut latest);
        let count = |name| server.client().info_field("stats", name).unwrap();
        match ["io_threaded_reads_processed", "io_threaded_writes_processed"].map(count) {
            counts if counts.iter().all(|count| count != "0") => Ok(()),
            counts => Err(counts),
        }
    });
    smoke(&server);
}

/// All ask at once; whoever gets the lock gives it back.
fn everybody_in_turn(server: &Server, crowd: &mut Crowd, latest: &mut u64) {
    let mut client = server.client();
    let held = client.grant("k", "alice", LONG);
    for index in 0..crowd.size() {
        crowd.send(index, "LOCK.CHECK k alice");
        crowd.send(index, format!("LOCK.ACQUIRE k {index} 60000 BLOCK 0"));
    }
    let (mut checks, mut grants, mut releases) = (0, 0, 0);
    while releases < crowd.size() {
        for (index, reply) in crowd.receive() {
            match reply {
                Some(Value::Int(1)) => releases += 1,
                Some(reply) if reply == int(held) => checks += 1,
                Some(Value::Int(fence)) => {
                    let fence = fence.try_into().unwrap();
                    assert!(fence > *latest, "{fence} is not larger than {latest}");
                    *latest = fence;
                    grants += 1;
                    crowd.send(index, format!("LOCK.RELEASE k {index}"));
                }
                other => panic!("{index} received {other:?}"),
            }
        }
        if checks == crowd.size() && grants == 0 {
            assert!(client.release("k", "alice"));
        }
    }
    assert_eq!((checks, grants), (BUSY, BUSY));
}

/// What some servers would ask the module in the thread that reads a request, they cannot ask there without harm.
#[test]
fn a_server_whose_threads_read_guards_commands_for_many_at_once() {
    let server = with_threads(Server::builder().aof()).start();
    assert_guards_for_many(&server, "the-lock", "the-key");
    let cluster = Cluster::with(1, 0, |_, setup| with_threads(setup.aof()));
    let slot = cluster.slot_of(0);
    assert_guards_for_many(cluster.node(0), &slot.key("the-lock"), &slot.key("the-key"));
    // Whoever looks at it, the server or the module.
    let far = format!("LOCK.GUARD {} alice 1 SET {} v", slot.key("the-lock"), "another-key");
    let Value::ServerError(refusal) = cluster.node(0).cmd(far) else { panic!("it was run") };
    assert_eq!(refusal.code(), "CROSSSLOT");
}

fn assert_guards_for_many(server: &Server, lock: &str, key: &str) {
    const ROUNDS: usize = 20;
    const REQUESTS: usize = 15;
    let fence = server.client().grant(lock, "alice", LONG);
    let mut crowd = Crowd::of(server, BUSY);
    let request = format!("LOCK.GUARD {lock} alice {fence} INCR {key}");
    for _ in 0..ROUNDS {
        for _ in 0..REQUESTS {
            (0..BUSY).for_each(|index| crowd.send(index, &*request));
        }
        let mut answered = 0;
        while answered < BUSY * REQUESTS {
            for (index, reply) in crowd.receive() {
                assert!(matches!(reply, Some(Value::Int(1..))), "{index} received {reply:?}");
                answered += 1;
            }
        }
    }
    assert_eq!(server.cmd(format!("GET {key}")), bulk((BUSY * REQUESTS * ROUNDS).to_string()));
}
