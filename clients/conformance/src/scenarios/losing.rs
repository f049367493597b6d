//! A lease that is lost.

use super::{Scenario, quick, slow};
use crate::program::{State, lock};
use crate::scene::{
    LONG, Scene, assert_took, at_port, is_held, millis, server, take_away, ttl_of, until_free,
    until_waiting,
};
use redis::Value as Reply;
use std::thread::sleep;
use std::time::Instant;
use testkit::Proxy;

pub(crate) const ALL: &[Scenario] = &[
    quick(
        "deleted",
        "a lock that is deleted is lost, which the program is told by its next renewal",
        deleted,
    ),
    quick(
        "taken-by-another",
        "a lock that somebody else has by now is lost, and is neither extended nor released",
        taken_by_another,
    ),
    quick(
        "silent-server",
        "a lease whose server falls silent is lost when it could have ended, and not later",
        silent_server,
    ),
    quick("dead-server", "a lease whose server dies is lost when it could have ended", dead_server),
    slow(
        "empty-server",
        "a server that comes back without its data has no lease, and that is told",
        empty_server,
    ),
    quick(
        "no-revival",
        "once lost, a lease stays lost, also if its key is still there or comes back",
        no_revival,
    ),
    quick(
        "late-renewal",
        "an answer to a renewal that comes when the lease could have ended does not bring it back",
        late_renewal,
    ),
    quick(
        "stopped-process",
        "a program that was stopped for longer than its lease knows it in the first thing that it asks",
        stopped_process,
    ),
    quick(
        "blocked-program",
        "a program whose event loop or interpreter was blocked past its lease knows it in its next line",
        blocked_program,
    ),
    quick(
        "extend-when-lost",
        "extend says that a lost lease is lost, and leaves the next holder alone",
        extend_when_lost,
    ),
    slow("failover", "a failover that loses the grant loses the lease, and that is told", failover),
    quick(
        "dead-holder",
        "the lock of a program that is killed goes to the next one when its lease ends",
        dead_holder,
    ),
];

fn deleted(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let lease = program.acquire(&lock("x").ttl(millis(3_000)));
    take_away(&server, "x");
    let begun = Instant::now();
    let lost = lease.lost();
    assert_eq!(lost.value["loss"], "taken");
    assert_took(lost.at.duration_since(begun), millis(0), millis(1_000));
    assert_eq!(lease.state(), State { valid_for: 0, loss: Some("taken".into()) });
}

fn taken_by_another(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let lease = program.acquire(&lock("x").ttl(millis(1_500)));
    take_away(&server, "x");
    let mut client = server.client();
    let fence = client.grant("x", "somebody", 60_000);
    assert_eq!(lease.lost().value["loss"], "taken");
    assert_eq!(lease.release(), "late");
    let info = client.info("x").unwrap();
    assert_eq!((info.owner.as_slice(), info.fence), (b"somebody".as_slice(), fence));
    assert!(info.ttl > 50_000, "{}", info.ttl);
}

fn silent_server(scene: &Scene<'_>) {
    let mut server = server();
    let program = scene.program(&server);
    let lease = program.acquire(&lock("x").ttl(millis(2_000)));
    let begun = Instant::now();
    server.freeze();
    let lost = lease.lost();
    assert_eq!(lost.value["loss"], "expired");
    // It may have been renewed right before.
    assert_took(lost.at.duration_since(begun), millis(1_000), millis(2_000));
    server.thaw();
    until_free(&server, "x");
    assert_eq!(lease.state().loss, Some("expired".into()));
}

fn dead_server(scene: &Scene<'_>) {
    let mut server = server();
    let program = scene.program(&server);
    let lease = program.acquire(&lock("x").ttl(millis(2_000)));
    let begun = Instant::now();
    server.kill();
    let lost = lease.lost();
    assert_eq!(lost.value["loss"], "expired");
    assert_took(lost.at.duration_since(begun), millis(1_000), millis(2_000));
}

fn empty_server(scene: &Scene<'_>) {
    let mut server = crate::scene::with_module().config("save", "").start();
    let program = scene.program(&server);
    let lease = program.acquire(&lock("x").ttl(millis(6_000)));
    server.kill();
    server.start_again();
    let begun = Instant::now();
    let lost = lease.lost();
    assert_eq!(lost.value["loss"], "taken");
    assert_took(lost.at.duration_since(begun), millis(0), millis(4_000));
    assert!(!is_held(&server, "x"));
}

fn no_revival(scene: &Scene<'_>) {
    let server = server();
    let proxy = Proxy::to(server.port());
    let program = scene.open(&at_port(proxy.port()));
    let lease = program.acquire(&lock("x").ttl(millis(1_500)));
    proxy.cut();
    // As if the clock of the server stood still: it holds on what the client has given up.
    assert_eq!(server.cmd("PEXPIRE x 60000"), Reply::Int(1));
    lease.lost();
    proxy.heal();
    sleep(millis(3_000));
    assert_eq!(lease.state(), State { valid_for: 0, loss: Some("expired".into()) });
    // What was asked for before the loss may have arrived late, once.
    let left = ttl_of(&server, "x");
    assert!(!(0..=1_500).contains(&left), "it is renewed on: {left}");
}

fn late_renewal(scene: &Scene<'_>) {
    let server = server();
    let proxy = Proxy::to(server.port());
    let program = scene.open(&at_port(proxy.port()));
    let lease = program.acquire(&lock("x").ttl(millis(1_500)));
    // The server renews what the client has given up when it hears of it.
    proxy.slow(millis(1_600));
    lease.lost();
    sleep(millis(3_500));
    assert_eq!(lease.state(), State { valid_for: 0, loss: Some("expired".into()) });
}

fn stopped_process(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let lease = program.acquire(&lock("x").ttl(millis(1_000)));
    program.adapter.signal("STOP");
    until_free(&server, "x");
    let mut client = server.client();
    let fence = client.grant("x", "somebody", 60_000);
    // It is the first thing that it reads when it goes on.
    let state = lease.begin_state();
    program.adapter.signal("CONT");
    let State { valid_for, loss } = state.state();
    assert_eq!(valid_for, 0);
    assert!(loss.is_some());
    lease.lost();
    assert_eq!(client.info("x").unwrap().fence, fence);
    assert_eq!(lease.release(), "late");
    assert!(is_held(&server, "x"));
}

fn blocked_program(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let lease = program.acquire(&lock("x").ttl(millis(1_000)));
    let State { valid_for, loss } = program.block(millis(1_800), &lease);
    assert_eq!(valid_for, 0);
    assert_eq!(loss.as_deref(), Some("expired"));
    lease.lost();
    assert!(!is_held(&server, "x"));
}

fn extend_when_lost(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let lease = program.acquire(&lock("x"));
    take_away(&server, "x");
    let mut client = server.client();
    client.grant("x", "somebody", 60_000);
    assert_eq!(lease.extend(millis(5_000)), "lost");
    assert_eq!(lease.lost().value["loss"], "taken");
    assert!(client.info("x").unwrap().ttl > 50_000);
    assert_eq!(lease.extend(millis(5_000)), "lost");
}

/// By hand, so that the replica surely does not have it.
fn failover(scene: &Scene<'_>) {
    let mut sentinels = testkit::Sentinels::start();
    let program = scene.open(&crate::scene::at_sentinels(&sentinels));
    let lease = program.acquire(&lock("x").ttl(millis(20_000)));
    for replica in [1, 2] {
        testkit::wait_until_in_sync(sentinels.server(0), sentinels.server(replica));
    }
    sentinels.server_mut(0).kill();
    let primary = sentinels.wait_for_another_primary_than(0);
    take_away(sentinels.server(primary), "x");
    assert_eq!(lease.lost().value["loss"], "taken");
    assert_eq!(lease.release(), "late");
}

fn dead_holder(scene: &Scene<'_>) {
    let server = server();
    let (holder, next) = (scene.program(&server), scene.program(&server));
    let lease = holder.acquire(&lock("x").ttl(millis(1_500)));
    let waiting = next.begin(&lock("x").wait(LONG));
    until_waiting(&server, "x", 1);
    holder.adapter.kill();
    let killed = Instant::now();
    let granted = waiting.lease();
    assert!(granted.fence > lease.fence);
    assert_took(killed.elapsed(), millis(300), millis(1_500));
}
