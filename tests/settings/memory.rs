//! What the server does to keep its memory small and in order.

use super::{LONG, smoke, start_with};
use redis::Value;
use testkit::{Server, Setup, Waiter, becomes, lacks_setting};

#[test]
fn a_server_that_frees_everything_lazily() {
    let reasons =
        ["lazy-eviction", "lazy-expire", "lazy-server-del", "lazy-user-del", "lazy-user-flush"];
    let lazy = |setup: Setup, reason: &&str| setup.config(&format!("lazyfree-{reason}"), "yes");
    let server = reasons.iter().fold(Server::builder(), lazy).start();
    smoke(&server);
    let mut client = server.client();
    for by_hand in ["DEL k", "FLUSHALL", "FLUSHDB", "RENAME k other", "SET k x PX 5"] {
        client.grant("k", "alice", LONG);
        let mut bob = Waiter::of(&server, "k", "bob");
        let reply = client.cmd(by_hand);
        assert!(!matches!(reply, Value::ServerError(_)), "{by_hand}: {reply:?}");
        bob.fence();
        assert!(client.release("k", "bob"), "{by_hand}");
    }
}

#[test]
fn one_that_moves_what_it_holds_together() {
    if lacks_setting("activedefrag", "yes", "active defragmentation") {
        return;
    }
    let setup = Server::builder()
        .config("active-defrag-ignore-bytes", "1")
        .config("active-defrag-threshold-lower", "0")
        .config("active-defrag-cycle-min", "50");
    let server = start_with(setup, "activedefrag", "yes");
    let mut client = server.client();
    let long = "x".repeat(200);
    let fill = "for i = 1, 40000 do redis.call('LOCK.ACQUIRE', 'many:' .. i, ARGV[1], 60000) end \
                for i = 1, 40000 do if i % 4 > 0 then redis.call('DEL', 'many:' .. i) end end";
    client.cmd(["EVAL", fill, "0", &long]);
    let held: Vec<_> = (1..=10_000).map(|n| format!("many:{}", 4 * n)).collect();
    let fences: Vec<_> = held.iter().map(|key| client.check(key, &long).unwrap()).collect();
    let mut bob = Waiter::of(&server, &held[0], "bob");
    let carol = Waiter::of(&server, &held[0], "carol");
    becomes("whether locks are moved", true, || {
        client.info_number("stats", "active_defrag_key_hits") > 0
    });
    smoke(&server);
    for (key, fence) in held.iter().zip(fences) {
        assert_eq!(client.check(key, &long), Some(fence), "{key}");
    }
    assert!(client.release(&held[0], &long));
    bob.fence();
    carol.assert_waits(&server);
}
