//! `LOCK.CHECK key owner [fence]`.

use super::play;

const STORIES: &str = "
    # the holder is told the fence of its grant, and anyone else nil
    LOCK.ACQUIRE k alice 60000 -> A | SET k {A}:alice PXAT +60000
    LOCK.CHECK k alice -> A
    LOCK.CHECK k alice A -> A
    LOCK.CHECK k alice A-1 -> nil
    LOCK.CHECK k alice 0 -> nil
    LOCK.CHECK k bob -> nil
    LOCK.CHECK k bob A -> nil
    LOCK.CHECK free alice -> nil
    LOCK.CHECK free alice 0 -> nil
    PERSIST k -> 1 | PERSIST k
    LOCK.CHECK k alice -> A
    LOCK.EXTEND k alice 1 -> 1 | …
    LOCK.CHECK k alice -> until nil | …
    # mistakes are named from left to right
    RPUSH list x -> 1 | RPUSH list x
    LOCK.CHECK list -> -ARITY
    LOCK.CHECK list \"\" x extra -> -ARITY
    LOCK.CHECK list \"\" x -> -OWNER_LENGTH
    LOCK.CHECK list a x -> -FENCE_NOT_A_NUMBER
    LOCK.CHECK list a 1 -> -WRONG_TYPE
";

#[test]
fn every_reply_and_every_error() {
    play(STORIES);
}
