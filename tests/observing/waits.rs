//! `INFO leasehold` and the key events about waiting: every wait begins once and ends in one of four ways.

use super::{Figures, evict, play, telling};
use crate::waiting::can_be_unblocked;
use testkit::{Session, becomes};

const WAITED_FOR: &str = "
LOCK.ACQUIRE k alice 60000 -> A
bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
";

const ENDS: &str = "
# a wait that ends with a release
LOCK.RELEASE k alice -> 1
bob: -> B | releases+1 HANDED_OFF | released handed-off
LOCK.RELEASE k bob -> 1 | releases+1 held-1 | released
# a wait that ends with the lease
LOCK.EXTEND k alice 30 -> 1
bob: -> B | extends+1 expiries_with_waiters+1 HANDED_OFF | extended lost handed-off
LOCK.RELEASE k alice -> 0 | releases_refused+1 releases_late+1 log_len+1 | -
LOCK.EXTEND k alice 60000 -> 0 | extends_refused+1 extends_late+1 | -
LOCK.RELEASE k bob -> 1 | releases+1 held-1 | released
# every lease that runs out while somebody waits is counted, and no other
carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits | waits_started+1 waiters+1 waiters_most+1 | -
LOCK.EXTEND k alice 20 -> 1
bob: -> B | extends+1 expiries_with_waiters+1 HANDED_OFF | extended lost handed-off
LOCK.EXTEND k bob 20 -> 1
carol: -> C | extends+1 expiries_with_waiters+1 HANDED_OFF | extended lost handed-off
LOCK.EXTEND k carol 20 -> 1
LOCK.INFO k -> until nil | extends+1 held-1 | extended
LOCK.RELEASE k carol -> 0 | releases_refused+1 releases_late+1 log_len+1 | lost
LOCK.EXTEND k carol 60000 -> 0 | extends_refused+1 extends_late+1 | -
# a wait that ends with the client's patience
carol: LOCK.ACQUIRE k carol 60000 BLOCK 100 -> nil
LOCK.CHECK k alice -> A | waits_started+1 waits_timed_out+1 waiters_most+1 | -
# a wait that ends with the client's connection
bob: leaves
INFO leasehold_waiters -> until 0 | waits_abandoned+1 waiters-1 | -
carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits | waits_started+1 waiters+1 | -
CLIENT KILL ID {carol} -> 1 | waits_abandoned+1 waiters-1 | -
LOCK.RELEASE k alice -> 1 | releases+1 held-1 | released
# a wait that ends because the server becomes a replica
REPLICAOF 127.0.0.1 1 -> OK
bob: -> -UNBLOCKED
INFO leasehold_waiters -> until 0 | waits_abandoned+1 waiters-1 held-1
# a wait that goes on in a newer request of the same owner
newer: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
bob: -> -REPLACED | waits_started+1 waits_refused+1 | -
LOCK.RELEASE k alice -> 1
newer: -> B | releases+1 HANDED_OFF | released handed-off
# a try while others wait is refused though the lock is free
carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits | waits_started+1 waiters+1 waiters_most+1 | -
LOCK.RELEASE k alice; LOCK.ACQUIRE k alice 60000 -> 1; nil
bob: -> B | releases+1 tries_refused+1 HANDED_OFF | released handed-off
LOCK.RELEASE k bob -> 1
carol: -> C | releases+1 HANDED_OFF | released handed-off
# a wait for a lock that becomes one's own by other means is a retry
SET k bob -> OK
bob: -> 0 | waits_granted+1 waiters-1 retries+1 log_len+1 held-1
# a grant whose waiter was killed unheard is taken back and is no release
LOCK.RELEASE k alice; CLIENT KILL ID {bob} -> 1; 1
LOCK.INFO k -> until nil | releases+1 held-1 HANDED_OFF
LOCK.ACQUIRE k carol 60000 -> C
LOCK.RELEASE k bob -> 0 | grants+1 held+1 releases_refused+1 | released handed-off released acquired
LOCK.LOG -1 -> (empty)
# a grant that is taken back goes on to the next
carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits | waits_started+1 waiters+1 waiters_most+1 | -
LOCK.RELEASE k alice; CLIENT KILL ID {bob} -> 1; 1
carol: -> C | releases+1 HANDED_OFF HANDED_OFF | released handed-off released handed-off
# a lock that is deleted or overwritten while somebody waits
DEL k -> 1
bob: -> B | HANDED_OFF log_len+1 | del lost handed-off
carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
SET k stranger PX 60000 -> OK
INFO leasehold_log_len -> until 2 | waits_started+1 waiters+1 log_len+1 held-1 | set lost
carol: -> waits
LOCK.RELEASE k bob -> 0 | releases_refused+1 | -
# a lock that is deleted while nobody waits
LOCK.RELEASE k alice -> 1
bob: -> B
UNLINK k -> 1 | | released handed-off del
carol: LOCK.ACQUIRE k carol 60000 -> C | | lost acquired
LOCK.RELEASE k bob -> 0 | | -
DEL k -> 1
LOCK.EXTEND k carol 60000 -> 0 | | del lost
# the most that ever waited at once stays while the number of waiters falls
SELECT 5; LOCK.ACQUIRE elsewhere alice 60000 -> OK; C
there: SELECT 5 -> OK
there: LOCK.ACQUIRE elsewhere bob 60000 BLOCK 0 -> waits
carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
INFO leasehold_waiters -> 3 | grants+1 held+1 waits_started+2 waiters+2 waiters_most+2
bob: leaves
carol: leaves
there: leaves
INFO leasehold_waiters -> until 0 | waits_abandoned+3 waiters-3
dave: LOCK.ACQUIRE k dave 60000 BLOCK 0 -> waits | waits_started+1 waiters+1
# a request that is not let to wait is a try
MULTI; LOCK.ACQUIRE k carol 60000 BLOCK 0; EXEC -> OK; QUEUED; [nil] | tries_refused+1 | -
EVAL \"return redis.call('LOCK.ACQUIRE', KEYS[1], 'carol', 60000, 'BLOCK', 0)\" 1 k -> nil | tries_refused+1 | -
";

#[test]
fn each_end_of_a_wait_is_counted_and_published() {
    play("", WAITED_FOR, ENDS);
}

/// It is noted once a second.
#[test]
fn requests_to_wait_for_which_there_is_no_room() {
    for limit in ["max-waiters 1", "max-waiters-per-lock 1"] {
        play(
            limit,
            WAITED_FOR,
            "
            # it is a try that was refused
            LOCK.ACQUIRE k carol 60000 BLOCK 0 -> -QUEUEFULL | queue_full+1 log_len+1 | -
            LOCK.ACQUIRE k carol 60000 BLOCK 0 -> -QUEUEFULL | queue_full+1 | -
            LOCK.ACQUIRE k carol 60000 -> nil | tries_refused+1 | -
            ",
        );
    }
}

#[test]
fn a_wait_that_an_operator_ends() {
    if can_be_unblocked() {
        play(
            "",
            WAITED_FOR,
            "
            # by unblocking it, with or without an error
            CLIENT UNBLOCK {bob} -> 1
            bob: -> nil | waits_abandoned+1 waiters-1 | -
            carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
            CLIENT UNBLOCK {carol} ERROR -> 1
            carol: -> -UNBLOCKED | waits_started+1 waits_abandoned+1 | -
            ",
        );
    } else {
        play("", WAITED_FOR, "# it is not possible\nCLIENT UNBLOCK {bob} -> 0 | - | -");
    }
}

#[test]
fn an_evicted_lock_that_is_put_back_is_not_lost() {
    let server = telling().config("maxmemory-policy", "volatile-lru").start();
    let mut session = Session::of(&server, 0);
    session.step("LOCK.ACQUIRE k alice 60000", "A");
    session.step("bob: LOCK.ACQUIRE k bob 60000 BLOCK 0", "waits");
    let (mut figures, mut listener) = (Figures::of(&server), super::Listener::on(&server));
    let times = evict(&mut server.client(), &mut figures);
    // Noted once a second at most.
    let noted = figures.get("log_len").cast_signed();
    assert!((1..=times).contains(&noted), "{noted} of {times}");
    figures.moved(&[("evictions_restored", times), ("log_len", noted)]);
    let heard = listener.heard();
    assert!(!heard.iter().any(|event| event.starts_with("lock.")), "{heard:?}");
    let evicted = heard.iter().filter(|event| *event == "evicted").count();
    assert_eq!(evicted, usize::try_from(times).unwrap());
    session.step("LOCK.RELEASE k alice", "1");
    session.step("bob:", "B");
    becomes("it is handed on", 1, || figures.get("hand_offs"));
}
