//! What others do to the value of a shared lock, and what is written there that only looks like it.

use super::Scene;

#[test]
fn clients_that_set_if_there_is_nothing_are_excluded_and_exclude() {
    // How they give back and extend a lock that they took with `SET NX PX`.
    let [delete, extend] = ["'DEL', KEYS[1]", "'PEXPIRE', KEYS[1], 60000"].map(|call| {
        format!(
            "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call({call}) end return 0"
        )
    });
    let text = "
        # both ways
        LOCK.ACQUIRE k r1 60000 SHARE 0; LOCK.ACQUIRE k r2 60000 SHARE 0 -> A; B
        SET k old NX PX 60000 -> nil
        EVAL \"DELETE\" 1 k old; EVAL \"EXTEND\" 1 k old; EVAL \"DELETE\" 1 k r1 -> 0; 0; 0
        LOCK.HOLDERS k; LOCK.RELEASE k r1; SET k old NX PX 60000 -> r1 r2; 1; nil
        LOCK.RELEASE k r2; SET k old NX PX 60000 -> 1; OK
        LOCK.ACQUIRE k r1 60000 SHARE 0; LOCK.ACQUIRE k r1 60000; LOCK.INFO k -> nil; nil; …fence 0
        LOCK.ACQUIRE k r1 60000 SHARE 5; LOCK.INFO k -> nil; …holders 1 share 1
        r1: LOCK.ACQUIRE k r1 60000 SHARE 0 BLOCK 0 -> waits
        r2: LOCK.ACQUIRE k r2 60000 SHARE 0 BLOCK 0 -> waits
        EVAL \"EXTEND\" 1 k old; LOCK.ACQUIRE k old 60000 SHARE 0; GET k -> 1; 0; old
        r1: -> waits
        r2: -> waits
        EVAL \"DELETE\" 1 k old -> 1
        r1: -> C
        r2: -> D
        LOCK.HOLDERS k -> r1 r2
    ";
    Scene::play(&text.replace("DELETE", &delete).replace("EXTEND", &extend));
}

#[test]
fn a_value_that_was_torn_is_held_by_nobody_who_could_be_let_in_beside() {
    let tears = ["SETRANGE k 16 x", "SETRANGE k 40 x", "SETRANGE k 41 x", "APPEND k x"];
    let stories = tears.map(|tear| {
        format!(
            "
            # {tear}
            LOCK.ACQUIRE k r1 60000 SHARE 0; LOCK.ACQUIRE k r2 60000 SHARE 0 -> A; B
            {tear} -> …
            LOCK.ACQUIRE k r3 60000 SHARE 0; LOCK.CHECK k r1; LOCK.RELEASE k r2 -> nil; nil; 0
            LOCK.INFO k -> …holders 1
            r3: LOCK.ACQUIRE k r3 60000 SHARE 0 BLOCK 0 -> waits
            DEL k -> 1
            r3: -> C
            "
        )
    });
    Scene::play(&stories.concat());
}

#[test]
fn whatever_ends_the_key_ends_all_holds_and_lets_the_next_in_then() {
    let ways = ["DEL k", "PEXPIRE k 40", "GETEX k PX 40", "PEXPIRE k 0", "RENAME k elsewhere"];
    let stories = ways.map(|way| {
        format!(
            "
            # {way}
            LOCK.ACQUIRE k r1 60000 SHARE 0; LOCK.ACQUIRE k r2 60000 SHARE 0 -> A; B
            w: LOCK.ACQUIRE k w 60000 BLOCK 0 -> waits
            {way} -> …
            w: -> C
            LOCK.RELEASE k r1; LOCK.RELEASE k r2; LOCK.HOLDERS k -> 0; 0; w
            "
        )
    });
    Scene::play(&stories.concat());
}

#[test]
fn a_shared_lock_that_is_renamed_or_copied_is_the_same_lock() {
    Scene::play(
        "
        # there and back, in place of another
        LOCK.ACQUIRE k r1 60000 SHARE 0; LOCK.ACQUIRE k r2 60000 SHARE 0 -> A; B
        RENAME k other; LOCK.CHECK other r1; LOCK.CHECK other r2; COPY other k -> OK; A; B; 1
        LOCK.HOLDERS k; LOCK.RELEASE k r2; LOCK.HOLDERS k -> r1 r2; 1; r1
        RENAME other k; LOCK.HOLDERS k -> OK; r1 r2
        ",
    );
}
