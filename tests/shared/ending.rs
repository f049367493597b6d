//! Leases of several holders: each ends by itself, and the key with the last of them.

use super::{LONG, Scene, asks, holders, line, share, shorten, waits};
use crate::waiting::{expiry, granted_at};
use redis::Value;
use testkit::{Client, Clock, Server, Stopwatch, Waiter, clock::HOUR, deadline, eventually, int};

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
        eventually("the last short lease ends", || match &holders(&mut client)[..] {
            [long] if long == "long" => Ok(()),
            holders => Err(holders.to_vec()),
        });
        assert!(client.release("k", "long"));
        lateness
    });
    share(&mut scene.client(), "long", LONG, 2).unwrap();
    scene.agree();
}

#[test]
fn nobody_is_let_in_during_the_millisecond_in_which_a_hold_ends() {
    let server = Server::builder().module_args("fence-margin 0").start();
    let mut client = server.client();
    share(&mut client, "long", LONG, 2).unwrap();
    share(&mut client, "0", LONG, 2).unwrap();
    for round in 0..5 {
        let end = shorten(&mut client, &round.to_string(), 5);
        let next = (round + 1).to_string();
        let fence = std::iter::repeat_with(|| share(&mut client, &next, LONG, 2)).find_map(|it| it);
        assert!(granted_at(fence.unwrap()) > end, "before {end} was over");
    }
}

#[test]
fn the_same_where_the_server_never_looks_for_expired_keys() {
    let scene = Scene::start();
    scene.client().cmd("DEBUG SET-ACTIVE-EXPIRE 0");
    let mut client = scene.client();
    share(&mut client, "long", LONG, 2).unwrap();
    share(&mut client, "short", LONG, 2).unwrap();
    let mut waiter = waits(&scene.primary, "next", 2);
    shorten(&mut client, "short", 20);
    waiter.fence();
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
        eventually("the key is gone", || match client.cmd("GET k") {
            Value::Nil => Ok(()),
            value => Err(value),
        });
        assert!(client.now() >= end);
    }
    scene.agree();
}

/// A thousand hold `k` until the same millisecond, and besides somebody for a minute who tolerates three, or nobody.
/// Their lines are written by hand, for requests come one after another.
struct Thousand {
    client: Client,
    stays: Option<&'static str>,
    begun: i64,
}

impl Thousand {
    /// For a minute.
    fn beside(scene: &Scene, stays: Option<&'static str>) -> Self {
        let mut client = scene.client();
        let begun = client.now();
        let mut thousand = Self { client, stays, begun };
        thousand.hold_until(begun + 60_000);
        assert!(thousand.client.info("k").unwrap().holders >= 1_000);
        thousand
    }

    /// All of them at once, soon.
    fn end(&mut self) -> i64 {
        let end = self.client.now() + 50;
        self.hold_until(end);
        end
    }

    fn hold_until(&mut self, end: i64) {
        let (first, later) = (self.begun.cast_unsigned() * 1_000, self.begun + 60_000);
        let stays = self.stays.map(|owner| line(first, later, 3, owner));
        let expiry = if stays.is_some() { later } else { end };
        let mut value = stays.unwrap_or_default();
        for number in 1..=1_000 {
            value.push_str(&line(first + number, end, 0, &format!("r{number}")));
        }
        let set = ["SET", "k", &value, "PXAT", &expiry.to_string()];
        assert_eq!(self.client.cmd(set), Value::Okay);
    }
}

#[test]
fn when_a_thousand_holds_end_in_one_millisecond_all_who_waited_for_that_are_let_in() {
    let scene = Scene::start();
    let mut thousand = Thousand::beside(&scene, Some("stays"));
    let mut pair = ["a", "b"].map(|owner| waits(&scene.primary, owner, 3));
    let writer = Waiter::of(&scene.primary, "k", "w");
    let (watch, end) = (Stopwatch::start(), thousand.end());
    for late in pair.each_mut().map(|waiter| granted_at(waiter.fence()) - end) {
        assert!(late >= 1, "granted {late} ms after the end");
        assert!(late - watch.stalled_millis() < SOON, "granted {late} ms after the end");
    }
    assert_eq!(holders(&mut scene.client()), ["stays", "a", "b"]);
    writer.assert_waits(&scene.primary);
    drop(writer);
    scene.agree();
}

#[test]
fn when_a_thousand_holds_end_with_their_key_the_writer_is_let_in() {
    let scene = Scene::start();
    let mut thousand = Thousand::beside(&scene, None);
    let mut writer = Waiter::of(&scene.primary, "k", "w");
    let (watch, end) = (Stopwatch::start(), thousand.end());
    let late = granted_at(writer.fence()) - end;
    assert!(late >= 0, "granted {late} ms after the end");
    assert!(late - watch.stalled_millis() < SOON, "granted {late} ms after the end");
    assert_eq!(holders(&mut scene.client()), ["w"]);
    scene.agree();
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
    eventually("those are over", || match client.info("k").unwrap().holders {
        1..=2 => Ok(()),
        many => Err(many),
    });
    let Value::Int(len) = client.cmd("STRLEN k") else { panic!("no length") };
    assert!(len < 1_000, "{len}");
}
