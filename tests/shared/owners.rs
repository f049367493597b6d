//! Owners of any bytes.

use super::{LONG, Scene, holders, holds, line};
use redis::Value;

/// Sends a request of this owner, whatever its bytes.
fn share_as(client: &mut testkit::Client, owner: &[u8]) -> Option<u64> {
    let words: [&[u8]; 6] = [b"LOCK.ACQUIRE", b"k", owner, b"60000", b"SHARE", b"0"];
    match client.cmd(words) {
        Value::Int(fence) => Some(fence.try_into().unwrap()),
        _ => None,
    }
}

#[test]
fn owners_with_newlines_or_nul_or_255_bytes_or_that_look_like_lines_are_owners() {
    let scene = Scene::start();
    let mut client = scene.client();
    let forged = line(1_763_712_345_678_901, 1_763_712_375_678, 0, "a");
    let owners: [&[u8]; 7] = [
        b"\n",
        b"\0 \n",
        &[0xff; 255],
        &[b'\n'; 255],
        forged.as_bytes(),
        b"00005 001:x\n\n",
        b"1763712345678901:a",
    ];
    let fences = owners.map(|owner| share_as(&mut client, owner).unwrap());
    for (owner, fence) in owners.into_iter().zip(fences) {
        assert_eq!(client.check("k", owner), Some(fence));
        assert_eq!(share_as(&mut client, owner), Some(fence), "a retry");
    }
    for nobody in ["a", "x", "1763712345678901:a\n"] {
        assert_eq!(client.check("k", nobody), None);
    }
    let listed: Vec<_> = holds(&mut client, "k").into_iter().map(|hold| hold.owner).collect();
    assert_eq!(listed, owners);
    owners[1..].iter().for_each(|owner| assert!(client.release("k", owner)));
    assert_eq!(holders(&mut client), ["\n"]);
    for owner in &owners[1..] {
        share_as(&mut client, owner).unwrap();
    }
    scene.agree();
}

#[test]
fn an_owner_that_is_another_ones_beginning_or_end_is_another_owner() {
    let scene = Scene::start();
    let mut client = scene.client();
    let owners = ["worker-1", "worker-11", "1", "r-1", "worker-"];
    let fences = owners.map(|owner| share_as(&mut client, owner.as_bytes()).unwrap());
    assert!(client.release("k", "worker-1"));
    assert_eq!(client.check("k", "worker-1"), None);
    for (owner, fence) in owners.into_iter().zip(fences).skip(1) {
        assert_eq!(client.check("k", owner), Some(fence));
        assert!(client.extend("k", owner, LONG));
    }
    scene.agree();
}
