//! What others do to the value of a shared lock, and what is written there that only looks like it.

use super::{LONG, Scene, holders, share, waits};
use redis::Value;
use testkit::{Clock, Server, Waiter, clock::HOUR, deadline, int, start_pair};

#[test]
fn owners_with_newlines_or_nul_or_255_bytes_or_that_look_like_lines_are_owners() {
    let scene = Scene::start();
    let mut client = scene.client();
    let line = b"1763712345678901 01763712375678 00000 001:a\n".to_vec();
    let owners: [Vec<u8>; 5] =
        [b"\n".to_vec(), b"\0 \n".to_vec(), vec![0xff; 255], line, b"00005 001:x\n\n".to_vec()];
    let mut fences = Vec::new();
    for owner in &owners {
        let words: [&[u8]; 6] = [b"LOCK.ACQUIRE", b"k", owner, b"60000", b"SHARE", b"0"];
        let Value::Int(fence) = client.cmd(words) else { panic!("no fence") };
        fences.push(fence.try_into().unwrap());
    }
    for (owner, fence) in owners.iter().zip(fences) {
        assert_eq!(client.check("k", owner), Some(fence));
    }
    assert_eq!(client.check("k", "a"), None);
    owners[1..].iter().for_each(|owner| assert!(client.release("k", owner)));
    assert_eq!(holders(&mut client), ["\n"]);
    scene.agree();
}

#[test]
fn clients_that_set_if_there_is_nothing_are_excluded_and_exclude() {
    let scene = Scene::start();
    let mut client = scene.client();
    share(&mut client, "r", LONG, 0).unwrap();
    assert_eq!(client.cmd("SET k old-client NX PX 60000"), Value::Nil);
    assert!(client.release("k", "r"));
    assert_eq!(client.cmd("SET k old-client NX PX 60000"), Value::Okay);
    assert_eq!(share(&mut client, "r", LONG, 0), None);
    let mut reader = waits(&scene.primary, "r", 0);
    assert_eq!(client.cmd("DEL k"), int(1));
    reader.fence();
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
    let words: [&[u8]; 5] = [b"RESTORE", b"k", b"60000", &dump, b"REPLACE"];
    assert_eq!(client.cmd(words), Value::Okay);
    assert_eq!(holders(&mut client), ["r1", "r2"]);
    scene.agree();
}

#[test]
fn a_replica_that_is_promoted_goes_on_above_the_fences_of_those_who_joined() {
    let scene = Scene::start();
    let mut client = scene.client();
    let far = share(&mut client, "r0", LONG, 0).unwrap() + 3_600_000_000;
    drop(client.cmd(format!("LOCK.RAISE k r0 {far}")));
    let last = (1..40).map(|number| share(&mut client, &format!("r{number}"), LONG, 0).unwrap());
    let last = last.max().unwrap();
    assert!(last > far);
    testkit::wait_until_in_sync(&scene.primary, &scene.replica);
    assert_eq!(scene.replica.cmd("REPLICAOF NO ONE"), Value::Okay);
    let mut client = scene.replica.client();
    assert_eq!(holders(&mut client).len(), 40);
    assert!(share(&mut client, "next", LONG, 0).unwrap() > last);
}

#[test]
fn a_line_from_nowhere_hides_no_fence_from_a_replica_that_is_promoted() {
    let setup = || Server::builder().module_args("fence-margin 0");
    let mut late = Clock::new();
    late.step_back(HOUR);
    let (primary, replica) = start_pair(setup(), setup().clock(&late));
    let mut client = primary.client();
    share(&mut client, "r1", LONG, 0).unwrap();
    let end = client.now() + 60_000;
    let line = format!("9007199254740991 {end:014} 00000 002:r2\n");
    let words: [&[u8]; 3] = [b"APPEND", b"k", line.as_bytes()];
    drop(client.cmd(words));
    let last = share(&mut client, "r3", LONG, 0).unwrap();
    testkit::wait_until_in_sync(&primary, &replica);
    assert_eq!(replica.cmd("REPLICAOF NO ONE"), Value::Okay);
    assert!(replica.client().grant("another", "next", LONG) > last);
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
