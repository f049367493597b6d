//! `INFO leasehold` and the key events: each deed of a holder moves its figures once, and no other, and is published.

use super::{Figures, play};
use testkit::Server;

#[test]
fn nothing_is_counted_before_anything_happens() {
    let server = Server::start();
    let mut figures = Figures::of(&server);
    assert!(figures.last.len() > 30);
    figures.assert_nothing_counted();
    figures.moved(&[]);
}

const DEEDS: &str = r#"
# a grant, its retries, its extensions and its release
LOCK.ACQUIRE k alice 60000 -> A | grants+1 held+1 | acquired
LOCK.ACQUIRE k alice 1 -> A | retries+1 | -
LOCK.ACQUIRE k alice 120000 -> A | retries+1 | extended
LOCK.EXTEND k alice 180000 -> 1 | extends+1 | extended
LOCK.EXTEND k alice 60000 -> 1 | extends+1 | extended
LOCK.EXTEND k alice 70000 A -> 1 | extends+1 | extended
LOCK.RELEASE k alice A -> 1 | releases+1 held-1 | released
LOCK.ACQUIRE k alice 60000 BLOCK 0 -> B | grants+1 held+1 | acquired
LOCK.ACQUIRE k alice 1 BLOCK 0 -> B | retries+1 | -
LOCK.RELEASE k alice -> 1 | releases+1 held-1 | released
LOCK.ACQUIRE minted * 60000 -> … | grants+1 held+1 | acquired(minted)
# what a stranger is refused is not late
LOCK.RELEASE k bob -> 0 | releases_refused+1 | -
LOCK.EXTEND k bob 60000 -> 0 | extends_refused+1 | -
LOCK.ACQUIRE k alice 60000 -> A | grants+1 held+1 | acquired
LOCK.ACQUIRE k bob 60000 -> nil | tries_refused+1 | -
LOCK.ACQUIRE k bob 60000 BLOCK 20 -> nil | waits_started+1 waits_started_after_try+1 waits_timed_out+1 waiters_most+1 | -
LOCK.RELEASE k bob -> 0 | releases_refused+1 | -
LOCK.EXTEND k bob 60000 -> 0 | extends_refused+1 | -
LOCK.RELEASE k bob A -> 0 | releases_refused+1 | -
LOCK.RELEASE k alice A-1 -> 0 | releases_refused+1 | -
LOCK.EXTEND k alice 60000 A+1 -> 0 | extends_refused+1 | -
# a foreign lock is asked for, extended and released by its value
SET k uuid NX PX 60000 -> OK | - | set
LOCK.ACQUIRE k alice 60000 -> nil | tries_refused+1 | -
LOCK.ACQUIRE k uuid 120000 -> 0 | retries+1 | extended
LOCK.EXTEND k uuid 60000 -> 1 | extends+1 | extended
LOCK.RELEASE k alice -> 0 | releases_refused+1 | -
LOCK.RELEASE k uuid 0 -> 1 | releases+1 | released
INFO leasehold_hold_us_max -> 0
LOCK.RELEASE k uuid -> 0 | releases_refused+1 | -
# a foreign lock is not lost when its client deletes it
SET k uuid NX PX 60000 -> OK | - | set
bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits | waits_started+1 waiters+1 waiters_most+1 | -
DEL k -> 1
bob: -> B | held+1 HANDED_OFF | del handed-off
LOCK.RELEASE k bob -> 1 | releases+1 held-1 | released
SET k uuid NX PX 60000 -> OK
carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
LOCK.RELEASE k uuid -> 1
carol: -> C | waits_started+1 waiters+1 releases+1 held+1 HANDED_OFF | set released handed-off
SET other uuid NX PX 40 -> OK
bob: LOCK.ACQUIRE other bob 60000 BLOCK 0 -> D
INFO leasehold_expiries_with_waiters -> 1
INFO leasehold_log_len -> 0
# who only looks is not counted
LOCK.ACQUIRE k alice 60000 -> A | grants+1 held+1 | acquired
LOCK.CHECK k alice; LOCK.CHECK k bob; LOCK.CHECK free bob -> A; nil; nil | - | -
LOCK.INFO k; LOCK.INFO free; LOCK.WAITERS k -> …alice; nil; (empty) | - | -
LOCK.TOP; LOCK.TOP RESET; LOCK.LOG -1; LOCK.LOG RESET -> (empty); OK; (empty); OK | - | -
LOCK.HELP; GET k; INFO -> …LOCK; …alice; …redis_version | - | -
# a request with a mistake or without the right is not counted
LOCK.ACQUIRE k alice 60000; RPUSH list x -> A; 1
ACL SETUSER worker on nopass ~mine* +lock.check -> OK | grants+1 held+1 | acquired rpush(list)
LOCK.ACQUIRE k bob; LOCK.ACQUIRE k bob 0; LOCK.ACQUIRE k bob 86400001 -> -ERR; -ERR; -ERR | - | -
LOCK.ACQUIRE k bob 60000 BLOCK; LOCK.ACQUIRE k bob 60000 BLOCK -1 -> -ERR; -ERR | - | -
LOCK.ACQUIRE k bob 60000 WAIT 5; LOCK.ACQUIRE k "" 60000 -> -ERR; -ERR | - | -
LOCK.ACQUIRE list bob 60000 -> -WRONGTYPE | - | -
LOCK.ACQUIRE list bob 60000 BLOCK 0 -> -WRONGTYPE | - | -
LOCK.RELEASE k; LOCK.RELEASE k ""; LOCK.RELEASE k alice -1 -> -ERR; -ERR; -ERR | - | -
LOCK.RELEASE list bob; LOCK.EXTEND list alice 60000 -> -WRONGTYPE; -WRONGTYPE | - | -
LOCK.EXTEND k alice 0; LOCK.EXTEND k alice; LOCK.CHECK list alice -> -ERR; -ERR; -WRONGTYPE | - | -
LOCK.TOP 0; LOCK.LOG x; LOCK.UNHEARD-OF k -> -ERR; -ERR; -ERR | - | -
worker: AUTH worker x -> OK
worker: LOCK.ACQUIRE mine worker 60000; LOCK.ACQUIRE k worker 60000 -> -NOPERM; -NOPERM | - | -
worker: LOCK.RELEASE k alice; LOCK.EXTEND k alice 60000 -> -NOPERM; -NOPERM | - | -
# what the server refuses for want of memory is not counted
LOCK.ACQUIRE k alice 60000; CONFIG SET maxmemory 1 -> A; OK | grants+1 held+1 | acquired
LOCK.ACQUIRE free bob 60000; LOCK.ACQUIRE k bob 60000 BLOCK 0 -> -OOM; -OOM | - | -
LOCK.EXTEND k alice 90000; LOCK.RELEASE k alice -> 1; 1 | extends+1 releases+1 held-1
# what is done in a transaction is counted once and when it is done
MULTI; LOCK.ACQUIRE k alice 60000; LOCK.RELEASE k alice -> OK; QUEUED; QUEUED | - | -
DISCARD -> OK | - | -
MULTI; LOCK.ACQUIRE k alice 60000; LOCK.ACQUIRE k alice 60000 -> OK; QUEUED; QUEUED
LOCK.ACQUIRE k bob 60000; LOCK.ACQUIRE k bob 60000 BLOCK 0 -> QUEUED; QUEUED
LOCK.EXTEND k alice 60000; LOCK.RELEASE k bob -> QUEUED; QUEUED
LOCK.RELEASE k alice; LOCK.ACQUIRE k bob 0 -> QUEUED; QUEUED | - | -
EXEC -> … nil nil 1 0 1 -ERR | grants+1 retries+1 tries_refused+2 extends+1 releases_refused+1 releases+1
WATCH k -> OK
other: SET k stranger -> OK
MULTI; LOCK.ACQUIRE k alice 60000; EXEC -> OK; QUEUED; nil | -
# what a script does is counted once
EVAL "DO_ALL" 1 k -> 1 | grants+1 retries+1 tries_refused+1 extends+1 extends_refused+1 releases+1
# in a transaction each is published in its turn
LOCK.ACQUIRE k alice 60000 -> A
bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits | | acquired
MULTI; SET a 1; LOCK.RELEASE k alice; SET b 1; LOCK.ACQUIRE c alice 60000; EXEC -> …
bob: -> B | | set(a) released handed-off set(b) acquired(c)
# in a script, too
LOCK.ACQUIRE k alice 60000 -> A
bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits | | acquired
EVAL "SET_AND_RELEASE" 0 -> nil
bob: -> B | | set(a) released handed-off set(b) acquired(c)
# what is held falls when leases run out and when a loss is noticed
LOCK.ACQUIRE short alice 5; LOCK.ACQUIRE deleted alice 60000 -> A; B
LOCK.ACQUIRE kept alice 60000; LOCK.INFO short -> C; …
LOCK.INFO short -> until nil | grants+3 held+2
DEL deleted -> 1 | -
LOCK.RELEASE deleted alice -> 0 | releases_refused+1 log_len+1 held-1
SELECT 3; LOCK.ACQUIRE kept alice 60000 -> OK; D | grants+1 held+1
"#;

#[test]
fn each_deed_is_counted_and_published_once_and_nothing_else_is() {
    let all = "local call, k = redis.call, KEYS[1] \
        call('LOCK.ACQUIRE', k, 'alice', 60000) call('LOCK.ACQUIRE', k, 'alice', 60000) \
        call('LOCK.ACQUIRE', k, 'bob', 60000, 'BLOCK', 0) \
        call('LOCK.EXTEND', k, 'alice', 60000) call('LOCK.EXTEND', k, 'bob', 60000) \
        return call('LOCK.RELEASE', k, 'alice')";
    let in_turn = "redis.call('SET', 'a', 1) redis.call('LOCK.RELEASE', 'k', 'alice') \
        redis.call('SET', 'b', 1) redis.call('LOCK.ACQUIRE', 'c', 'alice', 60000)";
    let deeds = DEEDS.replace("DO_ALL", all).replace("SET_AND_RELEASE", in_turn);
    play("", "", &deeds);
}

/// The alert for contention compares the two: who tries first and then waits is not meant.
#[test]
fn a_wait_behind_a_refused_try_is_told_from_a_wait_without_one() {
    play(
        "",
        "LOCK.ACQUIRE k alice 60000 -> A",
        "
        # the next is another wait, and others have not tried
        LOCK.ACQUIRE k bob 60000 -> nil | tries_refused+1
        LOCK.ACQUIRE k bob 60000 BLOCK 1 -> nil | AFTER_TRY waiters_most+1
        LOCK.ACQUIRE k bob 60000 BLOCK 1 -> nil | ENDED
        LOCK.ACQUIRE k carol 60000 BLOCK 1 -> nil | ENDED
        # on other connections, as of a pool, and with others in between
        bob: LOCK.ACQUIRE k bob 60000 -> nil
        carol: LOCK.ACQUIRE k carol 60000 -> nil
        dave: LOCK.ACQUIRE k dave 60000 -> nil | tries_refused+3
        LOCK.ACQUIRE k dave 60000 BLOCK 1 -> nil | AFTER_TRY waiters_most+1
        LOCK.ACQUIRE k bob 60000 BLOCK 1 -> nil | AFTER_TRY
        "
        .replace("AFTER_TRY", "ENDED waits_started_after_try+1")
        .replace("ENDED", "waits_started+1 waits_timed_out+1")
        .as_str(),
    );
}
