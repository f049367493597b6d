//! One truth: what replicas, the append-only file and the RDB file say is what the primary says.

use redis::Value;
use testkit::{Client, Seed, Server, Snapshot, aof, start_pair, wait_until_in_sync};

const LONG: u64 = 60_000;
/// Absolute, because a relative expiry of the server's own SET may arrive a millisecond later.
const YEAR_2100: &str = "4102444800000";

/// Some of everything the module does to a key, by chance, over a few keys of two databases. Leases are
/// too long to run out meanwhile.
fn lively(client: &mut Client, seed: &mut Seed, commands: usize) {
    for _ in 0..commands {
        let key = ["a", "b", "c", "\0\u{ff}"][seed.below(4)];
        let owner = ["alice", "bob", "*"][seed.below(3)];
        let ttl = ["60000", "90000", "86400000"][seed.below(3)];
        match seed.below(17) {
            0..5 => drop(client.cmd(["LOCK.ACQUIRE", key, owner, ttl])),
            5..7 => drop(client.cmd(["LOCK.RELEASE", key, owner])),
            7..9 => drop(client.cmd(["LOCK.EXTEND", key, owner, ttl])),
            9 => drop(client.cmd(["SET", key, "foreign", "NX", "PXAT", YEAR_2100])),
            10..15 => {
                let owner = ["alice", "bob", "carol", "dave", "*"][seed.below(5)];
                let share = ["0", "2", "3", "7"][seed.below(4)];
                drop(client.cmd(["LOCK.ACQUIRE", key, owner, ttl, "SHARE", share]));
            }
            15 => drop(client.transaction(&["LOCK.RELEASE a alice", "LOCK.ACQUIRE a bob 60000"])),
            _ => drop(client.cmd(["SELECT", ["0", "5"][seed.below(2)]])),
        }
    }
}

/// Snapshots of two servers at the same point of the stream.
#[track_caller]
fn assert_same(primary: &Server, replica: &Server) {
    wait_until_in_sync(primary, replica);
    let (primary, replica) = (Snapshot::of(primary), Snapshot::of(replica));
    assert_ne!(primary.size(), 0, "nothing to compare");
    assert_eq!(primary, replica);
}

/// With the module and without it.
#[test]
fn a_replica_holds_what_its_primary_holds() {
    let mut seed = Seed::announced();
    for setup in [Server::builder(), Server::builder().without_module()] {
        let (primary, replica) = start_pair(Server::builder(), setup);
        for _ in 0..5 {
            lively(&mut primary.client(), &mut seed, 300);
            assert_same(&primary, &replica);
        }
    }
}

#[test]
fn the_append_only_file_and_the_rdb_file_load_without_the_module_and_with_it_again() {
    let mut seed = Seed::announced();
    for setup in [Server::builder().aof(), Server::builder()] {
        let mut server = setup.clone().start();
        lively(&mut server.client(), &mut seed, 1_000);
        let held = server.client().grant("held", "alice", LONG);
        let before = Snapshot::of(&server);
        assert_ne!(before.size(), 0, "nothing to compare");
        assert_eq!(server.cmd("SAVE"), Value::Okay);
        server.kill();
        let mut without = setup.without_module().in_the_directory_of(&server).start();
        assert_eq!(Snapshot::of(&without), before);
        without.cmd("SAVE");
        without.kill();
        server.start_again();
        assert_eq!(Snapshot::of(&server), before);
        assert_eq!(server.client().check("held", "alice"), Some(held), "it knows its locks");
    }
}

#[test]
fn bytes_arrive_in_the_append_only_file_as_they_are() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let (key, owner) = (b"\r\n\0\xff", b"\0\r\n$5\xfe");
    let fence = client.grant(key, owner, LONG);
    let commands = aof::commands(&server);
    assert_eq!(commands[0][1], key);
    assert_eq!(commands[0][2], [format!("{fence}:").as_bytes(), owner].concat());
}
