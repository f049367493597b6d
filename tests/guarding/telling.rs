//! Replicas and the append-only file are told what the command did, once, and nothing of the guard.

use super::{LONG, NOT_HOLDER, guarded};
use testkit::{ReplicationStream, Server, error, is_older_than};

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
