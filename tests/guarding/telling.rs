//! Replicas and the append-only file are told what the command did, once, and nothing of the guard.

use super::{LONG, NOT_HOLDER, guarded};
use redis::Value;
use testkit::{
    ReplicationStream, Server, Snapshot, error, is_older_than, start_pair, wait_until_in_sync,
};

/// What is replicated without the brackets of transactions, in which Redis 6.2 puts what each call does.
fn effects(stream: &mut ReplicationStream, server: &Server) -> Vec<String> {
    let mut commands = stream.commands(server);
    if is_older_than((7, 0)) {
        commands.retain(|command| command != "MULTI" && command != "EXEC");
    }
    commands
}

#[test]
fn the_effects_are_replicated_once_as_those_of_the_bare_command() {
    let server = Server::builder().module_args("fence-margin 0").start();
    let mut client = server.client();
    let fence = client.grant("the-lock", "alice", LONG);
    let mut stream = ReplicationStream::of(&server);
    effects(&mut stream, &server);
    let commands = [
        "SET k v",
        "INCR n",
        "GET k",
        "PFADD h a",
        // It keeps the count with the key.
        "PFCOUNT h",
        "LPUSH k wrong-type",
        "PUBLISH channel message",
    ];
    for command in commands {
        client.cmd(guarded(fence, command));
    }
    assert_eq!(client.cmd(guarded(fence + 1, "SET k late")), error(NOT_HOLDER));
    assert_eq!(
        effects(&mut stream, &server),
        ["SET k v", "INCR n", "PFADD h a", "PFCOUNT h", "PUBLISH channel message"]
    );
    // As the server words the bare command, with the end of the key in place of its ttl on newer ones.
    let mut told_of = |request: &str| {
        client.cmd(request);
        let told = effects(&mut stream, &server);
        assert_eq!(told.len(), 1, "{told:?}");
        told[0].split(' ').take(4).map(str::to_owned).collect::<Vec<_>>()
    };
    let bare = told_of("SET k v PX 60000");
    assert_eq!(told_of(&guarded(fence, "SET k v PX 60000")), bare);
    client.cmd(guarded(fence, "LOCK.RELEASE the-lock alice"));
    assert_eq!(effects(&mut stream, &server), ["DEL the-lock"]);
}

#[test]
fn in_a_transaction_and_in_a_script_they_are_part_of_that() {
    let server = Server::builder().module_args("fence-margin 0").start();
    let mut client = server.client();
    let fence = client.grant("the-lock", "alice", LONG);
    let mut stream = ReplicationStream::of(&server);
    effects(&mut stream, &server);
    client.transaction(&[&guarded(fence, "INCR n"), "INCR m"]);
    assert_eq!(stream.commands(&server), ["MULTI", "INCR n", "INCR m", "EXEC"]);
    let script = "redis.call('LOCK.GUARD', KEYS[1], 'alice', ARGV[1], 'INCR', KEYS[2])
        return redis.call('INCR', KEYS[3])";
    client.cmd(["EVAL", script, "3", "the-lock", "n", "m", &fence.to_string()]);
    assert_eq!(stream.commands(&server), ["MULTI", "INCR n", "INCR m", "EXEC"]);
}

#[test]
fn replicas_without_the_module_and_the_file_agree_with_the_primary() {
    let (mut primary, replica) =
        start_pair(Server::builder().aof(), Server::builder().without_module());
    let mut client = primary.client();
    let fence = client.grant("the-lock", "alice", LONG);
    let commands = [
        "SET s 5",
        "APPEND s 6",
        "INCR s",
        "HSET h a 1 b 2",
        "HDEL h a",
        "RPUSH l a b c",
        "LPOP l",
        "SADD u a b",
        "SPOP u",
        "ZADD z 1 a",
        "XADD x * f v",
        "SET e v PXAT 9000000000000",
        "PEXPIREAT h 9000000000000",
        "GETDEL s",
        "LOCK.ACQUIRE other bob 60000",
        "LOCK.EXTEND the-lock alice 80000",
        "BLPOP l 0",
        "GETEX e PXAT 9000000000001",
        "COPY l l2",
        "RENAME l2 l3",
    ];
    for command in commands {
        let reply = client.cmd(guarded(fence, command));
        assert!(!matches!(reply, Value::ServerError(_)), "{command}: {reply:?}");
    }
    wait_until_in_sync(&primary, &replica);
    let live = Snapshot::of(&primary);
    assert_eq!(Snapshot::of(&replica), live);
    drop(client);
    primary.stop();
    primary.start_again();
    assert_eq!(Snapshot::of(&primary), live);
}
