//! What `leasehold run` asks for: shared and counted locks, several at once, owners, replicas.

use crate::program::Program;
use crate::scene::{both_kinds, eventually_held, held, hold, leasehold, run, server, start, url};
use testkit::replica::start_pair;
use testkit::{Sentinels, Server};

/// A program that holds the lock until it is told to end.
fn holding(server: &Server, words: &[&str]) -> Program {
    let mut all = vec!["run", "--wait", "0"];
    all.extend(words);
    all.extend(["--", "sh", "-c", "echo held; read line"]);
    let program = start(server, &all);
    program.prints("held\n");
    program
}

#[test]
fn those_who_share_a_lock_keep_out_the_one_who_does_not() {
    let server = server();
    let first = holding(&server, &["--shared", "page"]);
    let second = holding(&server, &["--shared", "page"]);
    assert_eq!(run(&server, &["run", "--wait", "0", "page", "--", "true"]).0, 75);
    assert_eq!([first.ends().code, second.ends().code], [1, 1]);
    assert_eq!(run(&server, &["run", "--wait", "0", "page", "--", "true"]).0, 0);
}

#[test]
fn as_many_have_a_semaphore_as_it_has_permits() {
    let server = server();
    let first = holding(&server, &["--limit", "2", "pool"]);
    let second = holding(&server, &["--limit", "2", "pool"]);
    assert_eq!(run(&server, &["run", "--wait", "0", "--limit", "2", "pool", "--", "true"]).0, 75);
    drop(first.ends());
    let third = holding(&server, &["--limit", "2", "pool"]);
    drop((second.ends(), third.ends()));
}

#[test]
fn several_locks_are_taken_all_or_none() {
    for server in both_kinds() {
        let words = ["--also", "b", "--also", "c", "a"];
        let program = holding(&server, &words);
        for name in ["a", "b", "c"] {
            eventually_held(&server, name);
        }
        drop(program.ends());
        hold(&server, "b", "alice");
        let (code, said) = run(&server, &["run", "--wait", "0", "--also", "b", "a", "--", "true"]);
        assert_eq!(code, 75);
        assert!(said.contains("b is held by alice"), "{said}");
        assert_eq!(held(&server, "a"), None);
    }
}

#[test]
fn one_asks_as_the_owner_that_was_chosen_or_as_one_that_tells_where_the_program_runs() {
    for server in both_kinds() {
        let program = holding(&server, &["--owner", "me", "x"]);
        assert!(eventually_held(&server, "x").ends_with(":me"));
        drop(program.ends());
        let program = holding(&server, &["x"]);
        let process = format!(":{}:", program.id());
        assert!(eventually_held(&server, "x").contains(&process));
        drop(program.ends());
    }
}

#[test]
fn replicas_that_hear_nothing_of_a_grant_are_told_of() {
    let alone = server();
    let ended = start(&alone, &["run", "--replicas", "1", "x", "--", "echo", "no"]).ends();
    assert_eq!((ended.code, ended.printed.as_str()), (69, ""));
    assert!(ended.said.contains("0 of 1 replicas"), "{}", ended.said);
    let (primary, _replica) = start_pair(Server::builder().tcp(), Server::builder().tcp());
    assert_eq!(run(&primary, &["run", "--replicas", "1", "x", "--", "true"]), (0, String::new()));
}

#[test]
fn the_primary_is_found_through_sentinels_and_followed_over_a_failover() {
    let mut sentinels = Sentinels::start();
    let hosts =
        sentinels.ports().iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>();
    let url = format!("redis+sentinel://{}/locks", hosts.join(","));
    let script = "echo held; read line; exit 5";
    let words = ["run", "--ttl", "60s", "x", "--", "sh", "-c", script];
    let mut program = Program::start(leasehold(&url, &words));
    program.prints("held\n");
    let value = eventually_held(sentinels.server(0), "x");
    testkit::eventually("both replicas have heard of it", || {
        let heard = [1, 2].map(|index| held(sentinels.server(index), "x"));
        if heard.iter().all(|heard| heard.as_ref() == Some(&value)) { Ok(()) } else { Err(heard) }
    });
    sentinels.server_mut(0).kill();
    let primary = sentinels.wait_for_another_primary_than(0);
    assert_eq!(held(sentinels.server(primary), "x"), Some(value));
    program.types("end\n");
    let ended = program.ends();
    assert_eq!(ended.code, 5, "{}", ended.said);
    assert_eq!(held(sentinels.server(primary), "x"), None, "{}", ended.said);
}

#[test]
fn a_unix_socket_is_an_address_too() {
    let server = server();
    let address = format!("unix://{}", server.socket().display());
    let ended = Program::start(leasehold(&address, &["run", "x", "--", "true"])).ends();
    assert_eq!((ended.code, ended.said.as_str()), (0, ""));
    // An option overrides the variable.
    let words = ["--url", &address, "run", "x", "--", "true"];
    assert_eq!(Program::start(leasehold(&url(1), &words)).ends().code, 0);
}
