//! Out of memory: no new locks, but holders can still let go and hold on.

use redis::Value;
use testkit::{Server, bulk, int, unchanged};

const LONG: u64 = 60_000;

/// A server on which `k` is held by alice, and memory is out.
fn full_server() -> Server {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    assert_eq!(client.cmd("CONFIG SET maxmemory 1"), Value::Okay);
    server
}

#[track_caller]
fn assert_out_of_memory(reply: &Value) {
    let Value::ServerError(error) = reply else { panic!("{reply:?}") };
    assert_eq!(error.code(), "OOM", "{error}");
}

#[test]
fn an_acquire_is_refused() {
    let server = full_server();
    for command in ["LOCK.ACQUIRE free bob 60000", "LOCK.ACQUIRE k alice 90000"] {
        assert_out_of_memory(&unchanged(&server, || server.cmd(command)));
    }
}

#[test]
fn a_holder_extends_checks_and_releases() {
    let server = full_server();
    let mut client = server.client();
    assert!(client.extend("k", "alice", 2 * LONG));
    assert!(client.info("k").unwrap().ttl > 60_000);
    assert!(client.check("k", "alice").is_some());
    assert!(client.release("k", "alice"));
    assert_eq!(client.info("k"), None);
}

#[test]
fn a_script_may_release() {
    let server = full_server();
    let mut client = server.client();
    let script = "return redis.call('LOCK.RELEASE', KEYS[1], 'alice')";
    assert_eq!(client.cmd(["EVAL", script, "1", "k"]), int(1));
}

#[test]
fn locks_are_granted_again_once_there_is_memory() {
    let server = full_server();
    let mut client = server.client();
    assert_out_of_memory(&client.cmd("LOCK.ACQUIRE free bob 60000"));
    client.cmd("CONFIG SET maxmemory 0");
    let fence = client.grant("free", "bob", LONG);
    assert_eq!(client.cmd("GET free"), bulk(format!("{fence}:bob")));
}
