//! The disk is full, and has room again later. With an append-only file the campaign has that.
//!
//! A server that cannot save refuses what clients want to write. What it would write on its own account it must not either:
//! a grant is as good as the file that it is in.

use super::LONG;
use redis::Value;
use testkit::{Client, Server, Waiter, becomes, deadline, int, lacks};

/// More than the server waits until it asks again whether it may write.
const LONG_ENOUGH_MILLIS: i64 = 300;

fn is_refused(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "MISCONF")
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

fn save_until(server: &Server, status: &str) {
    let mut client = server.client();
    becomes("how saving ended", Some(status.to_owned()), || {
        client.cmd("BGSAVE");
        client.info_field("persistence", "rdb_last_bgsave_status")
    });
}

/// Leases run out and patience ends meanwhile; nobody is granted anything until saving succeeds again.
#[test]
fn while_saving_fails_nothing_is_granted_nor_handed_on() {
    if lacks((7, 0), "hand-offs that heed refused writes") {
        return;
    }
    let setup = Server::builder().config("save", "3600 1000000");
    let mut server = setup.config("stop-writes-on-bgsave-error", "yes").start();
    let mut client = server.client();
    let held = client.grant("held", "alice", LONG);
    let until = deadline(&mut client, b"held");
    client.grant("short", "alice", LONG);
    let mut bob = Waiter::of(&server, "short", "bob");
    let mut carol = Waiter::of(&server, "held", "carol");
    let mut dave = Waiter::sends(&server, "LOCK.ACQUIRE held dave 60000 BLOCK 500");
    // Not before now, and for long enough that it fails before the lease is over, on a machine that is busy too.
    assert_eq!(client.cmd("LOCK.EXTEND short alice 1000"), int(1));
    let short_until = deadline(&mut client, b"short");
    server.limit_files(10);
    save_until(&server, "err");
    becomes("whether writes are refused", true, || is_refused(&client.cmd("SET something else")));
    assert_refused(&mut client);
    client.wait_until_past(short_until + LONG_ENOUGH_MILLIS);
    assert_eq!(client.info("short"), None);
    assert_eq!(dave.reply(), Value::Nil, "patience ends all the same");
    bob.assert_waits(&server);
    carol.assert_waits(&server);
    assert_eq!(client.check("held", "alice"), Some(held), "who holds a lock holds it still");
    assert_eq!(deadline(&mut client, b"held"), until);
    assert!(is_refused(&client.cmd("SET something else")), "all that happened meanwhile");

    server.lift_limit();
    save_until(&server, "ok");
    let bobs = bob.fence();
    assert!(client.release("held", "alice"));
    assert!(held < bobs && bobs < carol.fence());
}
