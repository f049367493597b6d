//! `LOCK.CHECK key owner [fence]`.

use super::{ARITY, Story, play};
use testkit::errors::{FENCE_NOT_A_NUMBER, OWNER_LENGTH, WRONG_TYPE};

const STORIES: [Story; 2] = [
    (
        "the holder is told the fence of its grant, and anyone else nil",
        &[
            ["LOCK.ACQUIRE k alice 60000", "(integer) F", "SET k F:alice PXAT +60000"],
            ["LOCK.CHECK k alice", "(integer) F", ""],
            ["LOCK.CHECK k alice F", "(integer) F", ""],
            ["LOCK.CHECK k alice F-1", "(nil)", ""],
            ["LOCK.CHECK k alice 0", "(nil)", ""],
            ["LOCK.CHECK k bob", "(nil)", ""],
            ["LOCK.CHECK k bob F", "(nil)", ""],
            ["LOCK.CHECK free alice", "(nil)", ""],
            ["LOCK.CHECK free alice 0", "(nil)", ""],
            ["PERSIST k", "(integer) 1", "PERSIST k"],
            ["LOCK.CHECK k alice", "(integer) F", ""],
            ["LOCK.EXTEND k alice 1", "(integer) 1", "…"],
            ["until LOCK.CHECK k alice", "(nil)", "…"],
        ],
    ),
    (
        "mistakes are named from left to right",
        &[
            ["RPUSH list x", "(integer) 1", "RPUSH list x"],
            ["LOCK.CHECK list", ARITY, ""],
            ["LOCK.CHECK list \"\" x extra", ARITY, ""],
            ["LOCK.CHECK list \"\" x", OWNER_LENGTH, ""],
            ["LOCK.CHECK list a x", FENCE_NOT_A_NUMBER, ""],
            ["LOCK.CHECK list a 1", WRONG_TYPE, ""],
        ],
    ),
];

#[test]
fn every_reply_and_every_error() {
    play(&STORIES);
}
