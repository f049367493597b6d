//! Waiting: the rules are asked once, when the request comes.

use super::{LONG, all_commands, log_in};
use redis::Value;
use testkit::{Client, Server, eventually, int};

/// Alice holds the lock, and the user waits for it.
fn waiting(server: &Server) -> Client {
    server.client().grant("mine", "alice", LONG);
    let mut worker = log_in(server, &format!("~mine* {}", all_commands()));
    worker.send(format!("LOCK.ACQUIRE mine worker {LONG} BLOCK 0"));
    wait_for_queue(server, 1);
    worker
}

fn wait_for_queue(server: &Server, len: usize) {
    eventually("the queue is so long", || match server.cmd("LOCK.WAITERS mine") {
        Value::Array(queue) if queue.len() == len => Ok(()),
        other => Err(other),
    });
}

#[test]
fn a_user_of_nothing_but_locks_is_handed_one() {
    let server = Server::builder().aof().start();
    let mut worker = waiting(&server);
    assert!(server.client().release("mine", "alice"));
    let Value::Int(fence) = worker.receive() else { panic!("no fence") };
    assert_eq!(worker.cmd("LOCK.CHECK mine worker"), int(fence));
    assert!(worker.release("mine", "worker"));
}

#[test]
fn a_lock_of_others_is_refused_before_anybody_waits() {
    let server = Server::builder().aof().start();
    server.client().grant("theirs", "alice", LONG);
    let mut worker = log_in(&server, &format!("~mine* {}", all_commands()));
    let request = "LOCK.ACQUIRE theirs worker 60000 BLOCK 0";
    super::assert_no_permission(&server, &mut worker, request, "~mine*");
    assert_eq!(server.cmd("LOCK.WAITERS theirs"), Value::Array(Vec::new()));
}

#[test]
fn rules_that_change_do_not_send_away_who_waits() {
    let server = Server::builder().aof().start();
    let mut worker = waiting(&server);
    assert_eq!(server.cmd("ACL SETUSER worker -@all resetkeys"), Value::Okay);
    assert!(server.client().release("mine", "alice"));
    assert!(matches!(worker.receive(), Value::Int(_)));
    let request = "LOCK.RELEASE mine worker";
    super::assert_no_permission(&server, &mut worker, request, "-@all");
}

#[test]
fn a_user_that_is_deleted_leaves_the_queue() {
    let server = Server::builder().aof().start();
    let mut worker = waiting(&server);
    assert_eq!(server.cmd("ACL DELUSER worker"), int(1));
    assert!(worker.try_receive().is_err());
    wait_for_queue(&server, 0);
    assert!(server.client().release("mine", "alice"));
    assert!(server.client().info("mine").is_none());
}
