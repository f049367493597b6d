//! Waits that are given up.

use super::{Scenario, quick, slow};
use crate::program::{Program, Waiting, Wanted, lock};
use crate::scene::{LONG, Scene, at_port, is_held, millis, server, until_free, until_waiting};
use std::thread::sleep;
use testkit::Proxy;

pub(crate) const ALL: &[Scenario] = &[
    quick(
        "cancel-while-waiting",
        "a wait that is cancelled ends at once, and leaves no waiter and no lock",
        cancel_while_waiting,
    ),
    quick(
        "cancel-and-the-next",
        "those behind a wait that was cancelled get the lock in their order",
        cancel_and_the_next,
    ),
    slow(
        "cancel-at-the-grant",
        "a wait that is cancelled while the lock is granted leaves no lock, or has it",
        cancel_at_the_grant,
    ),
    quick(
        "cancel-before-the-answer",
        "a request that is cancelled before the server answers leaves no lock",
        cancel_before_the_answer,
    ),
    quick(
        "cancel-and-ask-again",
        "after a cancelled wait the same program can wait again, and gets the lock",
        cancel_and_ask_again,
    ),
];

/// A wait that `cancel` can end: in some languages only one at a time.
fn begin(program: &Program, wanted: &Wanted) -> Waiting {
    program.begin(&wanted.clone().cancellable())
}

fn cancel_while_waiting(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let mut client = server.client();
    client.grant("x", "before", 60_000);
    let waiting = begin(&program, &lock("x").wait(LONG));
    until_waiting(&server, "x", 1);
    program.cancel(&waiting);
    assert_eq!(waiting.error().0.kind, "cancelled");
    until_waiting(&server, "x", 0);
    assert!(client.release("x", "before"));
    assert!(!is_held(&server, "x"));
}

fn cancel_and_the_next(scene: &Scene<'_>) {
    let server = server();
    let (first, second) = (scene.program(&server), scene.program(&server));
    let mut client = server.client();
    client.grant("x", "before", 60_000);
    let one = begin(&first, &lock("x").wait(LONG));
    until_waiting(&server, "x", 1);
    let other = second.begin(&lock("x").wait(LONG));
    until_waiting(&server, "x", 2);
    first.cancel(&one);
    until_waiting(&server, "x", 1);
    assert!(client.release("x", "before"));
    assert_eq!(other.lease().release(), "released");
    assert_eq!(one.error().0.kind, "cancelled");
}

fn cancel_at_the_grant(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let mut client = server.client();
    for round in 0..20 {
        client.grant("x", "before", 60_000);
        let waiting = begin(&program, &lock("x").wait(LONG));
        until_waiting(&server, "x", 1);
        assert!(client.release("x", "before"));
        sleep(millis(round % 4));
        program.cancel(&waiting);
        match waiting.pending.answer().came {
            Ok(_) => {
                waiting.lease().release();
            }
            Err(trouble) => assert_eq!(trouble.kind, "cancelled"),
        }
        until_free(&server, "x");
        until_waiting(&server, "x", 0);
    }
}

fn cancel_before_the_answer(scene: &Scene<'_>) {
    let server = server();
    let proxy = Proxy::to(server.port());
    let program = scene.open(&at_port(proxy.port()));
    program.acquire(&lock("before")).release();
    proxy.slow(millis(300));
    let waiting = begin(&program, &lock("x").wait(LONG));
    sleep(millis(150));
    program.cancel(&waiting);
    assert_eq!(waiting.error().0.kind, "cancelled");
    sleep(millis(1_000));
    until_free(&server, "x");
    until_waiting(&server, "x", 0);
}

fn cancel_and_ask_again(scene: &Scene<'_>) {
    let server = server();
    let program = scene.program(&server);
    let mut client = server.client();
    client.grant("x", "before", 60_000);
    let waiting = begin(&program, &lock("x").wait(LONG));
    until_waiting(&server, "x", 1);
    program.cancel(&waiting);
    assert_eq!(waiting.error().0.kind, "cancelled");
    let again = begin(&program, &lock("x").wait(LONG));
    until_waiting(&server, "x", 1);
    assert!(client.release("x", "before"));
    assert_eq!(again.lease().release(), "released");
}
