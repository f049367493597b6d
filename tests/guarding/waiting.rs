//! Who waits for a lock that a guarded command frees or touches is served as after any command.

use super::{LONG, guarded, held};
use redis::Value;
use std::time::{Duration, Instant};
use testkit::{Server, Session, Stopwatch, Waiter, int, until};

/// Far less than the second in which every contended lock is looked at anyway.
const SOON: Duration = Duration::from_millis(300);

/// Bob waits for a lock that another one holds; what frees it is sent; and he has it soon.
#[track_caller]
fn assert_served(free: impl Fn(&mut testkit::Client, u64)) {
    let (server, mut client, fence) = held();
    client.grant("other", "carol", LONG);
    let mut bob = Waiter::of(&server, "other", "bob");
    // The look that comes with a new queue has passed.
    client.cmd("PING");
    let watch = Stopwatch::start();
    free(&mut client, fence);
    bob.fence();
    assert!(watch.elapsed() < SOON, "{:?}", watch.elapsed());
}

#[test]
fn at_once_after_each_command_that_frees_it() {
    for command in [
        "DEL other",
        "UNLINK other",
        "GETDEL other",
        "RENAME other elsewhere",
        "PEXPIRE other 1",
        "FLUSHALL",
        "LOCK.RELEASE other carol",
        "MOVE other 3",
        "SWAPDB 0 5",
    ] {
        eprintln!("{command}");
        assert_served(|client, fence| {
            client.cmd(guarded(fence, command));
        });
    }
}

#[test]
fn in_a_transaction_that_was_queued_long_before() {
    assert_served(|client, fence| {
        client.cmd("MULTI");
        client.cmd(guarded(fence, "DEL other"));
        // Whoever hears of the command when it is queued looks in vain, and again later and later. A client in a
        // transaction cannot ask the server for the time.
        let queued = Instant::now();
        until("some time has passed", || queued.elapsed(), |it| *it > Duration::from_millis(100));
        assert_eq!(client.cmd("EXEC"), Value::Array(vec![int(1)]));
    });
}

#[test]
fn in_a_script() {
    assert_served(|client, fence| {
        let script = "return redis.call('LOCK.GUARD', KEYS[1], 'alice', ARGV[1], 'DEL', KEYS[2])";
        assert_eq!(
            client.cmd(["EVAL", script, "2", "the-lock", "other", &fence.to_string()]),
            int(1)
        );
    });
}

#[test]
fn what_leaves_the_lock_as_it_is_frees_nobody_and_a_release_hands_it_on_in_the_same_step() {
    Session::play(
        &Server::start(),
        "
        # who waits for the guarding lock
        LOCK.ACQUIRE l alice 60000 -> A
        bob: LOCK.ACQUIRE l bob 60000 BLOCK 0 -> waits
        LOCK.GUARD l alice A GET l; LOCK.GUARD l alice A SET k l -> {A}:alice; OK
        LOCK.GUARD l alice A SETNX l mine; LOCK.CHECK l alice -> 0; A
        bob: -> waits
        LOCK.GUARD l alice A LOCK.RELEASE l alice; LOCK.CHECK l bob -> 1; B
        bob: -> B
        ",
    );
}
