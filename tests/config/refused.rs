//! A `CONFIG SET` that the server refuses changes nothing, whatever makes it refuse, and wherever it stands.

use super::{LONG, SETTINGS, all_settings, setting};
use crate::waiting::granted_at;
use redis::Value;
use std::net::TcpListener;
use testkit::module::USUAL_FENCE_MARGIN;
use testkit::{Client, Server, Stopwatch, Waiter, eventually, items, lacks_settings};

/// So many wait, each for a lock of its own.
const WAITERS: usize = 20;

/// Less than it takes until the module looks at every contended lock without being told to, and more than a busy machine
/// needs.
const SOON_MILLIS: i64 = 150;

/// A server, and a neighbour whose port it cannot have.
struct Scene {
    server: Server,
    taken: TcpListener,
}

impl Scene {
    fn with(args: &str) -> Self {
        let server = Server::builder().module_args(args).start();
        Self { server, taken: TcpListener::bind(("127.0.0.1", 0)).unwrap() }
    }

    /// Has mistakes of all kinds make the server refuse the change: some that it sees at once, and one that it sees when
    /// all has been set, and it begins to listen.
    #[track_caller]
    fn refuses(&self, name: &str, value: &str) {
        let mut client = self.server.client();
        let before = all_settings(&mut client);
        assert_ne!(setting(&mut client, name), value);
        let port = self.taken.local_addr().unwrap().port();
        for mistake in [
            "maxmemory-policy bogus",
            "leasehold.unheard-of 5",
            "leasehold.max-holders 0",
            &format!("leasehold.{name} {value}"),
            &format!("port {port}"),
        ] {
            for change in [
                format!("leasehold.{name} {value} {mistake}"),
                format!("{mistake} leasehold.{name} {value}"),
            ] {
                let reply = client.cmd(format!("CONFIG SET {change}"));
                assert!(matches!(reply, Value::ServerError(_)), "{change}: {reply:?}");
                assert_eq!(all_settings(&mut client), before, "{change}");
            }
        }
    }

    #[track_caller]
    fn accepts(&self, name: &str, value: &str) {
        let reply = self.server.cmd(format!("CONFIG SET leasehold.{name} {value}"));
        assert_eq!(reply, Value::Okay);
    }
}

#[test]
fn every_setting_says_what_it_said_and_a_quarantine_goes_on_until_it_is_ended() {
    if lacks_settings() {
        return;
    }
    let scene = Scene::with("quarantine-ms 3600000");
    let others = ["quarantine-ms", "log-max-len", "log-long-wait"];
    for name in SETTINGS.map(|(name, ..)| name).into_iter().chain(others) {
        scene.refuses(name, "1");
    }
    scene.refuses("quarantine-ms", "0");
    let mut client = scene.server.client();
    assert_eq!(client.acquire("k", "alice", LONG), None);
    assert_ne!(client.counter("quarantine_left_us"), 0);
    scene.accepts("quarantine-ms", "0");
    client.grant("k", "alice", LONG);
}

#[test]
fn a_quarantine_that_an_operator_ends_is_over_for_all_who_wait_at_once() {
    if lacks_settings() {
        return;
    }
    let scene = Scene::with("quarantine-ms 3600000 fence-margin 0");
    let waiter = |number| Waiter::of(&scene.server, &format!("k{number}"), "bob");
    let mut waiters: Vec<_> = (0..WAITERS).map(waiter).collect();
    let mut client = scene.server.client();
    assert_eq!(client.acquire("another", "alice", LONG), None);
    scene.accepts("quarantine-ms", "1000");
    assert_eq!(client.acquire("another", "alice", LONG), None, "the one that runs is as it was");
    let (watch, before) = (Stopwatch::start(), client.now());
    scene.accepts("quarantine-ms", "0");
    for waiter in &mut waiters {
        let granted = granted_at(waiter.fence());
        let late = granted - before - watch.stalled_millis();
        assert!(late < SOON_MILLIS, "{late} ms later");
    }
}

/// Entries of the log, one each.
fn be_late(client: &mut Client, times: usize) {
    for _ in 0..times {
        client.grant("late", "alice", 1);
        eventually("the lease runs out", || client.info("late").map_or(Ok(()), Err));
        assert!(!client.release("late", "alice"));
    }
}

fn logged(client: &mut Client) -> usize {
    items(&client.cmd("LOCK.LOG -1")).len()
}

#[test]
fn the_log_the_limits_and_the_margin_stay_as_they_were() {
    if lacks_settings() {
        return;
    }
    let scene = Scene::with("");
    let mut client = scene.server.client();
    be_late(&mut client, 5);
    assert_eq!(logged(&mut client), 5);
    for shorter in ["0", "1", "4"] {
        scene.refuses("log-max-len", shorter);
        assert_eq!(logged(&mut client), 5);
    }
    be_late(&mut client, 2);
    assert_eq!(logged(&mut client), 7);
    scene.accepts("log-max-len", "3");
    assert_eq!(logged(&mut client), 3);

    scene.refuses("max-ttl", "1000");
    client.grant("k", "alice", LONG);
    client.cmd("LOCK.LOG RESET");
    let mut wait = || assert_eq!(client.cmd("LOCK.ACQUIRE k bob 60000 BLOCK 20"), Value::Nil);
    scene.refuses("log-long-wait", "1");
    wait();
    scene.accepts("log-long-wait", "1");
    wait();
    assert_eq!(logged(&mut client), 1);

    for limit in ["max-waiters", "max-waiters-per-lock"] {
        scene.refuses(limit, "0");
        Waiter::of(&scene.server, "k", limit);
    }

    scene.refuses("fence-margin", "3600000");
    assert_eq!(client.cmd("DEBUG RELOAD"), Value::Okay);
    // Redis 7.0 tells the module whole milliseconds.
    let ahead = client.counter("fence_ahead_us") / 1_000;
    assert!(ahead <= USUAL_FENCE_MARGIN, "{ahead} ms");
}
