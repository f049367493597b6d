//! A server on which no lock was ever asked for says nothing to replicas, to files or to whoever looks on; and one
//! that is used says no more than fences need.

use redis::Value;
use testkit::{
    Cluster, ReplicationStream, Server, SlotMove, aof, bulk, eventually, is_older_than,
    misplaces_clients, start_pair, wait_until_in_sync,
};

const LONG: u64 = 60_000;

/// What a broadcast of the fence clock looks like in the stream and in the file.
fn is_broadcast(command: &str) -> bool {
    command.contains("leasehold")
}

#[track_caller]
fn assert_one_broadcast(commands: &[String]) {
    let [multi, set, del, exec] = commands else { panic!("{commands:?}") };
    assert_eq!((&**multi, &**exec), ("MULTI", "EXEC"), "both or none");
    assert!(set.starts_with("SET leasehold:fence-clock "), "{set}");
    assert!(set.contains(":leasehold PXAT "), "{set}");
    assert_eq!(del, "DEL leasehold:fence-clock");
}

#[track_caller]
fn assert_silent(stream: &mut ReplicationStream, server: &Server) {
    let commands = stream.commands(server);
    assert!(commands.is_empty(), "{commands:?}");
}

/// A lock that is granted and released leaves nothing in the data.
fn use_it(server: &Server) {
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    assert!(client.release("k", "alice"));
}

/// Before Redis 7.0 the two parts of a file that is rewritten as a snapshot are one, which the harness does not read.
fn preambles() -> &'static [&'static str] {
    if is_older_than((7, 0)) { &["no"] } else { &["yes", "no"] }
}

#[test]
fn an_unused_server_says_nothing_when_replicas_join_and_when_its_data_is_saved_and_loaded_again() {
    let server = Server::builder().without_module().start();
    let mut stream = ReplicationStream::of(&server);
    server.load(&[]);
    assert_silent(&mut stream, &server);
    for command in ["FLUSHALL", "SAVE"] {
        assert_eq!(server.cmd(command), Value::Okay);
        assert_silent(&mut ReplicationStream::of(&server), &server);
    }
    let changes = server.client().info_field("persistence", "rdb_changes_since_last_save");
    assert_eq!(changes.as_deref(), Some("1"), "the barrier of the test");
    server.cmd("SET k v PX 60000");
    server.cmd("SET number 1234567890123456");
    let mut stream = ReplicationStream::of(&server);
    assert_eq!(server.cmd("DEBUG RELOAD"), Value::Okay);
    assert_silent(&mut stream, &server);
}

#[test]
fn an_unused_server_says_nothing_to_the_file_that_it_rewrites_or_beside_the_one_that_it_saves() {
    for preamble in preambles() {
        let server = Server::builder().aof().config("aof-use-rdb-preamble", preamble).start();
        let mut stream = ReplicationStream::of(&server);
        server.client().save_by("BGREWRITEAOF");
        server.cmd("BGSAVE");
        assert_silent(&mut stream, &server);
        let lines = aof::framed_lines(&server);
        assert!(lines.iter().any(|line| line.starts_with("SET barrier")), "{lines:?}");
        assert!(!lines.iter().any(|line| is_broadcast(line)), "{lines:?}");
    }
}

#[test]
fn an_unused_pair_executes_no_command_but_its_clients_and_says_nothing_when_one_is_promoted() {
    let setup = Server::builder().aof().config("aof-use-rdb-preamble", "no");
    let (primary, replica) = start_pair(Server::builder(), setup);
    primary.cmd("SET k v PX 60000");
    wait_until_in_sync(&primary, &replica);
    // Valkey 9.1 itself asks for settings.
    let expected = ["ping", "info", "set", "replconf", "psync", "time", "select", "config|get"];
    for server in [&primary, &replica] {
        let mut executed = server.client().executed();
        executed.retain(|name, _| !expected.contains(&&**name));
        assert!(executed.is_empty(), "{executed:?}");
    }
    replica.promote();
    assert_silent(&mut ReplicationStream::of(&replica), &replica);
    let lines = aof::framed_lines(&replica);
    assert!(!lines.iter().any(|line| is_broadcast(line)), "{lines:?}");
}

#[test]
fn unused_nodes_say_nothing_when_slots_move() {
    let cluster = Cluster::of(2, 0);
    let barriers = [0, 1].map(|index| cluster.slot_of(index).key("barrier"));
    let mut streams = [0, 1].map(|index| ReplicationStream::of(cluster.node(index)));
    let slot = *cluster.node(0).slots().first().unwrap();
    let there = SlotMove { slot, from: 0, to: 1 };
    there.by_hand(&cluster);
    SlotMove { slot, from: 1, to: 0 }.by_hand(&cluster);
    there.import(&cluster);
    for index in [0, 1] {
        let node = cluster.node(index);
        node.client().pipeline(&["ASKING", "GET k", &format!("CLUSTER SETSLOT {slot} STABLE")]);
        let said = streams[index].commands_up_to(node, &barriers[index]);
        // Some servers replicate what becomes of a slot themselves.
        assert!(!said.iter().any(|line| is_broadcast(line)), "{said:?}");
    }
}

#[test]
fn the_first_grant_is_replicated_as_itself_alone() {
    let server = Server::start();
    let mut stream = ReplicationStream::of(&server);
    let fence = server.client().grant("k", "alice", LONG);
    let mut commands = stream.commands(&server);
    // Redis 6.2 makes a transaction of whatever a module replicates.
    commands.retain(|command| !["MULTI", "EXEC"].contains(&&**command));
    let [set] = &commands[..] else { panic!("{commands:?}") };
    assert!(set.starts_with(&format!("SET k {fence}:alice PXAT ")), "{set}");
}

#[test]
fn a_used_server_tells_each_replica_that_joins_how_far_its_fence_clock_is() {
    let mut server = Server::builder().tcp().start();
    use_it(&server);
    let without = Server::builder().without_module().replica_of(&server).start();
    wait_until_in_sync(&server, &without);
    assert_one_broadcast(&ReplicationStream::of(&server).commands(&server));
    wait_until_in_sync(&server, &without);
    for server in [&server, &without] {
        assert_eq!(server.cmd("KEYS *"), Value::Array(vec![bulk("barrier")]), "nothing is left");
    }
    // A lock in the data counts as use.
    server.client().grant("k", "alice", LONG);
    server.cmd("SAVE");
    server.kill();
    server.start_again();
    assert_one_broadcast(&ReplicationStream::of(&server).commands(&server));
}

#[test]
fn a_promoted_replica_that_knows_fences_of_its_primary_tells_its_own_replicas() {
    if misplaces_clients() {
        return;
    }
    let (primary, replica) = start_pair(Server::builder(), Server::builder());
    use_it(&primary);
    wait_until_in_sync(&primary, &replica);
    replica.promote();
    assert_one_broadcast(&ReplicationStream::of(&replica).commands(&replica));
}

#[test]
fn a_used_server_tells_the_file_that_it_rewrites_how_far_its_fence_clock_is() {
    let server = Server::builder().aof().config("aof-use-rdb-preamble", "no").start();
    use_it(&server);
    server.client().save_by("BGREWRITEAOF");
    eventually("the file is told", || {
        let lines = aof::framed_lines(&server);
        if lines.iter().any(|line| is_broadcast(line)) { Ok(()) } else { Err(lines) }
    });
}
