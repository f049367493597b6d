//! Fences grow and locks stay over every way a server can end and begin again.

use redis::Value;
use std::time::Duration;
use testkit::clock::HOUR;
use testkit::{Clock, Server, int, misplaces_clients, module};

const LONG: u64 = 60_000;

type End = fn(&mut Server);
const ENDS: [End; 2] = [Server::stop, Server::kill];

/// `held` is held and `released` was, when the server ends; both fences are followed by larger ones.
#[test]
fn after_a_restart_with_a_file_of_any_kind() {
    let rewritten = |preamble| Server::builder().aof().config("aof-use-rdb-preamble", preamble);
    for (setup, before_the_end) in [
        (Server::builder(), "SAVE"),
        (Server::builder().aof(), "PING"),
        (Server::builder().aof(), "DEBUG LOADAOF"),
        (rewritten("yes"), "BGREWRITEAOF"),
        (rewritten("no"), "BGREWRITEAOF"),
    ] {
        for end in ENDS {
            let mut server = setup.clone().start();
            let mut client = server.client();
            let held = client.grant("held", "alice", LONG);
            let released = client.grant("released", "alice", LONG);
            assert!(client.release("released", "alice"));
            client.save_by(before_the_end);
            assert_eq!(client.check("held", "alice"), Some(held), "{before_the_end}");
            end(&mut server);
            server.start_again();

            let mut client = server.client();
            assert_eq!(client.check("held", "alice"), Some(held), "the lock is still held");
            assert_eq!(client.acquire("held", "bob", LONG), None);
            assert!(client.grant("released", "bob", LONG) > released.max(held));
            assert!(client.release("held", "alice"));
            assert!(client.grant("held", "bob", LONG) > released.max(held));
        }
    }
}

#[test]
fn after_the_lock_with_a_fence_hours_ahead_is_gone_from_a_rewritten_append_only_file() {
    if misplaces_clients() {
        return;
    }
    for preamble in ["yes", "no"] {
        let mut server = Server::builder().aof().config("aof-use-rdb-preamble", preamble).start();
        let mut client = server.client();
        let ahead = client.grant("k", "alice", LONG) + HOUR.as_micros() as u64;
        assert_eq!(client.cmd(format!("LOCK.RAISE k alice {ahead}")), int(ahead as i64));
        assert!(client.release("k", "alice"));
        server.client().save_by("BGREWRITEAOF");
        server.kill();
        server.start_again();
        assert!(server.client().grant("k", "bob", LONG) > ahead);
    }
}

/// Also right after many grants.
#[test]
fn after_a_restart_without_data() {
    for (end, grants) in [(ENDS[0], 1), (ENDS[1], 5_000)] {
        let mut server = Server::start();
        let commands = ["LOCK.ACQUIRE k alice 60000", "LOCK.RELEASE k alice"].repeat(grants);
        let replies = server.client().pipeline(&commands);
        let Value::Int(last) = replies[replies.len() - 2] else { panic!("no fence") };
        end(&mut server);
        server.start_again();
        assert!(server.client().grant("k", "bob", LONG) > last.cast_unsigned());
    }
}

#[test]
fn after_a_restart_without_data_on_a_clock_behind_by_less_than_the_margin() {
    let mut clock = Clock::new();
    let first = {
        let before = Server::builder().clock(&clock).module_args("fence-margin 0").start();
        before.client().grant("k", "alice", LONG)
    };
    clock.step_back(Duration::from_millis(module::USUAL_FENCE_MARGIN - 1_000));
    let after = Server::builder().clock(&clock).start();
    assert!(after.client().grant("k", "bob", LONG) > first);
}

#[test]
fn after_a_restart_on_a_clock_an_hour_behind_and_a_deletion_by_hand() {
    if misplaces_clients() {
        return;
    }
    for (setup, save) in [(Server::builder(), true), (Server::builder().aof(), false)] {
        let mut clock = Clock::new();
        let mut server = setup.clock(&clock).start();
        let first = server.client().grant("k", "alice", LONG);
        if save {
            assert_eq!(server.cmd("SAVE"), Value::Okay);
        }
        server.kill();
        clock.step_back(HOUR);
        server.start_again();
        let mut client = server.client();
        assert_eq!(client.cmd("DEL k"), int(1));
        let second = client.grant("k", "bob", LONG);
        assert!(second > first, "{first} was followed by {second}, from an RDB file: {save}");
    }
}

#[test]
fn the_end_of_loading_lifts_the_fences_by_the_margin() {
    let server = Server::builder().module_args("fence-margin 600000").start();
    let mut client = server.client();
    // The start has lifted them too, but to less than this.
    let floor = u64::try_from(client.next_millisecond() + 600_000).unwrap() * 1_000;
    assert!(client.grant("k", "alice", LONG) < floor, "not before");
    assert_eq!(client.cmd("DEBUG RELOAD"), Value::Okay);
    assert!(client.release("k", "alice"));
    assert!(client.grant("k", "bob", LONG) > floor);
}

#[test]
fn a_lease_that_ran_out_while_the_server_was_down_is_over() {
    let mut clock = Clock::new();
    let mut server = Server::builder().aof().clock(&clock).start();
    let first = server.client().grant("k", "alice", LONG);
    server.kill();
    clock.step_forward(Duration::from_millis(LONG + 1));
    server.start_again();
    let mut client = server.client();
    assert_eq!(client.info("k"), None);
    assert!(!client.release("k", "alice"));
    assert!(client.grant("k", "bob", LONG) > first);
}
