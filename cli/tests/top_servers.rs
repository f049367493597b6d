//! `leasehold top` on several servers: servers that go away and come back, clusters, servers without the module, and
//! servers that do not tell everything.

use crate::scene::{LONG, hold, server, url, with_module};
use crate::tmux::{Window, line_with};
use testkit::waiter::Waiter;
use testkit::{Cluster, Server};

/// The view of these servers.
fn top(servers: &[&Server]) -> Window {
    let window = Window::open(&url(servers[0].port()));
    let urls: Vec<_> = servers.iter().map(|server| url(server.port())).collect();
    window.runs(&format!("$LEASEHOLD top --every 100ms {}", urls.join(" ")));
    window.shows(&format!("servers {0} of {0}", servers.len()));
    window
}

#[test]
fn several_servers_are_one_view() {
    let (one, other) = (server(), server());
    one.client().grant("here", "alice", LONG);
    other.client().grant("there", "bob", LONG);
    let window = top(&[&one, &other]);
    let screen =
        window.until("both", |screen| screen.contains("here") && screen.contains("there "));
    let number = |name: &str| {
        line_with(&screen, name).split_whitespace().find(|word| word.len() == 1 && *word != ">")
    };
    assert_eq!((number("alice"), number("bob")), (Some("1"), Some("2")), "{screen}");
    let _waiter = Waiter::of(&other, "there", "carol");
    window.until("the contended one is first", |screen| {
        screen.find("there ").unwrap_or(usize::MAX) < screen.find("here ").unwrap_or_default()
    });
    window.presses("Enter");
    window.shows(&format!("LOCK there on 127.0.0.1:{}", other.port()));
    window.shows("carol");
}

#[test]
fn a_server_that_is_down_is_said_to_be_while_the_others_go_on_and_comes_back() {
    let (mut one, other) = (server(), server());
    one.client().grant("here", "alice", LONG);
    other.client().grant("there", "bob", LONG);
    let window = top(&[&one, &other]);
    window.shows("alice");
    let port = one.port();
    one.kill();
    let screen = window.shows(&format!("1 127.0.0.1:{port} DOWN for "));
    assert!(
        line_with(&screen, "DOWN").contains("refused") || screen.contains("broken"),
        "{screen}"
    );
    // The last round of a dead server is no longer shown.
    window.shows_no_more("alice");
    window.shows("servers 1 of 2");
    other.client().grant("new", "carol", LONG);
    window.shows("carol");
    one.start_again();
    one.client().grant("again", "dave", LONG);
    let screen = window.shows("dave");
    assert!(screen.contains("servers 2 of 2") && !screen.contains("DOWN"), "{screen}");
}

#[test]
fn a_server_that_hangs_delays_nobody() {
    let (mut one, other) = (server(), server());
    let window = top(&[&one, &other]);
    one.freeze();
    window.shows("LATE");
    other.client().grant("new", "carol", LONG);
    window.shows("carol");
    window.types("?");
    window.shows("any key goes back");
    window.types(" ");
    window.shows("does not answer in time");
    one.thaw();
    window.shows("servers 2 of 2");
}

#[test]
fn an_opened_lock_of_a_server_that_is_down_is_not_known() {
    let mut server = server();
    server.client().grant("x", "alice", LONG);
    let window = top(&[&server]);
    window.shows("alice");
    window.presses("Enter");
    window.shows("QUEUE 0");
    server.kill();
    let screen = window.shows("its server does not answer");
    assert!(!screen.contains("alice"), "{screen}");
    server.start_again();
    window.shows("It is free.");
}

#[test]
fn a_cluster_is_one_view_and_its_new_primaries_are_found() {
    let mut cluster = Cluster::of(3, 1);
    let keys: Vec<_> = (0..3).map(|index| cluster.slot_of(index).key("lock")).collect();
    for key in &keys {
        cluster.client_for(key).grant(key, "alice", LONG);
    }
    let window = Window::open(&format!("redis+cluster://127.0.0.1:{}", cluster.node(0).port()));
    window.runs("$LEASEHOLD top --every 100ms --sort name");
    let screen = window.until("all three", |screen| keys.iter().all(|key| screen.contains(key)));
    assert!(screen.contains("servers 3 of 3"), "{screen}");
    // The only node in the address. The view asks the nodes that it has found for the new primary.
    cluster.node_mut(0).kill();
    window.shows("DOWN for ");
    let replica = cluster.node(3).port();
    window.until("the replica has taken over", |screen| {
        screen.contains(&format!("127.0.0.1:{replica}")) && screen.contains("servers 3 of 3")
    });
}

#[test]
fn a_server_without_the_module_shows_what_it_has() {
    let server = with_module().without_module().start();
    hold(&server, "x", "alice");
    let window = top(&[&server]);
    let screen = window.shows("alice");
    assert!(screen.contains("no module: whoever waits polls"), "{screen}");
    assert!(line_with(&screen, "alice").contains('█'), "{screen}");
    window.presses("Enter");
    window.shows("Who waits for it polls");
}

#[test]
fn what_a_user_may_not_ask_is_said_and_the_rest_is_shown() {
    let server = server();
    server.client().grant("x", "alice", LONG);
    server.cmd(["ACL", "SETUSER", "eve", "on", ">secret", "~*", "+@all", "-lock.top", "-lock.log"]);
    let window = Window::open(&format!("redis://eve:secret@127.0.0.1:{}", server.port()));
    window.runs("$LEASEHOLD top --every 100ms");
    let screen = window.shows("alice");
    assert!(
        screen.contains("LOCK.TOP is refused (NOPERM): let this user run +lock.top"),
        "{screen}"
    );
    assert!(screen.contains("+lock.log") && !screen.contains("secret"), "{screen}");
}

#[test]
fn a_server_that_wants_a_password_is_said_to() {
    let server = with_module().password("secret").start();
    let window = Window::open(&url(server.port()));
    window.runs("$LEASEHOLD top --every 100ms");
    let screen = window.shows("NOAUTH");
    assert!(screen.contains("servers 0 of 1"), "{screen}");
}
