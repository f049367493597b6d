//! Those who leave, leave all queues; a grant that nobody has heard of goes back as a whole.

use super::{asks, holds_all, takes, until_waiting, waiting, waits};
use redis::Value;
use testkit::{Server, eventually, int};

const KEYS: [&str; 3] = ["a", "b", "c"];

#[test]
fn whoever_is_killed_leaves_all_queues_and_those_behind_it_go_on() {
    for kill in ["CLIENT KILL ID", "CLIENT UNBLOCK"] {
        if kill == "CLIENT UNBLOCK" && testkit::lacks((7, 4), "CLIENT UNBLOCK of waiters") {
            continue;
        }
        let server = Server::start();
        let mut client = server.client();
        takes(&mut client, "alice", &KEYS).unwrap();
        let first = waits(&server, "bob", &KEYS);
        let mut behind = KEYS.map(|key| waits(&server, &format!("next-{key}"), &[key]));
        assert_eq!(client.cmd(format!("{kill} {}", first.id)), int(1));
        until_waiting(&mut client, &KEYS, 1);
        assert_eq!(client.cmd("LOCK.RELEASE a alice ALSO 2 b c"), int(3));
        for waiter in &mut behind {
            waiter.fence();
        }
    }
}

#[test]
fn a_grant_to_one_who_is_killed_in_the_same_step_goes_back_as_a_whole() {
    let server = Server::start();
    let mut client = server.client();
    takes(&mut client, "alice", &KEYS).unwrap();
    let first = waits(&server, "bob", &KEYS);
    let mut next = waits(&server, "carol", &["c", "b", "a"]);
    let kill = format!("CLIENT KILL ID {}", first.id);
    client.transaction(&["LOCK.RELEASE a alice ALSO 2 b c", &kill]);
    let fence = next.fence();
    holds_all(&mut client, "carol", &KEYS, fence);
}

#[test]
fn a_part_of_a_grant_that_nobody_has_heard_of_is_nobody_s_when_a_command_comes_first() {
    let server = Server::start();
    let mut client = server.client();
    takes(&mut client, "alice", &KEYS).unwrap();
    let first = waits(&server, "bob", &KEYS);
    let kill = format!("CLIENT KILL ID {}", first.id);
    let replies = client.pipeline(&[
        "LOCK.RELEASE a alice ALSO 2 b c",
        &kill,
        "LOCK.CHECK b bob",
        "LOCK.ACQUIRE b carol 60000",
        "LOCK.ACQUIRE a bob 60000 ALSO 1 c",
    ]);
    assert_eq!(replies[..3], [int(3), int(1), Value::Nil]);
    let (Value::Int(carol), Value::Int(bob)) = (&replies[3], &replies[4]) else {
        panic!("{replies:?}")
    };
    assert!(bob > carol);
    eventually("nothing else is taken back", || {
        let held = super::fences(&mut server.client(), "bob", &["a", "c"]);
        if held == [Some(bob.cast_unsigned()); 2] { Ok(()) } else { Err(held) }
    });
}

#[test]
fn who_comes_back_with_the_same_request_is_not_told_of_the_grant_that_it_missed() {
    let server = Server::start();
    let mut client = server.client();
    takes(&mut client, "alice", &KEYS).unwrap();
    let first = waits(&server, "bob", &KEYS);
    let kill = format!("CLIENT KILL ID {}", first.id);
    let again = asks("bob", &KEYS);
    let replies =
        client.pipeline(&["LOCK.RELEASE a alice ALSO 2 b c", &kill, "LOCK.CHECK a bob", &again]);
    assert_eq!(replies[2], Value::Nil);
    let Value::Int(fence) = replies[3] else { panic!("{replies:?}") };
    holds_all(&mut client, "bob", &KEYS, fence.cast_unsigned());
}

#[test]
fn on_a_server_that_becomes_a_replica_nobody_waits_for_any_of_them() {
    let primary = Server::builder().tcp().start();
    let server = Server::builder().tcp().start();
    let mut client = server.client();
    takes(&mut client, "alice", &KEYS).unwrap();
    let mut waiter = waits(&server, "bob", &KEYS);
    client.cmd(format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    match waiter.client.try_receive() {
        Ok(Value::ServerError(told)) => assert_eq!(told.code(), "UNBLOCKED"),
        Ok(other) => panic!("{other:?}"),
        Err(_closed) => {}
    }
    assert_eq!(waiting(&mut client, &KEYS), [0, 0, 0]);
}
