//! `LOCK.TOP`: which locks are contended most, and how much. How names are cut, and which locks are dropped, is found in the core.

use super::play;

#[test]
fn the_most_contended_comes_first_whether_waited_for_or_tried_for_until_a_reset() {
    play(
        "max-waiters-per-lock 2",
        "",
        "
        # waits, tries, and requests for which there was no room or that may not wait
        LOCK.ACQUIRE tried alice 60000; LOCK.ACQUIRE both alice 60000 -> A; B
        LOCK.ACQUIRE free alice 60000; LOCK.ACQUIRE free alice 60000 BLOCK 0; LOCK.EXTEND free bob 60000 -> C; C; 0
        LOCK.RELEASE free bob; LOCK.TOP -> 0; (empty)
        LOCK.ACQUIRE tried bob 60000; LOCK.ACQUIRE tried bob 60000; LOCK.ACQUIRE tried bob 60000 -> nil; nil; nil
        MULTI: LOCK.ACQUIRE both dave 60000 BLOCK 0 -> nil
        EVAL \"return redis.call('LOCK.ACQUIRE', KEYS[1], 'dave', 60000, 'BLOCK', 0)\" 1 both -> nil
        bob: LOCK.ACQUIRE both bob 60000 BLOCK 0 -> waits
        carol: LOCK.ACQUIRE both carol 60000 BLOCK 0 -> waits
        LOCK.ACQUIRE both erin 60000 BLOCK 0 -> -QUEUEFULL
        LOCK.TOP 1 -> [key both db 0 waits 2 refused 3 wait-total 0 wait-longest 0 missed 0]
        LOCK.TOP -1 -> …[key tried db 0 waits 0 refused 3 wait-total 0 wait-longest 0 missed 0]
        EVAL \"return redis.call('LOCK.TOP', 1)[1][6]\" 0 -> 2
        SELECT 3; LOCK.ACQUIRE both alice 60000; LOCK.ACQUIRE both bob 60000; LOCK.TOP -> OK; D; nil; …db 3 waits 0 refused 1
        LOCK.TOP reset; LOCK.TOP -> OK; (empty)
        # a wait that began before a reset is not half counted
        LOCK.ACQUIRE k alice 60000 -> A
        bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
        LOCK.TOP RESET; LOCK.RELEASE k alice -> OK; 1
        bob: -> B
        LOCK.TOP -> (empty)
        # the times of waits that are over add up
        LOCK.ACQUIRE k alice 60000 -> A
        LOCK.ACQUIRE k bob 60000 BLOCK 20; LOCK.ACQUIRE k bob 60000 BLOCK 20; LOCK.TOP -> nil; nil; …waits 2 refused 0 wait-total
        EVAL \"local row = redis.call('LOCK.TOP')[1] return row[12] >= 20 and row[10] >= row[12] + 20\" 0 -> 1
        ",
    );
}
