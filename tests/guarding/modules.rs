//! Beside other modules, whose commands are refused, because they may block: no server that a module calls survives that.

use super::{NOT_HOLDER, guarded, held_on};
use redis::Value;
use testkit::{
    Server, Session, UNLOAD, announce, becomes, bulk, error, eventually, int, is_valkey_since,
    lacks_vector_sets, unchanged,
};

const OF_A_MODULE: &str = "ERR LOCK.GUARD does not run commands of other modules, call LOCK.CHECK and the command in a script";
const UNKNOWN: &str = "ERR unknown command to guard";
const NO_COMMAND: &str =
    "ERR LOCK.GUARD is not possible, the command COMMAND is renamed or disabled (rename-command)";

/// A script that begins with a check may call them.
#[test]
fn commands_of_vector_sets_are_refused_because_some_block() {
    if lacks_vector_sets() {
        return;
    }
    let script =
        "redis.call('LOCK.CHECK', KEYS[1], ARGV[1], ARGV[2]) return redis.call(unpack(ARGV, 3))";
    let text = "
        # behind the fence, and in a script
        LOCK.ACQUIRE l alice 60000; VADD v VALUES 3 1 2 3 e -> A; 1
        LOCK.GUARD l alice A VSIM v ELE e; LOCK.GUARD l alice A vsim v VALUES 3 1 2 3 -> NO; NO
        LOCK.GUARD l alice A VADD v VALUES 3 1 2 4 f CAS; LOCK.GUARD l alice A VCARD v -> NO; NO
        LOCK.GUARD l alice A VADD v VALUES 3 1 2 4 f; LOCK.GUARD l alice A VADD -> NO; NO
        MULTI; LOCK.GUARD l alice A VSIM v ELE e; EXEC -> OK; QUEUED; NO
        VCARD v; EVAL \"SCRIPT\" 2 l v alice A VADD v VALUES 3 3 2 1 f CAS -> 1; 1
        EVAL \"SCRIPT\" 2 l v alice A VSIM v ELE e COUNT 1 -> e
    ";
    let text = text.replace("SCRIPT", script).replace("NO", &format!("-{OF_A_MODULE}"));
    Session::play(&Server::start(), &text);
}

#[test]
fn a_command_that_blocks_unannounced_is_refused_wherever_it_is_guarded() {
    let (server, mut client, fence) = held_on(Server::builder().with_caller().aof().start());
    assert_eq!(client.cmd("caller.block x"), Value::SimpleString("BLOCKED".to_owned()));
    let request = guarded(fence, "caller.block x");
    for number in [fence, fence + 1] {
        let request = guarded(number, "Caller.Block x");
        let reply = unchanged(&server, || client.cmd(&*request));
        assert_eq!(reply, error(OF_A_MODULE));
    }
    assert_eq!(client.transaction(&[&request]), [error(OF_A_MODULE)]);
    let script = "return redis.call('LOCK.GUARD', KEYS[1], 'alice', ARGV[1], 'caller.block')";
    let Value::ServerError(refusal) =
        client.cmd(["EVAL", script, "1", "the-lock", &fence.to_string()])
    else {
        panic!("it was run")
    };
    assert!(refusal.to_string().contains("other modules"), "{refusal}");
    // What another module calls in a guard is a command of another module, too.
    assert_eq!(client.cmd(guarded(fence, "caller.call GET k")), error(OF_A_MODULE));
    assert_eq!(client.cmd(format!("caller.call {request}")), client.cmd(request));
    assert_eq!(client.cmd(guarded(fence, "GET k")), Value::Nil);
}

/// What is known of a command of a module is not kept: another module may register the name.
#[test]
fn a_command_is_refused_while_a_module_has_it_and_unknown_otherwise() {
    let (server, mut client, fence) = held_on(Server::builder().with_caller().start());
    for _ in 0..2 {
        assert_eq!(client.cmd(guarded(fence, "caller.block")), error(OF_A_MODULE));
        assert_eq!(server.cmd("MODULE UNLOAD caller"), Value::Okay);
        assert_eq!(client.cmd(guarded(fence, "caller.block")), error(UNKNOWN));
        let path = testkit::CALLER.to_str().unwrap();
        assert_eq!(client.cmd(["MODULE", "LOAD", path]), Value::Okay);
    }
}

#[test]
fn a_command_that_a_filter_of_another_module_replaces_is_refused() {
    let server = Server::builder().with_caller_that("replace STRLEN").start();
    let (_server, mut client, fence) = held_on(server);
    assert_eq!(client.cmd("STRLEN k"), Value::SimpleString("BLOCKED".to_owned()));
    assert_eq!(client.cmd(guarded(fence, "STRLEN k")), error(OF_A_MODULE));
    assert_eq!(client.cmd(guarded(fence + 1, "STRLEN k")), error(NOT_HOLDER));
    assert_eq!(client.transaction(&[&guarded(fence, "STRLEN k")]), [error(OF_A_MODULE)]);
    assert_eq!(client.cmd(guarded(fence, "APPEND k value")), int(5));
    assert_eq!(client.cmd(guarded(fence, "GET k")), bulk("value"));
    // One that calls commands itself replaces none.
    let (_server, mut client, fence) =
        held_on(Server::builder().with_caller_that("ask STRLEN").start());
    assert_eq!(client.cmd(guarded(fence, "STRLEN k")), int(0));
    assert_eq!(client.transaction(&[&guarded(fence, "STRLEN k")]), [int(0)]);
}

/// What the module calls for itself is another module's then, and is taken for a command that was renamed.
#[test]
fn where_a_filter_replaces_what_this_module_calls_the_server_lives() {
    for command in ["COMMAND", "SETRANGE", "EXISTS", "GET", "ACL", "CLIENT"] {
        let setup = Server::builder().with_caller_that(&format!("replace {command}"));
        let (server, mut client, fence) = held_on(setup.start());
        let reply = client.cmd(guarded(fence, "STRLEN k"));
        if command == "COMMAND" {
            assert_eq!(reply, error(NO_COMMAND));
        }
        let dumped = client.cmd("DUMP the-lock");
        let Value::BulkString(dump) = dumped else { panic!("{dumped:?}") };
        let restore = [&b"RESTORE"[..], b"the-lock", b"60000", &dump, b"REPLACE"];
        assert_eq!(client.cmd(restore), Value::Okay, "{command}");
        // A waiter, who gets the lock without any command.
        client.grant("short", "alice", 20);
        let waited = client.cmd("LOCK.ACQUIRE short bob 60000 BLOCK 5000");
        assert!(matches!(waited, Value::Int(1..)), "{command}: {waited:?}");
        assert_eq!(server.cmd("ECHO up"), bulk("up"), "{command}");
    }
}

/// Whether a module may block a client by a key event even if another module called the command.
fn lacks_held_replies() -> bool {
    let lacks = !is_valkey_since((9, 0));
    if lacks {
        announce(
            "skipped: replies that a module holds back because of a key event (Valkey since 9.0)",
        );
    }
    lacks
}

const HELD_BACK: &str = "ERR the command to guard was run, but another module holds back its reply";

#[test]
fn a_reply_that_another_module_holds_back_comes_when_that_lets_it_go() {
    if lacks_held_replies() {
        return;
    }
    let setup = Server::builder().with_caller_that("hold").aof();
    let (mut server, mut client, fence) = held_on(setup.start());
    for number in 1..4 {
        client.send(guarded(fence, &format!("HINCRBY h field {number}")));
        client.send("HGET h field");
    }
    let replies: Vec<_> = (0..6).map(|_| client.receive()).collect();
    assert_eq!(replies, [int(1), bulk("1"), int(3), bulk("3"), int(6), bulk("6")]);
    let mut speaks_resp3 = server.client_resp3();
    let floats = guarded(fence, "HINCRBYFLOAT h field 0.5");
    assert_eq!(speaks_resp3.cmd(floats), bulk("6.5"));
    // Nothing is held back of what fails, of what only reads, and in a transaction or a script.
    assert_eq!(client.cmd(guarded(fence + 1, "HSET h field x")), error(NOT_HOLDER));
    assert_eq!(client.cmd(guarded(fence, "HGET h field")), bulk("6.5"));
    assert_eq!(client.transaction(&[&guarded(fence, "HSET h other 1")]), [int(1)]);
    let fields = client.cmd("HGETALL h");
    server.stop();
    server.start_again();
    assert_eq!(server.cmd("HGETALL h"), fields);
}

#[test]
fn a_client_that_leaves_while_its_reply_is_held_back_leaves_nothing_behind() {
    if lacks_held_replies() {
        return;
    }
    let (server, mut client, fence) = held_on(Server::builder().with_caller_that("hold").start());
    for number in 0..20 {
        let mut leaving = server.client();
        leaving.send(guarded(fence, &format!("HSET h field{number} v")));
        drop(leaving);
    }
    becomes("all have been run", Value::Int(20), || client.cmd("HLEN h"));
    eventually("the module blocks nobody", || {
        let refused = format!("{:?}", client.cmd(UNLOAD));
        if refused.contains("blocked clients") { Err(refused) } else { Ok(()) }
    });
}

#[test]
fn where_nobody_can_wait_for_a_reply_that_is_held_back_an_error_says_that_it_was_run() {
    if lacks_held_replies() {
        return;
    }
    let (server, mut client, fence) = held_on(Server::builder().with_caller_that("hold").start());
    // Valkey blocks no client that has a subscription.
    let mut subscribed = server.client_resp3();
    subscribed.cmd("SUBSCRIBE news");
    assert_eq!(subscribed.cmd(guarded(fence, "HSET h field v")), error(HELD_BACK));
    assert_eq!(client.cmd("HGET h field"), bulk("v"));
}
