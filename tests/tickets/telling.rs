//! What is told of tickets: `INFO`, `LOCK.LOG` and key events.

use super::{LONG, asked, by_ticket, held, held_on, queue_up, rows, until_no_tickets};
use crate::observing::{Figures, Listener};
use redis::Value;
use testkit::{Client, Server, Waiter, bulk_text, eventually, field};

/// A server on which alice holds `k`, and its figures since.
fn figures() -> (Server, Client, Figures) {
    let (server, client) = held();
    let figures = Figures::of(&server);
    (server, client, figures)
}

#[test]
fn every_ticket_is_a_wait_that_begins_once_and_ends_once() {
    let (_server, mut client, mut figures) = figures();
    queue_up(&mut client, "bob");
    figures.moved(&[("waits_started", 1), ("tickets", 1)]);
    queue_up(&mut client, "bob");
    figures.moved(&[]);
    assert!(client.release("k", "alice"));
    let granted = [("releases", 1), ("grants", 1), ("hand_offs", 1), ("waits_granted", 1)];
    figures.moved(&[&granted[..], &[("tickets", -1)]].concat());
    assert!(asked(&mut client, by_ticket("bob", LONG)).is_some());
    figures.moved(&[("retries", 1)]);
    queue_up(&mut client, "carol");
    assert!(!client.release("k", "carol"));
    figures.moved(&[("waits_started", 1), ("waits_abandoned", 1), ("releases_refused", 1)]);
    assert_eq!(asked(&mut client, by_ticket("dave", 5)), None);
    until_no_tickets(&mut client);
    figures.moved(&[("waits_started", 1), ("waits_abandoned", 1)]);
}

#[test]
fn a_change_from_one_way_to_the_other_is_counted() {
    let (server, mut client, mut figures) = figures();
    queue_up(&mut client, "bob");
    figures.moved(&[("waits_started", 1), ("tickets", 1)]);
    // It is still the same wait.
    let mut bob = Waiter::of(&server, "k", "bob");
    figures.moved(&[("tickets", -1), ("waiters", 1), ("waiters_most", 1)]);
    // One that was replaced has been told so, and another wait begins.
    queue_up(&mut client, "bob");
    assert!(matches!(bob.reply(), Value::ServerError(_)));
    figures.moved(&[("tickets", 1), ("waiters", -1), ("waits_started", 1), ("waits_refused", 1)]);
}

#[test]
fn the_log_tells_of_tickets_what_it_tells_of_those_who_wait() {
    let (_server, mut client) = held_on(Server::builder().module_args("log-long-wait 20"));
    queue_up(&mut client, "bob");
    eventually("it has waited for long", || match rows(&mut client, "k")[0].waited {
        21.. => Ok(()),
        waited => Err(waited),
    });
    assert!(client.release("k", "alice"));
    let Value::Array(entries) = client.cmd("LOCK.LOG -1") else { panic!("no list") };
    let told = ["event", "owner"].map(|name| bulk_text(field(&entries[0], name).unwrap()));
    assert_eq!((entries.len(), told), (1, ["long-wait", "bob"].map(str::to_owned)));
    let top = format!("{:?}", client.cmd("LOCK.TOP"));
    assert!(top.contains('k'), "{top}");
}

#[test]
fn a_grant_that_nobody_claims_is_an_expiry_that_somebody_waited_for() {
    let (server, mut client) = held_on(Server::builder().config("notify-keyspace-events", "KEA"));
    assert_eq!(asked(&mut client, format!("LOCK.ACQUIRE k bob 30 TICKET {LONG}")), None);
    queue_up(&mut client, "carol");
    let mut listener = Listener::on(&server);
    assert!(client.release("k", "alice"));
    super::until_held_by(&mut client, "carol");
    let expected = ["lock.released", "lock.handed-off", "lock.lost", "lock.handed-off"];
    assert_eq!(listener.heard_but_expired(), expected);
}

#[test]
fn key_events_of_a_grant_to_a_ticket_are_those_of_a_grant_to_one_who_blocks() {
    let events = ["TICKET", "BLOCK"].map(|way| {
        let (server, mut client) =
            held_on(Server::builder().config("notify-keyspace-events", "KEA"));
        let mut listener = Listener::on(&server);
        let mut bob = server.client();
        bob.send(format!("LOCK.ACQUIRE k bob {LONG} {way} {LONG}"));
        eventually("it is queued", || match client.info("k").unwrap().waiters {
            1 => Ok(()),
            other => Err(other),
        });
        assert!(listener.heard().is_empty(), "to queue up is no event");
        assert!(client.release("k", "alice"));
        listener.heard()
    });
    assert!(!events[0].is_empty());
    assert_eq!(events[0], events[1]);
}
