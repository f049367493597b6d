//! More are let in than one turn of the server has time for.

use super::{LONG, Scene, holders, waits};
use redis::Value;
use testkit::{Waiter, becomes, field, int};

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
    becomes("all hold the lock", Some(all), || client.info("k").map(|info| info.holders));
    assert_eq!(holders(&mut client), owners);
    assert!(readers.iter_mut().map(Waiter::fence).is_sorted());
    scene.agree();
}

#[test]
fn one_command_lets_in_no_whole_crowd_however_many_grants_it_takes_back() {
    let scene = Scene::start();
    let mut client = scene.client();
    client.grant("k", "writer", LONG);
    let mut readers: Vec<Waiter> =
        (0..300).map(|number| waits(&scene.primary, &format!("r{number}"), 0)).collect();
    // They end in the turn of their grant, before they hear of it.
    let gone: Vec<_> = readers.drain(..40).collect();
    let ends: Vec<_> = gone.iter().map(|reader| format!("CLIENT KILL ID {}", reader.id)).collect();
    let mut commands = vec!["LOCK.RELEASE k writer"];
    commands.extend(ends.iter().map(String::as_str));
    commands.extend(["LOCK.INFO k", "LOCK.ACQUIRE k late 1000", "LOCK.INFO k"]);
    let replies = client.transaction(&commands);
    let holders_in = |reply: &Value| match field(reply, "holders") {
        Some(&Value::Int(holders)) => holders,
        other => panic!("{other:?} in {replies:?}"),
    };
    let [before, _, after] = &replies[41..] else { panic!("{replies:?}") };
    let (let_in, most) = (holders_in(after) - holders_in(before), 100);
    assert!((1..most).contains(&let_in), "{let_in}");
    for reader in &mut readers {
        reader.fence();
    }
    becomes("all who live hold the lock", 260, || holders(&mut client).len());
    scene.agree();
}
