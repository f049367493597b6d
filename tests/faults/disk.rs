//! The disk is full, and has room again later.
//!
//! A server that cannot write its append-only file, or save, refuses what clients want to write. What it would write on
//! its own account it must not either: a grant is as good as the file that it is in.

use super::LONG;
use redis::Value;
use std::fs;
use testkit::{Client, Server, Setup, Waiter, aof, becomes, deadline, int, lacks};

/// More than the server waits until it asks again whether it may write.
const LONG_ENOUGH_MILLIS: i64 = 300;

fn is_refused(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "MISCONF")
}

fn wait_until_refused(client: &mut Client) {
    becomes("whether writes are refused", true, || is_refused(&client.cmd("SET something else")));
}

/// With `everysec`, what was answered is kept back while the disk is busy with what came before.
fn wait_until_written(client: &mut Client) {
    becomes("what is not in the file", 0, || {
        client.info_number("persistence", "aof_buffer_length")
    });
}

/// Leaves the append-only file a few bytes: the next command is written by half.
fn fill(server: &mut Server) {
    let length = fs::metadata(aof::current_file(server)).unwrap().len();
    server.limit_files(length + 10);
}

#[track_caller]
fn assert_refused(client: &mut Client) {
    for command in [
        "LOCK.ACQUIRE free zoe 60000",
        "LOCK.ACQUIRE free zoe 60000 BLOCK 0",
        "LOCK.ACQUIRE held alice 60000",
        "LOCK.EXTEND held alice 90000",
        "LOCK.RELEASE held alice",
    ] {
        let reply = client.cmd(command);
        assert!(is_refused(&reply), "{command}: {reply:?}");
    }
    assert_eq!(client.info("free"), None);
}

/// Leases run out and patience ends while `fail` keeps the server from writing; nobody is granted anything until it has
/// been mended.
fn nothing_is_handed_on(
    server: &mut Server,
    fail: impl Fn(&mut Server),
    mend: impl Fn(&mut Server),
) -> [(&'static str, &'static str, u64); 2] {
    let mut client = server.client();
    let held = client.grant("held", "alice", LONG);
    let until = deadline(&mut client, b"held");
    client.grant("short", "alice", LONG);
    let mut bob = Waiter::of(server, "short", "bob");
    let mut carol = Waiter::of(server, "held", "carol");
    let mut dave = Waiter::sends(server, "LOCK.ACQUIRE held dave 60000 BLOCK 500");
    // Not before now, and for long enough that it fails before the lease is over, on a machine that is busy too.
    assert_eq!(client.cmd("LOCK.EXTEND short alice 1000"), int(1));
    let short_until = deadline(&mut client, b"short");
    fail(server);
    wait_until_refused(&mut client);
    assert_refused(&mut client);
    client.wait_until_past(short_until + LONG_ENOUGH_MILLIS);
    assert_eq!(client.info("short"), None);
    assert_eq!(dave.reply(), Value::Nil, "patience ends all the same");
    bob.assert_waits(server);
    carol.assert_waits(server);
    assert_eq!(client.check("held", "alice"), Some(held), "who holds a lock holds it still");
    assert_eq!(deadline(&mut client, b"held"), until);
    assert!(is_refused(&client.cmd("SET something else")), "all that happened meanwhile");

    mend(server);
    let bobs = bob.fence();
    assert!(client.release("held", "alice"));
    let carols = carol.fence();
    assert!(held < bobs && bobs < carols);
    [("short", "bob", bobs), ("held", "carol", carols)]
}

#[test]
fn while_the_disk_is_full_nothing_is_granted_nor_handed_on() {
    if lacks((7, 0), "hand-offs that heed refused writes") {
        return;
    }
    let setup = Server::builder().config("appendonly", "yes").config("appendfsync", "everysec");
    let mut server = setup.start();
    let granted = nothing_is_handed_on(&mut server, fill, Server::lift_limit);
    wait_until_written(&mut server.client());
    server.kill();
    server.start_again();
    for (lock, owner, fence) in granted {
        assert_eq!(server.client().check(lock, owner), Some(fence));
    }
}

fn saving(setup: Setup) -> Setup {
    setup.config("save", "3600 1000000").config("stop-writes-on-bgsave-error", "yes")
}

fn save_until(server: &Server, status: &str) {
    let mut client = server.client();
    becomes("how saving ended", Some(status.to_owned()), || {
        client.cmd("BGSAVE");
        client.info_field("persistence", "rdb_last_bgsave_status")
    });
}

#[test]
fn while_saving_fails_nothing_is_granted_nor_handed_on() {
    if lacks((7, 0), "hand-offs that heed refused writes") {
        return;
    }
    let mut server = saving(Server::builder()).start();
    let fail = |server: &mut Server| {
        server.limit_files(10);
        save_until(server, "err");
    };
    let mend = |server: &mut Server| {
        server.lift_limit();
        save_until(server, "ok");
    };
    nothing_is_handed_on(&mut server, fail, mend);
}
