//! `LOCK.EXTEND key owner ttl [fence]`.

use super::{ARITY, Story, play};
use testkit::errors::{
    FENCE_NOT_A_NUMBER, OWNER_LENGTH, TTL_ABOVE_LIMIT, TTL_NOT_POSITIVE, WRONG_TYPE,
};

const STORIES: [Story; 4] = [
    (
        "the lease ends ttl from now, be that later or earlier",
        &[
            ["LOCK.ACQUIRE k alice 60000", "(integer) F", "SET k F:alice PXAT +60000"],
            ["LOCK.EXTEND k alice 120000", "(integer) 1", "SET k F:alice PXAT +120000"],
            ["LOCK.EXTEND k alice 30000", "(integer) 1", "SET k F:alice PXAT +30000"],
            ["LOCK.EXTEND k alice 86400000 F", "(integer) 1", "SET k F:alice PXAT +86400000"],
            ["PERSIST k", "(integer) 1", "PERSIST k"],
            ["LOCK.EXTEND k alice 60000", "(integer) 1", "SET k F:alice PXAT +60000"],
            ["LOCK.EXTEND k alice 1", "(integer) 1", "…"],
            ["until LOCK.ACQUIRE k bob 60000", "(integer) G", "…"],
        ],
    ),
    (
        "an extend creates no lock, and revives none",
        &[
            ["LOCK.EXTEND k alice 60000", "(integer) 0", ""],
            ["DBSIZE", "(integer) 0", ""],
            ["LOCK.ACQUIRE k alice 1", "(integer) F", "…"],
            ["until LOCK.INFO k", "(nil)", "…"],
            ["LOCK.EXTEND k alice 60000", "(integer) 0", "…"],
            ["LOCK.INFO k", "(nil)", "…"],
        ],
    ),
    (
        "an extend with another fence changes nothing",
        &[
            ["LOCK.ACQUIRE k alice 60000", "(integer) F", "SET k F:alice PXAT +60000"],
            ["LOCK.RELEASE k alice", "(integer) 1", "DEL k"],
            ["LOCK.ACQUIRE k alice 60000", "(integer) G", "SET k G:alice PXAT +60000"],
            ["LOCK.EXTEND k alice 90000 F", "(integer) 0", ""],
            ["LOCK.EXTEND k alice 90000 G-1", "(integer) 0", ""],
            ["LOCK.EXTEND k alice 90000 G+1", "(integer) 0", ""],
            ["LOCK.EXTEND k alice 90000 0", "(integer) 0", ""],
        ],
    ),
    (
        "mistakes are named from left to right",
        &[
            ["RPUSH list x", "(integer) 1", "RPUSH list x"],
            ["LOCK.EXTEND list a", ARITY, ""],
            ["LOCK.EXTEND list \"\" 0 x extra", ARITY, ""],
            ["LOCK.EXTEND list \"\" 0 x", OWNER_LENGTH, ""],
            ["LOCK.EXTEND list a 0 x", TTL_NOT_POSITIVE, ""],
            ["LOCK.EXTEND list a 86400001 x", TTL_ABOVE_LIMIT, ""],
            ["LOCK.EXTEND list a 5 x", FENCE_NOT_A_NUMBER, ""],
            ["LOCK.EXTEND list a 5 1", WRONG_TYPE, ""],
        ],
    ),
];

#[test]
fn every_reply_and_every_error() {
    play(&STORIES);
}

#[test]
fn an_extend_by_another_owner_changes_nothing() {
    play(&[(
        "nor with the right fence",
        &[
            ["LOCK.ACQUIRE k alice 60000", "(integer) F", "SET k F:alice PXAT +60000"],
            ["LOCK.EXTEND k bob 90000", "(integer) 0", ""],
            ["LOCK.EXTEND k bob 90000 F", "(integer) 0", ""],
        ],
    )]);
}
