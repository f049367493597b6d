//! A script that runs for long keeps the server from everything else, and it lets others see that.

use super::{LONG, smoke, start_with};
use crate::waiting::owners;
use redis::Value;
use std::time::{Duration, Instant};
use testkit::{Client, Server, Waiter, becomes, code, eventually, is_older_than};

fn wait_until_busy(observer: &mut Client) {
    eventually("the server is busy", || match observer.cmd("PING") {
        Value::ServerError(error) if error.code() == "BUSY" => Ok(()),
        other => Err(other),
    });
}

#[test]
fn what_fell_due_during_a_script_is_done_after_it() {
    // It calls itself busy after a millisecond.
    let name = if is_older_than((7, 0)) { "lua-time-limit" } else { "busy-reply-threshold" };
    let server = start_with(Server::builder(), name, "1");
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
