//! Who is let in beside whom, and when.

use super::{LONG, Scene, asks, holders, share, shows, waits};
use redis::Value;
use testkit::{Clock, Server, Waiter, bulk, clock::HOUR, deadline, eventually, int};

#[test]
fn readers_pass_together_a_writer_waits_for_all_and_later_readers_wait_behind_it() {
    let scene = Scene::start();
    let mut client = scene.client();
    assert!(share(&mut client, "r1", LONG, 0).is_some());
    assert!(share(&mut client, "r2", LONG, 0).is_some());
    let mut writer = Waiter::of(&scene.primary, "k", "w");
    let mut third = waits(&scene.primary, "r3", 0);
    let mut fourth = waits(&scene.primary, "r4", 0);
    assert_eq!(share(&mut client, "r5", LONG, 0), None, "a try overtakes nobody");
    assert!(client.release("k", "r1"));
    writer.assert_waits(&scene.primary);
    assert!(client.release("k", "r2"));
    let fence = writer.fence();
    assert_eq!(holders(&mut client), ["w"]);
    third.assert_waits(&scene.primary);
    assert!(client.release("k", "w"));
    assert!(fence < third.fence() && fence < fourth.fence());
    assert_eq!(holders(&mut client), ["r3", "r4"]);
    scene.agree();
}

#[test]
fn mixed_shares_take_the_smaller() {
    let scene = Scene::start();
    let mut client = scene.client();
    for owner in ["a", "b"] {
        assert!(share(&mut client, owner, LONG, 5).is_some());
    }
    assert!(share(&mut client, "c", LONG, 3).is_some());
    assert_eq!(share(&mut client, "d", LONG, 5), None);
    assert_eq!((shows(&mut client, "holders"), shows(&mut client, "share")), (3, 3));
    assert!(client.release("k", "c"));
    assert_eq!(share(&mut client, "d", LONG, 2), None);
    assert!(share(&mut client, "d", LONG, 5).is_some());
    scene.agree();
}

#[test]
fn when_the_head_leaves_those_behind_it_are_admitted_at_once() {
    let scene = Scene::start();
    let mut client = scene.client();
    assert!(share(&mut client, "r1", LONG, 0).is_some());
    let patient = Waiter::sends(&scene.primary, "LOCK.ACQUIRE k w1 60000 BLOCK 200");
    let mut reader = waits(&scene.primary, "r2", 0);
    drop(patient);
    reader.fence();

    let killed = Waiter::of(&scene.primary, "k", "w2");
    let mut reader = waits(&scene.primary, "r3", 0);
    assert_eq!(client.cmd(format!("CLIENT KILL ID {}", killed.id)), int(1));
    reader.fence();

    let mut out_of_patience = Waiter::sends(&scene.primary, "LOCK.ACQUIRE k w3 60000 BLOCK 30");
    let mut reader = waits(&scene.primary, "r4", 0);
    assert_eq!(out_of_patience.reply(), Value::Nil);
    reader.fence();
    assert_eq!(holders(&mut client), ["r1", "r2", "r3", "r4"]);
    scene.agree();
}

#[test]
fn a_short_lease_ends_among_long_ones_and_the_next_is_served_then() {
    let scene = Scene::start();
    let mut client = scene.client();
    assert!(share(&mut client, "long", LONG, 2).is_some());
    assert!(share(&mut client, "short", 100, 2).is_some());
    let end = client.now() + 100;
    let mut waiter = waits(&scene.primary, "next", 2);
    let granted_at = i64::try_from(waiter.fence() / 1_000).unwrap();
    assert!((end - 50..end + 500).contains(&granted_at), "{granted_at}, and not {end}");
    assert_eq!(holders(&mut client), ["long", "next"]);
    scene.agree();
}

#[test]
fn a_hold_that_ran_out_does_not_come_back_beside_the_next_when_the_clock_is_set_back() {
    let mut clock = Clock::new();
    let server = Server::builder().clock(&clock).start();
    let mut client = server.client();
    assert!(share(&mut client, "long", LONG, 2).is_some());
    assert!(share(&mut client, "short", 10, 2).is_some());
    eventually("the short lease ends", || share(&mut client, "next", LONG, 2).ok_or(()));
    let before = client.now();
    clock.step_back(HOUR);
    eventually("the clock is set back", || match client.now() {
        now if now < before => Ok(()),
        now => Err(now),
    });
    assert_eq!(holders(&mut client), ["long", "next"]);
    assert_eq!(client.cmd("LOCK.EXTEND k short 1000"), int(0));
}

#[test]
fn the_key_expires_with_the_last_hold() {
    let scene = Scene::start();
    let mut client = scene.client();
    share(&mut client, "short", LONG, 0).unwrap();
    let first = deadline(&mut client, b"k");
    share(&mut client, "long", 2 * LONG, 0).unwrap();
    assert!(deadline(&mut client, b"k") >= first + 50_000);
    assert!(client.extend("k", "long", LONG + 1_000));
    let shortened = deadline(&mut client, b"k");
    assert!((first..first + 30_000).contains(&shortened));
    assert!(client.release("k", "long"));
    assert_eq!(deadline(&mut client, b"k"), first);
    assert!(client.release("k", "short"));
    assert_eq!(client.cmd("EXISTS k"), int(0));
    scene.agree();
}

#[test]
fn a_pool_of_five_never_has_six_and_is_never_idle() {
    let server = Server::builder().module_args("fence-margin 0").start();
    let mut client = server.client();
    for number in 0..5 {
        share(&mut client, &format!("first-{number}"), LONG, 5).unwrap();
    }
    let waiting: Vec<_> = (0..60).map(|number| waits(&server, &format!("w{number}"), 5)).collect();
    for _ in 0..60 {
        let inside = holders(&mut client);
        assert_eq!(inside.len(), 5, "{inside:?}");
        assert!(client.release("k", &inside[2]));
    }
    assert_eq!(shows(&mut client, "waiters"), 0);
    let fences: Vec<_> = waiting.into_iter().map(|mut waiter| waiter.fence()).collect();
    assert!(fences.is_sorted(), "first come, first served");
}

#[test]
fn a_thousand_hold_a_lock_and_no_more() {
    let scene = Scene::start();
    let mut client = scene.client();
    for number in 0..1_000 {
        assert!(share(&mut client, &format!("reader-{number}"), LONG, 0).is_some());
    }
    assert_eq!(share(&mut client, "one-more", LONG, 0), None);
    assert_eq!(shows(&mut client, "holders"), 1_000);
    assert_eq!(client.cmd("LOCK.HOLDERS k").into_sequence().unwrap().len(), 100);
    let mut waiter = waits(&scene.primary, "one-more", 0);
    assert_eq!(client.cmd("CONFIG SET leasehold.max-holders 1001"), Value::Okay);
    waiter.fence();
    for number in 0..1_000 {
        assert!(client.release("k", format!("reader-{number}")));
    }
    assert_eq!(holders(&mut client), ["one-more"]);
    scene.agree();
}

#[test]
fn a_thousand_holds_that_end_in_one_millisecond_let_the_writer_in() {
    let server = Server::start();
    let mut client = server.client();
    for number in 0..1_000 {
        client.send(asks("k", &format!("r{number}"), 3_000, 0));
    }
    (0..1_000).for_each(|_| drop(client.receive()));
    let mut writer = Waiter::of(&server, "k", "w");
    writer.fence();
    assert_eq!(holders(&mut client), ["w"]);
}

#[test]
fn what_has_run_out_does_not_pile_up() {
    let server = Server::start();
    let mut client = server.client();
    share(&mut client, "long", LONG, 0).unwrap();
    for number in 0..200 {
        share(&mut client, &format!("short-{number}"), 1, 0).unwrap();
        client.next_millisecond();
    }
    eventually("those are over", || match shows(&mut client, "holders") {
        1..=2 => Ok(()),
        many => Err(many),
    });
    let Value::Int(len) = client.cmd("STRLEN k") else { panic!("no length") };
    assert!(len < 1_000, "{len}");
}

#[test]
fn mistakes_are_found_in_the_order_of_the_page() {
    let server = Server::start();
    let mut client = server.client();
    let mut refused = |words: &str| match client.cmd(format!("LOCK.ACQUIRE k a {words}")) {
        Value::ServerError(error) => format!("{error}"),
        other => panic!("{words}: {other:?}"),
    };
    assert!(refused("0 SHARE x").contains("ttl must be"));
    assert!(refused("1 SHARE x BLOCK x").contains("SHARE must be an integer from 0 to 99999"));
    assert!(refused("1 BLOCK x SHARE x").contains("BLOCK must be"));
    for words in ["1 SHARE", "1 SHARE 1 SHARE 1", "1 SHARE 1 BLOCK 1 SHARE 1", "1 SHARES 1"] {
        assert!(refused(words).contains("unknown option, expected SHARE holders"), "{words}");
    }
    assert!(matches!(client.cmd("LOCK.ACQUIRE k a 60000 block 5 share 2"), Value::Int(_)));
    let keys = client.cmd("COMMAND GETKEYS LOCK.ACQUIRE k a 60000 BLOCK 5 SHARE 2");
    assert_eq!(keys, Value::Array(vec![bulk("k")]));
}
