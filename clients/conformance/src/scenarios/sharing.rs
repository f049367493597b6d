//! Locks that several hold, and elections.

use super::{Scenario, quick};
use crate::program::lock;
use crate::scene::{LONG, Scene, assert_took, millis, server, until_waiting};
use std::time::Instant;
use testkit::eventually;

pub(crate) const ALL: &[Scenario] = &[
    quick(
        "readers",
        "readers hold a lock together, and a writer waits for the last of them",
        readers,
    ),
    quick(
        "writer-first",
        "a reader that comes behind a waiting writer does not overtake it",
        writer_first,
    ),
    quick(
        "semaphore",
        "so many as there are permits hold a semaphore, and the next one waits for the first release",
        semaphore,
    ),
    quick("reader-lost", "the loss of one reader is told to that one alone", reader_lost),
    quick("campaign", "one candidate leads; the next one leads when it resigns", campaign),
    quick(
        "leader",
        "everybody is told who leads, by the name it campaigned with, and between terms that nobody does",
        leader,
    ),
    quick(
        "dead-leader",
        "the next candidate leads when the term of a leader that is killed ends",
        dead_leader,
    ),
];

fn readers(scene: &Scene<'_>) {
    let server = server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    let first = one.acquire(&lock("x").reading());
    let second = other.try_acquire(&lock("x").reading()).unwrap();
    let third = one.try_acquire(&lock("x").reading()).unwrap();
    assert_eq!(server.client().info("x").unwrap().holders, 3);
    assert!(one.try_acquire(&lock("x").writing()).is_none());
    let writer = other.begin(&lock("x").writing().wait(LONG));
    until_waiting(&server, "x", 1);
    for reader in [first, second] {
        assert_eq!(reader.release(), "released");
        assert!(writer.pending.is_open());
    }
    assert_eq!(third.release(), "released");
    let writer = writer.lease();
    assert!(writer.fence > third.fence);
    assert!(one.try_acquire(&lock("x").reading()).is_none());
    assert_eq!(writer.release(), "released");
}

fn writer_first(scene: &Scene<'_>) {
    let server = server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    let reader = one.acquire(&lock("x").reading());
    let writer = other.begin(&lock("x").writing().wait(LONG));
    until_waiting(&server, "x", 1);
    assert!(one.try_acquire(&lock("x").reading()).is_none());
    let late = one.begin(&lock("x").reading().wait(LONG));
    until_waiting(&server, "x", 2);
    assert_eq!(reader.release(), "released");
    let writer = writer.lease();
    assert!(late.pending.is_open());
    assert_eq!(writer.release(), "released");
    assert_eq!(late.lease().release(), "released");
}

fn semaphore(scene: &Scene<'_>) {
    let server = server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    let wanted = lock("x").one_of(3);
    let leases: Vec<_> =
        [&one, &other, &one].iter().map(|program| program.acquire(&wanted)).collect();
    assert!(other.try_acquire(&wanted).is_none());
    let waiting = other.begin(&wanted.clone().wait(LONG));
    until_waiting(&server, "x", 1);
    assert_eq!(leases[1].release(), "released");
    let next = waiting.lease();
    assert!(leases.iter().all(|lease| lease.fence < next.fence));
    assert_eq!(server.client().info("x").unwrap().holders, 3);
    for lease in [&leases[0], &leases[2], &next] {
        assert_eq!(lease.release(), "released");
    }
}

fn reader_lost(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let wanted = lock("x").reading().ttl(millis(1_500));
    let (first, second) = (program.acquire(&wanted), program.acquire(&wanted));
    assert!(server.client().release("x", &first.owner));
    assert_eq!(first.lost().value["loss"], "taken");
    assert_eq!(second.state().loss, None);
    assert!(!second.is_told_lost());
    assert_eq!(second.release(), "released");
}

fn campaign(scene: &Scene<'_>) {
    let server = server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    let first = one.begin_campaign("chair", "host-1", LONG).lease();
    let waiting = other.begin_campaign("chair", "host-2", LONG);
    until_waiting(&server, "chair", 1);
    assert!(waiting.pending.is_open());
    assert_eq!(first.resign(), "released");
    let second = waiting.lease();
    assert!(second.fence > first.fence);
    assert_eq!(second.resign(), "released");
}

fn leader(scene: &Scene<'_>) {
    let server = server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    assert_eq!(other.leader("chair"), None);
    let term = one.begin_campaign("chair", "host-1/blue", LONG).lease();
    assert_eq!(other.leader("chair"), Some(("host-1/blue".into(), term.fence)));
    assert_eq!(term.resign(), "released");
    eventually("nobody leads", || match other.leader("chair") {
        None => Ok(()),
        leader => Err(leader),
    });
}

fn dead_leader(scene: &Scene<'_>) {
    let server = server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    let first = one.begin_campaign("chair", "host-1", millis(1_500)).lease();
    let waiting = other.begin_campaign("chair", "host-2", LONG);
    until_waiting(&server, "chair", 1);
    one.adapter.kill();
    let killed = Instant::now();
    let second = waiting.lease();
    assert!(second.fence > first.fence);
    assert_took(killed.elapsed(), millis(300), millis(1_500));
}
