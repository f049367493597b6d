//! Servers without the module.

use super::{Scenario, quick, slow};
use crate::adapter::Unsupported;
use crate::program::lock;
use crate::scene::{
    LONG, Scene, assert_took, is_held, millis, plain_server, take_away, ttl_of, until_free,
    until_waiting, with_module,
};
use redis::Value as Reply;
use std::panic::panic_any;
use std::thread::sleep;
use std::time::Instant;
use testkit::{eventually, field, is_older_than};

pub(crate) const ALL: &[Scenario] = &[
    quick(
        "plain",
        "without the module a lock is held, extended and released on the same key",
        plain,
    ),
    quick(
        "plain-wait",
        "without the module a waiter gets the lock after its release, and busy at its deadline",
        plain_wait,
    ),
    quick(
        "plain-languages",
        "without the module the languages exclude each other, and fences grow from one to the other",
        plain_languages,
    ),
    quick(
        "plain-renewed",
        "without the module a lease is renewed for longer than its ttl",
        plain_renewed,
    ),
    quick(
        "plain-deleted",
        "without the module a lock that is deleted is lost, and the next holder is left alone",
        plain_deleted,
    ),
    quick(
        "plain-info",
        "without the module info tells of the holder, and that it knows of no queue",
        plain_info,
    ),
    quick("plain-shares", "without the module shares are refused, and not pretended", plain_shares),
    quick(
        "without-scripts",
        "a user who may not run scripts locks where the server compares and sets, and is refused elsewhere",
        without_scripts,
    ),
    slow(
        "old-module",
        "at a module without tickets and shares a lock is held and waited for, and shares are refused",
        old_module,
    ),
    slow(
        "module-that-comes",
        "a lock that is held without the module goes on when the server has it",
        module_that_comes,
    ),
    quick(
        "module-that-is-noticed",
        "a client notices with its next request that the module was loaded: it queues, and fences grow",
        module_that_is_noticed,
    ),
    slow(
        "module-that-goes",
        "a lock that is held with the module goes on when the server starts again without it",
        module_that_goes,
    ),
];

fn plain(scene: &Scene<'_>) {
    let server = plain_server();
    let program = scene.program(&server);
    let lease = program.acquire(&lock("x").ttl(millis(20_000)));
    let left = ttl_of(&server, "x");
    assert!((15_000..=20_000).contains(&left), "{left}");
    assert!(program.try_acquire(&lock("x")).is_none());
    assert_eq!(lease.extend(millis(40_000)), "extended");
    assert!(ttl_of(&server, "x") > 30_000);
    assert_eq!(lease.release(), "released");
    assert!(!is_held(&server, "x"));
    assert!(program.acquire(&lock("x")).fence > lease.fence);
}

fn plain_wait(scene: &Scene<'_>) {
    let server = plain_server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    let lease = one.acquire(&lock("x"));
    let (trouble, took) = other.fail(&lock("x").wait(millis(800)));
    assert_eq!(trouble.kind, "busy");
    assert_took(took, millis(790), millis(800));
    let waiting = other.begin(&lock("x").wait(LONG));
    sleep(millis(300));
    assert!(waiting.pending.is_open());
    let released = Instant::now();
    assert_eq!(lease.release(), "released");
    let next = waiting.lease();
    assert_took(released.elapsed(), millis(0), millis(1_000));
    assert!(next.fence > lease.fence);
}

fn plain_languages(scene: &Scene<'_>) {
    let server = plain_server();
    let programs = scene.programs_of_all(&server);
    let mut last = 0;
    for holder in &programs {
        let lease = holder.acquire(&lock("x"));
        assert!(lease.fence > last, "{} after {last}", lease.fence);
        last = lease.fence;
        for other in &programs {
            assert!(other.try_acquire(&lock("x")).is_none());
        }
        assert_eq!(lease.release(), "released");
    }
}

fn plain_renewed(scene: &Scene<'_>) {
    let server = plain_server();
    let program = scene.program(&server);
    let lease = program.acquire(&lock("x").ttl(millis(900)));
    sleep(millis(2_500));
    assert_eq!(lease.state().loss, None);
    assert!(is_held(&server, "x"));
    assert_eq!(lease.release(), "released");
}

fn plain_deleted(scene: &Scene<'_>) {
    let server = plain_server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    let lease = one.acquire(&lock("x").ttl(millis(3_000)));
    take_away(&server, "x");
    let next = other.acquire(&lock("x"));
    assert_eq!(lease.lost().value["loss"], "taken");
    assert_eq!(lease.release(), "late");
    assert_eq!(next.extend(LONG), "extended");
    assert_eq!(next.release(), "released");
}

fn plain_info(scene: &Scene<'_>) {
    let server = plain_server();
    let program = scene.program(&server);
    assert!(program.info("x").is_null());
    let lease = program.acquire(&lock("x"));
    let info = program.info("x");
    assert_eq!(info["holder"], lease.owner.as_str());
    assert_eq!(info["fence"], lease.fence.to_string());
    assert!(info["waiters"].is_null());
}

fn plain_shares(scene: &Scene<'_>) {
    let server = plain_server();
    let program = scene.program(&server);
    for wanted in [lock("x").reading(), lock("x").one_of(3)] {
        let (trouble, _) = program.fail_to_try(&wanted);
        assert!(
            ["refused", "needs the module", "setting"].contains(&trouble.kind.as_str()),
            "{trouble:?}"
        );
        assert!(!is_held(&server, "x"));
    }
}

fn without_scripts(scene: &Scene<'_>) {
    let server = plain_server();
    server.cmd("ACL SETUSER worker on >secret ~* &* +@all -@scripting");
    let place = crate::scene::as_user(&server, "worker", "secret");
    let (one, other) = (scene.open(&place), scene.open(&place));
    let knows_ifeq = matches!(server.client().try_cmd("SET none x IFEQ y"), Ok(Reply::Nil));
    if !knows_ifeq {
        assert_eq!(one.fail_to_try(&lock("x")).0.kind, "not permitted");
        return;
    }
    let lease = one.acquire(&lock("x").ttl(millis(1_500)));
    assert!(other.try_acquire(&lock("x")).is_none());
    let granted = Instant::now();
    while granted.elapsed() < millis(3_000) {
        assert!(is_held(&server, "x"), "it is not renewed");
    }
    assert_eq!(lease.release(), "released");
    assert!(!is_held(&server, "x"));
    // Fences grow from those without scripts to those with them, and back.
    let with_scripts = scene.program(&server).acquire(&lock("x"));
    assert!(with_scripts.fence > lease.fence);
    assert_eq!(with_scripts.release(), "released");
    let last = other.acquire(&lock("x").wait(LONG));
    assert!(last.fence > with_scripts.fence);
    take_away(&server, "x");
    assert_eq!(last.extend(millis(5_000)), "lost");
}

/// One that was built from an older commit, before there were tickets.
fn old_module(scene: &Scene<'_>) {
    let Some(module) = std::env::var_os("LEASEHOLD_OLD_MODULE") else {
        panic_any(Unsupported("LEASEHOLD_OLD_MODULE names no older module".into()));
    };
    let server = plain_server();
    server.cmd(["MODULE", "LOAD", module.to_str().unwrap()]);
    let (one, other) = (scene.program(&server), scene.program(&server));
    let lease = one.acquire(&lock("x").ttl(millis(3_000)));
    let waiting = other.begin(&lock("x").wait(LONG));
    // Its LOCK.INFO says less than later ones.
    eventually("the other waits", || {
        let info = server.cmd("LOCK.INFO x");
        match field(&info, "waiters") {
            Some(Reply::Int(1)) => Ok(()),
            _ => Err(info),
        }
    });
    sleep(millis(4_000));
    assert_eq!(lease.state().loss, None);
    assert_eq!(lease.release(), "released");
    let next = waiting.lease();
    assert!(next.fence > lease.fence);
    assert_eq!(next.release(), "released");
    let (trouble, _) = one.fail_to_try(&lock("x").reading());
    assert!(["refused", "needs the module"].contains(&trouble.kind.as_str()), "{trouble:?}");
    assert!(!is_held(&server, "x"));
}

fn module_that_comes(scene: &Scene<'_>) {
    let server = plain_server();
    let program = scene.program(&server);
    let lease = program.acquire(&lock("x").ttl(millis(3_000)));
    server.load(&[]);
    sleep(millis(4_000));
    assert_eq!(lease.state().loss, None);
    assert_eq!(lease.release(), "released");
    let fence = lease.fence;
    let next = program.acquire(&lock("x"));
    assert!(next.fence > fence);
    // Whoever connects anew notices that the server has it by now.
    server.cmd("CLIENT KILL TYPE normal SKIPME yes");
    let waiting = eventually("it waits in the queue", || {
        let waiting = program.begin(&lock("x").wait(millis(1_500)));
        sleep(millis(500));
        let count = server.client().info("x").map_or(0, |info| info.waiters);
        if count == 1 { Ok(waiting) } else { Err(waiting.pending.answer().came.is_ok()) }
    });
    assert_eq!(next.release(), "released");
    waiting.pending.answer();
}

/// A grant that a script made after that would have a fence ahead of those of the module.
fn module_that_is_noticed(scene: &Scene<'_>) {
    if is_older_than((7, 0)) {
        panic_any(Unsupported("scripts cannot find out on this server".into()));
    }
    let server = plain_server();
    let (early, other) = (scene.program(&server), scene.program(&server));
    early.acquire(&lock("x")).release();
    other.acquire(&lock("y")).release();
    server.load(&[]);
    let first = early.acquire(&lock("x"));
    let waiting = other.begin(&lock("x").wait(LONG));
    until_waiting(&server, "x", 1);
    assert_eq!(first.release(), "released");
    let second = waiting.lease();
    assert!(second.fence > first.fence, "{} after {}", second.fence, first.fence);
    assert_eq!(second.release(), "released");
    let third = scene.program(&server).acquire(&lock("x"));
    assert!(third.fence > second.fence, "{} after {}", third.fence, second.fence);
}

fn module_that_goes(scene: &Scene<'_>) {
    let mut server = with_module().aof().start();
    let program = scene.program(&server);
    let lease = program.acquire(&lock("x").ttl(millis(3_000)));
    server.stop();
    server.start_again_without_module();
    sleep(millis(4_000));
    assert_eq!(lease.state().loss, None);
    assert_eq!(lease.release(), "released");
    let next = program.acquire(&lock("x"));
    assert!(next.fence > lease.fence);
    assert_eq!(next.release(), "released");
    until_free(&server, "x");
}
