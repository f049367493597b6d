//! What is told of tickets: `LOCK.WAITERS`, `LOCK.INFO`, `INFO`, `LOCK.LOG` and key events.

use super::{CHANNEL, LONG, asked, by_ticket, held, held_on, queue_up, rows, until_no_tickets};
use crate::observing::{Figures, Listener};
use redis::Value;
use testkit::waiter::id_of;
use testkit::{Client, ReplicationStream, Server, Waiter, bulk_text, eventually, field};

#[test]
fn lock_waiters_and_lock_info_show_tickets_beside_those_who_block() {
    let (server, mut client) = held();
    let own = id_of(&mut client);
    let blocked = Waiter::of(&server, "k", "bob");
    assert_eq!(asked(&mut client, by_ticket("carol", 30_000)), None);
    let [bob, carol] = &rows(&mut client, "k")[..] else { panic!("two wait") };
    assert_eq!((&*bob.kind, bob.client, bob.patience), ("block", blocked.id, -1));
    assert_eq!((&*carol.kind, carol.client), ("ticket", own));
    assert!((1..=30_000).contains(&carol.patience), "{carol:?}");
    assert!(carol.waited <= bob.waited, "{bob:?} {carol:?}");
    assert_eq!(client.info("k").unwrap().waiters, 2);
    assert_eq!((client.counter("waiters"), client.counter("tickets")), (1, 1));
}

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

/// Event and owner of each entry of `LOCK.LOG`, oldest first.
fn log(client: &mut Client) -> Vec<String> {
    let Value::Array(entries) = client.cmd("LOCK.LOG -1") else { panic!("no list") };
    let shown = |entry: &Value| {
        let text = |name| bulk_text(field(entry, name).unwrap());
        format!("{} {}", text("event"), text("owner"))
    };
    entries.iter().rev().map(shown).collect()
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
    assert_eq!(log(&mut client), ["long-wait bob"]);
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
    let events = |queue: &dyn Fn(&Server, &mut Client) -> Option<Waiter>| {
        let (server, mut client) =
            held_on(Server::builder().config("notify-keyspace-events", "KEA"));
        let mut listener = Listener::on(&server);
        let waiter = queue(&server, &mut client);
        assert!(listener.heard().is_empty(), "to queue up is no event");
        assert!(client.release("k", "alice"));
        drop(waiter);
        listener.heard()
    };
    let of_ticket = events(&|_, client| {
        queue_up(client, "bob");
        None
    });
    let of_block = events(&|server, _| Some(Waiter::of(server, "k", "bob")));
    assert!(!of_ticket.is_empty());
    assert_eq!(of_ticket, of_block);
}

/// How many filters the module has in the way of everybody's commands.
fn filters(client: &mut Client) -> u64 {
    let modules = client.info_text("modules");
    let ours = modules.lines().find(|line| line.contains("name=leasehold,")).unwrap();
    let number = ours.split("filters=").nth(1).and_then(|rest| rest.split(',').next());
    number.unwrap().parse().unwrap()
}

#[test]
fn commands_are_watched_only_while_a_ticket_is_kept() {
    let (_server, mut client) = held();
    assert_eq!(filters(&mut client), 0);
    for end in ["LOCK.RELEASE k bob", "LOCK.RELEASE k alice", ""] {
        client.cmd("LOCK.ACQUIRE k alice 60000");
        let lasts = if end.is_empty() { 20 } else { LONG };
        assert_eq!(asked(&mut client, by_ticket("bob", lasts)), None);
        if !end.is_empty() {
            assert_eq!(filters(&mut client), 1);
            client.cmd(end);
        }
        eventually("the watch is over", || match filters(&mut client) {
            0 => Ok(()),
            number => Err(number),
        });
        client.cmd("DEL k");
    }
}

#[test]
fn a_server_that_had_tickets_and_has_none_says_nothing_to_its_replicas() {
    let (server, mut client) = held_on(Server::builder().tcp());
    if !testkit::is_older_than((7, 0)) {
        let request = format!("{} NOTIFY {CHANNEL}", by_ticket("bob", LONG));
        assert_eq!(asked(&mut client, request), None);
    }
    queue_up(&mut client, "bob");
    assert!(client.release("k", "alice"));
    assert!(client.release("k", "bob"));
    let mut stream = ReplicationStream::of(&server);
    // What the fence clock has to say to a replica that has just come.
    stream.commands(&server);
    client.cmd("GET k");
    assert!(stream.commands(&server).is_empty());
    queue_up_and_leave(&mut client);
    let sent = stream.commands(&server);
    assert!(sent.iter().all(|command| !command.contains("bob")), "{sent:?}");
}

fn queue_up_and_leave(client: &mut Client) {
    client.cmd("SET k foreign");
    queue_up(client, "bob");
    assert!(!client.release("k", "bob"));
}
