//! Leases that go from one program to another, and that end with a connection.

use super::{Scenario, quick};
use crate::program::lock;
use crate::scene::{
    LONG, SLACK, Scene, cut_all, is_held, millis, plain_server, server, take_away, ttl_of,
    until_free, until_waiting,
};
use std::time::Instant;
use testkit::eventually;

pub(crate) const ALL: &[Scenario] = &[
    quick("owner", "a lock is held as the owner that the program has chosen", owner),
    quick("detach", "detach stops the renewal and leaves the lock to its lease", detach),
    quick(
        "adopt",
        "a program of any language adopts a lock by the text of its lease: it renews and releases it",
        adopt,
    ),
    quick(
        "adopt-escaped",
        "names and owners of any text go through the text of a lease",
        adopt_escaped,
    ),
    quick("adopt-several", "several locks are handed on by one text", adopt_several),
    quick(
        "adopt-what-is-gone",
        "a lock that is held no more is not adopted, and whoever has it by then is left alone",
        adopt_gone,
    ),
    quick("adopted-and-lost", "whoever adopted a lock is told of its loss", adopted_and_lost),
    quick("extend-by", "extend by adds to what is left of the lease", extend_by),
    quick(
        "bound-and-killed",
        "a hold that is bound to its connection is free at once when its program is killed",
        bound_and_killed,
    ),
    quick(
        "bound-and-cut",
        "a hold that is bound goes on with its fence when its connection is lost and the program comes back within the grace",
        bound_and_cut,
    ),
    quick(
        "bound-and-lost",
        "a hold that is bound is lost when its program does not come back within the grace, and that is told",
        bound_and_lost,
    ),
    quick(
        "plain-bound",
        "without the module a bound hold is refused, and not pretended",
        plain_bound,
    ),
];

fn owner(scene: &Scene<'_>) {
    let server = server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    let lease = one.acquire(&lock("x").owned_by("host 7/job:3"));
    assert_eq!(lease.owner, "host 7/job:3");
    assert_eq!(server.client().info("x").unwrap().owner, b"host 7/job:3");
    // Whoever says that it is the same owner holds the same lock.
    let same = other.try_acquire(&lock("x").owned_by("host 7/job:3")).unwrap();
    assert_eq!(same.fence, lease.fence);
    assert!(other.try_acquire(&lock("x")).is_none());
    assert_eq!(lease.release(), "released");
}

fn detach(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let lease = program.acquire(&lock("x").ttl(millis(1_500)));
    let text = lease.detach();
    assert_eq!(text, format!("leasehold:x:{}:{}", escaped(&lease.owner), lease.fence));
    assert!(is_held(&server, "x"));
    let detached = Instant::now();
    until_free(&server, "x");
    assert!(detached.elapsed() < millis(1_500) + SLACK, "it was renewed");
    assert!(detached.elapsed() > millis(500), "it was released");
}

fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escape =
        |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(escape).collect()
}

fn adopt(scene: &Scene<'_>) {
    let server = server();
    for next in scene.programs_of_all(&server) {
        let program = scene.program(&server);
        let first = program.acquire(&lock("x").ttl(millis(2_000)));
        let text = first.detach();
        assert_eq!(program.close(LONG), Vec::<String>::new());
        let adopted = next.adopt(&text).lease();
        assert_eq!((adopted.fence, &adopted.owner), (first.fence, &first.owner));
        eventually("it is renewed by the settings of whoever has it", || {
            match ttl_of(&server, "x") {
                left if left > 2_000 => Ok(()),
                left => Err(left),
            }
        });
        assert_eq!(adopted.release(), "released");
        assert!(!is_held(&server, "x"));
    }
}

fn adopt_escaped(scene: &Scene<'_>) {
    const NAME: &str = "a:b,c %41/\u{1f512}~";
    let server = server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    let lease = one.acquire(&lock(NAME).owned_by("o:w,n%er"));
    let text = lease.detach();
    assert!(!text.contains(['/', ' ', ',']), "{text}");
    let adopted = other.adopt(&text).lease();
    assert_eq!((adopted.fence, adopted.owner.as_str()), (lease.fence, "o:w,n%er"));
    assert_eq!(adopted.release(), "released");
    assert!(!is_held(&server, NAME));
    let (trouble, _) = other.adopt("leasehold:x:%zz:7").error();
    assert_eq!(trouble.kind, "setting");
}

fn adopt_several(scene: &Scene<'_>) {
    let server = server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    let lease = one.acquire(&lock("a").and(&["b"]));
    let adopted = other.adopt(&lease.detach()).lease();
    assert_eq!(adopted.release(), "released");
    assert!(!is_held(&server, "a") && !is_held(&server, "b"));
}

fn adopt_gone(scene: &Scene<'_>) {
    let server = server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    let text = one.acquire(&lock("x")).detach();
    take_away(&server, "x");
    assert_eq!(other.adopt(&text).error().0.kind, "lost");
    let next = one.acquire(&lock("x"));
    assert_eq!(other.adopt(&text).error().0.kind, "lost");
    assert_eq!(next.state().loss, None);
    assert_eq!(next.release(), "released");
}

fn adopted_and_lost(scene: &Scene<'_>) {
    let server = server();
    let (one, other) =
        (scene.program(&server), scene.program_with(&server, serde_json::json!({ "ttl": 1_500 })));
    let adopted = other.adopt(&one.acquire(&lock("x").ttl(millis(1_500))).detach()).lease();
    take_away(&server, "x");
    assert_eq!(adopted.lost().value["loss"], "taken");
    assert_eq!(adopted.release(), "late");
}

fn extend_by(scene: &Scene<'_>) {
    let server = server();
    let lease = scene.program(&server).acquire(&lock("x").ttl(millis(20_000)).not_renewed());
    assert_eq!(lease.extend_by(millis(30_000)), "extended");
    let left = ttl_of(&server, "x");
    assert!((45_000..=50_000).contains(&left), "{left}");
    take_away(&server, "x");
    assert_eq!(lease.extend_by(millis(30_000)), "lost");
}

fn bound_and_killed(scene: &Scene<'_>) {
    let server = server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    let _held = one.acquire(&lock("x").bound(millis(0)));
    let waiting = other.begin(&lock("x").wait(LONG));
    until_waiting(&server, "x", 1);
    let killed = Instant::now();
    one.adapter.kill();
    assert_eq!(waiting.lease().release(), "released");
    assert!(killed.elapsed() < SLACK, "{:?}", killed.elapsed());
}

fn bound_and_cut(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let lease = program.acquire(&lock("x").bound(millis(5_000)).ttl(LONG));
    cut_all(&mut server.client());
    // Within the grace the lease is short; bound anew, it is as long as before.
    eventually("it is bound anew", || match ttl_of(&server, "x") {
        left if left > 10_000 => Ok(()),
        left => Err(left),
    });
    assert_eq!(lease.state().loss, None);
    assert_eq!(server.client().info("x").unwrap().fence, lease.fence);
    assert_eq!(lease.release(), "released");
}

fn bound_and_lost(scene: &Scene<'_>) {
    let server = server();
    let (program, other) = (scene.program(&server), scene.program(&server));
    let lease = program.acquire(&lock("x").bound(millis(0)).ttl(LONG));
    let waiting = other.begin(&lock("x").wait(LONG));
    until_waiting(&server, "x", 1);
    cut_all(&mut server.client());
    assert_eq!(waiting.lease().state().loss, None);
    let loss = lease.lost().value["loss"].clone();
    assert!(loss == "taken" || loss == "expired", "{loss}");
    assert_eq!(lease.state().valid_for, 0);
}

fn plain_bound(scene: &Scene<'_>) {
    let server = plain_server();
    let (trouble, _) = scene.program(&server).fail_to_try(&lock("x").bound(millis(0)));
    assert_eq!(trouble.kind, "needs the module", "{trouble:?}");
    assert!(!is_held(&server, "x"));
}
