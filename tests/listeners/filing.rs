//! The append-only file, and the rules by which the server saves its data.

use super::{changes, is_always_told, is_told, wait_until_nobody_listens};
use redis::Value;
use testkit::{Client, Server, Snapshot, aof, becomes, eventually};

fn wait_until_filed(server: &Server) {
    let text = server.client().wait_until_saved();
    assert!(text.contains("aof_enabled:1"), "{text}");
}

/// In one transaction, and while another child is at work, so that the file can only be begun later.
#[test]
fn every_change_behind_the_switch_of_the_file_is_in_it() {
    let mut server = Server::start();
    let mut client = server.client();
    wait_until_nobody_listens(&server);
    client.cmd("CONFIG SET rdb-key-save-delay 200000");
    client.cmd("LOCK.ACQUIRE before alice 60000000");
    assert!(!matches!(client.cmd("BGSAVE"), Value::ServerError(_)));
    let replies = client.transaction(&[
        "LOCK.ACQUIRE gone alice 60000000",
        "LOCK.ACQUIRE shared alice 60000000 SHARE 0",
        "CONFIG SET appendonly yes",
        "LOCK.RELEASE gone alice",
        "LOCK.ACQUIRE shared bob 60000000 SHARE 0",
        "LOCK.ACQUIRE after alice 60000000",
    ]);
    assert!(!replies.iter().any(|reply| matches!(reply, Value::ServerError(_))), "{replies:?}");
    wait_until_filed(&server);
    let before = Snapshot::of(&server);
    server.kill();
    let again = Server::builder().aof().in_the_directory_of(&server).start();
    assert_eq!(Snapshot::of(&again), before);
}

#[test]
fn once_the_file_is_switched_off_nobody_is_told_until_it_is_on_again() {
    if is_always_told() {
        return;
    }
    let server = Server::builder().aof().start();
    let mut client = server.client();
    for _ in 0..3 {
        assert!(is_told(&mut client));
        assert_eq!(client.cmd("CONFIG SET appendonly no"), Value::Okay);
        wait_until_nobody_listens(&server);
        assert_eq!(client.cmd("CONFIG SET appendonly yes"), Value::Okay);
    }
    assert!(is_told(&mut client));
}

/// Makes so many changes, by a command of the server's or of the module's.
fn change(client: &mut Client, command: &str, count: usize) {
    let lines: Vec<_> =
        (0..count).map(|number| command.replace("{k}", &format!("k{number}"))).collect();
    client.pipeline(&lines.iter().map(String::as_str).collect::<Vec<_>>());
}

const SET: &str = "SET {k} v";
const GRANT: &str = "LOCK.ACQUIRE {k} alice 60000000";

fn wait_until_counted(client: &mut Client, wanted: i64) {
    becomes("all changes are counted", wanted, || changes(client));
}

/// How many changes are counted once the module has counted all that were not told.
fn all_counted(client: &mut Client) -> i64 {
    eventually("all changes are counted", || {
        let (begun, seen) = (client.now(), changes(client));
        while client.now() < begun + 300 {
            match changes(client) {
                same if same == seen => {}
                other => return Err((seen, other)),
            }
        }
        Ok(seen)
    })
}

/// The last changes before it are not counted yet, and must not be told.
#[test]
fn changes_that_nobody_was_told_of_are_counted_also_once_somebody_listens() {
    if is_always_told() {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    wait_until_nobody_listens(&server);
    let before = all_counted(&mut client);
    let grants: Vec<_> =
        (0..2_000).map(|number| GRANT.replace("{k}", &format!("k{number}"))).collect();
    let mut lines: Vec<_> = grants.iter().map(String::as_str).collect();
    lines.push("CONFIG SET appendonly yes");
    client.transaction(&lines);
    eventually("all changes are counted", || match changes(&mut client) - before {
        // The fence clock may have been broadcast to the file, as a change and another.
        2_000 | 2_002 => Ok(()),
        other => Err(other),
    });
    wait_until_filed(&server);
    client.cmd("SET last v");
    let lines = aof::lines(&server);
    let odd = |line: &String| line == "DEL" || line.starts_with("LOCK.");
    assert!(!lines.iter().any(odd), "{lines:?}");
}

/// A rule asks for so many changes, and for a second since the last save.
#[test]
fn the_server_saves_after_as_many_grants_as_other_writes() {
    let server = Server::start();
    let mut client = server.client();
    wait_until_nobody_listens(&server);
    for command in [SET, GRANT] {
        client.cmd("FLUSHALL");
        all_counted(&mut client);
        assert_eq!(client.cmd("SAVE"), Value::Okay);
        client.cmd(["CONFIG", "SET", "save", "1 500"]);
        change(&mut client, command, 499);
        wait_until_counted(&mut client, 499);
        let begun = client.now();
        while client.now() < begun + 2_500 {
            assert_eq!(changes(&mut client), 499, "one more is needed");
        }
        client.cmd("LOCK.ACQUIRE last alice 60000000");
        wait_until_counted(&mut client, 0);
    }
}

#[test]
fn a_server_that_ends_in_order_saves_the_grants_that_nobody_was_told_of() {
    let mut server = Server::builder().config("save", "3600 1").start();
    wait_until_nobody_listens(&server);
    let mut client = server.client();
    let fence = client.grant("k", "alice", 60_000_000);
    let _ = client.try_cmd("SHUTDOWN");
    server.wait_until_it_ends();
    server.start_again();
    assert_eq!(server.client().check("k", "alice"), Some(fence));
}
