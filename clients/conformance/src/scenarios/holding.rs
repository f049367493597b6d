//! A lease while it is held.

use super::{Scenario, quick, slow};
use crate::program::{State, lock, lock_of_bytes};
use crate::scene::{
    LONG, Scene, assert_took, at_port, is_held, millis, server, ttl_of, until_free, with,
};
use serde_json::json;
use std::thread::sleep;
use std::time::Instant;
use testkit::{Proxy, eventually};

pub(crate) const ALL: &[Scenario] = &[
    quick(
        "held",
        "the server holds the lock for the ttl, for the owner and by the fence that the lease has",
        held,
    ),
    quick(
        "info",
        "info tells of the holder, its fence and how many wait, and of a free lock nothing",
        info,
    ),
    quick(
        "counted-from-before",
        "the lease is counted from before the server was asked: a slow link makes it shorter",
        counted_from_before,
    ),
    quick("renewed", "a lease is renewed for longer than its ttl", renewed),
    quick(
        "not-renewed",
        "without renewal it is over at the end of its ttl, and that is told",
        not_renewed,
    ),
    slow(
        "renewed-so-long",
        "with a limit it is renewed until then, and lost after that",
        renewed_so_long,
    ),
    slow(
        "cut-of-half-a-ttl",
        "a link that is cut for half of a ttl costs no lease",
        cut_of_half_a_ttl,
    ),
    slow(
        "dead-connection",
        "a connection that is dead without having said so costs no lease, and no request",
        dead_connection,
    ),
    slow(
        "restart-within-ttl",
        "a server that restarts with its data within the ttl costs no lease",
        restart_within_ttl,
    ),
    quick(
        "extend",
        "extend has the lease end that long from now, and renews it by as much",
        extend,
    ),
    quick("unicode-name", "a name of any text is the same bytes on the server", unicode_name),
    quick("binary-name", "a name may be any bytes, zeroes and line ends among them", binary_name),
    quick("prefix", "the prefix of the settings stands before each name on the server", prefix),
    quick("many-leases", "two hundred leases of one program are all renewed", many_leases),
];

fn held(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let lease = program.acquire(&lock("x").ttl(millis(20_000)));
    let info = server.client().info("x").unwrap();
    assert_eq!((info.owner.as_slice(), info.fence), (lease.owner.as_bytes(), lease.fence));
    let left = ttl_of(&server, "x");
    assert!((15_000..=20_000).contains(&left), "{left}");
    assert!((15_000..=20_000).contains(&lease.valid_for), "{}", lease.valid_for);
    assert_eq!(lease.state().loss, None);
}

fn info(scene: &Scene<'_>) {
    let server = server();
    let (program, other) = (scene.program(&server), scene.program(&server));
    assert!(program.info("x").is_null());
    let lease = program.acquire(&lock("x"));
    let _waiting = other.begin(&lock("x").wait(LONG));
    until_waiting_one(&server);
    let info = other.info("x");
    assert_eq!(info["holder"], lease.owner.as_str());
    assert_eq!(info["fence"], lease.fence.to_string());
    assert_eq!((&info["holders"], &info["waiters"]), (&json!(1), &json!(1)));
}

fn until_waiting_one(server: &testkit::Server) {
    crate::scene::until_waiting(server, "x", 1);
}

fn counted_from_before(scene: &Scene<'_>) {
    let server = server();
    let proxy = Proxy::to(server.port());
    let program = scene.open(&with(at_port(proxy.port()), json!({ "response": 3_000 })));
    program.acquire(&lock("before")).release();
    proxy.slow(millis(400));
    let lease = program.acquire(&lock("x").ttl(millis(10_000)).not_renewed());
    // The question went for 400 ms, and the answer came back for as long.
    assert!(lease.valid_for <= 9_200, "{}", lease.valid_for);
    let left = ttl_of(&server, "x");
    let valid_for = lease.state().valid_for;
    assert!(i64::try_from(valid_for).unwrap() <= left, "{valid_for} ms, and the server has {left}");
}

fn renewed(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let lease = program.acquire(&lock("x").ttl(millis(900)));
    sleep(millis(2_500));
    let State { valid_for, loss } = lease.state();
    assert_eq!(loss, None);
    assert!(valid_for > 0 && is_held(&server, "x"));
    assert!(!lease.is_told_lost());
    assert_eq!(lease.release(), "released");
}

fn not_renewed(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let begun = Instant::now();
    let lease = program.acquire(&lock("x").ttl(millis(800)).not_renewed());
    let lost = lease.lost();
    assert_eq!(lost.value["loss"], "expired");
    assert_took(lost.at.duration_since(begun), millis(400), millis(800));
    assert_eq!(lease.state(), State { valid_for: 0, loss: Some("expired".into()) });
    until_free(&server, "x");
}

fn renewed_so_long(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let begun = Instant::now();
    let lease = program.acquire(&lock("x").ttl(millis(900)).renewed_for(millis(2_000)));
    let lost = lease.lost();
    assert_took(lost.at.duration_since(begun), millis(1_900), millis(2_900));
    until_free(&server, "x");
}

fn cut_of_half_a_ttl(scene: &Scene<'_>) {
    let server = server();
    let proxy = Proxy::to(server.port());
    let program = scene.open(&at_port(proxy.port()));
    let lease = program.acquire(&lock("x").ttl(millis(9_000)));
    proxy.cut();
    sleep(millis(4_500));
    proxy.heal();
    eventually("it is renewed", || match ttl_of(&server, "x") {
        left if left > 7_000 => Ok(()),
        left => Err(left),
    });
    assert_eq!(lease.state().loss, None);
    assert!(!lease.is_told_lost());
    assert_eq!(lease.release(), "released");
}

/// As when a router has forgotten it: the server hears, and is not heard.
fn dead_connection(scene: &Scene<'_>) {
    let server = server();
    let proxy = Proxy::to(server.port());
    let program = scene.open(&at_port(proxy.port()));
    let lease = program.acquire(&lock("x").ttl(millis(6_000)));
    proxy.deafen();
    sleep(millis(9_000));
    assert_eq!(lease.state().loss, None);
    assert_eq!(lease.release(), "released");
    until_free(&server, "x");
    assert_eq!(program.acquire(&lock("y")).release(), "released");
}

fn restart_within_ttl(scene: &Scene<'_>) {
    let mut server = crate::scene::with_module().aof().config("appendfsync", "always").start();
    let program = scene.program(&server);
    let lease = program.acquire(&lock("x").ttl(millis(10_000)));
    server.stop();
    server.start_again();
    eventually("it is renewed", || match ttl_of(&server, "x") {
        left if left > 9_000 => Ok(()),
        left => Err(left),
    });
    assert_eq!(lease.state().loss, None);
    assert_eq!(lease.release(), "released");
}

fn extend(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let lease = program.acquire(&lock("x").ttl(millis(10_000)));
    assert_eq!(lease.extend(millis(40_000)), "extended");
    assert!(ttl_of(&server, "x") > 30_000);
    assert_eq!(lease.extend(millis(1_200)), "extended");
    assert!(ttl_of(&server, "x") <= 1_200);
    assert!(lease.state().valid_for <= 1_200);
    sleep(millis(2_500));
    assert_eq!(lease.state().loss, None);
    let left = ttl_of(&server, "x");
    assert!((1..=1_200).contains(&left), "{left}");
}

fn unicode_name(scene: &Scene<'_>) {
    const NAME: &str = "Stück 漢字 \u{1f512} '\"{}";
    let server = server();
    let program = scene.program(&server);
    let lease = program.acquire(&lock(NAME));
    assert_eq!(server.client().info(NAME).unwrap().fence, lease.fence);
    assert!(scene.program(&server).try_acquire(&lock(NAME)).is_none());
    assert_eq!(lease.release(), "released");
    assert!(!is_held(&server, NAME));
}

fn binary_name(scene: &Scene<'_>) {
    const NAME: &[u8] = b"\x00\xff\r\n$5 \x80";
    let server = server();
    let (program, other) = (scene.program(&server), scene.program(&server));
    let lease = program.acquire(&lock_of_bytes(NAME));
    assert_eq!(server.client().info(NAME).unwrap().fence, lease.fence);
    let waiting = other.begin(&lock_of_bytes(NAME).wait(LONG));
    eventually("it waits", || match server.client().info(NAME).map(|info| info.waiters) {
        Some(1) => Ok(()),
        other => Err(other),
    });
    assert_eq!(lease.release(), "released");
    assert_eq!(waiting.lease().release(), "released");
}

fn prefix(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program_with(&server, json!({ "prefix": "app:lock:" }));
    let lease = program.acquire(&lock("x"));
    assert!(is_held(&server, "app:lock:x") && !is_held(&server, "x"));
    assert!(!program.info("x").is_null());
    assert_eq!(lease.release(), "released");
    assert!(!is_held(&server, "app:lock:x"));
}

fn many_leases(scene: &Scene<'_>) {
    const MANY: usize = 200;
    let server = server();
    let program = scene.program(&server);
    let wanted = |number: usize| lock(&format!("x{number}")).ttl(millis(3_000));
    let asked: Vec<_> = (0..MANY).map(|number| program.begin(&wanted(number))).collect();
    let leases: Vec<_> = asked.iter().map(crate::program::Waiting::lease).collect();
    sleep(millis(4_000));
    for (number, lease) in leases.iter().enumerate() {
        assert_eq!(lease.state().loss, None, "lease {number}");
        assert!(is_held(&server, &format!("x{number}")), "lease {number}");
    }
}
