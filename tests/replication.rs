//! One truth: what replicas, the append-only file and the RDB file say is what the primary says.

use redis::Value;
use testkit::{
    Client, LockInfo, Seed, Server, Snapshot, aof, deadline, error, eventually, int, start_pair,
    wait_until_in_sync,
};

const LONG: u64 = 60_000;
/// Absolute, because a relative expiry of the server's own SET may arrive a millisecond later.
const YEAR_2100: &str = "4102444800000";
const READONLY: &str = "READONLY You can't write against a read only replica.";

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

#[test]
fn a_replica_holds_what_its_primary_holds() {
    let mut seed = Seed::announced();
    let (primary, replica) = start_pair(Server::builder(), Server::builder());
    for _ in 0..5 {
        lively(&mut primary.client(), &mut seed, 300);
        assert_same(&primary, &replica);
    }
}

#[test]
fn a_replica_that_joins_later_holds_it_too() {
    let mut seed = Seed::announced();
    let primary = Server::builder().tcp().start();
    lively(&mut primary.client(), &mut seed, 300);
    let replica = Server::builder().replica_of(&primary).start();
    assert_same(&primary, &replica);
}

#[test]
fn a_replica_that_loads_beside_its_old_data_holds_it_too() {
    let mut seed = Seed::announced();
    let setup = Server::builder().config("repl-diskless-load", "swapdb");
    let (primary, replica) = start_pair(Server::builder(), setup);
    lively(&mut primary.client(), &mut seed, 300);
    // What it has it must throw away: the primary no longer knows how it came about.
    assert_eq!(replica.cmd("REPLICAOF NO ONE"), Value::Okay);
    lively(&mut replica.client(), &mut seed, 300);
    let follow = format!("REPLICAOF 127.0.0.1 {}", primary.port());
    assert_eq!(replica.cmd(follow), Value::Okay);
    assert_same(&primary, &replica);
}

#[test]
fn a_replica_without_the_module_stays_in_sync() {
    let mut seed = Seed::announced();
    let (primary, replica) = start_pair(Server::builder(), Server::builder().without_module());
    for _ in 0..5 {
        lively(&mut primary.client(), &mut seed, 300);
        assert_same(&primary, &replica);
    }
}

#[test]
fn the_append_only_file_loads_without_the_module() {
    let mut seed = Seed::announced();
    let mut server = Server::builder().aof().start();
    lively(&mut server.client(), &mut seed, 1_000);
    let before = Snapshot::of(&server);
    server.kill();
    let without = Server::builder().aof().without_module().in_the_directory_of(&server).start();
    assert_ne!(before.size(), 0, "nothing to compare");
    assert_eq!(Snapshot::of(&without), before);
}

#[test]
fn the_rdb_file_loads_without_the_module() {
    let mut seed = Seed::announced();
    let mut server = Server::start();
    lively(&mut server.client(), &mut seed, 1_000);
    let before = Snapshot::of(&server);
    assert_eq!(server.cmd("SAVE"), Value::Okay);
    server.kill();
    let without = Server::builder().without_module().in_the_directory_of(&server).start();
    assert_ne!(before.size(), 0, "nothing to compare");
    assert_eq!(Snapshot::of(&without), before);
}

#[test]
fn a_server_that_gets_the_module_later_knows_its_locks() {
    let mut server = Server::start();
    let fence = server.client().grant("k", "alice", LONG);
    server.cmd("SAVE");
    server.kill();
    let mut without = Server::builder().without_module().in_the_directory_of(&server).start();
    without.cmd("SAVE");
    without.kill();
    server.start_again();
    assert_eq!(server.client().check("k", "alice"), Some(fence));
}

#[test]
fn the_append_only_file_says_set_for_a_grant_and_a_lease_and_del_for_a_release() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let mut expected = Vec::new();
    let mut expect_set = |client: &mut Client, value: &str| {
        expected.push(format!("SET k {value} PXAT {}", deadline(client, b"k")));
        assert_eq!(aof::lines(&server), expected);
    };
    let fence = client.grant("k", "alice", LONG);
    let value = format!("{fence}:alice");
    expect_set(&mut client, &value);
    client.grant("k", "alice", 2 * LONG);
    expect_set(&mut client, &value);
    assert!(client.extend("k", "alice", LONG));
    expect_set(&mut client, &value);
    client.cmd("LOCK.ACQUIRE k bob 60000");
    client.cmd("LOCK.INFO k");
    client.grant("k", "alice", 1);
    assert!(client.release("k", "alice"));
    expected.push("DEL k".to_owned());
    assert_eq!(aof::lines(&server), expected);
}

#[test]
fn a_lease_that_ran_out_is_deleted_before_the_next_grant_is_set() {
    // Freed lazily, the key would be unlinked instead.
    let setup = Server::builder().aof().config("lazyfree-lazy-expire", "no");
    let server = setup.start();
    let mut client = server.client();
    client.grant("k", "alice", 1);
    eventually("the lease runs out", || client.acquire("k", "bob", LONG).ok_or(()));
    let names: Vec<_> = aof::commands(&server).into_iter().map(|words| words[0].clone()).collect();
    assert_eq!(names, [b"SET", b"DEL", b"SET"]);
}

#[test]
fn a_foreign_lock_is_replicated_with_its_own_value() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    for value in ["12345", "12345:uuid"] {
        client.cmd(["SET", "k", value, "NX", "PX", "60000"]);
        assert!(client.extend("k", value, LONG));
        let deadline = deadline(&mut client, b"k");
        let lines = aof::lines(&server);
        assert_eq!(*lines.last().unwrap(), format!("SET k {value} PXAT {deadline}"));
        assert!(client.release("k", value));
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

#[test]
fn transactions_and_scripts_are_replicated_by_their_effects() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.transaction(&["LOCK.ACQUIRE k alice 60000", "LOCK.RELEASE k alice"]);
    let script = "redis.call('LOCK.ACQUIRE', KEYS[1], 'bob', 60000)
        return redis.call('LOCK.RELEASE', KEYS[1], 'bob')";
    assert_eq!(client.cmd(["EVAL", script, "1", "k"]), int(1));
    let names: Vec<_> = aof::commands(&server).into_iter().map(|words| words[0].clone()).collect();
    assert_eq!(names, [b"SET", b"DEL", b"SET", b"DEL"]);
}

#[test]
fn a_read_only_replica_refuses_changes_and_answers_questions() {
    let (primary, replica) = start_pair(Server::builder(), Server::builder());
    let fence = primary.client().grant("k", "alice", LONG);
    wait_until_in_sync(&primary, &replica);
    let mut client = replica.client();
    for command in [
        "LOCK.ACQUIRE k alice 60000",
        "LOCK.ACQUIRE free bob 60000",
        "LOCK.RELEASE k alice",
        "LOCK.EXTEND k alice 60000",
    ] {
        assert_eq!(client.cmd(command), error(READONLY), "{command}");
    }
    assert_eq!(client.check("k", "alice"), Some(fence));
    assert_eq!(client.check("k", "bob"), None);
    let seen = |info: Option<LockInfo>| info.map(|info| (info.owner, info.fence, info.deadline));
    assert_eq!(seen(client.info("k")), seen(primary.client().info("k")));
    assert_eq!(client.info("free"), None);
    assert_same(&primary, &replica);
}

#[test]
fn a_replica_cut_off_from_its_primary_sees_a_lease_run_out() {
    let (mut primary, replica) = start_pair(Server::builder(), Server::builder());
    primary.client().grant("k", "alice", 50);
    wait_until_in_sync(&primary, &replica);
    primary.kill();
    let mut client = replica.client();
    eventually("the lease runs out", || client.info("k").map_or(Ok(()), Err));
    assert_eq!(client.check("k", "alice"), None);
}

#[test]
fn a_writable_replica_changes_only_itself() {
    let setup = Server::builder().config("replica-read-only", "no");
    let (primary, replica) = start_pair(Server::builder(), setup);
    let mut client = replica.client();
    client.grant("k", "alice", LONG);
    assert!(client.extend("k", "alice", LONG));
    assert!(client.release("k", "alice"));
    client.grant("k", "bob", LONG);
    assert_eq!(primary.client().info("k"), None);
}
