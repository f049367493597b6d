//! What the log, the events, the figures and the lists say of one of several holders.

use super::{LONG, Scene, holders, share, shorten, waits};
use crate::observing::{Figures, Listener};
use redis::Value;
use testkit::{Client, Server, Waiter, bulk_text, eventually, field, int};

/// The events of the log, newest first, and whom they are about.
fn log(client: &mut Client) -> Vec<(String, String)> {
    let entries = client.cmd("LOCK.LOG -1").into_sequence().unwrap();
    let text = |entry: &Value, name| bulk_text(field(entry, name).unwrap());
    entries.iter().map(|entry| (text(entry, "event"), text(entry, "owner"))).collect()
}

#[test]
fn nothing_is_noted_of_holders_that_come_and_go_as_they_should() {
    let server = Server::start();
    let mut client = server.client();
    for round in 0..5 {
        for owner in ["r1", "r2", "r3"] {
            share(&mut client, owner, LONG, 0).unwrap();
        }
        let mut writer = Waiter::of(&server, "k", "w");
        assert_eq!(share(&mut client, "r1", LONG, 3), share(&mut client, "r1", LONG, 3));
        for owner in ["r2", "r1", "r3"] {
            assert!(client.release("k", owner), "round {round}");
        }
        writer.fence();
        assert!(client.release("k", "w"));
    }
    assert_eq!(log(&mut client), []);
    assert_eq!(client.counter("expiries_with_waiters"), 0);
}

#[test]
fn a_lease_that_ends_among_others_is_counted_and_a_late_release_noted() {
    let server = Server::start();
    let mut client = server.client();
    share(&mut client, "long", LONG, 0).unwrap();
    share(&mut client, "short", LONG, 0).unwrap();
    let writer = Waiter::of(&server, "k", "w");
    shorten(&mut client, "short", 20);
    eventually("it is counted", || match client.counter("expiries_with_waiters") {
        1 => Ok(()),
        other => Err(other),
    });
    assert!(!client.release("k", "short"));
    assert_eq!(log(&mut client), [("late-release".to_owned(), "short".to_owned())]);
    writer.assert_waits(&server);
}

#[test]
fn a_shared_lock_that_is_deleted_is_lost_to_each_of_its_holders() {
    let server = Server::start();
    let mut client = server.client();
    for owner in ["r1", "r2"] {
        share(&mut client, owner, LONG, 0).unwrap();
    }
    let mut writer = Waiter::of(&server, "k", "w");
    assert_eq!(client.cmd("DEL k"), int(1));
    writer.fence();
    let deleted = |owner: &str| ("deleted".to_owned(), owner.to_owned());
    assert_eq!(log(&mut client), [deleted("r2"), deleted("r1")]);
}

#[test]
fn info_tells_of_the_oldest_and_how_many_they_are_and_waiters_what_they_ask_for() {
    let server = Server::start();
    let mut client = server.client();
    let fence = share(&mut client, "r1", LONG, 0).unwrap();
    share(&mut client, "r2", LONG, 7).unwrap();
    let info = client.info("k").unwrap();
    assert_eq!((info.owner, info.fence), (b"r1".to_vec(), fence));
    assert_eq!((info.holders, info.share), (2, 7));
    let _writer = Waiter::of(&server, "k", "w");
    let _reader = waits(&server, "r3", 0);
    let rows = client.cmd("LOCK.WAITERS k").into_sequence().unwrap();
    let shares: Vec<_> = rows.iter().map(|row| field(row, "share").cloned()).collect();
    assert_eq!(shares, [Some(int(1)), Some(int(0))]);
    assert!(client.release("k", "r1"));
    assert_eq!(client.info("k").unwrap().owner, b"r2");
}

#[test]
fn a_shared_lock_is_replicated_in_its_place() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    share(&mut client, "r1", LONG, 0).unwrap();
    share(&mut client, "r2", LONG, 0).unwrap();
    assert!(client.extend("k", "r1", LONG) && client.release("k", "r2"));
    assert!(client.release("k", "r1"));
    let lines = testkit::aof::lines(&server);
    let commands: Vec<_> = lines.iter().filter_map(|line| line.split(' ').next()).collect();
    let of_holds = |command: &&&str| **command != "SELECT";
    let commands: Vec<_> = commands.iter().filter(of_holds).copied().collect();
    assert_eq!(
        commands,
        ["SET", "APPEND", "PEXPIREAT", "SETRANGE", "PEXPIREAT", "SETRANGE", "PEXPIREAT", "DEL"]
    );
}

#[test]
fn a_grant_that_nobody_heard_of_ends_that_hold_only() {
    let scene = Scene::start();
    let mut client = scene.client();
    for owner in ["stays", "leaves"] {
        share(&mut client, owner, LONG, 2).unwrap();
    }
    let unheard = waits(&scene.primary, "unheard", 2);
    let mut next = waits(&scene.primary, "next", 2);
    // In one packet: the first who waits is granted the lock, and gone before it is told.
    let kill = format!("CLIENT KILL ID {}", unheard.id);
    assert_eq!(client.pipeline(&["LOCK.RELEASE k leaves", &kill]), [int(1), int(1)]);
    next.fence();
    assert_eq!(client.counter("hand_offs"), 2, "it was granted the lock");
    assert_eq!(holders(&mut client), ["stays", "next"]);
    assert!(client.release("k", "stays"));
    assert!(client.release("k", "next"));
    assert_eq!(client.cmd("EXISTS k"), int(0));
    scene.agree();
}

#[test]
fn who_watches_a_shared_lock_notices_each_who_comes_changes_or_goes_and_nothing_else() {
    let server = Server::start();
    let (mut client, mut watching) = (server.client(), server.client());
    for owner in ["r1", "r2"] {
        share(&mut client, owner, LONG, 0).unwrap();
    }
    for (request, is_noticed) in [
        ("LOCK.ACQUIRE k r3 60000 SHARE 0", true),
        ("LOCK.EXTEND k r3 90000", true),
        ("LOCK.ACQUIRE k r3 95000 SHARE 0", true),
        ("LOCK.ACQUIRE k r3 1 SHARE 0", false),
        ("LOCK.ACQUIRE k r3 60000 SHARE 4", true),
        ("LOCK.RAISE k r3 9", false),
        ("LOCK.RELEASE k r3", true),
        ("LOCK.RELEASE k r3", false),
        ("LOCK.ACQUIRE k w 60000", false),
        ("LOCK.HOLDERS k", false),
    ] {
        assert_eq!(watching.cmd("WATCH k"), Value::Okay);
        client.cmd(request);
        let seen = watching.pipeline(&["MULTI", "PING", "EXEC"]).pop();
        assert_eq!(seen == Some(Value::Nil), is_noticed, "{request}: {seen:?}");
    }
}

/// A server that publishes what becomes of locks, a connection to it, and one that listens.
fn told() -> (Server, Client, Listener) {
    let server = Server::builder().config("notify-keyspace-events", "KEd").start();
    let (client, listener) = (server.client(), Listener::on(&server));
    (server, client, listener)
}

#[test]
fn what_becomes_of_each_of_several_holders_is_published() {
    let (server, mut client, mut listener) = told();
    for owner in ["r1", "r2"] {
        share(&mut client, owner, LONG, 0).unwrap();
        assert_eq!(listener.heard(), ["lock.acquired"]);
    }
    share(&mut client, "r1", 2 * LONG, 0).unwrap();
    assert_eq!(listener.heard(), ["lock.extended"], "a retry that moves the end of its lease");
    assert!(client.extend("k", "r2", LONG));
    assert_eq!(listener.heard(), ["lock.extended"]);
    assert_eq!(client.acquire("k", "r1", LONG), None);
    assert_eq!(client.acquire("k", "w", LONG), None);
    assert!(!client.release("k", "r3"));
    assert_eq!(listener.heard(), [""; 0], "nothing has changed");
    assert!(client.release("k", "r1"));
    assert_eq!(listener.heard(), ["lock.released"]);
    client.acquire("k", "r2", LONG).unwrap();
    assert_eq!(listener.heard(), ["lock.acquired"], "with another fence");
    let mut readers = ["r3", "r4"].map(|owner| waits(&server, owner, 0));
    share(&mut client, "r2", 2 * LONG, 0).unwrap();
    for reader in &mut readers {
        reader.fence();
    }
    assert_eq!(listener.heard(), ["lock.extended", "lock.handed-off", "lock.handed-off"]);
}

#[test]
fn one_of_several_holders_whose_lease_ends_is_published_as_lost_and_the_others_are_not() {
    let (server, mut client, mut listener) = told();
    share(&mut client, "long", LONG, 2).unwrap();
    share(&mut client, "short", LONG, 2).unwrap();
    let mut next = waits(&server, "next", 2);
    assert!(client.extend("k", "short", 20));
    next.fence();
    let expected =
        ["lock.acquired", "lock.acquired", "lock.extended", "lock.lost", "lock.handed-off"];
    assert_eq!(listener.heard(), expected);
    assert!(!client.release("k", "short"));
    assert_eq!(listener.heard(), [""; 0], "it is told once");
    assert!(client.release("k", "long") && client.release("k", "next"));
    assert_eq!(listener.heard(), ["lock.released", "lock.released"]);
}

#[test]
fn what_becomes_of_each_of_several_holders_is_counted() {
    let server = Server::builder().module_args("fence-margin 0").start();
    let (mut client, mut figures) = (server.client(), Figures::of(&server));
    let fence = share(&mut client, "r1", LONG, 0).unwrap();
    figures.moved(&[("grants", 1), ("held", 1)]);
    share(&mut client, "r2", LONG, 0).unwrap();
    figures.moved(&[("grants", 1)]);
    share(&mut client, "r1", LONG, 0).unwrap();
    figures.moved(&[("retries", 1)]);
    assert!(client.extend("k", "r2", LONG));
    figures.moved(&[("extends", 1)]);
    assert_eq!(client.acquire("k", "w", LONG), None);
    figures.moved(&[("tries_refused", 1)]);
    assert_eq!(client.acquire("k", "r1", LONG), None);
    figures.moved(&[("tries_refused", 1)]);
    assert_eq!(client.cmd(format!("LOCK.RELEASE k r2 {fence}")), int(0));
    figures.moved(&[("releases_refused", 1)]);
    assert!(client.release("k", "r1"));
    figures.moved(&[("releases", 1)]);
    assert!(client.release("k", "r2"));
    figures.moved(&[("releases", 1), ("held", -1)]);
}

#[test]
fn one_of_several_whose_lease_ended_is_late_and_whoever_holds_the_lock_is_not() {
    for somebody_waits in [false, true] {
        let server = Server::start();
        let mut client = server.client();
        share(&mut client, "long", LONG, 2).unwrap();
        share(&mut client, "short", LONG, 2).unwrap();
        let mut next = somebody_waits.then(|| waits(&server, "next", 2));
        let end = shorten(&mut client, "short", 20);
        if let Some(next) = &mut next {
            next.fence();
        }
        eventually("it ends", || match holders(&mut client) {
            holders if !holders.contains(&"short".to_owned()) => Ok(()),
            holders => Err(holders),
        });
        let before = client.now();
        assert!(!client.extend("k", "short", LONG));
        let after = client.now();
        assert!(client.extend("k", "long", LONG));
        assert_eq!(client.counter("extends_late"), 1);
        let entries = client.cmd("LOCK.LOG -1").into_sequence().unwrap();
        assert_eq!(entries.len(), 1, "{entries:?}");
        let told = |name| field(&entries[0], name).unwrap();
        assert_eq!(
            (bulk_text(told("event")), bulk_text(told("owner"))),
            ("late-extend".to_owned(), "short".to_owned())
        );
        let Value::Int(late) = *told("ms") else { panic!("{entries:?}") };
        assert!((before - end..=after - end).contains(&late), "{late} ms");
    }
}

#[test]
fn a_shared_lock_that_is_overwritten_is_lost_to_each_of_its_holders() {
    let server = Server::start();
    let mut client = server.client();
    for owner in ["r1", "r2", "r3"] {
        share(&mut client, owner, LONG, 0).unwrap();
    }
    assert!(client.release("k", "r3"));
    let writer = Waiter::of(&server, "k", "w");
    assert_eq!(client.cmd("SET k stranger"), Value::Okay);
    let overwritten = |owner: &str| ("overwritten".to_owned(), owner.to_owned());
    eventually("it is noted", || match log(&mut client) {
        noted if noted == [overwritten("r2"), overwritten("r1")] => Ok(()),
        noted => Err(noted),
    });
    writer.assert_waits(&server);
}
