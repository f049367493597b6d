//! The end of a program.

use super::{Scenario, quick};
use crate::program::lock;
use crate::scene::{LONG, Scene, assert_took, is_held, millis, server, until_waiting};
use serde_json::json;
use std::time::Duration;
use testkit::eventually;

pub(crate) const ALL: &[Scenario] = &[
    quick(
        "close",
        "close gives back what is held, ends the waits, and leaves no connection",
        close,
    ),
    quick(
        "closed",
        "a client that was closed refuses every request with an error of its own",
        closed,
    ),
    quick(
        "closed-lease",
        "a lease of a client that was closed is lost, and its release is no surprise",
        closed_lease,
    ),
    quick(
        "close-and-a-silent-server",
        "close ends within its limit also if the server is silent, and names the locks that stay",
        close_and_a_silent_server,
    ),
    quick(
        "close-names-all",
        "close names what is being released, and what may have been granted to a request that nobody answered",
        close_names_all,
    ),
    quick("close-unused", "a client that was never used is closed at once", close_unused),
];

const LIMIT: Duration = millis(5_000);

fn close(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let mut client = server.client();
    client.grant("y", "before", 60_000);
    let lease = program.acquire(&lock("x"));
    let kept = program.acquire(&lock("kept"));
    kept.detach();
    let waiting = program.begin(&lock("y").wait(LONG));
    until_waiting(&server, "y", 1);
    assert_eq!(program.close(LIMIT), Vec::<String>::new());
    assert_eq!(waiting.error().0.kind, "closed");
    assert!(!is_held(&server, "x"));
    assert!(is_held(&server, "kept"));
    until_waiting(&server, "y", 0);
    assert_eq!(lease.state().valid_for, 0);
    eventually("only this one is connected", || {
        match client.info_number("clients", "connected_clients") {
            1 => Ok(()),
            more => Err((more, client.cmd("CLIENT LIST"))),
        }
    });
}

fn closed(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    program.acquire(&lock("x")).release();
    assert_eq!(program.close(LIMIT), Vec::<String>::new());
    assert_eq!(program.fail(&lock("x")).0.kind, "closed");
    assert_eq!(program.fail_to_try(&lock("x")).0.kind, "closed");
    assert!(!is_held(&server, "x"));
    assert_eq!(program.close(LIMIT), Vec::<String>::new());
}

fn closed_lease(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let lease = program.acquire(&lock("x"));
    assert_eq!(program.close(LIMIT), Vec::<String>::new());
    assert_eq!(lease.lost().value["loss"], "closed");
    // Some say what came of the release of `close`, and some that the client was closed.
    match lease.begin_release().answer().came {
        Ok(answer) => assert!(answer["outcome"] == "released" || answer["outcome"] == "late"),
        Err(trouble) => assert_eq!(trouble.kind, "closed"),
    }
}

fn close_and_a_silent_server(scene: &Scene<'_>) {
    let mut server = server();
    let program = scene.program_with(&server, json!({ "within": 10_000 }));
    program.acquire(&lock("x"));
    server.freeze();
    let closing = program.begin_to_close(millis(1_000));
    let answer = closing.answer();
    let left = answer.came.unwrap();
    assert_eq!(left["left"], json!(["x"]));
    assert_took(answer.at.duration_since(closing.asked), millis(900), millis(1_000));
    server.thaw();
}

fn close_names_all(scene: &Scene<'_>) {
    let mut server = server();
    let program = scene.program_with(&server, json!({ "within": 500 }));
    let lease = program.acquire(&lock("x"));
    server.freeze();
    let releasing = lease.begin_release();
    assert_eq!(program.fail_to_try(&lock("y")).0.kind, "unreachable");
    let mut left = program.close(millis(500));
    left.sort();
    assert_eq!(left, ["x", "y"]);
    server.thaw();
    drop(releasing);
}

fn close_unused(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let closing = program.begin_to_close(LIMIT);
    let answer = closing.answer();
    assert_eq!(answer.came.unwrap()["left"], json!([]));
    assert_took(answer.at.duration_since(closing.asked), millis(0), millis(500));
}
