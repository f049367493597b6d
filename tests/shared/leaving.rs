//! The head of the queue leaves without the lock: those behind it are admitted, if it was only the head that was in the way.

use super::{LONG, Scene, holders, share, waits};
use crate::waiting::can_be_unblocked;
use redis::Value;
use std::time::Duration;
use testkit::{Stopwatch, Waiter, error, int};

/// Sooner than the look at all contended locks each second.
const SOON: Duration = Duration::from_millis(200);

/// Two read, and a writer waits before two more readers. `leaves` has it leave; it is waited for only here.
#[track_caller]
fn lets_those_behind_it_in(leaves: impl FnOnce(&Scene, Waiter)) {
    let scene = Scene::start();
    let mut client = scene.client();
    for reader in ["r1", "r2"] {
        share(&mut client, reader, LONG, 0).unwrap();
    }
    let writer = Waiter::of(&scene.primary, "k", "w");
    let mut behind = ["r3", "r4"].map(|reader| waits(&scene.primary, reader, 0));
    leaves(&scene, writer);
    let left = Stopwatch::start();
    let [third, fourth] = behind.each_mut().map(Waiter::fence);
    assert!(left.elapsed() < SOON, "after {:?}", left.elapsed());
    assert!(third < fourth);
    assert_eq!(holders(&mut client), ["r1", "r2", "r3", "r4"]);
    assert_eq!(client.info("k").unwrap().waiters, 0);
    scene.agree();
}

#[test]
fn those_behind_a_head_that_leaves_in_any_way_are_admitted_at_once() {
    // This request takes the place of the former one, and is less patient.
    lets_those_behind_it_in(|scene, _former| {
        assert_eq!(scene.client().cmd("LOCK.ACQUIRE k w 60000 BLOCK 30"), Value::Nil);
    });
    lets_those_behind_it_in(|_, writer| drop(writer));
    lets_those_behind_it_in(|scene, mut writer| {
        assert_eq!(scene.client().cmd(format!("CLIENT KILL ID {}", writer.id)), int(1));
        writer.client.assert_closed();
    });
    if !can_be_unblocked() {
        testkit::announce("skipped: CLIENT UNBLOCK of a client of a module");
        return;
    }
    let unblocked = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
    for (how, told) in [("TIMEOUT", Value::Nil), ("ERROR", error(unblocked))] {
        lets_those_behind_it_in(|scene, mut writer| {
            let unblock = format!("CLIENT UNBLOCK {} {how}", writer.id);
            assert_eq!(scene.client().cmd(unblock), int(1));
            assert_eq!(writer.reply(), told);
        });
    }
}
