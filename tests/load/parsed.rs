//! Unloading while the server has parsed a command of ours that it has not executed yet.
//!
//! Redis 8.6 and Valkey 9.1 look up all that a client has sent before they execute the first of it, and keep a pointer to
//! each command. Left to themselves they die when they come to one whose module is gone. So a test does not stop when
//! the module was unloaded, but goes on to where the server would die.

use redis::Value;
use testkit::waiter::{id_of, wait_until_parked};
use testkit::{Client, Server, UNLOAD, eventually, int, lacks, module};

const ACQUIRE: &str = "LOCK.ACQUIRE k alice 60000";

/// So often is it tried while others are busy.
const ROUNDS: usize = 40;

/// The commands of one client, sent at once. It waits because of the first.
fn blocked_by(server: &Server, commands: &[&str]) -> (Client, i64) {
    let mut client = server.client();
    let id = id_of(&mut client);
    client.send_all(commands);
    wait_until_parked(server, id);
    (client, id)
}

#[track_caller]
fn assert_refused(server: &Server, reply: &Value, why: &str) {
    assert!(matches!(reply, Value::ServerError(_)), "{reply:?}");
    let line = format!("<leasehold> cannot unload: {why}");
    assert!(server.log().contains(&line), "no {line:?} in:\n{}", server.log());
}

#[track_caller]
fn assert_is_fence(reply: &Value) {
    assert!(matches!(reply, Value::Int(_)), "no fence: {reply:?}");
}

#[test]
fn what_follows_a_command_that_waits_keeps_the_module_loaded() {
    for waits in
        ["BLPOP list 0", "BRPOPLPUSH list other 0", "BZPOPMIN zset 0", "XREAD BLOCK 0 STREAMS x $"]
    {
        let server = Server::start();
        let (mut client, id) = blocked_by(&server, &[waits, ACQUIRE, "PING"]);
        let reply = server.cmd(UNLOAD);
        server.cmd(format!("CLIENT UNBLOCK {id}"));
        assert_eq!(client.receive(), Value::Nil, "{waits}");
        assert_is_fence(&client.receive());
        client.receive();
        assert_refused(&server, &reply, &format!("client id={id} is blocked"));
        server.unload();
    }
}

#[test]
fn what_follows_a_wait_for_replicas_keeps_the_module_loaded() {
    let server = Server::start();
    let (mut client, id) = blocked_by(&server, &["WAIT 1 0", ACQUIRE, "PING"]);
    let reply = server.cmd(UNLOAD);
    server.cmd(format!("CLIENT UNBLOCK {id}"));
    assert_eq!(client.receive(), int(0));
    assert_is_fence(&client.receive());
    client.receive();
    assert_refused(&server, &reply, &format!("client id={id} is blocked"));
    server.unload();
}

/// In the same turn of the server: it is not blocked any more, and has not gone on yet.
#[test]
fn a_client_that_has_just_been_served_keeps_the_module_loaded() {
    let server = Server::start();
    let (mut client, _) = blocked_by(&server, &["BLPOP list 0", ACQUIRE, "PING"]);
    let replies = server.client().pipeline(&["RPUSH list x", UNLOAD]);
    assert!(matches!(client.receive(), Value::Array(_)));
    assert_is_fence(&client.receive());
    client.receive();
    assert!(matches!(replies[1], Value::ServerError(_)), "{replies:?}");
    assert!(server.log().contains("<leasehold> cannot unload: client id="), "{}", server.log());
    server.unload();
}

#[test]
fn what_a_pause_holds_back_keeps_the_module_loaded() {
    let server = Server::start();
    server.cmd("CLIENT PAUSE 60000 WRITE");
    let (mut client, id) = blocked_by(&server, &["SET a x", ACQUIRE, "PING"]);
    let reply = server.cmd(UNLOAD);
    server.cmd("CLIENT UNPAUSE");
    assert_eq!(client.receive(), Value::Okay);
    assert_is_fence(&client.receive());
    client.receive();
    assert_refused(&server, &reply, &format!("client id={id} is blocked"));
    server.unload();
}

/// Where nothing is parsed ahead, what follows is looked up when the module is gone, and is unknown.
#[test]
fn what_follows_the_request_to_unload_it_is_executed_or_unknown() {
    for before in [&[][..], &["PING"], &["PING", "SET a x"]] {
        let server = Server::start();
        let replies = server.client().pipeline(&[before, &[UNLOAD, ACQUIRE, "PING"]].concat());
        let [unload, acquire, ping] = &replies[before.len()..] else { panic!("{replies:?}") };
        match unload {
            Value::Okay => assert!(matches!(acquire, Value::ServerError(_)), "{replies:?}"),
            refused => {
                assert_is_fence(acquire);
                assert_refused(&server, refused, "client id=");
            }
        }
        assert_eq!(*ping, Value::SimpleString("PONG".to_owned()));
    }
}

#[test]
fn what_follows_it_in_a_transaction_or_a_script_is_executed() {
    let server = Server::start();
    let replies = server.client().pipeline(&["MULTI", UNLOAD, ACQUIRE, "EXEC", ACQUIRE, "PING"]);
    let Value::Array(executed) = &replies[3] else { panic!("{replies:?}") };
    assert_refused(&server, &executed[0], "client id=");
    assert_is_fence(&executed[1]);
    assert_is_fence(&replies[4]);
    let mut client = server.client();
    let script = "return redis.call('MODULE', 'UNLOAD', 'leasehold')";
    assert!(matches!(client.cmd(["EVAL", script, "0"]), Value::ServerError(_)));
    assert_is_fence(&client.cmd(ACQUIRE));
    client.cmd("PING");
    server.unload();
}

#[test]
fn what_follows_it_when_another_module_asks_is_executed() {
    let server = Server::builder().with_caller().start();
    let mut client = server.client();
    let replies = client.pipeline(&[&format!("CALLER.CALL {UNLOAD}"), ACQUIRE, "PING"]);
    assert_is_fence(&replies[1]);
    assert_refused(&server, &replies[0], "client id=");
    server.unload();
}

/// They parse and look up whatever is sent, at any time.
#[test]
fn with_threads_any_other_client_keeps_the_module_loaded() {
    let setup = Server::builder().config("io-threads", "4");
    let server = setup.config("io-threads-do-reads", "yes").start();
    let mut crowd: Vec<_> = (0..16).map(|_| server.client()).collect();
    let mut refused = Vec::new();
    for _ in 0..ROUNDS {
        for client in &mut crowd {
            // The last one is not ours: that keeps the module loaded by itself.
            client.send_all(&["LOCK.CHECK k alice", "PING"]);
        }
        refused.push(server.cmd(UNLOAD));
        for client in &mut crowd {
            assert_eq!(client.receive(), Value::Nil);
            client.receive();
        }
    }
    assert!(refused.iter().all(|reply| matches!(reply, Value::ServerError(_))), "{refused:?}");
    eventually("nobody has anything to do", || {
        server.cmd(UNLOAD);
        let line = "io-threads is not 1, and threads may be parsing what other clients send";
        if server.log().contains(line) { Ok(()) } else { Err(()) }
    });
    drop(crowd);
    server.unload();
}

#[test]
fn a_server_that_cannot_be_asked_who_is_connected_keeps_the_module_loaded() {
    for hidden in ["ACL", "CLIENT", "CONFIG"] {
        let server = Server::builder().config("rename-command", &format!("{hidden} \"\"")).start();
        let reply = server.cmd(UNLOAD);
        assert_refused(&server, &reply, "ACL, CLIENT or CONFIG is renamed");
        assert_is_fence(&server.cmd(ACQUIRE));
    }
}

/// The server takes back what it has just loaded, and asks the module as if it were unloaded.
#[test]
fn a_load_that_the_server_takes_back_is_never_objected_to() {
    if lacks((7, 0), "MODULE LOADEX") {
        return;
    }
    let server = Server::builder().without_module().start();
    let mut open = server.client();
    open.pipeline(&["MULTI", "PING"]);
    let (mut blocked, id) = blocked_by(&server, &["BLPOP list 0", ACQUIRE]);
    let path = module::path().display();
    for _ in 0..3 {
        let load = format!("MODULE LOADEX {path} CONFIG leasehold.unheard-of 5");
        let replies = server.client().pipeline(&[&load, ACQUIRE]);
        assert!(replies.iter().all(|reply| matches!(reply, Value::ServerError(_))), "{replies:?}");
        let unknown = server.cmd(ACQUIRE);
        assert!(matches!(unknown, Value::ServerError(_)), "{unknown:?}");
    }
    server.cmd(format!("CLIENT UNBLOCK {id}"));
    assert_eq!(blocked.receive(), Value::Nil);
    assert!(matches!(blocked.receive(), Value::ServerError(_)));
}
