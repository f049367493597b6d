//! How many may wait, for one lock and for all; and what a try may not do while they do.

use super::play;
use super::{LONG, Waiter};
use redis::Value;
use testkit::{Server, eventually, lacks_settings};

#[test]
fn no_more_may_wait_than_the_limits_of_the_server_and_of_the_lock() {
    for (args, session) in [
        (
            "max-waiters 2",
            "# on a server; a try is not refused, nor is who waits already and asks again
            LOCK.ACQUIRE l alice 60000 -> B
            bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
            carol: LOCK.ACQUIRE l carol 60000 BLOCK 0 -> waits
            LOCK.ACQUIRE k dave 60000 BLOCK 5 -> -QUEUEFULL too many waiters (config leasehold.max-waiters)
            LOCK.ACQUIRE l bob 60000 BLOCK 5 -> -QUEUEFULL too many waiters (config leasehold.max-waiters)
            LOCK.ACQUIRE k dave 60000 -> nil
            LOCK.ACQUIRE free dave 60000 -> C
            again: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
            bob: -> -REPLACED
            LOCK.RELEASE k alice -> 1
            again: -> D
            dave: LOCK.ACQUIRE l dave 60000 BLOCK 0 -> waits",
        ),
        (
            "max-waiters-per-lock 2",
            "# for a lock
            LOCK.ACQUIRE l alice 60000 -> B
            bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
            carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
            LOCK.ACQUIRE k dave 60000 BLOCK 5 -> -QUEUEFULL too many waiters for this lock (config leasehold.max-waiters-per-lock)
            dave: LOCK.ACQUIRE l dave 60000 BLOCK 0 -> waits
            CLIENT KILL ID {bob} -> 1
            erin: LOCK.ACQUIRE k erin 60000 BLOCK 0 -> waits
            LOCK.WAITERS k -> carol erin",
        ),
        (
            "max-waiters 0",
            "# where nobody may wait a free lock is granted and a retry answered
            LOCK.ACQUIRE k alice 60000 BLOCK 5 -> A
            LOCK.ACQUIRE k bob 60000 BLOCK 5 -> -QUEUEFULL too many waiters (config …
            LOCK.ACQUIRE free bob 60000 BLOCK 5 -> B
            MULTI: LOCK.ACQUIRE k bob 60000 BLOCK 5 -> nil
            INFO leasehold_waiters -> 0",
        ),
        (
            "max-waiters-per-lock 0",
            "# where nobody may wait for any lock
            LOCK.ACQUIRE k alice 60000 BLOCK 5 -> A
            LOCK.ACQUIRE k bob 60000 BLOCK 5 -> -QUEUEFULL too many waiters for this lock (config …
            LOCK.ACQUIRE free bob 60000 BLOCK 5 -> B
            INFO leasehold_waiters -> 0",
        ),
    ] {
        play(|| Server::builder().module_args(args), session);
    }
}

const TRIES: &str = r#"
    # a try gets nil while others wait, also in the very moment of the release
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    LOCK.ACQUIRE k carol 60000; LOCK.RELEASE k alice; LOCK.ACQUIRE k carol 60000 -> nil; 1; nil
    LOCK.ACQUIRE k alice 60000 -> nil
    bob: -> B
    LOCK.CHECK k bob -> B

    # nor does it overtake right behind a deletion by others
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    DEL k; LOCK.ACQUIRE k carol 60000 -> 1; nil
    bob: -> B
    bob: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
    UNLINK k; LOCK.ACQUIRE k dave 60000 BLOCK 1 -> 1; nil
    bob: -> C
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    FLUSHALL; LOCK.ACQUIRE k dave 60000 -> OK; nil
    bob: -> D
    bob: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
    EVAL "return redis.call('DEL',KEYS[1])" 1 k; LOCK.ACQUIRE k bob 60000 -> 1; nil
    bob: -> E
    LOCK.CHECK k carol -> E

    # a request that may wait queues up behind those who do
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
    dave: LOCK.RELEASE k alice; LOCK.ACQUIRE k dave 60000 BLOCK 0 -> waits
    bob: -> B
    LOCK.WAITERS k -> carol dave
    LOCK.RELEASE k bob -> 1
    carol: -> C
    dave: -> 1
"#;

#[test]
fn whoever_comes_while_others_wait_comes_after_them() {
    play(Server::builder, TRIES);
}

#[test]
fn the_limits_can_be_changed_while_the_server_runs() {
    if lacks_settings() {
        return;
    }
    play(
        Server::builder,
        "# those who wait already are not sent away by a lower limit
        CONFIG GET leasehold.max-waiters -> leasehold.max-waiters \"8000\"
        CONFIG GET leasehold.max-waiters-per-lock -> leasehold.max-waiters-per-lock \"8000\"
        bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
        carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
        CONFIG SET leasehold.max-waiters-per-lock 1 -> OK
        LOCK.ACQUIRE k dave 60000 BLOCK 5 -> -QUEUEFULL too many waiters for this lock…
        CONFIG SET leasehold.max-waiters 2 leasehold.max-waiters-per-lock 1000000 -> OK
        LOCK.ACQUIRE k dave 60000 BLOCK 5 -> -QUEUEFULL too many waiters (…
        CONFIG SET leasehold.max-waiters 0 -> OK
        LOCK.WAITERS k -> bob carol
        LOCK.RELEASE k alice -> 1
        bob: -> B
        LOCK.RELEASE k bob -> 1
        carol: -> C

        # the share of maxclients that may wait
        CONFIG SET maxclients 200 -> OK
        CONFIG SET leasehold.max-waiters 1000 -> OK
        INFO leasehold_effective_max_waiters -> 160
        CONFIG SET leasehold.max-waiters-percent 2 maxclients 50 -> OK
        INFO leasehold_effective_max_waiters -> 1
        bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
        LOCK.ACQUIRE k late 60000 BLOCK 0 -> -QUEUEFULL too many waiters for maxclients (config leasehold.max-waiters-percent)
        CONFIG SET leasehold.max-waiters-percent 100 -> OK
        late: LOCK.ACQUIRE k late 60000 BLOCK 0 -> waits
        CONFIG SET leasehold.max-waiters 2 -> OK
        LOCK.ACQUIRE k later 60000 BLOCK 0 -> -QUEUEFULL too many waiters (config leasehold.max-waiters)

        # a waiter is granted no longer lease than is allowed by then, whatever frees the lock
        bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
        carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
        CONFIG SET leasehold.max-ttl 1000 -> OK
        MULTI: LOCK.RELEASE k alice; PTTL k -> 1; 1..2000
        bob: -> B
        DEL k -> 1
        carol: -> C
        PTTL k -> -2..1000",
    );
}

#[test]
fn the_share_of_those_who_wait_is_followed_while_the_server_runs() {
    let setup = Server::builder().config("maxclients", "100").module_args("max-waiters 60");
    let server = setup.start();
    let mut client = server.client();
    client.grant("a", "alice", LONG);
    // A server that tells modules of no change is asked when somebody begins to wait, and once a second at most.
    let mut becomes = |most: u64| {
        eventually("the limit is followed", || {
            let _gave_up = client.cmd("LOCK.ACQUIRE a bob 60000 BLOCK 1");
            match client.counter("effective_max_waiters") {
                now if now == most => Ok(()),
                now => Err(now),
            }
        });
    };
    becomes(60);
    server.cmd("CONFIG SET maxclients 30");
    becomes(24);
    server.cmd("CONFIG SET maxclients 200");
    becomes(60);
}

#[test]
fn the_log_warns_once_if_fewer_may_wait_than_the_operator_has_set() {
    let expected = "at most 80 clients may wait, not the 200 of max-waiters: each keeps a connection, and \
                    waiters may take 80 % of maxclients (100)";
    for (args, times) in [("max-waiters 200", 1), ("max-waiters 80", 0)] {
        let server = Server::builder().config("maxclients", "100").module_args(args).start();
        server.client().grant("a", "alice", LONG);
        let _bob = Waiter::of(&server, "a", "bob");
        let log = server.log();
        let told: Vec<_> = log.lines().filter(|line| line.contains("may wait")).collect();
        assert!(told.len() == times && told.iter().all(|it| it.ends_with(expected)), "{told:?}");
    }
}

#[test]
fn the_log_warns_when_those_who_wait_leave_hardly_a_connection() {
    let server = Server::builder().config("maxclients", "200").module_args("max-waiters 100");
    let server = server.start();
    let warnings = || -> Vec<String> {
        let log = server.log();
        log.lines().filter(|line| line.contains("connections of")).map(str::to_owned).collect()
    };
    assert!(warnings().is_empty(), "{:?}", warnings());
    let tight =
        Server::builder().config("maxclients", "200").module_args("max-waiters-percent 100");
    let log = tight.start().log();
    let expected =
        "those who wait leave 0 connections of maxclients (200): a holder that has to connect";
    assert!(log.contains(expected), "{log}");
    if lacks_settings() {
        return;
    }
    for (change, left) in [
        ("maxclients 120", Some("24 connections of maxclients (120)")),
        ("leasehold.max-waiters-percent 50", None),
        ("leasehold.max-waiters-percent 100", Some("20 connections of maxclients (120)")),
        ("leasehold.max-waiters 1000", Some("0 connections of maxclients (120)")),
        ("leasehold.max-ttl 1000", None),
        ("leasehold.max-waiters 0", None),
    ] {
        let before = warnings().len();
        assert_eq!(server.cmd(format!("CONFIG SET {change}").as_str()), Value::Okay);
        let told = warnings();
        assert_eq!(told.len(), before + usize::from(left.is_some()), "{change}: {told:?}");
        assert!(left.is_none_or(|left| told[before].contains(left)), "{change}: {told:?}");
    }
}
