//! A lock on most of several servers that know nothing of each other.

use super::{Scenario, quick, slow};
use crate::program::{Program, lock};
use crate::scene::{LONG, Scene, at_quorum, is_held, millis, plain_server, server, until_free};
use std::time::Instant;
use testkit::{Server, eventually};

pub(crate) const ALL: &[Scenario] = &[
    quick(
        "quorum",
        "a lock of a quorum is held on most of its servers by one owner, and released on each",
        quorum,
    ),
    quick(
        "quorum-at-once",
        "the first requests of a program, all at the same time, get their locks of a quorum",
        quorum_at_once,
    ),
    quick(
        "quorum-excludes",
        "two programs never have a lock of a quorum at a time, and its fences grow",
        quorum_excludes,
    ),
    quick(
        "quorum-waits",
        "a program waits for a lock of a quorum, and gets it after its release",
        quorum_waits,
    ),
    quick(
        "quorum-one-down",
        "while most servers of a quorum are up, locks are granted, extended and released",
        quorum_one_down,
    ),
    quick(
        "quorum-most-down",
        "while most servers of a quorum are down, no lock is granted, and what was held is lost",
        quorum_most_down,
    ),
    quick(
        "quorum-fences-raised",
        "the fence of a quorum is on each server no less than what was returned",
        quorum_fences_raised,
    ),
    quick(
        "quorum-renewed",
        "a lock of a quorum is renewed for longer than its ttl, also when one server forgets it",
        quorum_renewed,
    ),
    quick(
        "quorum-not-ready",
        "while most servers of a quorum are not ready, a renewal and a wait go on until they are",
        quorum_not_ready,
    ),
    quick(
        "quorum-lost",
        "a lock that most servers of a quorum have no more is lost, which is told",
        quorum_lost,
    ),
    quick("quorum-plain", "a quorum of servers without the module works, too", quorum_plain),
    slow(
        "quorum-that-changes",
        "fences of a quorum grow while its servers go down and come back in turn",
        quorum_that_changes,
    ),
];

fn open(scene: &Scene<'_>, servers: &[Server]) -> Program {
    scene.open(&at_quorum(servers.iter().map(Server::port)))
}

fn three() -> [Server; 3] {
    [server(), server(), server()]
}

fn quorum(scene: &Scene<'_>) {
    let servers = three();
    let lease = open(scene, &servers).acquire(&lock("x"));
    // A server that answered too late has nobody.
    let owners: Vec<_> = servers
        .iter()
        .filter_map(|server| server.client().info("x"))
        .map(|info| info.owner)
        .collect();
    assert!(owners.len() >= 2, "most of them have it");
    assert!(owners.iter().all(|owner| owner == lease.owner.as_bytes()), "{owners:?}");
    assert_eq!(lease.release(), "released");
    for server in &servers {
        until_free(server, "x");
    }
}

fn quorum_at_once(scene: &Scene<'_>) {
    let servers = three();
    let program = open(scene, &servers);
    let requests: Vec<_> =
        (0..10).map(|number| program.begin(&lock(&format!("x-{number}")).wait(LONG))).collect();
    for request in requests {
        assert_eq!(request.lease().release(), "released");
    }
}

fn quorum_excludes(scene: &Scene<'_>) {
    let servers = three();
    let (one, other) = (open(scene, &servers), open(scene, &servers));
    let mut before = 0;
    for _ in 0..5 {
        for (mine, theirs) in [(&one, &other), (&other, &one)] {
            let lease = mine.acquire(&lock("x").wait(LONG));
            assert!(lease.fence > before, "{} after {before}", lease.fence);
            assert!(theirs.try_acquire(&lock("x")).is_none());
            before = lease.fence;
            assert_eq!(lease.release(), "released");
        }
    }
}

fn quorum_waits(scene: &Scene<'_>) {
    let servers = three();
    let (one, other) = (open(scene, &servers), open(scene, &servers));
    let first = one.acquire(&lock("x"));
    let (trouble, _) = other.fail(&lock("x").wait(millis(300)));
    assert_eq!(trouble.kind, "busy", "{trouble:?}");
    let waiting = other.begin(&lock("x").wait(LONG));
    assert!(waiting.pending.is_open());
    assert_eq!(first.release(), "released");
    let second = waiting.lease();
    assert!(second.fence > first.fence);
    assert_eq!(second.release(), "released");
}

fn quorum_one_down(scene: &Scene<'_>) {
    let mut servers = three();
    servers[1].kill();
    let program = open(scene, &servers);
    let lease = program.acquire(&lock("x").ttl(millis(10_000)));
    assert_eq!(lease.extend(millis(20_000)), "extended");
    assert_eq!(lease.release(), "released");
    assert!(!is_held(&servers[0], "x") && !is_held(&servers[2], "x"));
}

fn quorum_most_down(scene: &Scene<'_>) {
    let mut servers = three();
    let program = open(scene, &servers);
    let lease = program.acquire(&lock("x").ttl(millis(2_000)));
    servers[0].kill();
    servers[1].kill();
    let (trouble, _) = program.fail(&lock("y").wait(millis(2_000)));
    assert_eq!(trouble.kind, "unreachable", "{trouble:?}");
    assert_eq!(lease.lost().value["loss"], "expired");
    until_free(&servers[2], "y");
}

fn quorum_fences_raised(scene: &Scene<'_>) {
    let servers = three();
    // The first server is ahead of the others.
    let ahead = servers[0].client().grant("x", "somebody", 60_000) + 1_000_000_000;
    servers[0].cmd(["LOCK.RAISE", "x", "somebody", &ahead.to_string()]);
    servers[0].cmd("LOCK.RELEASE x somebody");
    let lease = open(scene, &servers).acquire(&lock("x"));
    assert!(lease.fence > ahead);
    eventually("whoever has it knows a fence that is no less, and most have it", || {
        let infos = servers.iter().filter_map(|server| server.client().info("x"));
        let fences: Vec<_> = infos.map(|info| info.fence).collect();
        let is_raised = fences.iter().all(|fence| *fence >= lease.fence);
        if is_raised && fences.len() >= 2 { Ok(()) } else { Err(fences) }
    });
    assert_eq!(lease.release(), "released");
}

fn quorum_renewed(scene: &Scene<'_>) {
    let servers = three();
    // This server refuses the grant and each renewal. The others are a majority.
    servers[2].client().grant("x", "somebody", 60_000);
    let lease = open(scene, &servers).acquire(&lock("x").ttl(millis(1_500)));
    let until = Instant::now() + millis(4_000);
    while Instant::now() < until {
        assert_eq!(lease.state().loss, None);
    }
    assert_eq!(lease.release(), "released");
}

fn quorum_not_ready(scene: &Scene<'_>) {
    let servers = three();
    let program = open(scene, &servers);
    let lease = program.acquire(&lock("x").ttl(millis(1_500)));
    let need_replicas = |count: &str| {
        for server in &servers[1..] {
            server.cmd(["CONFIG", "SET", "min-replicas-to-write", count]);
        }
    };
    need_replicas("1");
    let waiting = program.begin(&lock("y").wait(LONG));
    // The first renewal has been refused.
    eventually("time passes", || match lease.state().valid_for {
        ..800 => Ok(()),
        left => Err(left),
    });
    need_replicas("0");
    eventually("the lease is renewed", || match lease.state().valid_for {
        1_000.. => Ok(()),
        left => Err(left),
    });
    let waited = waiting.lease();
    // Releases of earlier tries, which were refused meanwhile, do not end this grant.
    let begun = Instant::now();
    while begun.elapsed() < millis(1_500) {
        let count = servers.iter().filter(|server| is_held(server, "y")).count();
        assert!(count >= 2, "{count} servers have it after {:?}", begun.elapsed());
    }
    assert_eq!(waited.release(), "released");
    assert_eq!(lease.release(), "released");
}

fn quorum_lost(scene: &Scene<'_>) {
    let servers = three();
    let lease = open(scene, &servers).acquire(&lock("x").ttl(millis(1_500)));
    // One of them may not have had it: two are enough for a grant.
    for server in &servers {
        server.cmd(["DEL", "x"]);
    }
    lease.lost();
    assert_eq!(lease.release(), "late");
}

fn quorum_plain(scene: &Scene<'_>) {
    let servers = [plain_server(), plain_server(), plain_server()];
    let (one, other) = (open(scene, &servers), open(scene, &servers));
    let lease = one.acquire(&lock("x"));
    assert!(other.try_acquire(&lock("x")).is_none());
    assert_eq!(lease.release(), "released");
    let next = other.acquire(&lock("x").wait(LONG));
    assert!(next.fence > lease.fence);
    assert_eq!(next.release(), "released");
}

fn quorum_that_changes(scene: &Scene<'_>) {
    let mut servers = [(); 3].map(|()| crate::scene::with_module().aof().start());
    let program = open(scene, &servers);
    let mut before = 0;
    for round in 0..6 {
        let down = round % 3;
        servers[down].kill();
        let lease = program.acquire(&lock("x").wait(LONG));
        assert!(lease.fence > before, "{} after {before}", lease.fence);
        before = lease.fence;
        assert_eq!(lease.release(), "released");
        servers[down].start_again();
    }
}
