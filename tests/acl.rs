//! The ACL is the boundary: who may run which command on which locks.

use crate::support::{Client, Server, lacks, unchanged};
use redis::Value;

const LONG: u64 = 60_000;

fn log_in(server: &Server, rules: &str) -> Client {
    assert_eq!(server.cmd(format!("ACL SETUSER worker on nopass {rules}")), Value::Okay);
    let mut client = server.client();
    assert_eq!(client.cmd("AUTH worker x"), Value::Okay);
    client
}

#[track_caller]
fn assert_no_permission(server: &Server, client: &mut Client, command: &str) {
    let reply = unchanged(server, || client.cmd(command));
    let Value::ServerError(error) = &reply else { panic!("{command}: {reply:?}") };
    assert_eq!(error.code(), "NOPERM", "{command}");
}

#[test]
fn a_user_reaches_only_the_locks_it_may_name() {
    let server = Server::builder().aof().start();
    server.client().grant("theirs", "worker", LONG);
    let mut worker =
        log_in(&server, "~mine* +lock.acquire +lock.release +lock.extend +lock.check +lock.info");
    worker.grant("mine", "worker", LONG);
    assert!(worker.extend("mine", "worker", LONG));
    for command in [
        "LOCK.ACQUIRE theirs worker 60000",
        "LOCK.RELEASE theirs worker",
        "LOCK.EXTEND theirs worker 60000",
        "LOCK.CHECK theirs worker",
        "LOCK.INFO theirs",
    ] {
        assert_no_permission(&server, &mut worker, command);
    }
    assert!(worker.release("mine", "worker"));
}

#[test]
fn a_user_runs_only_the_commands_it_may_run() {
    let server = Server::builder().aof().start();
    let mut worker = log_in(&server, "~* +lock.acquire");
    worker.grant("k", "worker", LONG);
    for command in ["LOCK.RELEASE k worker", "LOCK.EXTEND k worker 60000", "LOCK.INFO k"] {
        assert_no_permission(&server, &mut worker, command);
    }
}

#[test]
fn a_user_who_may_only_read_a_key_may_look_at_its_lock() {
    if lacks((7, 0), "rights to read and write in the ACL") {
        return;
    }
    let server = Server::builder().aof().start();
    let fence = server.client().grant("k", "worker", LONG);
    let mut worker = log_in(&server, "%R~k +@all");
    assert_eq!(worker.check("k", "worker"), Some(fence));
    assert!(worker.info("k").is_some());
    for command in
        ["LOCK.ACQUIRE k worker 60000", "LOCK.RELEASE k worker", "LOCK.EXTEND k worker 60000"]
    {
        assert_no_permission(&server, &mut worker, command);
    }
}

#[test]
fn a_user_who_may_only_write_a_key_learns_nothing_of_its_lock() {
    if lacks((7, 0), "rights to read and write in the ACL") {
        return;
    }
    let server = Server::builder().aof().start();
    server.client().grant("k", "alice", LONG);
    let mut worker = log_in(&server, "%W~k +@all");
    for command in [
        "LOCK.ACQUIRE k worker 60000",
        "LOCK.RELEASE k alice",
        "LOCK.EXTEND k alice 60000",
        "LOCK.CHECK k alice",
        "LOCK.INFO k",
    ] {
        assert_no_permission(&server, &mut worker, command);
    }
}

#[test]
fn the_categories_read_and_write_cover_the_commands() {
    if lacks((7, 2), "categories of a module's commands") {
        return;
    }
    let server = Server::builder().aof().start();
    let fence = server.client().grant("k", "worker", LONG);
    let mut worker = log_in(&server, "~* +@read");
    assert_eq!(worker.check("k", "worker"), Some(fence));
    assert!(worker.info("k").is_some());
    for command in
        ["LOCK.EXTEND k worker 60000", "LOCK.RELEASE k worker", "LOCK.ACQUIRE k worker 60000"]
    {
        assert_no_permission(&server, &mut worker, command);
    }
    let mut worker = log_in(&server, "~* +@write");
    assert_eq!(worker.acquire("k", "worker", LONG), Some(fence));
    assert!(worker.extend("k", "worker", LONG));
    assert!(worker.release("k", "worker"));
}
