//! `LOCK.RELEASE … ALSO` releases those that are held, `LOCK.EXTEND … ALSO` extends all or none.

use super::{LONG, behind, takes};
use redis::Value;
use testkit::{Client, Server, Session, deadline, int};

#[test]
fn a_release_is_of_those_that_are_held_by_the_proof_and_goes_to_who_waits_for_each() {
    Session::play(
        &Server::start(),
        "
        # it tells how many were held and leaves those of others
        LOCK.ACQUIRE a alice 60000 ALSO 2 b c; DEL b; LOCK.ACQUIRE d bob 60000 -> A; 1; B
        LOCK.RELEASE a alice ALSO 4 b c d e; LOCK.RELEASE a alice ALSO 4 b c d e -> 2; 0
        LOCK.CHECK d bob -> B
        # by a fence it leaves later grants of the same owner
        LOCK.ACQUIRE a alice 60000 ALSO 1 b; LOCK.RELEASE b alice; LOCK.ACQUIRE b alice 60000 -> A; 1; B
        LOCK.RELEASE a alice A ALSO 1 b; LOCK.CHECK a alice; LOCK.CHECK b alice -> 1; nil; B
        # those of several grants are released and extended together
        LOCK.ACQUIRE a alice 60000; LOCK.ACQUIRE b alice 60000; LOCK.ACQUIRE c alice 60000 -> A; B; C
        LOCK.EXTEND a alice 120000 ALSO 2 b c; LOCK.RELEASE a alice ALSO 2 b c -> 1; 3
        # each of a grant can be released, extended and checked by itself
        LOCK.ACQUIRE a alice 60000 ALSO 2 b c -> A
        LOCK.EXTEND b alice 120000; LOCK.CHECK c alice A; LOCK.RELEASE a alice -> 1; A; 1
        LOCK.CHECK b alice; LOCK.CHECK c alice; LOCK.ACQUIRE a bob 60000 -> A; A; B
        LOCK.RELEASE a alice ALSO 2 b c; LOCK.CHECK a bob -> 2; B
        # each that is released goes to the one who waits for it
        LOCK.ACQUIRE a alice 60000 ALSO 2 b c -> A
        r0: LOCK.ACQUIRE a r0 60000 BLOCK 0 -> waits
        r1: LOCK.ACQUIRE b r1 60000 ALSO 1 c BLOCK 0 -> waits
        r2: LOCK.ACQUIRE c r2 60000 BLOCK 0 -> waits
        LOCK.RELEASE c alice ALSO 2 a b -> 3
        r1: -> B
        r0: -> C
        r2: -> waits
        LOCK.CHECK b r1; LOCK.CHECK c r1 -> B; B
        ",
    );
}

fn ends(client: &mut Client, keys: &[&str]) -> Vec<i64> {
    keys.iter().map(|key| deadline(client, key.as_bytes())).collect()
}

#[test]
fn an_extension_moves_the_ends_of_all_leases_to_the_same_moment() {
    let server = Server::start();
    let mut client = server.client();
    let fence = takes(&mut client, "alice", &["a", "b", "c"]).unwrap();
    let granted = ends(&mut client, &["a", "b", "c"]);
    let before = granted[0];
    assert_eq!(granted, [before; 3], "those of the grant, too");
    for proof in ["", &format!(" {fence}")] {
        let request = format!("LOCK.EXTEND c alice {}{proof}{}", 2 * LONG, behind(&["b", "a"]));
        assert_eq!(client.cmd(request), int(1));
        let after = ends(&mut client, &["a", "b", "c"]);
        assert!(after[0] > before + 30_000);
        assert_eq!(after, [after[0]; 3]);
    }
    assert_eq!(client.cmd(format!("LOCK.EXTEND a alice 5{}", behind(&["b", "c"]))), int(1));
    testkit::becomes("all have run out", Value::Int(0), || client.cmd("EXISTS a b c"));
}
