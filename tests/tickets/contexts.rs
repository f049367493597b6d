//! Where a command may not wait, a ticket may still be taken: in transactions, scripts and calls of other modules.

use crate::waiting::play;
use testkit::Server;

const SESSIONS: &str = r#"
    # a transaction takes a place
    MULTI: LOCK.ACQUIRE k bob 60000 TICKET 60000; LOCK.ACQUIRE free bob 5 TICKET 5 -> nil; B
    MULTI: LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
    LOCK.WAITERS k -> ticket(bob)
    LOCK.RELEASE k alice; LOCK.CHECK k bob -> 1; C

    # a transaction that frees the lock and asks for it is behind those who wait
    LOCK.ACQUIRE k carol 60000 TICKET 60000 -> nil
    MULTI: LOCK.RELEASE k alice; LOCK.ACQUIRE k bob 60000 TICKET 60000 -> 1; nil
    LOCK.CHECK k carol -> B
    MULTI: DEL k; LOCK.ACQUIRE k bob 60000 TICKET 60000 -> 1; C

    # a transaction that is discarded or aborted takes no place
    MULTI; LOCK.ACQUIRE k bob 60000 TICKET 60000; DISCARD -> OK; QUEUED; OK
    WATCH a -> OK
    other: SET a 2 -> OK
    MULTI; LOCK.ACQUIRE k bob 60000 TICKET 60000; EXEC -> OK; QUEUED; nil
    MULTI; LOCK.ACQUIRE k bob 60000 TICKET 60000; GET -> OK; QUEUED; -ERR
    EXEC -> -EXECABORT
    LOCK.WAITERS k -> (empty)
    INFO leasehold_tickets -> 0

    # a script takes a place
    EVAL "return tostring(redis.call('LOCK.ACQUIRE', KEYS[1], 'bob', 60000, 'TICKET', 60000))" 1 k -> false
    EVAL "return redis.call('LOCK.WAITERS', KEYS[1])[1][2]" 1 k -> bob
    EVAL "return #redis.call('LOCK.ACQUIRE', KEYS[1], '*', 60000, 'TICKET', 60000)[1]" 1 k -> 36
    LOCK.WAITERS k -> ticket(bob) ticket(…
    EVAL "redis.call('LOCK.RELEASE', KEYS[1], 'alice') return redis.call('LOCK.CHECK', KEYS[1], 'bob')" 1 k -> B

    # a connection that wants no replies takes places
    bob: CLIENT REPLY SKIP; LOCK.ACQUIRE k bob 60000 TICKET 60000; PING -> PONG
    LOCK.WAITERS k -> ticket(bob)

    # a connection with a subscription takes places
    bob: HELLO 3 -> …
    bob: SUBSCRIBE news -> >subscribe news 1
    bob: LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
    LOCK.WAITERS k -> ticket(bob)

    # a connection that watches the lock hears of its grant
    LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
    WATCH k -> OK
    other: LOCK.RELEASE k alice -> 1
    MULTI: SET a 1 -> nil

    # a place is taken in a transaction that a pause holds back because of the write in it
    CLIENT PAUSE 60000 WRITE -> OK
    bob: MULTI; LOCK.ACQUIRE k bob 60000 TICKET 60000; LOCK.RELEASE k alice; LOCK.CHECK k bob; EXEC -> waits
    LOCK.WAITERS k -> (empty)
    CLIENT UNPAUSE -> OK
    bob: -> OK; QUEUED; QUEUED; QUEUED; nil 1 {B}

    # tickets end during a pause, and are granted when it is over
    LOCK.ACQUIRE k brief 60000 TICKET 10 -> nil
    LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
    LOCK.EXTEND k alice 50; CLIENT PAUSE 60000 WRITE -> 1; OK
    LOCK.WAITERS k -> until ticket(bob)
    PTTL k -> until -2..0
    LOCK.CHECK k bob -> nil
    CLIENT UNPAUSE -> OK
    LOCK.CHECK k bob -> until B
"#;

#[test]
fn a_place_is_taken_where_a_command_may_not_wait() {
    play(Server::builder, SESSIONS);
}

#[test]
fn another_module_takes_a_place() {
    let session = r#"# a module
        CALLER.CALL LOCK.ACQUIRE k bob 60000 TICKET 60000 -> nil
        EVAL "return tostring(redis.call('CALLER.CALL', unpack(ARGV)))" 0 LOCK.ACQUIRE k carol 60000 TICKET 60000 -> false
        MULTI: CALLER.CALL LOCK.ACQUIRE k dave 60000 TICKET 60000 -> nil
        LOCK.WAITERS k -> ticket(bob) ticket(carol) ticket(dave)
        LOCK.RELEASE k alice -> 1
        CALLER.CALL LOCK.ACQUIRE k bob 60000 TICKET 60000 -> B"#;
    play(|| Server::builder().with_caller(), session);
}
