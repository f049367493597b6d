//! Messages that tell of a grant, which may be lost, late, old or repeated.

use super::{Scenario, quick, slow};
use crate::program::{Program, Waiting, lock};
use crate::scene::{
    LONG, Scene, assert_took, at_port, millis, server, ttl_of, until_free, until_waiting, with,
};
use redis::Value as Reply;
use serde_json::json;
use std::thread::sleep;
use std::time::{Duration, Instant};
use testkit::{Proxy, Server, eventually};

pub(crate) const ALL: &[Scenario] = &[
    quick(
        "late-message",
        "a lock that is told late is held, and its lease counted from before it was asked for",
        late_message,
    ),
    slow("lost-message", "a grant that is never told is found by asking again", lost_message),
    slow(
        "message-after-the-lease",
        "a message that comes when the lease is over makes nobody a holder",
        message_after_the_lease,
    ),
    slow(
        "message-of-an-earlier-grant",
        "a message of a grant that ran out unheard makes nobody a holder, also if it comes after the next request",
        message_of_an_earlier_grant,
    ),
    slow(
        "renewal-under-way",
        "a lock that is told while its place is asked for again stays held when that is answered",
        renewal_under_way,
    ),
    quick("doubled-message", "a message that comes again makes nobody a holder", doubled_message),
    quick(
        "subscription-killed-before-the-message",
        "a grant whose message dies with its connection is asked for at once",
        subscription_killed,
    ),
];

/// A program that waits for a lock that somebody has, and hears of its grant so much later. It asks as fast as ever.
#[track_caller]
fn begin_to_hear_late(
    scene: &Scene<'_>,
    server: &Server,
    (slice, ttl, delay): (u64, u64, Duration),
) -> (Program, Waiting, Proxy) {
    let proxy = Proxy::to(server.port());
    let program = scene.open(&with(at_port(proxy.port()), json!({ "slice": slice })));
    server.client().grant("x", "before", 60_000);
    let waiting = begin(server, &program, millis(ttl));
    proxy.slow_subscriptions(delay);
    (program, waiting, proxy)
}

/// Waits for the lock that somebody has, and hears of grants: it asks once more when it does.
#[track_caller]
fn begin(server: &Server, program: &Program, ttl: Duration) -> Waiting {
    let waiting = program.begin(&lock("x").wait(LONG).ttl(ttl));
    until_waiting(server, "x", 1);
    eventually("it subscribes", || if channels(server).is_empty() { Err(()) } else { Ok(()) });
    sleep(millis(200));
    waiting
}

fn channels(server: &Server) -> Vec<Vec<u8>> {
    let Reply::Array(names) = server.cmd("PUBSUB CHANNELS leasehold:*") else { return Vec::new() };
    let bytes = |name| match name {
        Reply::BulkString(name) => Some(name),
        _ => None,
    };
    names.into_iter().filter_map(bytes).collect()
}

fn late_message(scene: &Scene<'_>) {
    let server = scene.server_that_tells_beside();
    let (_program, waiting, _proxy) =
        begin_to_hear_late(scene, &server, (5_000, 4_000, millis(700)));
    let mut client = server.client();
    assert!(client.release("x", "before"));
    let lease = waiting.lease();
    let state = lease.state();
    let left = u64::try_from(ttl_of(&server, "x")).unwrap();
    assert!(state.valid_for <= left + 20, "{state:?}, and the server says {left}");
    assert_eq!(client.info("x").unwrap().fence, lease.fence);
    // It is renewed.
    sleep(millis(4_500));
    assert_eq!(lease.state().loss, None);
    assert_eq!(lease.release(), "released");
}

fn lost_message(scene: &Scene<'_>) {
    let server = scene.server_that_tells_beside();
    let (_program, waiting, _proxy) = begin_to_hear_late(scene, &server, (1_000, 60_000, LONG));
    let released = Instant::now();
    let mut client = server.client();
    assert!(client.release("x", "before"));
    let lease = waiting.lease();
    assert_took(released.elapsed(), millis(0), millis(2_000));
    assert_eq!(client.info("x").unwrap().fence, lease.fence);
    assert_eq!(lease.release(), "released");
}

/// Somebody has the lock for as long as the program may believe what it is told late.
#[track_caller]
fn assert_waits_behind(
    fence: u64,
    (server, proxy): (&Server, &Proxy),
    waiting: &Waiting,
    told_by: Instant,
) {
    while Instant::now() < told_by {
        assert!(waiting.pending.is_open(), "it holds what somebody else has");
        sleep(millis(20));
    }
    proxy.slow(Duration::ZERO);
    assert!(server.client().release("x", "somebody"));
    let lease = waiting.lease();
    assert!(lease.fence > fence);
    assert_eq!(lease.release(), "released");
}

/// The program is granted the lock and does not ask meanwhile, and then somebody has it, with this fence.
fn lapse_unheard(server: &Server, program: &Program) -> u64 {
    program.adapter.signal("STOP");
    assert!(server.client().release("x", "before"));
    until_free(server, "x");
    let fence = server.client().grant("x", "somebody", 60_000);
    program.adapter.signal("CONT");
    fence
}

fn message_after_the_lease(scene: &Scene<'_>) {
    const DELAY: Duration = millis(2_500);
    let server = scene.server_that_tells_beside();
    let (program, waiting, proxy) = begin_to_hear_late(scene, &server, (20_000, 1_000, DELAY));
    let released = Instant::now();
    let fence = lapse_unheard(&server, &program);
    assert_waits_behind(fence, (&server, &proxy), &waiting, released + DELAY + millis(1_000));
}

/// Some clients give up a connection that has not answered for as long as they keep a place without asking. So the
/// second message comes sooner than that, and still behind the next request.
fn message_of_an_earlier_grant(scene: &Scene<'_>) {
    for (slice, ttl, delay) in [(1_000, 1_500, millis(5_000)), (3_000, 3_000, millis(4_500))] {
        let server = scene.server_that_tells_beside();
        let (program, waiting, proxy) = begin_to_hear_late(scene, &server, (slice, ttl, delay));
        let released = Instant::now();
        let fence = lapse_unheard(&server, &program);
        // It asks again, before the message comes.
        until_waiting(&server, "x", 1);
        assert_waits_behind(fence, (&server, &proxy), &waiting, released + delay + millis(1_000));
    }
}

fn doubled_message(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let mut client = server.client();
    client.grant("x", "before", 60_000);
    let first = begin(&server, &program, millis(10_000));
    assert!(client.release("x", "before"));
    let lease = first.lease();
    assert_eq!(lease.release(), "released");
    client.grant("x", "somebody", 60_000);
    let second = program.begin(&lock("x").wait(LONG));
    until_waiting(&server, "x", 1);
    let message = format!("{} {} {} x", lease.fence, lease.owner.len(), lease.owner);
    for channel in channels(&server) {
        for _ in 0..3 {
            server.cmd([b"PUBLISH".as_slice(), &channel, message.as_bytes()]);
        }
    }
    sleep(millis(500));
    assert!(second.pending.is_open());
    assert!(client.release("x", "somebody"));
    let next = second.lease();
    assert!(next.fence > lease.fence);
    assert_eq!(next.release(), "released");
}

/// An answer takes longer than a message, because the question was still on its way when the lock was granted.
fn renewal_under_way(scene: &Scene<'_>) {
    const LOCKS: u64 = 12;
    const LINK: Duration = millis(300);
    let server = server();
    let proxy = Proxy::to(server.port());
    let place = with(at_port(proxy.port()), json!({ "slice": 1_000, "response": 4_000 }));
    let program = scene.open(&place);
    let name = |number: u64| format!("x{number}");
    let mut client = server.client();
    let waiting: Vec<_> = (0..LOCKS)
        .map(|number| {
            client.grant(name(number), "before", 60_000);
            program.begin(&lock(&name(number)).wait(LONG).ttl(LONG))
        })
        .collect();
    (0..LOCKS).for_each(|number| until_waiting(&server, &name(number), 1));
    eventually("it subscribes", || if channels(&server).is_empty() { Err(()) } else { Ok(()) });
    proxy.slow(LINK);
    sleep(millis(1_500));
    // At all moments of the time between two requests.
    for number in 0..LOCKS {
        assert!(client.release(name(number), "before"));
        sleep(millis(90));
    }
    let leases: Vec<_> = waiting.iter().map(Waiting::lease).collect();
    sleep(4 * LINK);
    for (number, lease) in (0..).zip(&leases) {
        let held = client.info(name(number)).map(|info| info.fence);
        assert_eq!((lease.state().loss, held), (None, Some(lease.fence)), "lock {number}");
    }
}

fn subscription_killed(scene: &Scene<'_>) {
    let server = scene.server_that_tells_beside();
    let (_program, waiting, proxy) =
        begin_to_hear_late(scene, &server, (5_000, 20_000, millis(3_000)));
    let mut client = server.client();
    assert!(client.release("x", "before"));
    let killed = Instant::now();
    client.cmd("CLIENT KILL TYPE pubsub");
    proxy.slow(Duration::ZERO);
    let lease = waiting.lease();
    assert_took(killed.elapsed(), millis(0), millis(3_500));
    assert_eq!(client.info("x").unwrap().fence, lease.fence);
    assert_eq!(lease.release(), "released");
}
