//! Who waits for a lock that a guarded command frees or touches is served as after any command.

use super::{LONG, guarded, held};
use redis::Value;
use std::time::Duration;
use testkit::{Stopwatch, Waiter, int};

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
        let queued = client_time(client);
        // Whoever hears of the command when it is queued looks in vain, and again later and later.
        testkit::eventually("some time has passed", || match client_time(client) - queued {
            passed if passed > 100_000 => Ok(()),
            passed => Err(passed),
        });
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
fn a_release_behind_the_fence_hands_the_lock_on_in_the_same_step() {
    let (server, mut client, fence) = held();
    let mut bob = Waiter::of(&server, "the-lock", "bob");
    let release = guarded(fence, "LOCK.RELEASE the-lock alice");
    let replies = client.pipeline(&[&release, "LOCK.CHECK the-lock bob"]);
    let granted = bob.fence();
    assert_eq!(replies, [int(1), int(granted)]);
}

#[test]
fn a_guarded_command_that_leaves_the_lock_as_it_is_frees_nobody() {
    let (server, mut client, fence) = held();
    let bob = Waiter::of(&server, "the-lock", "bob");
    for command in ["GET the-lock", "SET k the-lock", "SETNX the-lock mine", "TTL the-lock"] {
        client.cmd(guarded(fence, command));
    }
    bob.assert_waits(&server);
    assert_eq!(client.check("the-lock", "alice"), Some(fence));
}

/// The time on this machine, in microseconds: a client in a transaction cannot ask for it.
fn client_time(_client: &mut testkit::Client) -> u128 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_micros()
}
