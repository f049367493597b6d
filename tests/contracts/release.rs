//! `LOCK.RELEASE key owner [fence]`.

use super::play;

const STORIES: &str = "
    # the holder releases once, and nothing is left
    LOCK.RELEASE k alice -> 0
    LOCK.RELEASE k alice 7 -> 0
    LOCK.ACQUIRE k alice 60000 -> A | SET k {A}:alice PXAT +60000
    LOCK.RELEASE k alice -> 1 | DEL k
    DBSIZE -> 0
    LOCK.RELEASE k alice -> 0
    LOCK.ACQUIRE k alice 60000 -> B | SET k {B}:alice PXAT +60000
    PERSIST k -> 1 | PERSIST k
    LOCK.RELEASE k alice -> 1 | DEL k
    LOCK.ACQUIRE k alice 1 -> C | …
    LOCK.INFO k -> until nil | …
    LOCK.RELEASE k alice -> 0 | …
    # a late release does not touch a newer grant of the same owner
    LOCK.ACQUIRE k alice 60000 -> A | SET k {A}:alice PXAT +60000
    LOCK.RELEASE k alice A -> 1 | DEL k
    LOCK.ACQUIRE k alice 60000 -> B | SET k {B}:alice PXAT +60000
    LOCK.RELEASE k alice A -> 0
    LOCK.RELEASE k alice B-1 -> 0
    LOCK.RELEASE k alice B+1 -> 0
    LOCK.RELEASE k alice 0 -> 0
    LOCK.RELEASE k alice 9007199254740991 -> 0
    # an owner of 256 bytes is refused and not cut
    LOCK.ACQUIRE k x*255 60000 -> A | …
    LOCK.RELEASE k x*256 -> -OWNER_LENGTH
    LOCK.CHECK k x*256 -> -OWNER_LENGTH
    LOCK.EXTEND k x*256 5 -> -OWNER_LENGTH
    LOCK.RELEASE k x*255 -> 1 | DEL k
    # mistakes are named from left to right
    RPUSH list x -> 1 | RPUSH list x
    LOCK.RELEASE list -> -ARITY
    LOCK.RELEASE list a 1 2 3 4 5 6 7 8 9 10 11 12 -> -ARITY
    LOCK.RELEASE list \"\" x -> -OWNER_LENGTH
    LOCK.RELEASE list a x -> -FENCE_NOT_A_NUMBER
    LOCK.RELEASE list a 9007199254740992 -> -FENCE_NOT_A_NUMBER
    LOCK.RELEASE list a 1 -> -WRONG_TYPE
";

#[test]
fn every_reply_and_every_error() {
    play(STORIES);
}

#[test]
fn a_release_by_another_owner_changes_nothing() {
    play(
        "
        # nor with the right fence
        LOCK.ACQUIRE k alice 60000 -> A | SET k {A}:alice PXAT +60000
        LOCK.RELEASE k bob -> 0
        LOCK.RELEASE k bob A -> 0
        LOCK.RELEASE k alic -> 0
        LOCK.RELEASE k alice2 -> 0
        LOCK.RELEASE k * -> 0
        ",
    );
}
