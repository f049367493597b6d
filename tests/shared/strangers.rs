//! What others do to the value of a shared lock, and what is written there that only looks like it.

use super::{LONG, Scene, holders, holds, line, share, waits};
use redis::Value;
use testkit::{Client, Server, Waiter, bulk, deadline, int};

/// How clients of today give back and extend a lock that they took with `SET NX PX`.
const DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
const EXTEND: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], 60000) end return 0";

/// How long a line is without its owner and its end.
const HEAD: usize = 42;

fn script(client: &mut Client, script: &str, owner: &str) -> Value {
    client.cmd(["EVAL", script, "1", "k", owner])
}

#[test]
fn clients_that_set_if_there_is_nothing_are_excluded_and_exclude() {
    let scene = Scene::start();
    let mut client = scene.client();
    share(&mut client, "r1", LONG, 0).unwrap();
    share(&mut client, "r2", LONG, 0).unwrap();
    let before = holds(&mut client, "k");
    assert_eq!(client.cmd("SET k old-client NX PX 60000"), Value::Nil);
    for (text, owner) in [(DELETE, "old-client"), (EXTEND, "old-client"), (DELETE, "r1")] {
        assert_eq!(script(&mut client, text, owner), int(0));
    }
    assert_eq!(holds(&mut client, "k"), before);
    assert!(client.release("k", "r1"));
    assert_eq!(client.cmd("SET k old-client NX PX 60000"), Value::Nil, "r2 has it");
    assert!(client.release("k", "r2"));

    assert_eq!(client.cmd("SET k old-client NX PX 60000"), Value::Okay);
    for tolerates in [0, 1, 5] {
        assert_eq!(share(&mut client, "r1", LONG, tolerates), None);
    }
    let info = client.info("k").unwrap();
    assert_eq!((info.fence, info.holders, info.share), (0, 1, 1));
    let mut readers = ["r1", "r2"].map(|owner| waits(&scene.primary, owner, 0));
    assert_eq!(script(&mut client, EXTEND, "old-client"), int(1));
    assert_eq!(
        share(&mut client, "old-client", LONG, 0),
        Some(0),
        "it tolerates nobody all the same"
    );
    assert_eq!(client.cmd("GET k"), bulk("old-client"));
    readers.iter().for_each(|reader| reader.assert_waits(&scene.primary));
    assert_eq!(script(&mut client, DELETE, "old-client"), int(1));
    for reader in &mut readers {
        reader.fence();
    }
    assert_eq!(holders(&mut client), ["r1", "r2"]);
    scene.agree();
}

#[test]
fn a_value_that_was_torn_is_held_by_nobody_who_could_be_let_in_beside() {
    for tear in ["SETRANGE k 16 x", "SETRANGE k 40 x", "SETRANGE k 41 x", "APPEND k x"] {
        let scene = Scene::start();
        let mut client = scene.client();
        share(&mut client, "r1", LONG, 0).unwrap();
        share(&mut client, "r2", LONG, 0).unwrap();
        drop(client.cmd(tear));
        assert_eq!(share(&mut client, "r3", LONG, 0), None, "{tear}");
        assert_eq!(client.check("k", "r1"), None, "{tear}");
        assert!(!client.release("k", "r2"), "{tear}");
        assert_eq!(holders(&mut client).len(), 1, "{tear}");
        let mut reader = waits(&scene.primary, "r3", 0);
        assert_eq!(client.cmd("DEL k"), int(1));
        reader.fence();
        scene.agree();
    }
}

#[test]
fn a_key_that_is_given_an_end_takes_the_holds_with_it() {
    let scene = Scene::start();
    let mut client = scene.client();
    share(&mut client, "r1", 2 * LONG, 0).unwrap();
    share(&mut client, "r2", LONG, 0).unwrap();
    let end = client.now() + 30_000;
    assert_eq!(client.cmd(format!("PEXPIREAT k {end}")), int(1));
    // Whoever comes then lengthens nobody else's lease.
    share(&mut client, "r3", LONG, 0).unwrap();
    assert!(deadline(&mut client, b"k") > end);
    assert!(client.release("k", "r3"));
    assert_eq!(deadline(&mut client, b"k"), end);
    assert_eq!(client.cmd("PERSIST k"), int(1));
    assert_eq!(holders(&mut client), ["r1", "r2"]);
    assert!(client.extend("k", "r1", LONG));
    assert!(deadline(&mut client, b"k") > end, "it has an end again");
    scene.agree();
}

#[test]
fn a_shared_lock_that_is_renamed_copied_or_restored_is_the_same_lock() {
    let scene = Scene::start();
    let mut client = scene.client();
    let fence = share(&mut client, "r1", LONG, 0).unwrap();
    share(&mut client, "r2", LONG, 0).unwrap();
    assert_eq!(client.cmd("RENAME k other"), Value::Okay);
    assert_eq!(client.check("other", "r1"), Some(fence));
    assert_eq!(client.cmd("COPY other k"), int(1));
    assert_eq!(holders(&mut client), ["r1", "r2"]);
    let Value::BulkString(dump) = client.cmd("DUMP k") else { panic!("no dump") };
    assert!(client.release("k", "r2"));
    let end = deadline(&mut client, b"k").to_string();
    let words: [&[u8]; 6] = [b"RESTORE", b"k", end.as_bytes(), &dump, b"REPLACE", b"ABSTTL"];
    assert_eq!(client.cmd(words), Value::Okay);
    assert_eq!(holders(&mut client), ["r1", "r2"]);
    scene.agree();
}

#[test]
fn whoever_deletes_a_shared_lock_lets_the_next_in() {
    let server = Server::start();
    let mut client = server.client();
    share(&mut client, "r1", LONG, 0).unwrap();
    share(&mut client, "r2", LONG, 0).unwrap();
    let mut writer = Waiter::of(&server, "k", "w");
    assert_eq!(client.cmd("DEL k"), int(1));
    writer.fence();
    assert!(!client.release("k", "r1"));
}

#[test]
fn one_byte_that_is_written_over_any_other_lets_nobody_in_who_was_kept_out() {
    let scene = Scene::start();
    let mut client = scene.client();
    share(&mut client, "r1", LONG, 2).unwrap();
    share(&mut client, "r2", LONG, 2).unwrap();
    let Value::BulkString(value) = client.cmd("GET k") else { panic!("no value") };
    let end = deadline(&mut client, b"k").to_string();
    let length = value.len() / 2;
    for (at, byte) in (0..=value.len()).flat_map(|at| [b"x", b"\n", b" "].map(|byte| (at, byte))) {
        let whole: [&[u8]; 5] = [b"SET", b"k", &value, b"PXAT", end.as_bytes()];
        assert_eq!(client.cmd(whole), Value::Okay);
        let place = at.to_string();
        drop(client.cmd([b"SETRANGE", &b"k"[..], place.as_bytes(), byte]));
        let Value::BulkString(seen) = client.cmd("GET k") else { panic!("no value") };
        let torn = seen.escape_ascii();
        assert_eq!(client.acquire("k", "w", LONG), None, "{torn}");
        assert_eq!(share(&mut client, "r3", LONG, 2), None, "{torn}");
        let listed: Vec<_> = holds(&mut client, "k").into_iter().map(|hold| hold.owner).collect();
        // The first two bytes behind the head are the owner, who is another one then.
        let is_owner = at < value.len() && (HEAD..HEAD + 2).contains(&(at % length));
        if is_owner || seen == value {
            assert_eq!(listed.len(), 2, "{torn}");
        } else {
            assert_eq!(listed, [&seen[..]], "it is held by its whole value");
            assert!(!client.release("k", "r1") && !client.extend("k", "r2", LONG), "{torn}");
        }
    }
    let mut writer = Waiter::of(&scene.primary, "k", "w");
    assert_eq!(client.cmd("DEL k"), int(1));
    writer.fence();
    scene.agree();
}

#[test]
fn a_key_that_is_made_to_expire_takes_all_holds_with_it_and_lets_the_next_in_then() {
    for shortens in ["PEXPIRE k 40", "GETEX k PX 40", "PEXPIRE k 0"] {
        let scene = Scene::start();
        let mut client = scene.client();
        for owner in ["r1", "r2"] {
            share(&mut client, owner, LONG, 0).unwrap();
        }
        let mut writer = Waiter::of(&scene.primary, "k", "w");
        let last = holds(&mut client, "k")[1].fence;
        drop(client.cmd(shortens));
        assert!(writer.fence() > last.cast_unsigned(), "{shortens}");
        for owner in ["r1", "r2"] {
            assert!(!client.release("k", owner), "{shortens}");
        }
        assert_eq!(holders(&mut client), ["w"], "{shortens}");
        scene.agree();
    }
}

#[test]
fn a_lock_that_is_renamed_while_somebody_waits_goes_with_its_holders_and_the_next_is_let_in() {
    let scene = Scene::start();
    let mut client = scene.client();
    for owner in ["r1", "r2"] {
        share(&mut client, owner, LONG, 0).unwrap();
    }
    let before = holds(&mut client, "k");
    let mut writer = Waiter::of(&scene.primary, "k", "w");
    assert_eq!(client.cmd("RENAME k elsewhere"), Value::Okay);
    writer.fence();
    assert_eq!(holds(&mut client, "elsewhere"), before);
    assert!(client.release("elsewhere", "r1"));
    assert_eq!(client.acquire("elsewhere", "w", LONG), None);
    // It takes the place of the writer's lock, and the writer has lost that.
    assert_eq!(client.cmd("RENAME elsewhere k"), Value::Okay);
    assert_eq!(holders(&mut client), ["r2"]);
    assert!(!client.release("k", "w"));
    scene.agree();
}

#[test]
fn a_line_that_a_stranger_appends_is_a_hold_and_half_a_line_is_none() {
    let scene = Scene::start();
    let mut client = scene.client();
    let fence = share(&mut client, "r1", LONG, 0).unwrap();
    let end = deadline(&mut client, b"k");
    let line = line(fence + 1, end, 2, "r2");
    let (one, other) = line.split_at(20);
    for (half, owners) in [(one, 1), (other, 2)] {
        drop(client.cmd(["APPEND", "k", half]));
        assert_eq!(holders(&mut client).len(), owners);
        assert_eq!(share(&mut client, "r3", LONG, 0), None);
    }
    assert_eq!((client.check("k", "r1"), client.check("k", "r2")), (Some(fence), Some(fence + 1)));
    assert!(client.release("k", "r2"));
    assert!(share(&mut client, "r3", LONG, 0).unwrap() > fence + 1);
    assert_eq!(holders(&mut client), ["r1", "r3"]);
    scene.agree();
}
