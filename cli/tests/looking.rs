//! `leasehold ls`, `show` and `release`: what operators see and do.

use crate::program::Program;
use crate::scene::{LONG, both_kinds, held, hold, leasehold, server, start, url};
use redis::Value;
use std::time::Duration;
use testkit::waiter::Waiter;
use testkit::{Cluster, Server, bulk_text, free_port, is_older_than};

/// The output, and the exit code.
fn printed(server: &Server, words: &[&str]) -> (String, i32) {
    let ended = start(server, words).ends();
    assert_eq!(ended.said, "", "{words:?}");
    (ended.printed, ended.code)
}

#[test]
fn a_free_lock_is_shown_as_free() {
    for server in both_kinds() {
        assert_eq!(printed(&server, &["show", "x"]), ("x is free\n".to_owned(), 1));
        let (json, code) = printed(&server, &["show", "--json", "x"]);
        assert!(json.starts_with("{\"name\":\"x\",\"holders\":[],\"waiters\":"), "{json}");
        assert_eq!(code, 1);
    }
}

#[test]
fn holders_and_waiters_are_shown() {
    let server = server();
    let mut client = server.client();
    client.cmd("LOCK.ACQUIRE x alice 60000 SHARE 0");
    client.cmd("LOCK.ACQUIRE x bob 60000 SHARE 3");
    let _carol = Waiter::of(&server, "x", "carol");
    client.wait_until_waiters(1);
    let (table, code) = printed(&server, &["show", "x"]);
    let rows: Vec<Vec<_>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(code, 0);
    assert_eq!(rows[0], ["HOLDER", "FENCE", "LEFT", "SHARE"]);
    assert_eq!((rows[1][0], rows[1][3]), ("alice", "any"));
    assert_eq!((rows[2][0], &rows[2][3..]), ("bob", &["of", "3"][..]));
    assert_eq!(rows[4], ["WAITER", "WAITED", "PATIENCE", "SHARE"]);
    assert_eq!((rows[5][0], *rows[5].last().unwrap()), ("carol", "alone"));
    let (json, _) = printed(&server, &["show", "--json", "x"]);
    assert!(json.contains("{\"owner\":\"carol\",\"waited\":"), "{json}");
    assert!(json.contains("{\"owner\":\"bob\",\"fence\":"), "{json}");
    assert!(json.contains(",\"share\":3}"), "{json}");
}

/// The two names look alike when they are shown.
#[test]
fn locks_whose_names_are_no_text_are_all_listed() {
    for server in both_kinds() {
        let script =
            "for _, key in ipairs({'\\254', '\\255'}) do redis.call('SET', key, ARGV[1]) end";
        server.cmd(["EVAL", script, "0", "1795233601234567:alice"]);
        let (json, code) = printed(&server, &["ls", "--json"]);
        assert_eq!((json.matches("\"name\":\"\u{fffd}\"").count(), code), (2, 0), "{json}");
    }
}

#[test]
fn all_locks_are_listed_and_other_keys_are_not() {
    for server in both_kinds() {
        hold(&server, "order:1", "alice");
        hold(&server, "nightly", "bob");
        server.cmd(["SET", "page", "1795233601234567"]);
        server.cmd(["SET", "text", "1795233601234567 is a number"]);
        server.cmd("RPUSH list 1795233601234567:a");
        server.cmd("DEL text");
        let (table, code) = printed(&server, &["ls"]);
        let names: Vec<_> =
            table.lines().map(|line| line.split_whitespace().take(2).collect::<Vec<_>>()).collect();
        assert_eq!(names, [["NAME", "HOLDER"], ["nightly", "bob"], ["order:1", "alice"]]);
        assert_eq!(code, 0);
        let (json, _) = printed(&server, &["ls", "--json", "order:*"]);
        assert!(
            json.starts_with("[{\"name\":\"order:1\",\"owner\":\"alice\",\"fence\":"),
            "{json}"
        );
        assert!(!json.contains("nightly"), "{json}");
        assert_eq!(printed(&server, &["ls", "none*"]), (String::new(), 0));
        let mut prefixed = leasehold(&url(server.port()), &["ls", "--json"]);
        prefixed.env("LEASEHOLD_PREFIX", "order:");
        let json = Program::start(prefixed).ends().printed;
        assert!(json.starts_with("[{\"name\":\"1\",") && !json.contains("nightly"), "{json}");
    }
}

#[test]
fn the_locks_of_a_server_with_many_keys_are_all_found() {
    let server = server();
    let mut client = server.client();
    client.cmd(["EVAL", "for i=1,3000 do redis.call('SET','k'..i,i) end", "0"]);
    for number in 0..5 {
        client.grant(format!("lock:{number}"), "alice", LONG);
    }
    let (table, _) = printed(&server, &["ls"]);
    assert_eq!(table.lines().count(), 6, "{table}");
}

#[test]
fn the_locks_of_all_nodes_of_a_cluster_are_listed() {
    let cluster = Cluster::start();
    let hosts: Vec<_> =
        cluster.nodes().iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let url = format!("redis+cluster://{}", hosts[0]);
    for number in 0..9 {
        let name = format!("lock:{number}");
        cluster.client().cmd(["LOCK.ACQUIRE", &name, "alice", "60000"]);
    }
    let ended = Program::start(leasehold(&url, &["ls"])).ends();
    assert_eq!(ended.printed.lines().count(), 10, "{}{}", ended.printed, ended.said);
    let ended = Program::start(leasehold(&url, &["run", "y", "--", "true"])).ends();
    assert_eq!((ended.code, ended.said.as_str()), (0, ""));
    let ended = Program::start(leasehold(&url, &["release", "lock:3"])).ends();
    assert_eq!(ended.code, 0, "{}", ended.said);
    let ended = Program::start(leasehold(&url, &["release", "--all", "--owner", "alice"])).ends();
    let text = "freed 8 holds and places of alice, 8 found by a scan\n";
    assert_eq!((ended.code, ended.printed.as_str()), (0, text), "{}", ended.said);
}

#[test]
fn what_fails_on_a_node_or_a_key_does_not_keep_all_from_being_released_elsewhere() {
    let cluster = Cluster::start();
    let node = &cluster.nodes()[0];
    let url = format!("redis+cluster://127.0.0.1:{}", node.port());
    for number in 0..9 {
        let name = format!("lock:{number}");
        cluster.client().cmd(["LOCK.ACQUIRE", &name, "alice", "60000"]);
    }
    let release =
        || Program::start(leasehold(&url, &["release", "--all", "--owner", "alice"])).ends();
    let Value::Int(here) = node.cmd("DBSIZE") else { panic!("no number") };
    node.cmd("ACL SETUSER default -lock.drop");
    let ended = release();
    let elsewhere = 9 - here;
    let text =
        format!("freed {elsewhere} holds and places of alice, {elsewhere} found by a scan\n");
    assert_eq!((ended.code, ended.printed), (77, text), "{}", ended.said);
    let address = format!("127.0.0.1:{} refused: ", node.port());
    assert!(ended.said.contains(&address) && ended.said.contains("lock.drop"), "{}", ended.said);

    // Now it may, but must not touch some keys there. Redis 6.2 then refuses LOCK.DROP, too.
    if is_older_than((7, 0)) {
        return;
    }
    let Value::Array(keys) = node.cmd("KEYS *") else { panic!("no list") };
    let [kept, ..] = &keys[..] else { panic!("the node has no lock") };
    let kept = bulk_text(kept);
    let others: Vec<_> = (0..9).map(|n| format!("lock:{n}")).filter(|k| *k != kept).collect();
    let keys = others.iter().map(|key| format!("~{key}")).collect::<Vec<_>>().join(" ");
    node.cmd(format!("ACL SETUSER default +lock.drop resetkeys {keys}").as_str());
    let ended = release();
    let text = format!("freed {0} holds and places of alice, {0} found by a scan\n", here - 1);
    assert_eq!((ended.code, ended.printed), (77, text), "{}", ended.said);
    assert!(ended.said.contains(&format!("The key is {kept}.")), "{}", ended.said);
}

#[test]
fn a_lock_is_released_whoever_holds_it() {
    for server in both_kinds() {
        hold(&server, "x", "alice");
        let (told, code) = printed(&server, &["release", "x"]);
        assert!(told.starts_with("released x, held by alice with fence 1"), "{told}");
        assert_eq!((code, held(&server, "x")), (0, None));
        assert_eq!(printed(&server, &["release", "x"]), ("x is free\n".to_owned(), 1));
        let (json, code) = printed(&server, &["release", "--json", "x"]);
        assert_eq!((json.as_str(), code), ("{\"name\":\"x\",\"released\":[]}\n", 1));
    }
}

#[test]
fn only_the_grant_with_that_fence_is_released() {
    for server in both_kinds() {
        hold(&server, "x", "alice");
        let value = held(&server, "x").unwrap();
        let fence = value.split(':').next().unwrap();
        let other = (fence.parse::<u64>().unwrap() - 1).to_string();
        for words in [["--fence", other.as_str()], ["--owner", "bob"]] {
            let (told, code) = printed(&server, &["release", words[0], words[1], "x"]);
            let text = format!("nothing was released: x is held by alice with fence {fence}\n");
            assert_eq!((told, code), (text, 1));
        }
        assert_eq!(held(&server, "x").as_deref(), Some(value.as_str()));
        assert_eq!(printed(&server, &["release", "--fence", fence, "x"]).1, 0);
        assert_eq!(held(&server, "x"), None);
    }
}

/// With the module places and shared holds, too. The connection of a bound hold is gone, so that the module remembers it no more.
#[test]
fn everything_that_an_owner_has_is_released_and_nothing_of_others() {
    for server in both_kinds() {
        for (name, owner) in [("x", "alice"), ("y", "alice"), ("z", "alice2"), ("w", "bob")] {
            hold(&server, name, owner);
        }
        server.cmd("SET old alice PX 60000");
        for (key, value) in [("flag", "alice"), ("text", "alice wrote this"), ("number", "17")] {
            server.cmd(["SET", key, value]);
        }
        // It begins as the value of a shared lock does.
        server.cmd(["SET", "card", "4111111111111111 Visa"]);
        server.cmd("RPUSH list alice");
        let has_module = !matches!(server.cmd("LOCK.HELP"), Value::ServerError(_));
        if has_module {
            for line in [
                "LOCK.ACQUIRE w alice 60000 TICKET 60000 ALSO 1 z",
                "LOCK.ACQUIRE bound alice 60000 EPHEMERAL 60000",
                "LOCK.ACQUIRE shared alice 60000 SHARE 0",
                "LOCK.ACQUIRE shared bob 60000 SHARE 0",
            ] {
                server.cmd(line);
            }
        }
        let all = ["release", "--owner", "alice", "--all"];
        let (freed, scanned) = if has_module { (7, 5) } else { (3, 3) };
        let text = format!("freed {freed} holds and places of alice, {scanned} found by a scan\n");
        assert_eq!(printed(&server, &all), (text, 0));
        for (name, owner) in [("z", "alice2"), ("w", "bob")] {
            assert!(held(&server, name).is_some_and(|value| value.ends_with(owner)), "{name}");
        }
        let left = if has_module { 8 } else { 7 };
        assert_eq!(server.cmd("DBSIZE"), Value::Int(left));
        let none = "{\"owner\":\"alice\",\"freed\":0,\"found_by_scan\":0}\n".to_owned();
        assert_eq!(printed(&server, &[&all[..], &["--json"]].concat()), (none, 1));
    }
}

#[test]
fn a_server_that_does_not_answer_is_named() {
    let address = url(free_port());
    for words in [&["ls"][..], &["show", "x"], &["release", "x"], &["wait", "--wait", "0", "x"]] {
        let mut command = leasehold(&address, words);
        command.env("LEASEHOLD_RETRY_FOR_MS", "200");
        let ended = Program::start(command).ends();
        assert_eq!((ended.code, ended.printed.as_str()), (69, ""), "{words:?}: {}", ended.said);
        assert!(ended.said.contains(&address) && ended.said.contains("--url"), "{}", ended.said);
    }
}

#[test]
fn one_waits_until_a_lock_is_free_and_does_not_take_it() {
    for server in both_kinds() {
        assert_eq!(printed(&server, &["wait", "x"]), (String::new(), 0));
        hold(&server, "x", "alice");
        let ended = start(&server, &["wait", "--wait", "100ms", "x"]).ends();
        assert_eq!(ended.code, 75);
        assert!(ended.said.starts_with("leasehold: x was not free within "), "{}", ended.said);
        let program = start(&server, &["wait", "x"]);
        program.says("waiting for x: held by alice");
        server.cmd("DEL x");
        let ended = program.ends();
        assert_eq!((ended.code, held(&server, "x")), (0, None));
        // `wait` also sees that the lease has expired.
        server.cmd(["SET", "x", &format!("{}:a", testkit::unix_micros()), "PX", "300"]);
        let begun = std::time::Instant::now();
        assert_eq!(printed(&server, &["wait", "--quiet", "x"]).1, 0);
        assert!(begun.elapsed() >= Duration::from_millis(200));
    }
}
