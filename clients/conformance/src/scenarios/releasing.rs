//! How a lease is given back, and work under a lock.

use super::{Scenario, quick, slow};
use crate::program::lock;
use crate::scene::{
    LONG, Scene, assert_took, at_port, is_held, millis, server, take_away, until_free,
    until_waiting,
};
use serde_json::json;
use std::thread::sleep;
use std::time::Instant;
use testkit::{Proxy, eventually};

pub(crate) const ALL: &[Scenario] = &[
    quick("release", "a release frees the lock at once, and the next one has it", release),
    quick(
        "release-when-lost",
        "the release of a lost lease says that it is late, and is no error",
        release_when_lost,
    ),
    quick(
        "hold-at-least",
        "a release before the least time leaves the lock held until then, and says so",
        hold_at_least,
    ),
    quick(
        "release-has-a-limit",
        "the release at a server that is silent ends with an error, within its limit",
        release_has_a_limit,
    ),
    slow(
        "release-is-tried-again",
        "a release that was cut off is made again within its limit",
        release_is_tried_again,
    ),
    slow(
        "stuck-request",
        "a request that was stuck, and arrives when another one was granted and released, leaves no lock",
        stuck_request,
    ),
    quick(
        "work",
        "work under a lock begins when it is held; its result is returned, and the lock is free",
        work,
    ),
    quick(
        "work-that-fails",
        "work that throws: its error is passed on, and the lock is free",
        work_that_fails,
    ),
    quick(
        "work-and-a-silent-server",
        "the result of the work is returned also if the release fails, and within its limit",
        work_and_a_silent_server,
    ),
    quick(
        "failed-work-and-a-silent-server",
        "the error of the work is passed on also if the release fails",
        failed_work_and_a_silent_server,
    ),
    quick(
        "work-that-loses",
        "work whose lock is lost is told, and what the next holder has stays",
        work_that_loses,
    ),
    quick("no-work-without", "work whose lock was not to be had does not begin", no_work_without),
];

fn release(scene: &Scene<'_>) {
    let server = server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    let lease = one.acquire(&lock("x"));
    let waiting = other.begin(&lock("x").wait(LONG));
    until_waiting(&server, "x", 1);
    assert_eq!(lease.release(), "released");
    assert_eq!(waiting.lease().release(), "released");
    assert!(!is_held(&server, "x"));
    assert!(!lease.is_told_lost() || lease.lost().value["loss"] == "released");
}

fn release_when_lost(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let lease = program.acquire(&lock("x"));
    take_away(&server, "x");
    assert_eq!(lease.release(), "late");
}

fn hold_at_least(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let begun = Instant::now();
    let lease = program.acquire(&lock("x").hold_at_least(millis(1_500)));
    assert_eq!(lease.release(), "later");
    assert!(is_held(&server, "x"));
    until_free(&server, "x");
    assert_took(begun.elapsed(), millis(1_400), millis(1_500));
    // However long it was waited for.
    server.client().grant("x", "before", 1_600);
    let lease = program.acquire(&lock("x").wait(LONG).hold_at_least(millis(1_500)));
    let begun = Instant::now();
    assert_eq!(lease.release(), "later");
    until_free(&server, "x");
    assert_took(begun.elapsed(), millis(1_000), millis(1_500));
}

fn release_has_a_limit(scene: &Scene<'_>) {
    let mut server = server();
    let program = scene.program_with(&server, json!({ "within": 1_000 }));
    let lease = program.acquire(&lock("x"));
    server.freeze();
    let (trouble, took) = lease.begin_release().error();
    assert_eq!(trouble.kind, "unreachable");
    assert_took(took, millis(500), millis(1_000));
    server.thaw();
}

fn release_is_tried_again(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program_with(&server, json!({ "within": 10_000 }));
    let lease = program.acquire(&lock("x"));
    server.cmd("CLIENT KILL TYPE normal");
    assert_eq!(lease.release(), "released");
    assert!(!is_held(&server, "x"));
}

fn stuck_request(scene: &Scene<'_>) {
    let server = server();
    let proxy = Proxy::to(server.port());
    let program = scene.open(&at_port(proxy.port()));
    program.acquire(&lock("before")).release();
    proxy.hold();
    // Over another connection, when that one has been silent for long enough.
    let lease = program.acquire(&lock("x").ttl(10 * LONG));
    assert_eq!(lease.release(), "released");
    assert!(!is_held(&server, "x"));
    proxy.deliver();
    sleep(millis(1_000));
    until_free(&server, "x");
}

fn work(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let mut client = server.client();
    client.grant("x", "before", 60_000);
    let work = program.run(&lock("x").wait(LONG));
    until_waiting(&server, "x", 1);
    assert!(!work.has_begun());
    assert!(client.release("x", "before"));
    let fence = work.begun();
    assert_eq!(client.info("x").unwrap().fence, fence);
    work.ends_with("a result");
    assert_eq!(work.result(), "a result");
    assert!(!is_held(&server, "x"));
}

fn work_that_fails(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let work = program.run(&lock("x"));
    work.begun();
    work.fails_with("the disk is full");
    let (trouble, _) = work.error();
    assert_eq!((trouble.kind.as_str(), trouble.text.as_str()), ("work", "the disk is full"));
    assert!(!is_held(&server, "x"));
}

fn work_and_a_silent_server(scene: &Scene<'_>) {
    let mut server = server();
    let program = scene.program_with(&server, json!({ "within": 1_000 }));
    let work = program.run(&lock("x"));
    work.begun();
    server.freeze();
    let ended = Instant::now();
    work.ends_with("a result");
    assert_eq!(work.result(), "a result");
    assert_took(ended.elapsed(), millis(0), millis(1_000));
    server.thaw();
}

fn failed_work_and_a_silent_server(scene: &Scene<'_>) {
    let mut server = server();
    let program = scene.program_with(&server, json!({ "within": 1_000 }));
    let work = program.run(&lock("x"));
    work.begun();
    server.freeze();
    let ended = Instant::now();
    work.fails_with("the disk is full");
    let (trouble, _) = work.error();
    assert_eq!((trouble.kind.as_str(), trouble.text.as_str()), ("work", "the disk is full"));
    assert_took(ended.elapsed(), millis(0), millis(1_000));
    server.thaw();
}

fn work_that_loses(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let work = program.run(&lock("x").ttl(millis(1_500)));
    work.begun();
    take_away(&server, "x");
    let mut client = server.client();
    let fence = client.grant("x", "somebody", 60_000);
    assert_eq!(work.lost().value["loss"], "taken");
    work.ends_with("done all the same");
    // Work that can be stopped has been stopped.
    match work.0.pending.answer().came {
        Ok(value) => assert_eq!(value["result"], "done all the same"),
        Err(trouble) => assert_eq!(trouble.kind, "lost"),
    }
    sleep(millis(200));
    assert_eq!(client.info("x").unwrap().fence, fence);
}

fn no_work_without(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let mut client = server.client();
    client.grant("x", "before", 60_000);
    let work = program.run(&lock("x").wait(millis(700)));
    let (trouble, _) = work.error();
    assert_eq!(trouble.kind, "busy");
    assert!(!work.has_begun());
    eventually("nobody waits", || match client.info("x").unwrap().waiters {
        0 => Ok(()),
        waiters => Err(waiters),
    });
}
