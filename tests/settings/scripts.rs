//! A script that runs for long keeps the server from everything else, and it lets others see that.

use super::{LONG, smoke, start_with};
use crate::waiting::owners;
use redis::Value;
use std::time::{Duration, Instant};
use testkit::{Client, Server, Setup, Waiter, aof, becomes, code, eventually, is_older_than};

/// A server that calls itself busy after a millisecond.
fn impatient(setup: Setup) -> Server {
    let name = if is_older_than((7, 0)) { "lua-time-limit" } else { "busy-reply-threshold" };
    start_with(setup, name, "1")
}

fn wait_until_busy(observer: &mut Client) {
    eventually("the server is busy", || match observer.cmd("PING") {
        Value::ServerError(error) if error.code() == "BUSY" => Ok(()),
        other => Err(other),
    });
}

#[test]
fn what_fell_due_during_a_script_is_done_after_it() {
    let server = impatient(Server::builder());
    smoke(&server);
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    let gone = Waiter::of(&server, "k", "gone");
    let mut hasty = Waiter::sends(&server, "LOCK.ACQUIRE k hasty 60000 BLOCK 1000");
    let last = Waiter::of(&server, "k", "last");
    let mut observer = server.client();
    let mut killer = server.client();
    // In one packet: the lease ends during the script, which starts right behind.
    client.send_bytes(b"LOCK.EXTEND k alice 30\r\nEVAL 'while true do end' 0\r\n");
    let sent = Instant::now();
    eventually("the lease has ended", || {
        wait_until_busy(&mut observer);
        if sent.elapsed() > Duration::from_millis(50) { Ok(()) } else { Err("not yet") }
    });
    for refused in
        ["LOCK.ACQUIRE k eve 60000 BLOCK 0", "LOCK.RELEASE k alice", "LOCK.INFO k", "LOCK.HELP"]
    {
        assert_eq!(code(observer.cmd(refused)), "BUSY", "{refused}");
    }
    drop(gone);
    assert_eq!(killer.cmd("SCRIPT KILL"), Value::Okay);
    let fence = bob.fence();
    assert_eq!(observer.check("k", "bob"), Some(fence));
    assert_eq!(hasty.reply(), Value::Nil);
    becomes("the queue", ["last"], || owners(&server, "k"));
    last.assert_waits(&server);
}

#[test]
fn a_lock_deleted_in_a_long_script_is_handed_on_at_its_end() {
    let server = impatient(Server::builder().aof());
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    let mut observer = server.client();
    // It looks at the clock, for a fifth of a second.
    let script = "redis.call('DEL', KEYS[1]) \
                  local function now() local t = redis.call('TIME') return t[1] * 1000000 + t[2] end \
                  local start = now() \
                  while now() < start + 200000 do end \
                  return redis.call('LOCK.CHECK', KEYS[1], 'bob')";
    client.send(["EVAL", script, "1", "k"]);
    wait_until_busy(&mut observer);
    assert_eq!(client.receive(), Value::Nil, "it was handed on in the middle of the script");
    let fence = bob.fence();
    assert_eq!(observer.check("k", "bob"), Some(fence));
    let lines = aof::lines(&server);
    let (deleted, granted) = (&lines[lines.len() - 2], &lines[lines.len() - 1]);
    assert!(
        deleted == "DEL k" && granted.starts_with(&format!("SET k {fence}:bob PXAT")),
        "{lines:#?}"
    );
}
