//! The harness itself: a crash is never a passed test.

use testkit::{Server, unchanged};

#[test]
#[should_panic(expected = "the server")]
fn a_server_that_crashed_fails_its_test() {
    let server = Server::start();
    let reply = server.client().try_cmd("DEBUG SEGFAULT");
    assert!(reply.is_err(), "it survived");
}

#[test]
#[should_panic(expected = "it logged \"panicked\"")]
fn a_server_that_logged_a_panic_fails_its_test() {
    let server = Server::start();
    server.cmd("DEBUG LOG panicked");
}

#[test]
#[should_panic(expected = "something changed")]
fn a_change_where_none_may_be_fails_the_test() {
    let server = Server::builder().aof().start();
    unchanged(&server, || server.cmd("SET k v"));
}

#[test]
fn a_server_that_its_test_stopped_is_no_failure() {
    Server::start().stop();
    Server::start().kill();
}
