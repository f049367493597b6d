//! A replica takes over a lock that several hold: with the module or without, and by whatever clock.

use super::{LONG, Scene, holders, holds, share};
use redis::Value;
use testkit::{
    Clock, Server, clock::HOUR, misplaces_clients, module, start_pair, wait_until_in_sync,
};

/// A primary, and a replica whose clock is an hour late. Neither gives out fences that are ahead of its clock.
fn late_replica() -> (Server, Server, Clock) {
    let setup = || Server::builder().module_args("fence-margin 0");
    let mut late = Clock::new();
    late.step_back(HOUR);
    let (primary, replica) = start_pair(setup(), setup().clock(&late));
    (primary, replica, late)
}

#[test]
fn a_replica_whose_clock_is_late_goes_on_above_those_who_joined_just_before_its_promotion() {
    if misplaces_clients() {
        return;
    }
    let (primary, replica, _late) = late_replica();
    let mut client = primary.client();
    let joined = (0..40).map(|number| share(&mut client, &format!("r{number}"), LONG, 0).unwrap());
    let joined = joined.last().unwrap();
    // Whoever joined last of all has left again, and its line is there no more to be read.
    let left = share(&mut client, "left", LONG, 0).unwrap();
    assert!(left > joined && client.release("k", "left"));
    wait_until_in_sync(&primary, &replica);
    replica.promote();
    let mut client = replica.client();
    assert_eq!(holders(&mut client).len(), 40);
    // The other lock first: who comes to this one has all its lines read once more.
    for key in ["another", "k"] {
        let fence = client.fence(super::asks(key, "next", LONG, 0)).unwrap();
        assert!(fence > left, "{key}: {fence} is not above {left}");
    }
}

#[test]
fn a_server_without_the_module_that_is_promoted_has_everybody_hold_the_lock_once_it_loads_it() {
    let scene = Scene::start();
    let mut client = scene.client();
    for number in 0..10 {
        share(&mut client, &format!("r{number}"), LONG + number, 0).unwrap();
    }
    assert!(client.release("k", "r3") && client.extend("k", "r4", LONG / 2));
    let last = share(&mut client, "last", LONG, 12).unwrap();
    let before = holds(&mut client, "k");
    scene.sync();
    scene.without.promote();
    assert_eq!(scene.without.cmd("SET k old-client NX PX 60000"), Value::Nil);
    assert_eq!(scene.without.cmd("DEBUG RELOAD"), Value::Okay);
    let load = format!("MODULE LOAD {} fence-margin 0", module::path().display());
    assert_eq!(scene.without.cmd(load), Value::Okay);
    let mut client = scene.without.client();
    assert_eq!(holds(&mut client, "k"), before);
    assert!(client.release("k", "r0"));
    assert!(share(&mut client, "next", LONG, 0).unwrap() > last);
    assert_eq!(client.acquire("k", "w", LONG), None);
}
