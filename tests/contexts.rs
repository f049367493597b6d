//! The commands in pipelines, transactions and scripts, and what they do to WATCH.

use redis::Value;
use testkit::errors::{OWNER_LENGTH, SCRIPT_REPEATED, TTL_NOT_POSITIVE};
use testkit::{Server, bulk, error, int, lacks, strings, unchanged};

#[test]
fn a_pipeline_gets_its_replies_in_order() {
    let server = Server::start();
    let commands: Vec<String> = (0..1_000)
        .flat_map(|number| {
            [
                format!("LOCK.ACQUIRE k{number} alice 60000"),
                format!("LOCK.ACQUIRE k{number} bob 60000"),
                format!("LOCK.RELEASE k{number} alice"),
            ]
        })
        .collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let replies = server.client().pipeline(&commands);
    let mut last = 0;
    for replies in replies.chunks_exact(3) {
        let Value::Int(fence) = replies[0] else { panic!("{replies:?}") };
        assert!(fence > last);
        assert_eq!(replies[1..], [Value::Nil, int(1)]);
        last = fence;
    }
}

#[test]
fn an_error_in_a_pipeline_leaves_the_rest_and_the_connection() {
    let server = Server::start();
    let mut client = server.client();
    let replies = client.pipeline(&[
        "LOCK.ACQUIRE k alice 0",
        "LOCK.ACQUIRE k alice 60000",
        "LOCK.RELEASE k \"\"",
        "LOCK.RELEASE k alice",
    ]);
    assert_eq!(replies[0], error(TTL_NOT_POSITIVE));
    assert!(matches!(replies[1], Value::Int(1..)));
    assert_eq!(replies[2..], [error(OWNER_LENGTH), int(1)]);
    assert_eq!(client.info("k"), None);
}

#[test]
fn a_transaction_gets_the_reply_of_each_command() {
    let server = Server::start();
    let replies = server.client().transaction(&[
        "LOCK.ACQUIRE k alice 60000",
        "LOCK.ACQUIRE k alice 60000",
        "LOCK.ACQUIRE k bob 60000",
        "LOCK.CHECK k alice",
        "LOCK.EXTEND k alice 90000",
        "LOCK.ACQUIRE k alice 0",
        "LOCK.RELEASE k alice",
        "LOCK.INFO k",
    ]);
    let fence = replies[0].clone();
    assert!(matches!(fence, Value::Int(1..)), "{fence:?}");
    let rest =
        [fence.clone(), Value::Nil, fence, int(1), error(TTL_NOT_POSITIVE), int(1), Value::Nil];
    assert_eq!(replies[1..], rest);
}

#[test]
fn fences_grow_within_one_transaction() {
    let server = Server::start();
    let replies = server.client().transaction(&[
        "LOCK.ACQUIRE k alice 60000",
        "LOCK.RELEASE k alice",
        "LOCK.ACQUIRE k bob 60000",
    ]);
    let [Value::Int(first), _, Value::Int(second)] = replies[..] else { panic!("{replies:?}") };
    assert!(first < second);
}

#[test]
fn a_script_gets_integers_and_false() {
    let server = Server::start();
    let mut client = server.client();
    let script = "return {
        redis.call('LOCK.ACQUIRE', KEYS[1], 'alice', 60000),
        tostring(redis.call('LOCK.ACQUIRE', KEYS[1], 'bob', 60000)),
        redis.call('LOCK.EXTEND', KEYS[1], 'alice', 90000),
        redis.call('LOCK.CHECK', KEYS[1], 'alice') == redis.call('LOCK.INFO', KEYS[1])[4],
        redis.call('LOCK.RELEASE', KEYS[1], 'bob'),
        redis.call('LOCK.RELEASE', KEYS[1], 'alice')
    }";
    let reply = client.cmd(["EVAL", script, "1", "k"]);
    let Value::Array(parts) = &reply else { panic!("{reply:?}") };
    assert!(matches!(parts[0], Value::Int(1_000_000_000_000_000..)), "{reply:?}");
    assert_eq!(parts[1..], [bulk("false"), int(1), int(1), int(0), int(1)]);
}

#[test]
fn a_script_gets_a_map_if_it_asks_for_resp3() {
    if lacks((7, 0), "maps in a module's reply") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", 60_000);
    let script = "redis.setresp(3); return redis.call('LOCK.INFO', KEYS[1])['map']['owner']";
    assert_eq!(client.cmd(["EVAL", script, "1", "k"]), bulk("alice"));
}

#[test]
fn a_script_may_catch_an_error() {
    let server = Server::start();
    let script = "return redis.pcall('LOCK.ACQUIRE', KEYS[1], '', 5)['err']";
    let reply = server.cmd(["EVAL", script, "1", "k"]);
    let Value::BulkString(text) = &reply else { panic!("{reply:?}") };
    assert!(String::from_utf8_lossy(text).contains("owner must be 1 to 255 bytes long"));
}

#[test]
fn a_script_that_guards_itself_with_a_check_acts_only_for_the_holder() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", 60_000);
    let script = "if redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) then
        return redis.call('INCR', KEYS[2])
    end
    return 'not the holder'";
    assert_eq!(client.cmd(["EVAL", script, "2", "k", "n", "bob"]), bulk("not the holder"));
    assert_eq!(client.cmd(["EVAL", script, "2", "k", "n", "alice"]), int(1));
}

#[test]
fn a_read_only_script_may_look_but_not_change() {
    if lacks((7, 0), "EVAL_RO") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", 60_000);
    let look = "return redis.call('LOCK.CHECK', KEYS[1], 'alice')";
    assert_eq!(client.cmd(["EVAL_RO", look, "1", "k"]), int(fence));
    for change in ["'LOCK.ACQUIRE', KEYS[1], 'alice', 5", "'LOCK.RELEASE', KEYS[1], 'alice'"] {
        let reply = client.cmd(["EVAL_RO", &format!("return redis.call({change})"), "1", "k"]);
        assert!(matches!(reply, Value::ServerError(_)), "{change}: {reply:?}");
    }
    assert_eq!(client.check("k", "alice"), Some(fence));
}

#[test]
fn what_changes_nothing_leaves_watchers_alone() {
    let server = Server::start();
    let mut other = server.client();
    let fence = other.grant("k", "alice", 60_000);
    for command in [
        "LOCK.ACQUIRE k bob 60000",
        "LOCK.ACQUIRE k * 60000",
        "LOCK.ACQUIRE k alice 1",
        "LOCK.ACQUIRE k alice 0",
        "LOCK.RELEASE k bob",
        "LOCK.RELEASE k alice 1",
        "LOCK.EXTEND k bob 60000",
        "LOCK.EXTEND k alice 60000 1",
        "LOCK.CHECK k alice",
        "LOCK.INFO k",
    ] {
        let mut watcher = server.client();
        watcher.cmd("WATCH k");
        other.cmd(command);
        assert_eq!(watcher.transaction(&["LOCK.CHECK k alice"]), [int(fence)], "{command}");
    }
}

#[test]
fn what_changes_a_lock_is_seen_by_its_watchers() {
    let server = Server::start();
    let mut other = server.client();
    for command in [
        "LOCK.ACQUIRE k alice 60000",
        "LOCK.ACQUIRE k alice 90000",
        "LOCK.EXTEND k alice 60000",
        "LOCK.RELEASE k alice",
    ] {
        let mut watcher = server.client();
        watcher.cmd("WATCH k");
        other.cmd(command);
        let replies = watcher.pipeline(&["MULTI", "PING", "EXEC"]);
        assert_eq!(replies[2], Value::Nil, "{command} was not seen");
    }
}

#[test]
fn a_caching_client_is_told_when_a_lock_changes() {
    let server = Server::start();
    let mut client = server.client_resp3();
    let mut other = server.client();
    client.cmd("CLIENT TRACKING ON");
    for command in
        ["LOCK.ACQUIRE k alice 60000", "LOCK.EXTEND k alice 90000", "LOCK.RELEASE k alice"]
    {
        client.cmd("LOCK.INFO k");
        other.cmd(command);
        let Value::Push { data, .. } = client.receive() else { panic!("{command}: no message") };
        assert_eq!(strings(&data[0]), ["k"], "{command}");
    }
}

#[test]
fn resp3_differs_from_resp2_only_in_the_map() {
    let server = Server::start();
    let commands = [
        "LOCK.ACQUIRE k alice 60000",
        "LOCK.ACQUIRE k alice 60000",
        "LOCK.ACQUIRE k bob 60000",
        "LOCK.EXTEND k alice 60000",
        "LOCK.EXTEND k bob 60000",
        "LOCK.CHECK k alice",
        "LOCK.CHECK k bob",
        "LOCK.RELEASE k bob",
        "LOCK.RELEASE k alice",
        "LOCK.RELEASE k alice",
        "LOCK.INFO k",
        "LOCK.HELP",
        "LOCK.ACQUIRE k alice 0",
    ];
    let shape = |reply: &Value| match reply {
        Value::Int(1_000_000_000_000_000..) => bulk("a fence"),
        other => other.clone(),
    };
    let resp2: Vec<_> = server.client().pipeline(&commands).iter().map(shape).collect();
    let resp3: Vec<_> = server.client_resp3().pipeline(&commands).iter().map(shape).collect();
    assert_eq!(resp2, resp3);
}

#[test]
fn no_lock_changes_in_a_script_that_replicas_would_repeat() {
    let server = Server::builder().aof().start();
    let mut client = server.client();
    let set = |value: &str| server.cmd(format!("CONFIG SET lua-replicate-commands {value}"));
    if set("no") != Value::Okay {
        return; // a server whose scripts are never repeated
    }
    client.grant("held", "alice", 60_000);
    let script = |call: &str| format!("EVAL return(redis.call({call})) 0");
    for call in [
        "'LOCK.ACQUIRE','k','alice',60000",
        "'LOCK.RELEASE','held','alice'",
        "'LOCK.EXTEND','held','alice',90000",
    ] {
        let reply = unchanged(&server, || client.cmd(script(call)));
        let Value::ServerError(error) = &reply else { panic!("{call}: {reply:?}") };
        assert!(format!("{error:?}").contains(SCRIPT_REPEATED), "{call}: {error:?}");
    }
    assert!(matches!(client.cmd(script("'LOCK.CHECK','held','alice'")), Value::Int(1..)));
    assert!(client.release("held", "alice"), "elsewhere all is as ever");
    set("yes");
    assert!(matches!(client.cmd(script("'LOCK.ACQUIRE','k','alice',60000")), Value::Int(1..)));
}
