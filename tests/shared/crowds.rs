//! More are let in than one turn of the server has time for.

use super::{LONG, Scene, holders, waits};
use testkit::{Waiter, becomes, int, number};

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
    let holders_in_first_turn = number(&replies[1], "holders");
    let all = i64::try_from(READERS).unwrap();
    assert!((1..all).contains(&holders_in_first_turn), "{holders_in_first_turn}");
    becomes("all hold the lock", Some(all), || client.info("k").map(|info| info.holders));
    assert_eq!(holders(&mut client), owners);
    assert!(readers.iter_mut().map(Waiter::fence).is_sorted());
    scene.agree();
}
