//! What is refused before anything is done, and why.

use super::{LONG, NOT_HOLDER, guarded, held};
use redis::Value;
use testkit::errors::{FENCE_NOT_A_NUMBER, OWNER_LENGTH, WRONG_TYPE, wrong_arity};
use testkit::{Server, Session, error, int, lacks, unchanged};

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
const REFUSED: [(&str, &str); 7] = [
    (ITSELF, "LOCK.GUARD the-lock alice 1 GET k; lock.Guard"),
    (UNKNOWN, "NOSUCH k; \"\"; config|get maxmemory"),
    (ARITY, "GET; GET k k; SET k; OBJECT"),
    (TRANSACTION, "MULTI; EXEC; DISCARD; WATCH k; UNWATCH"),
    (
        SCRIPT,
        "EVAL \"return 1\" 0; EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0; \
         SCRIPT FLUSH",
    ),
    (
        CONNECTION,
        "SUBSCRIBE channel; PSUBSCRIBE channel*; UNSUBSCRIBE channel; HELLO 3; \
         AUTH password; SELECT 1; RESET; PING; ECHO hello; READONLY; READWRITE; ASKING; \
         WAIT 0 10; COMMAND COUNT",
    ),
    (
        ADMINISTRATION,
        "CONFIG SET maxmemory 1; CONFIG GET maxmemory; SHUTDOWN NOSAVE; DEBUG SLEEP 10; \
         MONITOR; REPLICAOF localhost 1; MODULE UNLOAD leasehold; \
         ACL SETUSER mallory on nopass +@all ~*; SLOWLOG RESET; LOCK.LOG; BGREWRITEAOF; \
         FAILOVER",
    ),
];

#[test]
fn what_is_not_guarded_is_refused_with_the_reason_and_nothing_changes() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let fence = client.grant("the-lock", "alice", LONG);
    for (text, commands) in REFUSED {
        for command in commands.split("; ") {
            for fence in [fence, fence + 1] {
                let reply = unchanged(&server, || client.cmd(guarded(fence, command)));
                assert_eq!(reply, error(text), "{command}");
            }
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
fn what_the_server_refuses_it_refuses_behind_the_fence_and_what_would_wait_does_not() {
    Session::play(
        &Server::start(),
        "
        # out of memory
        LOCK.ACQUIRE l alice 60000; SET k v; CONFIG SET maxmemory 1 -> A; OK; OK
        LOCK.GUARD l alice A SET k w; LOCK.GUARD l alice A GET k -> -OOM; v
        LOCK.GUARD l alice A DEL k; LOCK.GUARD l alice A LOCK.RELEASE l alice -> 1; 1
        CONFIG SET maxmemory 0 -> OK
        # with too few replicas
        LOCK.ACQUIRE l alice 60000; CONFIG SET min-replicas-to-write 1 -> A; OK
        LOCK.GUARD l alice A SET k v -> -NOREPLICAS Not enough good replicas to write.
        CONFIG SET min-replicas-to-write 0; GET k -> OK; nil
        # what would wait
        LOCK.ACQUIRE l alice 60000; RPUSH list element -> A; 1
        LOCK.GUARD l alice A BLPOP nothing 0; LOCK.GUARD l alice A BLPOP list 0 -> nil; list element
        LOCK.GUARD l alice A XREAD BLOCK 0 STREAMS nothing $ -> nil
        LOCK.GUARD l alice A LOCK.ACQUIRE other bob 60000 BLOCK 0 -> B
        LOCK.GUARD l alice A LOCK.ACQUIRE other carol 60000 BLOCK 0 -> nil
        LOCK.GUARD l alice A LOCK.ACQUIRE l carol 60000 BLOCK 0 -> nil
        INFO leasehold_waiters -> 0
        ",
    );
}
