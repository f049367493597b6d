//! Waiting for a lock.

use super::{Scenario, quick, slow};
use crate::program::{Program, Waiting, lock};
use crate::scene::{
    LONG, Scene, as_user, assert_took, at_port, cut_all, is_held, millis, server, until_free,
    until_waiting, with,
};
use serde_json::json;
use std::thread::sleep;
use std::time::{Duration, Instant};
use testkit::{Proxy, Server, eventually};

pub(crate) const ALL: &[Scenario] = &[
    quick("granted-at-once", "a lock that is free is granted without a wait", granted_at_once),
    quick(
        "told-of-the-grant",
        "a waiter has the lock right when it is released, not when it looks again",
        told_of_the_grant,
    ),
    quick("patience", "a wait ends with busy at its deadline, and leaves no waiter", patience),
    quick("no-patience", "a wait of no time asks once", no_patience),
    quick("try-beside-waiters", "a try does not wait, and does not overtake", try_beside_waiters),
    quick(
        "patience-and-a-silent-server",
        "a wait ends at its deadline also if the server is silent",
        patience_and_a_silent_server,
    ),
    quick(
        "patience-and-a-dead-server",
        "a wait ends at its deadline also if the server never comes back",
        patience_and_a_dead_server,
    ),
    slow(
        "patience-and-killed-connections",
        "a wait ends at its deadline also if its connections are killed all the time",
        patience_and_killed_connections,
    ),
    slow(
        "unreachable",
        "without a deadline a wait ends when no server has answered for the set time",
        unreachable,
    ),
    quick(
        "server-returns",
        "a wait goes on at a server that was away, and gets the lock",
        server_returns,
    ),
    quick(
        "killed-connections",
        "a waiter whose connections were killed gets the lock all the same",
        killed_connections,
    ),
    slow(
        "slow-link",
        "a waiter behind a slow link gets the lock, and counts the lease from before",
        slow_link,
    ),
    quick("late-grant", "a grant that comes when the wait is over is given back", late_grant),
    quick(
        "grant-that-is-never-heard-of",
        "a grant whose answer is lost is asked for again, or is given back",
        grant_never_heard_of,
    ),
    slow(
        "a-thousand-waits",
        "a thousand waits for two hundred locks take a few connections, and all are granted",
        a_thousand_waits,
    ),
    slow(
        "without-channels",
        "where the user may not subscribe, waits take connections of their own, as many as are allowed, and all are granted",
        without_channels,
    ),
    quick(
        "out-of-the-queue",
        "a wait that is not to queue tries again and again, and keeps nobody out",
        out_of_the_queue,
    ),
    slow(
        "dead-waiter",
        "sixteen waiters of a program that is killed keep those behind them for a second, and not each of them",
        dead_waiter,
    ),
    quick(
        "queue-behind-the-ttl",
        "a waiter gets a lock whose lease ends without a release",
        queue_behind_the_ttl,
    ),
    slow(
        "stopped-waiter",
        "a waiter that was stopped when its turn came and passed holds nothing, or what it holds is held",
        stopped_waiter,
    ),
];

fn granted_at_once(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    program.acquire(&lock("before")).release();
    let begun = Instant::now();
    let lease = program.acquire(&lock("x").wait(LONG));
    assert_took(begun.elapsed(), millis(0), millis(100));
    assert_eq!(lease.release(), "released");
}

fn told_of_the_grant(scene: &Scene<'_>) {
    const ROUNDS: usize = 10;
    let server = server();
    let program = scene.program(&server);
    let mut client = server.client();
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        client.grant("x", "before", 60_000);
        let waiting = program.begin(&lock("x").wait(LONG));
        until_waiting(&server, "x", 1);
        let released = Instant::now();
        assert!(client.release("x", "before"));
        let at = waiting.pending.answer().at;
        took.push(at.duration_since(released));
        assert_eq!(waiting.lease().release(), "released");
    }
    took.sort();
    // Whoever looks ten times a second takes 50 ms in the middle.
    assert!(took[ROUNDS / 2] < millis(30), "{took:?}");
}

fn patience(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let mut client = server.client();
    client.grant("x", "before", 60_000);
    let (trouble, took) = program.fail(&lock("x").wait(millis(1_000)));
    assert_eq!(trouble.kind, "busy");
    assert_took(took, millis(990), millis(1_000));
    until_waiting(&server, "x", 0);
    assert!(client.release("x", "before"));
    assert!(!is_held(&server, "x"));
}

fn no_patience(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    server.client().grant("x", "before", 60_000);
    let (trouble, took) = program.fail(&lock("x").wait(Duration::ZERO));
    assert_eq!(trouble.kind, "busy");
    assert_took(took, millis(0), millis(100));
    let lease = program.acquire(&lock("y").wait(Duration::ZERO));
    assert_eq!(lease.release(), "released");
}

fn try_beside_waiters(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let holder = scene.program(&server);
    let lease = holder.acquire(&lock("x"));
    let waiting = program.begin(&lock("x").wait(LONG));
    until_waiting(&server, "x", 1);
    assert!(program.try_acquire(&lock("x")).is_none());
    assert_eq!(lease.release(), "released");
    assert_eq!(waiting.lease().release(), "released");
}

fn patience_and_a_silent_server(scene: &Scene<'_>) {
    let mut server = server();
    let program = scene.program(&server);
    server.client().grant("x", "before", 60_000);
    let waiting = program.begin(&lock("x").wait(millis(2_000)));
    until_waiting(&server, "x", 1);
    server.freeze();
    let (trouble, took) = waiting.error();
    assert!(["busy", "unreachable"].contains(&trouble.kind.as_str()), "{trouble:?}");
    assert_took(took, millis(1_900), millis(2_000));
    server.thaw();
    until_waiting(&server, "x", 0);
}

fn patience_and_a_dead_server(scene: &Scene<'_>) {
    let mut server = server();
    let program = scene.program(&server);
    server.client().grant("x", "before", 60_000);
    let waiting = program.begin(&lock("x").wait(millis(2_000)));
    until_waiting(&server, "x", 1);
    server.kill();
    let (trouble, took) = waiting.error();
    assert!(["busy", "unreachable"].contains(&trouble.kind.as_str()), "{trouble:?}");
    // Who could only try again after the deadline need not wait for it.
    assert_took(took, millis(500), millis(2_000));
}

fn patience_and_killed_connections(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let mut client = server.client();
    client.grant("x", "before", 60_000);
    let waiting = program.begin(&lock("x").wait(millis(4_000)));
    while waiting.pending.is_open() {
        cut_all(&mut client);
        sleep(millis(300));
    }
    let (trouble, took) = waiting.error();
    assert!(["busy", "unreachable"].contains(&trouble.kind.as_str()), "{trouble:?}");
    assert_took(took, millis(3_900), millis(4_000));
}

fn unreachable(scene: &Scene<'_>) {
    let mut server = server();
    let program = scene.program_with(&server, json!({ "unreachable_after": 2_000 }));
    server.client().grant("x", "before", 60_000);
    let waiting = program.begin(&lock("x").wait(LONG));
    until_waiting(&server, "x", 1);
    let killed = Instant::now();
    server.kill();
    let answer = waiting.pending.answer();
    assert_eq!(answer.came.unwrap_err().kind, "unreachable");
    // The last that was heard of it may be as old as a place in the queue is asked for.
    assert_took(answer.at.duration_since(killed), millis(0), millis(2_000) + millis(5_000));
}

fn server_returns(scene: &Scene<'_>) {
    let mut server = server();
    let program = scene.program(&server);
    server.client().grant("x", "before", 60_000);
    let waiting = program.begin(&lock("x").wait(LONG));
    until_waiting(&server, "x", 1);
    server.kill();
    server.start_again();
    // The holder is gone with the data.
    let lease = waiting.lease();
    assert_eq!(server.client().info("x").unwrap().fence, lease.fence);
    assert_eq!(lease.release(), "released");
}

fn killed_connections(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let mut client = server.client();
    client.grant("x", "before", 60_000);
    let waiting = program.begin(&lock("x").wait(LONG));
    until_waiting(&server, "x", 1);
    cut_all(&mut client);
    assert!(client.release("x", "before"));
    let lease = waiting.lease();
    assert_eq!(client.info("x").unwrap().fence, lease.fence);
    assert_eq!(lease.release(), "released");
}

fn slow_link(scene: &Scene<'_>) {
    let server = server();
    let proxy = Proxy::to(server.port());
    let program = scene.open(&with(at_port(proxy.port()), json!({ "response": 4_000 })));
    program.acquire(&lock("before")).release();
    proxy.slow(millis(500));
    let mut client = server.client();
    client.grant("x", "before", 60_000);
    let waiting = program.begin(&lock("x").wait(LONG).ttl(millis(10_000)).not_renewed());
    until_waiting(&server, "x", 1);
    assert!(client.release("x", "before"));
    let lease = waiting.lease();
    let state = lease.state();
    let left = crate::scene::ttl_of(&server, "x");
    assert!(
        i64::try_from(state.valid_for).unwrap() <= left,
        "{state:?}, and the server has {left}"
    );
}

fn late_grant(scene: &Scene<'_>) {
    let server = server();
    let proxy = Proxy::to(server.port());
    let program = scene.open(&at_port(proxy.port()));
    program.acquire(&lock("before")).release();
    proxy.hold();
    // It is sent, and does not arrive before the program has given up.
    let (trouble, took) = program.fail(&lock("x").wait(millis(1_000)));
    assert!(["busy", "unreachable"].contains(&trouble.kind.as_str()), "{trouble:?}");
    assert_took(took, millis(900), millis(1_000));
    proxy.deliver();
    sleep(millis(300));
    until_free(&server, "x");
    until_waiting(&server, "x", 0);
}

fn grant_never_heard_of(scene: &Scene<'_>) {
    let server = server();
    let proxy = Proxy::to(server.port());
    let program = scene.open(&at_port(proxy.port()));
    program.acquire(&lock("before")).release();
    // The server hears, and is not heard.
    proxy.deafen();
    let waiting = program.begin(&lock("x").wait(millis(4_000)));
    match waiting.pending.answer().came {
        Ok(_) => {
            let lease = waiting.lease();
            assert_eq!(server.client().info("x").unwrap().fence, lease.fence);
            assert_eq!(lease.release(), "released");
            assert!(!is_held(&server, "x"));
        }
        // Where the connection is the program's, it is found out later.
        Err(trouble) => {
            assert!(["busy", "unreachable"].contains(&trouble.kind.as_str()), "{trouble:?}");
            until_free(&server, "x");
            until_waiting(&server, "x", 0);
        }
    }
}

fn connections(server: &Server) -> u64 {
    // Without the one that asks.
    server.client().info_number("clients", "connected_clients") - 1
}

fn a_thousand_waits(scene: &Scene<'_>) {
    const LOCKS: usize = 200;
    const WAITS: usize = 5;
    let server = server();
    // A busy program may be slow to hear an answer.
    let program = scene.program_with(&server, json!({ "within": 15_000, "wait_connections": 2 }));
    let mut client = server.client();
    for number in 0..LOCKS {
        client.grant(format!("x{number}"), "before", 60_000);
    }
    let begin = |number: usize| program.begin(&lock(&format!("x{number}")).wait(LONG));
    let waiting: Vec<Vec<Waiting>> =
        (0..LOCKS).map(|number| (0..WAITS).map(|_| begin(number)).collect()).collect();
    drop(client);
    // Some programs have one of theirs stand for the others.
    let mut client = server.client();
    for number in 0..LOCKS {
        let name = format!("x{number}");
        eventually("somebody waits", || match client.info(&name).map(|info| info.waiters) {
            Some(1..) => Ok(()),
            other => Err(other),
        });
    }
    drop(client);
    // Two of the package, and that of the program. What waits on a connection at first takes a ticket before long.
    eventually("few are connected", || match connections(&server) {
        0..=4 => Ok(()),
        more => Err(more),
    });
    let mut client = server.client();
    for number in 0..LOCKS {
        assert!(client.release(format!("x{number}"), "before"));
    }
    for requests in waiting {
        let mut open = requests;
        let mut last = 0;
        while !open.is_empty() {
            let granted = eventually("one is granted", || {
                open.iter().position(|request| !request.pending.is_open()).ok_or(())
            });
            let lease = open.remove(granted).lease();
            assert!(lease.fence > last, "{} after {last}", lease.fence);
            last = lease.fence;
            assert_eq!(lease.release(), "released");
        }
    }
}

fn without_channels(scene: &Scene<'_>) {
    const WAITS: usize = 12;
    const CONNECTIONS: u64 = 4;
    let server = server();
    server.cmd("ACL SETUSER worker on >secret ~* +@all resetchannels");
    let place = as_user(&server, "worker", "secret");
    let program = scene.open(&with(place, json!({ "wait_connections": CONNECTIONS })));
    let mut client = server.client();
    let name = |number: usize| format!("x{number}");
    for number in 0..WAITS {
        client.grant(name(number), "before", 60_000);
    }
    let waiting: Vec<_> =
        (0..WAITS).map(|number| program.begin(&lock(&name(number)).wait(LONG))).collect();
    client.wait_until_waiters(CONNECTIONS);
    drop(client);
    // Besides those that wait: two of the package, and those of the program.
    let connected = connections(&server);
    assert!(connected <= CONNECTIONS + 4, "{connected}");
    for number in 0..WAITS {
        assert!(server.client().release(name(number), "before"));
    }
    for request in waiting {
        assert_eq!(request.lease().release(), "released");
    }
}

fn out_of_the_queue(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program_with(&server, json!({ "queue": false }));
    let mut client = server.client();
    client.grant("x", "before", 60_000);
    let waiting = program.begin(&lock("x").wait(LONG));
    let brief = program.begin(&lock("x").wait(millis(1_000)));
    eventually("it tries again", || match client.executed().get("lock.acquire") {
        Some(6..) => Ok(()),
        other => Err(other.copied()),
    });
    assert_eq!(client.info("x").map(|info| info.waiters), Some(0));
    let (trouble, took) = brief.error();
    assert_eq!(trouble.kind, "busy");
    assert_took(took, millis(990), millis(1_000));
    assert!(client.release("x", "before"));
    let lease = waiting.lease();
    assert_eq!(client.info("x").map(|info| info.fence), Some(lease.fence));
    assert_eq!(lease.release(), "released");
}

fn begin_one_behind_the_other(
    server: &Server,
    first: &Program,
    second: &Program,
) -> (Waiting, Waiting) {
    let one = first.begin(&lock("x").wait(LONG).ttl(millis(3_000)));
    until_waiting(server, "x", 1);
    let other = second.begin(&lock("x").wait(LONG));
    until_waiting(server, "x", 2);
    (one, other)
}

fn dead_waiter(scene: &Scene<'_>) {
    const WAITERS: i64 = 16;
    let server = server();
    let (first, second) = (scene.program(&server), scene.program(&server));
    let mut client = server.client();
    client.grant("x", "before", 60_000);
    let begin = || first.begin(&lock("x").wait(LONG));
    let _waiting: Vec<_> = (0..WAITERS).map(|_| begin()).collect();
    until_waiting(&server, "x", WAITERS);
    let other = second.begin(&lock("x").wait(LONG));
    until_waiting(&server, "x", WAITERS + 1);
    first.adapter.kill();
    let begun = Instant::now();
    assert!(client.release("x", "before"));
    let lease = other.lease();
    assert_took(begun.elapsed(), millis(0), millis(1_000));
    assert_eq!(lease.release(), "released");
}

fn queue_behind_the_ttl(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let begun = Instant::now();
    server.client().grant("x", "before", 1_000);
    let lease = program.acquire(&lock("x").wait(LONG));
    assert_took(begun.elapsed(), millis(900), millis(1_000));
    assert_eq!(lease.release(), "released");
}

fn stopped_waiter(scene: &Scene<'_>) {
    let server = server();
    let settings = json!({ "slice": 1_000 });
    let first = scene.program_with(&server, settings.clone());
    let second = scene.program_with(&server, settings);
    let mut client = server.client();
    client.grant("x", "before", 60_000);
    let (one, other) = begin_one_behind_the_other(&server, &first, &second);
    first.adapter.signal("STOP");
    assert!(client.release("x", "before"));
    let lease = other.lease();
    first.adapter.signal("CONT");
    sleep(millis(2_000));
    // It waits again, behind who holds it; or it had it, and was told of the loss.
    if !one.pending.is_open() {
        let lost = one.lease();
        assert!(lost.fence < lease.fence);
        lost.lost();
        return;
    }
    assert_eq!(client.info("x").unwrap().fence, lease.fence);
    assert_eq!(lease.release(), "released");
    let next = one.lease();
    assert!(next.fence > lease.fence);
    assert_eq!(next.release(), "released");
}
