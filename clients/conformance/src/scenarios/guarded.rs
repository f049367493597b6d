//! Commands that the server runs only for the holder, grants that replicas acknowledge, and what can be asked about locks.

use super::{Scenario, quick};
use crate::program::lock;
use crate::scene::{
    LONG, Scene, at_port, is_held, millis, plain_server, server, take_away, until_free,
    until_waiting, with, with_module,
};
use redis::Value as Reply;
use serde_json::{Value, json};
use testkit::{Proxy, eventually, start_pair};

pub(crate) const ALL: &[Scenario] = &[
    quick(
        "guarded",
        "a guarded command is run while the lock is held, and its reply is returned",
        guarded,
    ),
    quick(
        "guarded-and-lost",
        "a guarded command of a lock that is lost is not run, and the loss is told",
        guarded_and_lost,
    ),
    quick(
        "guarded-and-unanswered",
        "a guarded command that nobody answers may have been run, which is said, and is not sent again",
        guarded_and_unanswered,
    ),
    quick(
        "guarded-and-refused",
        "what the server says of a guarded command is passed on, and the lock stays held",
        guarded_and_refused,
    ),
    quick(
        "plain-guarded",
        "without the module a guarded command is refused, and not run",
        plain_guarded,
    ),
    quick(
        "replicas",
        "a grant that replicas have to acknowledge is known to them when it is returned",
        replicas,
    ),
    quick(
        "too-few-replicas",
        "where too few replicas acknowledge, that is said, and the lock is given back",
        too_few_replicas,
    ),
    quick(
        "downgrade",
        "a writer becomes a reader, keeps its fence, and readers come in",
        downgrade,
    ),
    quick("upgrade", "the only reader becomes a writer, with a larger fence", upgrade),
    quick(
        "upgrade-refused",
        "beside other readers none becomes a writer, and both stay readers",
        upgrade_refused,
    ),
    quick(
        "upgrade-adopted",
        "a reader that was handed on asks like any other before it becomes a writer",
        upgrade_adopted,
    ),
    quick("listed", "who holds a lock and who waits for it is listed in order", listed),
    quick(
        "top-and-log",
        "the locks that most wait for, and what became of locks, are told by the server",
        top_and_log,
    ),
    quick(
        "observed",
        "whoever observes an election is told of each leader, and that there is none",
        observed,
    ),
    quick("steps", "each step of a lock is told to a listener, with the name of the lock", steps),
    quick(
        "steps-of-a-wait",
        "a wait that is refused, and a loss, are told to a listener, too",
        steps_of_a_wait,
    ),
];

fn guarded(scene: &Scene<'_>) {
    let server = server();
    let lease = scene.program(&server).acquire(&lock("{x}"));
    assert_eq!(lease.guard(&["SET", "{x}:data", "17"]).ok()["reply"], "OK");
    assert_eq!(lease.guard(&["INCR", "{x}:data"]).ok()["reply"], 18);
    assert_eq!(lease.guard(&["GET", "{x}:data"]).ok()["reply"], "18");
    assert_eq!(lease.guard(&["GET", "{x}:none"]).ok()["reply"], Value::Null);
    assert_eq!(lease.release(), "released");
}

fn guarded_and_lost(scene: &Scene<'_>) {
    let server = server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    let lease = one.acquire(&lock("x"));
    take_away(&server, "x");
    let next = other.acquire(&lock("x"));
    assert_eq!(lease.guard(&["SET", "data", "late"]).error().0.kind, "lost");
    assert_eq!(lease.lost().value["loss"], "taken");
    assert_eq!(server.cmd("GET data"), Reply::Nil);
    assert_eq!(next.guard(&["SET", "data", "mine"]).ok()["reply"], "OK");
    assert_eq!(next.release(), "released");
}

fn guarded_and_unanswered(scene: &Scene<'_>) {
    let server = server();
    let proxy = Proxy::to(server.port());
    let settings = json!({ "response": 1_000, "within": 4_000 });
    let lease = scene.open(&with(at_port(proxy.port()), settings)).acquire(&lock("x").ttl(LONG));
    assert_eq!(lease.guard(&["INCR", "data"]).ok()["reply"], 1);
    // It reaches the server, and the answer reaches nobody.
    proxy.cut_one_way(testkit::Way::FromServer);
    let pending = lease.guard(&["INCR", "data"]);
    assert_eq!(pending.error().0.kind, "unanswered");
    proxy.heal();
    assert_eq!(lease.guard(&["GET", "data"]).ok()["reply"], "2");
    assert_eq!(lease.release(), "released");
}

fn guarded_and_refused(scene: &Scene<'_>) {
    let server = server();
    server.cmd("SET data text");
    let lease = scene.program(&server).acquire(&lock("x"));
    assert_eq!(lease.guard(&["LPUSH", "data", "1"]).error().0.kind, "wrong type");
    let (trouble, _) = lease.guard(&["NO.SUCH", "data"]).error();
    assert_eq!((trouble.kind.as_str(), trouble.code.as_str()), ("refused", "ERR"), "{trouble:?}");
    assert_eq!(lease.state().loss, None);
    assert_eq!(lease.release(), "released");
}

fn plain_guarded(scene: &Scene<'_>) {
    let server = plain_server();
    let lease = scene.program(&server).acquire(&lock("x"));
    let (trouble, _) = lease.guard(&["SET", "data", "1"]).error();
    assert!(["refused", "needs the module"].contains(&trouble.kind.as_str()), "{trouble:?}");
    assert_eq!(server.cmd("GET data"), Reply::Nil);
    assert_eq!(lease.release(), "released");
}

fn replicas(scene: &Scene<'_>) {
    let (primary, replica) = start_pair(with_module(), with_module());
    let lease = scene.program(&primary).acquire(&lock("x").acknowledged_by(1, millis(5_000)));
    assert!(is_held(&replica, "x"));
    assert_eq!(lease.release(), "released");
}

fn too_few_replicas(scene: &Scene<'_>) {
    let (primary, _replica) = start_pair(with_module(), with_module());
    let program = scene.program(&primary);
    let (trouble, took) = program.fail(&lock("x").acknowledged_by(2, millis(300)));
    assert_eq!(trouble.kind, "too few replicas", "{trouble:?}");
    assert!(took >= millis(300));
    until_free(&primary, "x");
}

fn downgrade(scene: &Scene<'_>) {
    let server = server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    let writer = one.acquire(&lock("x").writing());
    let waiting = other.begin(&lock("x").reading().wait(LONG));
    until_waiting(&server, "x", 1);
    let answer = writer.change("downgrade");
    assert_eq!(
        (&answer["held"], &answer["fence"]),
        (&json!(true), &json!(writer.fence.to_string()))
    );
    let reader = waiting.lease();
    assert_eq!(server.client().info("x").unwrap().holders, 2);
    assert_eq!(reader.release(), "released");
    assert_eq!(writer.release(), "released");
}

fn upgrade(scene: &Scene<'_>) {
    let server = server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    let reader = one.acquire(&lock("x").reading());
    let answer = reader.change("upgrade");
    let fence: u64 = answer["fence"].as_str().unwrap().parse().unwrap();
    assert!(fence > reader.fence);
    assert!(other.try_acquire(&lock("x").reading()).is_none());
    // It is renewed, extended and released by the new fence.
    assert_eq!(reader.extend(LONG), "extended");
    assert_eq!(reader.release(), "released");
    assert!(!is_held(&server, "x"));
}

fn upgrade_refused(scene: &Scene<'_>) {
    let server = server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    let (first, second) = (one.acquire(&lock("x").reading()), other.acquire(&lock("x").reading()));
    assert_eq!(first.change("upgrade")["held"], false);
    assert_eq!(server.client().info("x").unwrap().holders, 2);
    assert_eq!(first.state().loss, None);
    for lease in [first, second] {
        assert_eq!(lease.release(), "released");
    }
}

fn upgrade_adopted(scene: &Scene<'_>) {
    let server = server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    let beside = one.acquire(&lock("x").reading());
    let text = one.acquire(&lock("x").reading()).detach();
    let adopted = other.adopt(&text).lease();
    assert_eq!(adopted.change("upgrade")["held"], false);
    assert_eq!(beside.release(), "released");
    assert_ne!(adopted.change("upgrade")["held"], false);
    assert!(one.try_acquire(&lock("x").reading()).is_none());
}

fn listed(scene: &Scene<'_>) {
    let server = server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    let first = one.acquire(&lock("x").reading());
    let second = one.acquire(&lock("x").reading());
    let held = one.ask("holders", json!({ "name": "x" }));
    let fences: Vec<_> =
        held.as_array().unwrap().iter().map(|each| each["fence"].clone()).collect();
    assert_eq!(fences, [json!(first.fence.to_string()), json!(second.fence.to_string())]);
    let _writer = other.begin(&lock("x").owned_by("writer").wait(LONG));
    until_waiting(&server, "x", 1);
    let _reader = other.begin(&lock("x").owned_by("reader").reading().wait(LONG));
    until_waiting(&server, "x", 2);
    let waiting = one.ask("waiters", json!({ "name": "x" }));
    let owners: Vec<_> =
        waiting.as_array().unwrap().iter().map(|each| each["owner"].clone()).collect();
    assert_eq!(owners, [json!("writer"), json!("reader")]);
}

fn top_and_log(scene: &Scene<'_>) {
    let server = server();
    let (one, other) = (scene.program(&server), scene.program(&server));
    let lease = one.acquire(&lock("busy"));
    let _waiting = other.begin(&lock("busy").wait(LONG));
    until_waiting(&server, "busy", 1);
    let top = one.ask("top", json!({}));
    assert!(top.as_array().unwrap().iter().any(|each| each["name"] == "busy"), "{top}");
    take_away(&server, "busy");
    assert_eq!(lease.release(), "late");
    eventually("the log tells of it", || match one.ask("log", json!({})) {
        log if log.as_array().unwrap().iter().any(|each| each["name"] == "busy") => Ok(()),
        log => Err(log),
    });
}

fn observed(scene: &Scene<'_>) {
    let server = with_module().config("notify-keyspace-events", "KA").start();
    let (one, other) = (scene.program(&server), scene.program(&server));
    other.ask("observe", json!({ "name": "chair", "observer": "me" }));
    let told = |who: Value| {
        other
            .adapter
            .event("leader", |event| event["event"] == "leader" && event["candidate"] == who)
    };
    told(Value::Null);
    let term = one.begin_campaign("chair", "host-1", LONG).lease();
    let event = told(json!("host-1"));
    assert_eq!(event.value["fence"], json!(term.fence.to_string()));
    assert_eq!(term.resign(), "released");
    let next = one.begin_campaign("chair", "host-2", LONG).lease();
    told(json!("host-2"));
    assert_eq!(next.resign(), "released");
}

fn steps(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    program.ask("events", json!({}));
    let lease = program.acquire(&lock("x").ttl(millis(900)));
    let told = |step: &str| {
        program.adapter.event(step, |event| {
            event["event"] == "step" && event["step"] == step && event["name"] == "x"
        })
    };
    for step in ["asked", "granted", "renewed"] {
        told(step);
    }
    assert_eq!(lease.release(), "released");
    told("released");
}

fn steps_of_a_wait(scene: &Scene<'_>) {
    let server = server();
    let (program, other) = (scene.program(&server), scene.program(&server));
    program.ask("events", json!({}));
    let taken = other.acquire(&lock("x"));
    let told = |step: &str, name: &str| {
        program.adapter.event(step, |event| {
            event["event"] == "step" && event["step"] == step && event["name"] == name
        })
    };
    assert_eq!(program.fail(&lock("x").wait(millis(200))).0.kind, "busy");
    told("queued", "x");
    told("refused", "x");
    let also_taken = other.acquire(&lock("z"));
    // The second wait finds open what tells of grants, and is queued before its grant all the same.
    let waits = [("z", also_taken), ("x", taken)].map(|(name, taken)| {
        let waiting = program.begin(&lock(name).wait(LONG));
        told("queued", name);
        (waiting, taken)
    });
    for (waiting, taken) in waits {
        assert_eq!(taken.release(), "released");
        assert_eq!(waiting.lease().release(), "released");
    }
    let _lost = program.acquire(&lock("y").ttl(millis(900)));
    take_away(&server, "y");
    told("lost", "y");
}
