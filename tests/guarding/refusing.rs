//! What is refused before anything is done, and why.

use super::{LONG, NOT_HOLDER, OUT_OF_MEMORY, guarded, held};
use redis::Value;
use testkit::errors::{FENCE_NOT_A_NUMBER, OWNER_LENGTH, WRONG_TYPE, wrong_arity};
use testkit::{Server, bulk, error, int, lacks, start_pair, unchanged};

const ITSELF: &str = "ERR LOCK.GUARD cannot guard itself";
const UNKNOWN: &str = "ERR unknown command to guard";
const ARITY: &str = "ERR wrong number of arguments for the command to guard";
const TRANSACTION: &str =
    "ERR LOCK.GUARD does not run commands of transactions, use it inside MULTI";
const SCRIPT: &str =
    "ERR LOCK.GUARD does not run scripts or functions, call LOCK.GUARD or LOCK.CHECK in the script";
const CONNECTION: &str =
    "ERR LOCK.GUARD does not run commands that act on a connection or a subscription";
const ADMINISTRATION: &str = "ERR LOCK.GUARD does not run commands for administrators";

/// What is behind the fence, and the error. They are the same for who holds the lock and who does not.
const REFUSED: [(&str, &str); 43] = [
    ("LOCK.GUARD the-lock alice 1 GET k", ITSELF),
    ("lock.Guard", ITSELF),
    ("NOSUCH k", UNKNOWN),
    ("\"\"", UNKNOWN),
    ("config|get maxmemory", UNKNOWN),
    ("GET", ARITY),
    ("GET k k", ARITY),
    ("SET k", ARITY),
    ("OBJECT", ARITY),
    ("MULTI", TRANSACTION),
    ("EXEC", TRANSACTION),
    ("DISCARD", TRANSACTION),
    ("WATCH k", TRANSACTION),
    ("UNWATCH", TRANSACTION),
    ("EVAL \"return 1\" 0", SCRIPT),
    ("EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0", SCRIPT),
    ("SCRIPT FLUSH", SCRIPT),
    ("SUBSCRIBE channel", CONNECTION),
    ("PSUBSCRIBE channel*", CONNECTION),
    ("UNSUBSCRIBE channel", CONNECTION),
    ("HELLO 3", CONNECTION),
    ("AUTH password", CONNECTION),
    ("SELECT 1", CONNECTION),
    ("RESET", CONNECTION),
    ("PING", CONNECTION),
    ("ECHO hello", CONNECTION),
    ("READONLY", CONNECTION),
    ("READWRITE", CONNECTION),
    ("ASKING", CONNECTION),
    ("WAIT 0 10", CONNECTION),
    ("COMMAND COUNT", CONNECTION),
    ("CONFIG SET maxmemory 1", ADMINISTRATION),
    ("CONFIG GET maxmemory", ADMINISTRATION),
    ("SHUTDOWN NOSAVE", ADMINISTRATION),
    ("DEBUG SLEEP 10", ADMINISTRATION),
    ("MONITOR", ADMINISTRATION),
    ("REPLICAOF localhost 1", ADMINISTRATION),
    ("MODULE UNLOAD leasehold", ADMINISTRATION),
    ("ACL SETUSER mallory on nopass +@all ~*", ADMINISTRATION),
    ("SLOWLOG RESET", ADMINISTRATION),
    ("LOCK.LOG", ADMINISTRATION),
    ("BGREWRITEAOF", ADMINISTRATION),
    ("FAILOVER", ADMINISTRATION),
];

#[test]
fn what_is_not_guarded_is_refused_with_the_reason_and_nothing_changes() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let fence = client.grant("the-lock", "alice", LONG);
    for (command, text) in REFUSED {
        for fence in [fence, fence + 1] {
            let reply = unchanged(&server, || client.cmd(guarded(fence, command)));
            assert_eq!(reply, error(text), "{command}");
        }
    }
    // Redis 6.2 has it as administration as a whole.
    let Value::ServerError(refusal) = client.cmd(guarded(fence, "CLIENT KILL TYPE normal")) else {
        panic!("clients were killed")
    };
    assert!(
        refusal.details().unwrap().starts_with("LOCK.GUARD does not run commands"),
        "{refusal}"
    );
    assert_eq!(client.cmd("PING"), Value::SimpleString("PONG".to_owned()), "nothing was left over");
}

#[test]
fn functions_are_scripts_too() {
    if lacks((7, 0), "functions") {
        return;
    }
    let (_server, mut client, fence) = held();
    for command in ["FCALL f 0", "FCALL_RO f 0", "FUNCTION FLUSH", "EVAL_RO \"return 1\" 0"] {
        assert_eq!(client.cmd(guarded(fence, command)), error(SCRIPT), "{command}");
    }
}

#[test]
fn mistakes_of_the_request_itself_come_first() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.cmd("RPUSH list element");
    let too_long = format!("LOCK.GUARD k {} 1 GET k", "x".repeat(256));
    let table = [
        ("LOCK.GUARD", &*wrong_arity("LOCK.GUARD")),
        ("LOCK.GUARD k alice 1", &*wrong_arity("LOCK.GUARD")),
        ("LOCK.GUARD k \"\" x NOSUCH", OWNER_LENGTH),
        (&*too_long, OWNER_LENGTH),
        ("LOCK.GUARD k alice -1 NOSUCH", FENCE_NOT_A_NUMBER),
        ("LOCK.GUARD k alice 9007199254740992 LOCK.GUARD", FENCE_NOT_A_NUMBER),
        ("LOCK.GUARD list alice 1 NOSUCH", UNKNOWN),
        ("LOCK.GUARD list alice 1 GET k", WRONG_TYPE),
        ("LOCK.GUARD free alice 1 GET k", NOT_HOLDER),
    ];
    testkit::assert_each_is_refused(&server, &table);
}

#[test]
fn a_renamed_command_has_its_new_name_only() {
    let setup = Server::builder()
        .config("rename-command", "SADD put")
        .config("rename-command", "LPUSH \"\"");
    let (_server, mut client, fence) = super::held_on(setup.start());
    assert_eq!(client.cmd(guarded(fence, "SADD s a")), error(UNKNOWN));
    assert_eq!(client.cmd(guarded(fence, "LPUSH l a")), error(UNKNOWN));
    assert_eq!(client.cmd(guarded(fence, "PUT s a")), int(1));
}

#[test]
fn where_the_server_does_not_say_what_its_commands_are_nothing_is_guarded() {
    let setup = Server::builder().config("rename-command", "COMMAND \"\"");
    let (_server, mut client, fence) = super::held_on(setup.start());
    let text = "ERR LOCK.GUARD is not possible, the command COMMAND is renamed or disabled (rename-command)";
    assert_eq!(client.cmd(guarded(fence, "SET k v")), error(text));
}

#[test]
fn out_of_memory_a_command_is_refused_as_it_would_be_bare() {
    let (_server, mut client, fence) = held();
    client.cmd("SET k v");
    client.cmd("CONFIG SET maxmemory 1");
    assert_eq!(client.cmd(guarded(fence, "SET k w")), error(OUT_OF_MEMORY));
    assert_eq!(client.cmd(guarded(fence, "GET k")), bulk("v"));
    assert_eq!(client.cmd(guarded(fence, "DEL k")), int(1));
    assert_eq!(client.cmd(guarded(fence, "LOCK.RELEASE the-lock alice")), int(1));
}

#[test]
fn with_too_few_replicas_the_server_refuses_it_as_any_write() {
    let (_server, mut client, fence) = held();
    client.cmd("CONFIG SET min-replicas-to-write 1");
    let text = "NOREPLICAS Not enough good replicas to write.";
    assert_eq!(client.cmd(guarded(fence, "SET k v")), error(text));
    client.cmd("CONFIG SET min-replicas-to-write 0");
    assert_eq!(client.cmd("GET k"), Value::Nil);
}

#[test]
fn a_replica_refuses_it_even_if_the_command_only_reads() {
    let (primary, replica) = start_pair(Server::builder(), Server::builder());
    let fence = primary.client().grant("the-lock", "alice", LONG);
    testkit::wait_until_in_sync(&primary, &replica);
    for command in ["SET k v", "GET k"] {
        let reply = replica.cmd(guarded(fence, command));
        assert_eq!(
            reply,
            error("READONLY You can't write against a read only replica."),
            "{command}"
        );
    }
}

#[test]
fn what_would_wait_does_not() {
    let (server, mut client, fence) = held();
    let mut run = |command: &str| client.cmd(guarded(fence, command));
    assert_eq!(run("BLPOP nothing 0"), Value::Nil);
    assert_eq!(run("XREAD BLOCK 0 STREAMS nothing $"), Value::Nil);
    assert!(matches!(run("LOCK.ACQUIRE other bob 60000 BLOCK 0"), Value::Int(1..)));
    assert_eq!(run("LOCK.ACQUIRE other carol 60000 BLOCK 0"), Value::Nil);
    assert_eq!(run("LOCK.ACQUIRE the-lock carol 60000 BLOCK 0"), Value::Nil);
    run("RPUSH list element");
    assert_eq!(run("BLPOP list 0"), Value::Array(vec![bulk("list"), bulk("element")]));
    assert_eq!(server.client().counter("waiters"), 0);
}
