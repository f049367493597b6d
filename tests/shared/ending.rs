//! Leases of several holders: each ends by itself, and the key with the last of them.

use super::{LONG, Scene, asks, holders, share, shorten, waits};
use crate::waiting::{expiry, granted_at};
use redis::Value;
use testkit::{Client, Stopwatch, Waiter, becomes, deadline, int};

/// In milliseconds. Sooner than the look at all contended locks each second.
const SOON: i64 = 500;

/// How many milliseconds after the end of a short lease each waiter was granted the lock, of which another holder has
/// it all the time, so that the key lives on.
fn lateness(scene: &Scene) -> expiry::Lateness {
    let mut client = scene.client();
    share(&mut client, "long", LONG, 2).unwrap();
    share(&mut client, "short", LONG, 2).unwrap();
    let asks = |number| format!("{} BLOCK 0", asks("k", &format!("w{number}"), 5, 2));
    let mut queued: Vec<_> =
        (0..expiry::LEASES).map(|number| Waiter::sends(&scene.primary, &asks(number))).collect();
    let mut end = shorten(&mut client, "short", 20);
    let lateness = queued.iter_mut().map(|waiter| {
        let granted = expiry::told_when_granted(waiter)?;
        let late = granted - end;
        assert!(late >= 1, "granted {late} ms after the end of the lease");
        end = granted + 5;
        Some(late)
    });
    lateness.collect()
}

#[test]
fn when_a_short_lease_ends_among_long_ones_the_next_is_served_within_3_ms_and_never_early() {
    let scene = Scene::start();
    expiry::assert_prompt(|| {
        let lateness = lateness(&scene);
        let mut client = scene.client();
        client.wait_until_waiters(0);
        becomes("the last short lease ends", ["long"], || holders(&mut client));
        assert!(client.release("k", "long"));
        lateness
    });
    share(&mut scene.client(), "long", LONG, 2).unwrap();
    scene.agree();
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
fn a_lock_of_several_holders_that_never_release_is_gone_with_the_last_lease_on_every_server() {
    let scene = Scene::start();
    let mut client = scene.client();
    for owner in ["r1", "r2", "r3"] {
        share(&mut client, owner, LONG, 0).unwrap();
    }
    let end = shorten(&mut client, "r2", 300);
    for owner in ["r1", "r3"] {
        assert!(client.extend("k", owner, 50));
    }
    scene.sync();
    for server in [&scene.primary, &scene.replica, &scene.without] {
        let mut client = server.client();
        becomes("the key is gone", Value::Nil, || client.cmd("GET k"));
        assert!(client.now() >= end);
    }
    scene.agree();
}

/// A thousand hold `k` until then, beside those of these lines. All are written by hand, for requests come one after another.
fn a_thousand_hold_until(client: &mut Client, end: i64, beside: &str, expiry: i64) {
    let line = |number| format!("{:016} {end:014} 00000 005:r{number:04}\n", FIRST + number);
    let value = beside.to_owned() + &(1..=1_000).map(line).collect::<String>();
    let set = ["SET", "k", &value, "PXAT", &expiry.to_string()];
    assert_eq!(client.cmd(set), Value::Okay);
}

/// A fence of long ago.
const FIRST: u64 = 1_763_712_345_678_901;

#[test]
fn when_a_thousand_holds_end_in_one_millisecond_all_who_waited_for_that_are_let_in() {
    for stays in [true, false] {
        let scene = Scene::start();
        let mut client = scene.client();
        let later = client.now() + 60_000;
        let line = format!("{FIRST} {later:014} 00003 005:stays\n");
        let beside = if stays { &line } else { "" };
        a_thousand_hold_until(&mut client, later, beside, later);
        assert!(client.info("k").unwrap().holders >= 1_000);
        let mut next: Vec<_> = match stays {
            true => ["a", "b"].map(|owner| waits(&scene.primary, owner, 3)).into(),
            false => Vec::new(),
        };
        next.push(Waiter::of(&scene.primary, "k", "w"));
        let (watch, end) = (Stopwatch::start(), client.now() + 50);
        a_thousand_hold_until(&mut client, end, beside, if stays { later } else { end });
        let writer = stays.then(|| next.pop().unwrap());
        for late in next.iter_mut().map(|waiter| granted_at(waiter.fence()) - end) {
            assert!(late >= i64::from(stays), "granted {late} ms after the end");
            assert!(late - watch.stalled_millis() < SOON, "granted {late} ms after the end");
        }
        let expected = if stays { vec!["stays", "a", "b"] } else { vec!["w"] };
        assert_eq!(holders(&mut client), expected);
        if let Some(writer) = writer {
            writer.assert_waits(&scene.primary);
        }
        scene.agree();
    }
}
