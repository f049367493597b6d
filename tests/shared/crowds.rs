//! More are let in than one turn of the server has time for.

use super::{LONG, Scene, asks, holders, waits};
use redis::Value;
use testkit::{Server, Waiter, eventually, field, int};

const READERS: usize = 700;

#[test]
fn other_clients_have_their_turn_while_a_crowd_is_let_in() {
    let scene = Scene::start();
    let mut client = scene.client();
    client.grant("k", "writer", LONG);
    let owners: Vec<_> = (0..READERS).map(|number| format!("r{number}")).collect();
    let mut readers: Vec<Waiter> =
        owners.iter().map(|owner| waits(&scene.primary, owner, 0)).collect();
    let replies = client.pipeline(&["LOCK.RELEASE k writer", "LOCK.INFO k"]);
    assert_eq!(replies[0], int(1));
    let Some(&Value::Int(holders_in_first_turn)) = field(&replies[1], "holders") else {
        panic!("{replies:?}")
    };
    let all = i64::try_from(READERS).unwrap();
    assert!((1..all).contains(&holders_in_first_turn), "{holders_in_first_turn}");
    eventually("all hold the lock", || match client.info("k") {
        Some(info) if info.holders == all => Ok(()),
        other => Err(other),
    });
    assert_eq!(holders(&mut client), owners);
    assert!(readers.iter_mut().map(Waiter::fence).is_sorted());
    scene.agree();
}

#[test]
fn one_who_waits_for_a_lock_is_not_kept_waiting_until_all_crowds_are_let_in() {
    let server = Server::start();
    let mut client = server.client();
    let crowds: Vec<_> = (0..10).map(|number| format!("crowd{number}")).collect();
    let mut readers = Vec::new();
    for lock in &crowds {
        client.grant(lock, "writer", LONG);
        for number in 0..120 {
            let request = asks(lock, &format!("r{number}"), LONG, 0);
            readers.push(Waiter::sends(&server, &format!("{request} BLOCK 0")));
        }
    }
    client.grant("alone", "writer", LONG);
    let mut waiter = Waiter::of(&server, "alone", "next");
    let mut names = crowds.join(" ");
    names.push_str(" alone");
    assert_eq!(client.cmd(format!("DEL {names}")), int(11));
    let fence = waiter.fence();
    let fences: Vec<_> = readers.iter_mut().map(Waiter::fence).collect();
    let before = fences.iter().filter(|reader| **reader < fence).count();
    assert!(before < readers.len(), "all {before} readers were let in before");
}
