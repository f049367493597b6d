//! `leasehold top` on one server: what a person sees of locks on the screen of a real terminal.

use crate::scene::{LONG, server, url, with_module};
use crate::tmux::{Window, line_with};
use testkit::waiter::Waiter;
use testkit::{Server, is_older_than};

/// The view of this server, in its own window.
fn top(server: &Server) -> Window {
    top_with(server, &[])
}

fn top_with(server: &Server, variables: &[(&str, &str)]) -> Window {
    let window = Window::with(&url(server.port()), variables);
    window.runs("$LEASEHOLD top --every 100ms");
    window.shows("leasehold top   servers 1 of 1");
    window
}

/// The names of locks, in the order of the screen.
fn order(screen: &str, names: &[&str]) -> Vec<String> {
    let in_line = |line: &str| names.iter().find(|name| line.contains(**name));
    screen.lines().filter_map(in_line).map(|name| (*name).to_owned()).collect()
}

fn cells(screen: &str, name: &str) -> usize {
    line_with(screen, name).matches('█').count()
}

#[test]
fn a_contended_lock_is_seen_with_its_holder_and_its_queue() {
    let server = server();
    server.client().grant("printer", "alice", LONG);
    server.client().grant("alone", "zoe", LONG);
    let _bob = Waiter::of(&server, "printer", "bob");
    let _carol = Waiter::of(&server, "printer", "carol");
    let window = top(&server);
    let screen = window.shows("alone");
    let words: Vec<_> = line_with(&screen, "printer").split_whitespace().collect();
    assert_eq!(words[..4], [">", "1", "printer", "alice"], "{screen}");
    assert_eq!(words[7], "2", "{screen}");
    assert!(line_with(&screen, "leasehold top").contains("waited for 1"), "{screen}");
    assert!(line_with(&screen, &format!("1 127.0.0.1:{}", server.port())).contains(" 2/"));
    // Locks with a queue come first.
    assert_eq!(order(&screen, &["printer", "alone"]), ["printer", "alone"], "{screen}");
    // The view refreshes by itself.
    assert!(server.client().release("printer", "alice"));
    let screen = window.until("bob has it", |screen| {
        screen.lines().any(|line| line.contains("printer") && line.contains(" bob "))
    });
    assert!(line_with(&screen, "printer").split_whitespace().nth(7) == Some("1"), "{screen}");
}

#[test]
fn grants_and_hand_offs_are_told_in_a_second() {
    let server = server();
    let window = top(&server);
    let rates = |screen: &str| -> Vec<String> {
        let line = line_with(screen, &format!("1 127.0.0.1:{}", server.port())).to_owned();
        line.split_whitespace().skip(3).take(2).map(str::to_owned).collect()
    };
    window.until("nothing is granted", |screen| rates(screen) == ["0", "0"]);
    server.client().grant("x", "a", LONG);
    let _waiter = Waiter::of(&server, "x", "b");
    assert!(server.client().release("x", "a"));
    window.until("a hand-off", |screen| rates(screen)[1] != "0" && rates(screen)[1] != "-");
    window.until("nothing is granted", |screen| rates(screen) == ["0", "0"]);
}

#[test]
fn a_lease_runs_down_and_ends() {
    let server = server();
    let window = top(&server);
    server.client().grant("short", "alice", 5_000);
    window.until("a full bar", |screen| screen.contains("short") && cells(screen, "short") == 8);
    window.until("half a bar", |screen| (1..5).contains(&cells(screen, "short")));
    window.shows_no_more("short");
}

#[test]
fn a_lease_that_is_renewed_is_full_again() {
    let server = server();
    let window = top(&server);
    server.client().grant("short", "alice", 6_000);
    window.until("a part", |screen| screen.contains("short") && cells(screen, "short") < 7);
    server.cmd("LOCK.EXTEND short alice 6000");
    window.until("a full bar", |screen| cells(screen, "short") == 8);
}

#[test]
fn locks_are_sorted_by_what_one_wants() {
    let server = server();
    let mut client = server.client();
    client.grant("second", "alice", 40_000);
    client.grant("third", "bob", 50_000);
    client.grant("first", "carol", 30_000);
    let _waiter = Waiter::of(&server, "third", "dave");
    let window = top(&server);
    let names = ["first", "second", "third"];
    let by = |sort: &str, wanted: [&str; 3]| {
        window.until(sort, |screen| {
            screen.contains(&format!("LOCKS by {sort},")) && order(screen, &names) == wanted
        });
    };
    by("queue", ["third", "second", "first"]);
    window.types("ss");
    by("held", ["second", "third", "first"]);
    window.types("s");
    by("left", ["first", "second", "third"]);
    window.types("r");
    window.until("the other way round", |screen| {
        screen.contains("by left reversed,")
            && order(screen, &names) == ["third", "second", "first"]
    });
    window.types("rss");
    by("name", ["first", "second", "third"]);
}

#[test]
fn only_what_matches_the_filter_is_shown() {
    let server = server();
    let mut client = server.client();
    for (name, owner) in [("order:1", "web-1"), ("order:2", "web-2"), ("nightly", "cron")] {
        client.grant(name, owner, LONG);
    }
    let window = top(&server);
    window.shows("nightly");
    window.types("/");
    window.shows("filter: _");
    window.types("ORDER");
    let screen = window.shows_no_more("nightly");
    assert!(screen.contains("order:1") && screen.contains("order:2"), "{screen}");
    window.presses("Enter");
    window.shows("LOCKS by queue, 2, with \"ORDER\"");
    // The filter also matches holders, and q is a letter while the user types.
    window.types("/");
    for _ in 0.."ORDER".len() {
        window.presses("BSpace");
    }
    window.types("qcron");
    window.shows("no lock matches");
    window.presses("Escape");
    window.shows("LOCKS by queue, 3");
}

#[test]
fn one_lock_is_opened_with_all_who_hold_it_and_all_who_wait() {
    let server = server();
    let mut client = server.client();
    client.cmd("LOCK.ACQUIRE page alice 60000 SHARE 0");
    client.cmd("LOCK.ACQUIRE page bob 30000 SHARE 5");
    client.grant("other", "zoe", LONG);
    let _carol = Waiter::of(&server, "page", "carol");
    let window = top(&server);
    let screen = window.shows("alice +1");
    assert!(!screen.contains("carol"), "{screen}");
    window.presses("Down");
    window.until("the other one is selected", |screen| line_with(screen, "other").starts_with('>'));
    window.presses("Up");
    window.until("the first one is selected", |screen| line_with(screen, "page").starts_with('>'));
    window.presses("Enter");
    let screen = window.shows("QUEUE 1");
    let told = |owner: &str| line_with(&screen, owner).split_whitespace().collect::<Vec<_>>();
    assert!(screen.contains("LOCK page on 127.0.0.1:"), "{screen}");
    assert_eq!(*told("alice").last().unwrap(), "any", "{screen}");
    assert_eq!(told("bob")[told("bob").len() - 2..], ["of", "5"], "{screen}");
    assert!(told("carol").ends_with(&["alone", "block"]), "{screen}");
    assert!(!screen.contains("zoe"), "{screen}");
    let _dave = Waiter::of(&server, "page", "dave");
    window.shows("QUEUE 2");
    window.presses("Escape");
    window.shows("zoe");
}

#[test]
fn a_long_queue_is_scrolled() {
    let server = server();
    server.client().grant("x", "alice", LONG);
    let waiters: Vec<_> =
        (10..40).map(|number| Waiter::of(&server, "x", &format!("waiter-{number}"))).collect();
    let window = top(&server);
    window.shows("alice");
    window.presses("Enter");
    let screen = window.shows("QUEUE 30");
    assert!(screen.contains("waiter-10") && !screen.contains("waiter-39"), "{screen}");
    for _ in 0..3 {
        window.presses("NPage");
    }
    let screen = window.shows("waiter-39");
    assert!(!screen.contains("waiter-10"), "{screen}");
    assert_eq!(waiters.len(), 30);
}

#[test]
fn whoever_waits_for_what_may_not_come_is_pointed_out() {
    let server = server();
    server.cmd(["SET", "old", "1795233601234567:legacy"]);
    let _bob = Waiter::of(&server, "old", "bob");
    let window = top(&server);
    let screen = window.shows("stuck 1");
    let line = line_with(&screen, "legacy");
    assert!(line.starts_with('!') && line.contains("no end"), "{screen}");
}

#[test]
fn a_loss_is_shown_as_it_comes_in() {
    let server = server();
    let mut client = server.client();
    let window = top(&server);
    window.shows("nothing was noted");
    client.grant("printer", "alice", 50);
    testkit::eventually("the lease ends", || {
        if client.info("printer").is_none() { Ok(()) } else { Err(()) }
    });
    client.cmd("LOCK.RELEASE printer alice");
    let screen = window.shows("late-release printer of alice, ");
    let line = line_with(&screen, "late-release");
    assert!(line.starts_with('!') && line.contains(" ago ") && line.ends_with(" late"), "{screen}");
    assert!(screen.contains("losses 1"), "{screen}");
    // A view that starts later counts no earlier event as a loss.
    let screen = top(&server).shows("late-release");
    assert!(screen.contains("losses 0"), "{screen}");
}

#[test]
fn a_server_near_its_limits_is_pointed_out() {
    if is_older_than((7, 0)) {
        return;
    }
    let server = server();
    server.cmd("CONFIG SET leasehold.max-waiters 2");
    server.client().grant("x", "alice", LONG);
    let _one = Waiter::of(&server, "x", "bob");
    let window = top(&server);
    window.shows(" 1/2 ");
    assert!(!window.screen().contains("waiters: "), "{}", window.screen());
    let _other = Waiter::of(&server, "x", "carol");
    window.shows("waiters: 100 % of what leasehold.max-waiters allows");
    server.client().cmd("CONFIG SET maxmemory 1000000");
    window.shows("% of what maxmemory allows");
}

#[test]
fn what_is_seen_of_many_keys_is_said_to_be_a_part_until_it_is_all() {
    let server = server();
    server.cmd(["EVAL", "for i=1,6000 do redis.call('SET','k'..i,i) end", "0"]);
    server.client().grant("held", "alice", LONG);
    let window = Window::open(&url(server.port()));
    window.runs("$LEASEHOLD top --every 500ms");
    window.shows("a part: ");
    let screen = window.shows_no_more("a part: ");
    assert!(screen.contains("held") && screen.contains("alice"), "{screen}");
}

#[test]
fn more_locks_than_are_followed_are_said_to_be_left_out() {
    let server = server();
    let mut client = server.client();
    for number in 0..300 {
        client.grant(format!("lock:{number}"), "alice", LONG);
    }
    let window = top(&server);
    window.shows("44 locks left out");
    window.shows("of 256");
}

#[test]
fn without_colours_the_meaning_is_still_there() {
    let server = server();
    server.cmd(["SET", "old", "1795233601234567:legacy"]);
    let _bob = Waiter::of(&server, "old", "bob");
    // tmux writes any text colour this way.
    let is_coloured = |screen: &str| screen.contains("[38;5;");
    let with = top(&server);
    with.shows("stuck 1");
    assert!(is_coloured(&with.screen_with_colours()), "{:?}", with.screen_with_colours());
    let without = top_with(&server, &[("NO_COLOR", "1")]);
    let screen = without.shows("stuck 1");
    assert!(!is_coloured(&without.screen_with_colours()), "{:?}", without.screen_with_colours());
    assert!(line_with(&screen, "legacy").starts_with('!'), "{screen}");
}

#[test]
fn without_blocks_bars_are_made_of_signs() {
    let server = server();
    server.client().grant("x", "alice", LONG);
    let window = top_with(&server, &[("LC_ALL", "C")]);
    let screen = window.shows("alice");
    assert!(line_with(&screen, "alice").contains("########"), "{screen}");
}

#[test]
fn a_small_window_shows_what_matters_most() {
    let server = server();
    server.client().grant("printer", "alice", LONG);
    let _bob = Waiter::of(&server, "printer", "bob");
    let window = top(&server);
    window.shows("alice");
    window.resize(44, 10);
    // The old contents are cut off until the next drawing.
    let screen = window.until("no lease", |screen| {
        ["alice", "QUEUE"].iter().all(|word| screen.contains(word))
            && !screen.contains("LEASE")
            && !screen.contains("LOG")
    });
    let words: Vec<_> = line_with(&screen, "printer").split_whitespace().collect();
    assert_eq!((words[1], words[2]), ("printer", "alice"), "{screen}");
    assert!(words.contains(&"1"), "{screen}");
    window.resize(20, 4);
    window.shows("leasehold top needs");
    window.resize(120, 40);
    window.until("all of it", |screen| {
        screen.contains("TICKETS") && screen.contains("LEASE") && screen.contains("printer")
    });
}

#[test]
fn names_do_nothing_to_the_terminal() {
    let server = with_module().start();
    server.client().cmd(["LOCK.ACQUIRE", "a\x1b[2Jb\n", "al\x07ice", "60000"]);
    let window = top(&server);
    window.shows("a\\u{1b}[2Jb");
}
