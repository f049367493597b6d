//! Holders that ask again: to tolerate as many, more, or fewer.

use super::{LONG, Scene, holders, share, waits};
use redis::Value;
use testkit::{Waiter, deadline};

#[test]
fn a_retry_gets_the_same_fence_and_the_later_lease_also_while_a_writer_waits() {
    let scene = Scene::start();
    let mut client = scene.client();
    let fence = share(&mut client, "r1", LONG, 0);
    let other = share(&mut client, "r2", LONG, 0);
    let mut writer = Waiter::of(&scene.primary, "k", "w");
    let before = deadline(&mut client, b"k");
    assert_eq!(share(&mut client, "r1", 2 * LONG, 0), fence);
    assert!(deadline(&mut client, b"k") > before);
    assert_eq!(share(&mut client, "r2", 1, 0), other);
    assert_eq!(holders(&mut client), ["r1", "r2"]);
    assert!(client.release("k", "r1") && client.release("k", "r2"));
    writer.fence();
    scene.agree();
}

#[test]
fn a_reader_that_is_alone_becomes_a_writer_before_those_who_wait() {
    let scene = Scene::start();
    let mut client = scene.client();
    let reader = share(&mut client, "r", LONG, 0).unwrap();
    let mut writer = Waiter::of(&scene.primary, "k", "w");
    let upgraded = client.acquire("k", "r", LONG).unwrap();
    assert!(upgraded > reader);
    assert_eq!(client.check("k", "r"), Some(upgraded));
    assert_eq!(client.cmd("GET k"), testkit::bulk(format!("{upgraded}:r")));
    writer.assert_waits(&scene.primary);
    assert!(client.release("k", "r"));
    assert!(writer.fence() > upgraded);
    scene.agree();
}

#[test]
fn two_readers_that_want_to_write_get_nil_at_once_and_keep_what_they_have() {
    let scene = Scene::start();
    let mut client = scene.client();
    let one = share(&mut client, "r1", LONG, 0);
    let other = share(&mut client, "r2", LONG, 0);
    for owner in ["r1", "r2"] {
        let asked = format!("LOCK.ACQUIRE k {owner} {LONG} BLOCK 0");
        assert_eq!(client.cmd(asked), Value::Nil);
    }
    assert_eq!((client.check("k", "r1"), client.check("k", "r2")), (one, other));
    assert_eq!(client.info("k").unwrap().waiters, 0);
    // Whichever of them gives way lets the other one write.
    assert!(client.release("k", "r2"));
    let upgraded = client.acquire("k", "r1", LONG);
    assert!(upgraded > other);
    assert_eq!(holders(&mut client), ["r1"]);
    assert_eq!(share(&mut client, "r2", LONG, 0), None);
    scene.agree();
}

#[test]
fn one_of_three_comes_to_tolerate_fewer_with_a_new_fence() {
    let scene = Scene::start();
    let mut client = scene.client();
    let first = share(&mut client, "r1", LONG, 0).unwrap();
    for owner in ["r2", "r3"] {
        share(&mut client, owner, LONG, 0).unwrap();
    }
    assert_eq!(share(&mut client, "r1", LONG, 2), None);
    assert_eq!(client.check("k", "r1"), Some(first));
    let tighter = share(&mut client, "r1", LONG, 3).unwrap();
    assert!(tighter > first);
    assert_eq!(share(&mut client, "r4", LONG, 0), None);
    assert_eq!(holders(&mut client), ["r2", "r3", "r1"]);
    scene.agree();
}

#[test]
fn a_writer_that_becomes_a_reader_lets_the_readers_in_that_wait() {
    let scene = Scene::start();
    let mut client = scene.client();
    let fence = client.grant("k", "w", LONG);
    let mut first = waits(&scene.primary, "r1", 0);
    let mut second = waits(&scene.primary, "r2", 0);
    assert_eq!(share(&mut client, "w", LONG, 0), Some(fence));
    assert!(fence < first.fence() && fence < second.fence());
    assert_eq!(holders(&mut client), ["w", "r1", "r2"]);
    scene.agree();
}

#[test]
fn exclusive_after_shared_and_back() {
    let scene = Scene::start();
    let mut client = scene.client();
    let mut last = 0;
    for round in 0..4 {
        share(&mut client, "r1", LONG, 0).unwrap();
        let fence = share(&mut client, "r2", LONG, 4).unwrap();
        assert!(fence > last, "round {round}");
        assert_eq!(client.acquire("k", "w", LONG), None);
        assert!(client.release("k", "r2") && client.release("k", "r1"));
        last = client.grant("k", "w", LONG);
        assert!(last > fence);
        assert_eq!(share(&mut client, "r1", LONG, 0), None);
        assert!(client.release("k", "w"));
    }
    share(&mut client, "r1", LONG, 0).unwrap();
    scene.agree();
}

#[test]
fn each_request_is_about_the_owners_own_hold() {
    let scene = Scene::start();
    let mut client = scene.client();
    let one = share(&mut client, "r1", LONG, 0).unwrap();
    let other = share(&mut client, "r2", LONG, 0).unwrap();
    assert!(!client.release("k", "r3") && !client.extend("k", "r3", LONG));
    let with = |command: &str, owner: &str, fence: u64| format!("{command} k {owner} {fence}");
    assert_eq!(client.cmd(with("LOCK.RELEASE", "r1", other)), testkit::int(0));
    let raised = other + 1_000_000;
    let fence = testkit::int(raised.cast_signed());
    assert_eq!(client.cmd(with("LOCK.RAISE", "r2", raised)), fence);
    assert_eq!((client.check("k", "r1"), client.check("k", "r2")), (Some(one), Some(raised)));
    assert!(share(&mut client, "r3", LONG, 0).unwrap() > raised);
    assert_eq!(client.cmd(with("LOCK.RELEASE", "r1", one)), testkit::int(1));
    assert_eq!(client.check("k", "r1"), None);
    scene.agree();
}

#[test]
fn one_that_waits_and_asks_again_to_tolerate_more_is_admitted_in_its_place_at_once() {
    let scene = Scene::start();
    let mut client = scene.client();
    share(&mut client, "r1", LONG, 0).unwrap();
    let mut former = Waiter::of(&scene.primary, "k", "w");
    let mut behind = waits(&scene.primary, "r2", 0);
    let reply = scene.client().cmd(format!("LOCK.ACQUIRE k w {LONG} SHARE 0 BLOCK 0"));
    let Value::Int(fence) = reply else { panic!("{reply:?}") };
    assert!(behind.fence() > fence.cast_unsigned());
    assert!(matches!(former.reply(), Value::ServerError(told) if told.code() == "REPLACED"));
    assert_eq!(holders(&mut client), ["r1", "w", "r2"]);
    scene.agree();
}

#[test]
fn one_that_waits_and_asks_again_to_tolerate_fewer_waits_on_in_its_place() {
    let scene = Scene::start();
    let mut client = scene.client();
    client.grant("k", "w", LONG);
    let mut former = waits(&scene.primary, "r1", 0);
    let mut behind = waits(&scene.primary, "r2", 0);
    let mut newer = Waiter::of(&scene.primary, "k", "r1");
    assert!(matches!(former.reply(), Value::ServerError(told) if told.code() == "REPLACED"));
    assert!(client.release("k", "w"));
    newer.fence();
    behind.assert_waits(&scene.primary);
    assert_eq!(holders(&mut client), ["r1"]);
    assert!(client.release("k", "r1"));
    behind.fence();
    scene.agree();
}
