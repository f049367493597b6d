//! What a server refuses, and what has no sense.

use super::{Scenario, quick};
use crate::adapter::Trouble;
use crate::program::{Wanted, lock};
use crate::scene::{
    LONG, Scene, as_user, assert_took, at, is_held, millis, server, with, with_module,
};
use redis::Value as Reply;
use serde_json::{Value, json};
use testkit::Server;

pub(crate) const ALL: &[Scenario] = &[
    quick("wrong-password", "a wrong password is an error of its own, at once", wrong_password),
    quick("no-password", "a password that is missing is an error of its own, at once", no_password),
    quick(
        "no-permission",
        "a command that the user may not run is an error of its own, at once",
        no_permission,
    ),
    quick(
        "no-permission-for-the-key",
        "a lock whose key the user may not touch is an error of its own, at once",
        no_permission_for_the_key,
    ),
    quick(
        "wrong-type",
        "a key that holds something else is an error of its own, and is left alone",
        wrong_type,
    ),
    quick(
        "out-of-memory",
        "a server above its maxmemory is an error of its own, and holds nothing",
        out_of_memory,
    ),
    quick(
        "queue-full",
        "a queue that is full is waited for until the deadline, and then an error of its own",
        queue_full,
    ),
    quick(
        "queue-full-for-a-while",
        "whoever found the queue full is granted the lock when there is room again",
        queue_full_for_a_while,
    ),
    quick(
        "settings",
        "a ttl or a wait without a sense is refused before the server is asked",
        settings,
    ),
    quick(
        "quorum-of-replicas",
        "a server that lacks its replicas refuses, and that is told",
        lacks_replicas,
    ),
];

/// Whether it is this error; the Rust crate has one for all that a server refuses.
#[track_caller]
fn assert_is(trouble: &Trouble, kind: &str, code: &str) {
    assert_eq!(trouble.code, code, "{trouble:?}");
    assert!(trouble.kind == kind || trouble.kind == "refused", "{trouble:?}");
}

#[track_caller]
fn assert_refused_at_once(scene: &Scene<'_>, place: &Value, kind: &str, codes: &[&str]) {
    let program = scene.open(place);
    for wait in [None, Some(LONG)] {
        let wanted = lock("x");
        let (trouble, took) = match wait {
            None => program.fail_to_try(&wanted),
            Some(wait) => program.fail(&wanted.wait(wait)),
        };
        assert!(codes.contains(&trouble.code.as_str()), "{trouble:?}");
        assert_is(&trouble, kind, &trouble.code);
        assert_took(took, millis(0), millis(1_000));
    }
}

fn wrong_password(scene: &Scene<'_>) {
    let server = server();
    server.cmd("ACL SETUSER worker on >secret ~* &* +@all");
    let place = as_user(&server, "worker", "wrong");
    assert_refused_at_once(scene, &place, "wrong password", &["WRONGPASS"]);
    assert!(!is_held(&server, "x"));
}

fn no_password(scene: &Scene<'_>) {
    let server = with_module().password("secret").start();
    assert_refused_at_once(scene, &at(&server), "wrong password", &["NOAUTH"]);
    assert!(!is_held(&server, "x"));
}

fn no_permission(scene: &Scene<'_>) {
    let server = server();
    server.cmd("ACL SETUSER worker on >secret ~* &* +@all -lock.acquire -eval -evalsha");
    let place = as_user(&server, "worker", "secret");
    assert_refused_at_once(scene, &place, "not permitted", &["NOPERM"]);
    assert!(!is_held(&server, "x"));
}

fn no_permission_for_the_key(scene: &Scene<'_>) {
    let server = server();
    server.cmd("ACL SETUSER worker on >secret ~other:* &* +@all");
    let place = as_user(&server, "worker", "secret");
    assert_refused_at_once(scene, &place, "not permitted", &["NOPERM"]);
    assert!(!is_held(&server, "x"));
    let program = scene.open(&place);
    assert_eq!(program.acquire(&lock("other:x")).release(), "released");
}

fn wrong_type(scene: &Scene<'_>) {
    let server = server();
    server.cmd("RPUSH x a b");
    assert_refused_at_once(scene, &at(&server), "wrong type", &["WRONGTYPE"]);
    assert_eq!(server.cmd("LLEN x"), Reply::Int(2));
}

fn out_of_memory(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    program.acquire(&lock("before")).release();
    server.cmd("CONFIG SET maxmemory-policy noeviction");
    server.cmd("CONFIG SET maxmemory 1");
    let (trouble, took) = program.fail_to_try(&lock("x"));
    assert_is(&trouble, "out of memory", "OOM");
    assert_took(took, millis(0), millis(1_000));
    server.cmd("CONFIG SET maxmemory 0");
    assert!(!is_held(&server, "x"));
    assert_eq!(program.acquire(&lock("x")).release(), "released");
}

fn one_may_wait() -> Server {
    with_module().module_args("max-waiters 1").start()
}

fn full(server: &Server) -> testkit::Waiter {
    server.client().grant("y", "before", 60_000);
    testkit::Waiter::of(server, "y", "first")
}

fn queue_full(scene: &Scene<'_>) {
    let server = one_may_wait();
    let program = scene.program(&server);
    let _first = full(&server);
    let (trouble, took) = program.fail(&lock("y").wait(millis(1_000)));
    assert!(trouble.code == "QUEUEFULL" || trouble.kind == "busy", "{trouble:?}");
    assert_took(took, millis(900), millis(1_000));
}

fn queue_full_for_a_while(scene: &Scene<'_>) {
    let server = one_may_wait();
    let program = scene.program(&server);
    let mut first = full(&server);
    let waiting = program.begin(&lock("y").wait(LONG));
    std::thread::sleep(millis(500));
    assert!(waiting.pending.is_open());
    let mut client = server.client();
    assert!(client.release("y", "before"));
    first.fence();
    assert!(client.release("y", "first"));
    assert_eq!(waiting.lease().release(), "released");
}

fn settings(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    program.acquire(&lock("before")).release();
    let before = server.client().executed();
    let wrong: [fn(Wanted) -> Wanted; 3] = [
        |lock| lock.ttl_as_given(json!(0)),
        |lock| lock.ttl_as_given(json!(-5)),
        |lock| lock.wait_as_given(json!(-5)),
    ];
    let mut refused = 0;
    for make in wrong {
        let (trouble, _) = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            program.fail(&make(lock("x")))
        })) {
            Ok(came) => came,
            // In Rust a duration is never less than nothing.
            Err(why) if why.is::<crate::adapter::Unsupported>() => continue,
            Err(why) => std::panic::resume_unwind(why),
        };
        assert_eq!(trouble.kind, "setting", "{trouble:?}");
        refused += 1;
    }
    assert!(refused > 0);
    let asked =
        |executed: &std::collections::BTreeMap<String, u64>| executed.get("lock.acquire").copied();
    assert_eq!(asked(&server.client().executed()), asked(&before));
}

fn lacks_replicas(scene: &Scene<'_>) {
    let server = server();
    server.cmd("CONFIG SET min-replicas-to-write 1");
    let program = scene.open(&with(at(&server), json!({ "within": 1_000 })));
    let (trouble, took) = program.fail_to_try(&lock("x"));
    assert!(trouble.code == "NOREPLICAS" || trouble.kind == "unreachable", "{trouble:?}");
    assert_took(took, millis(0), millis(1_000));
    assert!(!is_held(&server, "x"));
    server.cmd("CONFIG SET min-replicas-to-write 0");
    assert_eq!(program.acquire(&lock("x")).release(), "released");
}
