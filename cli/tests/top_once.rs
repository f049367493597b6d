//! `leasehold top --once`: for scripts and for use without a terminal.

use crate::program::{Ended, Program};
use crate::scene::{LONG, hold, leasehold, server, start, url, with_module};
use testkit::waiter::Waiter;
use testkit::{Cluster, Server, free_port};

fn once(server: &Server, words: &[&str]) -> Ended {
    start(server, &[&["top", "--once"], words].concat()).ends()
}

/// The rows below the heading with this beginning, split into words.
fn rows<'a>(printed: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let lines = printed.lines().skip_while(|line| !line.trim_start().starts_with(heading));
    let rows = lines.skip(1).take_while(|line| !line.is_empty());
    rows.map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn one_round_is_printed_as_tables() {
    let server = server();
    server.client().grant("printer", "alice", LONG);
    server.client().grant("alone", "zoe", LONG);
    let _bob = Waiter::of(&server, "printer", "bob");
    server.cmd("DEL alone");
    server.client().cmd("LOCK.RELEASE alone zoe");
    server.client().grant("other", "zoe", LONG);
    let ended = once(&server, &[]);
    assert_eq!((ended.code, ended.said.as_str()), (0, ""));
    let servers = rows(&ended.printed, "SERVER");
    assert_eq!((servers.len(), servers[0][0]), (1, url(server.port()).as_str()));
    assert!(servers[0][1].starts_with("1/"), "{}", ended.printed);
    let locks = rows(&ended.printed, "LOCK ");
    assert_eq!((locks[0][0], locks[0][1], locks[0][4]), ("printer", "alice", "1"));
    assert_eq!((locks[1][0], locks[1][1], locks[1][4]), ("other", "zoe", "0"));
    let events = rows(&ended.printed, "AGO");
    assert_eq!((events[0][0], events[0][2], events[0][3]), ("!", "deleted", "alone"));
}

#[test]
fn what_is_printed_is_filtered_and_sorted() {
    let server = server();
    for name in ["b", "a", "c"] {
        server.client().grant(format!("order:{name}"), "alice", LONG);
    }
    server.client().grant("nightly", "zoe", LONG);
    let ended = once(&server, &["--sort", "name", "--filter", "order"]);
    let locks = rows(&ended.printed, "LOCK ");
    let names: Vec<_> = locks.iter().map(|row| row[0]).collect();
    assert_eq!(names, ["order:a", "order:b", "order:c"]);
}

#[test]
fn json_has_the_same_and_more() {
    let server = server();
    let fence = server.client().grant("printer", "alice", LONG);
    let _bob = Waiter::of(&server, "printer", "bob");
    let ended = once(&server, &["--json"]);
    assert_eq!((ended.code, ended.printed.lines().count()), (0, 1));
    let told = |text: &str| assert!(ended.printed.contains(text), "{text}: {}", ended.printed);
    told(&format!("{{\"servers\":[{{\"address\":\"{}\",\"error\":null,", url(server.port())));
    told("\"module\":\"0.3.0\",\"role\":\"primary\",\"waiters\":1,\"most_waiters\":");
    told(&format!("\"name\":\"printer\",\"owner\":\"alice\",\"fence\":{fence},\"ttl\":"));
    told("\"holders\":1,\"share\":1,\"waiters\":1,\"waited\":");
    told("\"waits\":1,\"refused\":0,");
    told("\"stuck\":false}],\"log\":[]}\n");
}

#[test]
fn a_server_without_the_module_has_no_queues() {
    let server = with_module().without_module().start();
    hold(&server, "x", "alice");
    let ended = once(&server, &["--json"]);
    assert!(ended.printed.contains("\"module\":null"), "{}", ended.printed);
    assert!(ended.printed.contains("\"waiters\":null,\"waited\":null"), "{}", ended.printed);
    let ended = once(&server, &[]);
    assert!(ended.printed.contains("no module"), "{}", ended.printed);
}

#[test]
fn servers_that_are_down_are_named_and_the_others_told_of() {
    let server = server();
    server.client().grant("x", "alice", LONG);
    let silent = url(free_port());
    let ended = once(&server, &[&url(server.port()), &silent]);
    assert_eq!(ended.code, 0, "{}", ended.said);
    assert!(
        ended.printed.contains(&format!("! {silent}: down: Connection refused")),
        "{}",
        ended.printed
    );
    assert!(ended.printed.contains("alice"), "{}", ended.printed);
    let ended = once(&server, &["--json", &url(server.port()), &silent]);
    assert!(
        ended.printed.contains(&format!("{{\"address\":\"{silent}\",\"error\":\"Connection ref")),
        "{}",
        ended.printed
    );
    for url in [silent, format!("redis+cluster://127.0.0.1:{}", free_port())] {
        let ended = once(&server, &[&url]);
        assert_eq!((ended.code, ended.printed.as_str()), (69, ""));
        assert!(ended.said.contains(&url) && ended.said.contains("--url"), "{}", ended.said);
    }
}

#[test]
fn a_part_is_said_to_be_one() {
    let server = server();
    server.cmd(["EVAL", "for i=1,3000 do redis.call('SET','k'..i,i) end", "0"]);
    let ended = once(&server, &[]);
    assert!(ended.printed.contains("A part: 500 of 3000 keys were looked at"), "{}", ended.printed);
    assert!(once(&server, &["--json"]).printed.contains("\"keys\":3000,\"keys_looked_at\":500,"));
}

#[test]
fn all_primaries_of_a_cluster_are_told_of() {
    let cluster = Cluster::of(2, 0);
    for index in 0..2 {
        let key = cluster.slot_of(index).key("lock");
        cluster.client_for(&key).grant(&key, "alice", LONG);
    }
    let url = format!("redis+cluster://127.0.0.1:{}", cluster.node(1).port());
    let ended = Program::start(leasehold(&url, &["top", "--once"])).ends();
    assert_eq!(rows(&ended.printed, "SERVER").len(), 2, "{}", ended.printed);
    assert_eq!(rows(&ended.printed, "LOCK ").len(), 2, "{}", ended.printed);
}

#[test]
fn only_names_with_the_prefix_are_told_of_and_without_it() {
    let server = server();
    server.client().grant("app:x", "alice", LONG);
    server.client().grant("other", "zoe", LONG);
    let _bob = Waiter::of(&server, "other", "bob");
    let mut command = leasehold(&url(server.port()), &["top", "--once"]);
    command.env("LEASEHOLD_PREFIX", "app:");
    let ended = Program::start(command).ends();
    let locks = rows(&ended.printed, "LOCK ");
    assert_eq!((locks.len(), locks[0][0]), (1, "x"), "{}", ended.printed);
}
