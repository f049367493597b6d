//! Who is let in beside whom, and in which order.

use super::{LONG, Scene, holders, share, waits};
use testkit::Waiter;

#[test]
fn readers_pass_together_a_writer_waits_for_all_and_later_readers_wait_behind_it() {
    let scene = Scene::start();
    let mut client = scene.client();
    assert!(share(&mut client, "r1", LONG, 0).is_some());
    assert!(share(&mut client, "r2", LONG, 0).is_some());
    let mut writer = Waiter::of(&scene.primary, "k", "w");
    let mut third = waits(&scene.primary, "r3", 0);
    let mut fourth = waits(&scene.primary, "r4", 0);
    assert_eq!(share(&mut client, "r5", LONG, 0), None, "a try overtakes nobody");
    assert!(client.release("k", "r1"));
    writer.assert_waits(&scene.primary);
    assert!(client.release("k", "r2"));
    let fence = writer.fence();
    assert_eq!(holders(&mut client), ["w"]);
    third.assert_waits(&scene.primary);
    assert!(client.release("k", "w"));
    assert!(fence < third.fence() && fence < fourth.fence());
    assert_eq!(holders(&mut client), ["r3", "r4"]);
    scene.agree();
}

#[test]
fn mixed_shares_take_the_smaller() {
    let scene = Scene::start();
    let mut client = scene.client();
    for owner in ["a", "b"] {
        assert!(share(&mut client, owner, LONG, 5).is_some());
    }
    assert!(share(&mut client, "c", LONG, 3).is_some());
    assert_eq!(share(&mut client, "d", LONG, 5), None);
    let info = client.info("k").unwrap();
    assert_eq!((info.holders, info.share), (3, 3));
    assert!(client.release("k", "c"));
    assert_eq!(share(&mut client, "d", LONG, 2), None);
    assert!(share(&mut client, "d", LONG, 5).is_some());
    scene.agree();
}

/// As while a pool of five is being replaced by one of three.
#[test]
fn who_tolerates_three_waits_for_the_pool_of_five_to_shrink_and_the_others_wait_behind_it() {
    let scene = Scene::start();
    let mut client = scene.client();
    for owner in ["a", "b", "c"] {
        share(&mut client, owner, LONG, 5).unwrap();
    }
    let mut three = waits(&scene.primary, "three", 3);
    let mut fives = ["d", "e", "f"].map(|owner| waits(&scene.primary, owner, 5));
    assert_eq!(holders(&mut client), ["a", "b", "c"], "there would be room for two of five");
    assert!(client.release("k", "b"));
    three.fence();
    fives[0].assert_waits(&scene.primary);
    assert!(client.release("k", "a"));
    fives[0].fence();
    assert_eq!(holders(&mut client), ["c", "three", "d"]);
    fives[1].assert_waits(&scene.primary);
    assert!(client.release("k", "three"));
    assert!(fives[1].fence() < fives[2].fence());
    assert_eq!(holders(&mut client), ["c", "d", "e", "f"]);
    assert_eq!(client.info("k").unwrap().share, 5);
    scene.agree();
}
