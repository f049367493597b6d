//! Several locks at once.

use super::{Scenario, quick};
use crate::program::lock;
use crate::scene::{
    LONG, Scene, is_held, millis, plain_server, server, take_away, until_free, until_waiting,
};
use std::time::Instant;
use testkit::eventually;

pub(crate) const ALL: &[Scenario] = &[
    quick(
        "several",
        "several locks are taken by one request, with one fence, and released by one",
        several,
    ),
    quick("several-or-none", "where one of several locks is taken, none is held", several_or_none),
    quick(
        "several-waited-for",
        "a wait for several locks holds none of them meanwhile, and has all when the last is free",
        several_waited_for,
    ),
    quick(
        "several-in-any-order",
        "two programs that want the same locks in opposite orders take turns, and neither waits for ever",
        several_in_any_order,
    ),
    quick(
        "several-renewed",
        "each of several locks is renewed for longer than its ttl",
        several_renewed,
    ),
    quick(
        "several-lost",
        "several locks are lost when one of them is, which the program is told, and the others are given back",
        several_lost,
    ),
    quick(
        "plain-several",
        "without the module several locks are taken all or none, too",
        plain_several,
    ),
];

fn several(scene: &Scene<'_>) {
    let server = server();
    let lease = scene.program(&server).acquire(&lock("a").and(&["b", "c"]));
    for name in ["a", "b", "c"] {
        let info = server.client().info(name).unwrap();
        assert_eq!(
            (info.fence, info.owner),
            (lease.fence, lease.owner.clone().into_bytes()),
            "{name}"
        );
    }
    assert_eq!(lease.release(), "released");
    assert!(["a", "b", "c"].iter().all(|name| !is_held(&server, name)));
}

fn several_or_none(scene: &Scene<'_>) {
    let server = server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    let taken = one.acquire(&lock("b"));
    assert!(other.try_acquire(&lock("a").and(&["b", "c"])).is_none());
    assert!(!is_held(&server, "a") && !is_held(&server, "c"));
    assert_eq!(taken.release(), "released");
    assert_eq!(other.try_acquire(&lock("a").and(&["b", "c"])).unwrap().release(), "released");
}

fn several_waited_for(scene: &Scene<'_>) {
    let server = server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    let (first, last) = (one.acquire(&lock("a")), one.acquire(&lock("b")));
    let waiting = other.begin(&lock("a").and(&["b"]).wait(LONG));
    for name in ["a", "b"] {
        until_waiting(&server, name, 1);
    }
    assert_eq!(first.release(), "released");
    // It holds nothing while it waits, and keeps its place.
    assert!(!is_held(&server, "a") && waiting.pending.is_open());
    assert!(one.try_acquire(&lock("a")).is_none());
    assert_eq!(last.release(), "released");
    let lease = waiting.lease();
    assert!(lease.fence > last.fence && is_held(&server, "a") && is_held(&server, "b"));
    assert_eq!(lease.release(), "released");
}

fn several_in_any_order(scene: &Scene<'_>) {
    let server = server();
    let programs = [scene.program(&server), scene.program(&server)];
    let orders = [lock("a").and(&["b"]).wait(LONG), lock("b").and(&["a"]).wait(LONG)];
    for _ in 0..10 {
        let mut asked: Vec<_> =
            programs.iter().zip(&orders).map(|(program, wanted)| program.begin(wanted)).collect();
        while !asked.is_empty() {
            let first = eventually("one of them has both", || {
                asked.iter().position(|waiting| !waiting.pending.is_open()).ok_or(())
            });
            assert_eq!(asked.swap_remove(first).lease().release(), "released");
        }
    }
}

fn several_renewed(scene: &Scene<'_>) {
    let server = server();
    let ttl = millis(1_200);
    let lease = scene.program(&server).acquire(&lock("a").and(&["b"]).ttl(ttl));
    let granted = Instant::now();
    while granted.elapsed() < 3 * ttl {
        assert!(is_held(&server, "a") && is_held(&server, "b"), "{:?}", granted.elapsed());
    }
    assert_eq!(lease.release(), "released");
}

fn several_lost(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let lease = program.acquire(&lock("a").and(&["b"]).ttl(millis(1_500)));
    take_away(&server, "b");
    assert_eq!(lease.lost().value["loss"], "taken");
    assert_eq!(lease.release(), "late");
    until_free(&server, "a");
}

fn plain_several(scene: &Scene<'_>) {
    let server = plain_server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    let lease = one.acquire(&lock("a").and(&["b"]));
    assert!(is_held(&server, "a") && is_held(&server, "b"));
    assert!(other.try_acquire(&lock("c").and(&["b"])).is_none());
    assert!(!is_held(&server, "c"));
    let waiting = other.begin(&lock("c").and(&["b"]).wait(LONG));
    assert_eq!(lease.release(), "released");
    assert!(!is_held(&server, "a"));
    assert_eq!(waiting.lease().release(), "released");
    assert!(!is_held(&server, "b") && !is_held(&server, "c"));
}
