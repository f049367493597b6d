//! `LOCK.EXTEND key owner ttl [fence]`.

use super::play;

const STORIES: &str = "
    # the lease ends ttl from now, be that later or earlier
    LOCK.ACQUIRE k alice 60000 -> A | SET k {A}:alice PXAT +60000
    LOCK.EXTEND k alice 120000 -> 1 | SET k {A}:alice PXAT +120000
    LOCK.EXTEND k alice 30000 -> 1 | SET k {A}:alice PXAT +30000
    LOCK.EXTEND k alice 86400000 A -> 1 | SET k {A}:alice PXAT +86400000
    PERSIST k -> 1 | PERSIST k
    LOCK.EXTEND k alice 60000 -> 1 | SET k {A}:alice PXAT +60000
    LOCK.EXTEND k alice 1 -> 1 | …
    LOCK.ACQUIRE k bob 60000 -> until B | …
    # an extend creates no lock, and revives none
    LOCK.EXTEND k alice 60000 -> 0
    DBSIZE -> 0
    LOCK.ACQUIRE k alice 1 -> A | …
    LOCK.INFO k -> until nil | …
    LOCK.EXTEND k alice 60000 -> 0 | …
    LOCK.INFO k -> nil | …
    # an extend with another fence changes nothing
    LOCK.ACQUIRE k alice 60000 -> A | SET k {A}:alice PXAT +60000
    LOCK.RELEASE k alice -> 1 | DEL k
    LOCK.ACQUIRE k alice 60000 -> B | SET k {B}:alice PXAT +60000
    LOCK.EXTEND k alice 90000 A -> 0
    LOCK.EXTEND k alice 90000 B-1 -> 0
    LOCK.EXTEND k alice 90000 B+1 -> 0
    LOCK.EXTEND k alice 90000 0 -> 0
    # mistakes are named from left to right
    RPUSH list x -> 1 | RPUSH list x
    LOCK.EXTEND list a -> -ARITY
    LOCK.EXTEND list \"\" 0 x extra -> -ARITY
    LOCK.EXTEND list \"\" 0 x -> -OWNER_LENGTH
    LOCK.EXTEND list a 0 x -> -TTL_NOT_POSITIVE
    LOCK.EXTEND list a 86400001 x -> -TTL_ABOVE_LIMIT
    LOCK.EXTEND list a 5 x -> -FENCE_NOT_A_NUMBER
    LOCK.EXTEND list a 5 1 -> -WRONG_TYPE
";

#[test]
fn every_reply_and_every_error() {
    play(STORIES);
}

#[test]
fn an_extend_by_another_owner_changes_nothing() {
    play(
        "
        # nor with the right fence
        LOCK.ACQUIRE k alice 60000 -> A | SET k {A}:alice PXAT +60000
        LOCK.EXTEND k bob 90000 -> 0
        LOCK.EXTEND k bob 90000 A -> 0
        ",
    );
}
