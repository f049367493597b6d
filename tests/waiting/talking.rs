//! What else goes over the connection of one that waits.

use super::play;
use testkit::{Server, is_valkey_since};

const SESSIONS: &str = "
    # commands behind the request are executed after its reply
    bob: SET before 1; LOCK.ACQUIRE k bob 60000 BLOCK 0; SET behind 1; LOCK.CHECK k bob -> waits
    EXISTS before behind -> 1
    LOCK.RELEASE k alice -> 1
    bob: LOCK.RELEASE k bob; ECHO last -> OK; B; OK; B; 1; last

    # several requests that wait may stand in one pipeline
    LOCK.ACQUIRE l alice 60000 -> B
    LOCK.ACQUIRE m alice 60000 -> C
    bob: LOCK.ACQUIRE k bob 60000 BLOCK 0; LOCK.ACQUIRE l bob 60000 BLOCK 20; LOCK.ACQUIRE m bob 60000 BLOCK 0 -> waits
    LOCK.WAITERS k; LOCK.WAITERS l -> bob; (empty)
    LOCK.RELEASE k alice -> 1
    bob: -> D; nil
    LOCK.RELEASE m alice -> 1
    bob: -> E

    # one that wants no replies is granted the lock in silence, and nobody takes it for unheard
    bob: CLIENT REPLY OFF; LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    carol: LOCK.ACQUIRE k carol 60000 BLOCK 0 -> waits
    LOCK.RELEASE k alice -> 1
    LOCK.CHECK k bob -> until B
    carol: -> waits
    bob: CLIENT REPLY ON -> OK
    bob: LOCK.CHECK k bob -> B
    LOCK.RELEASE k bob -> 1
    carol: -> C
    bob: CLIENT REPLY SKIP; LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
    dave: LOCK.ACQUIRE k dave 60000 BLOCK 0 -> waits
    LOCK.RELEASE k carol -> 1
    LOCK.CHECK k bob -> until D
    dave: -> waits
    bob: PING -> PONG

    # one that wants no replies gives up in silence
    bob: CLIENT REPLY OFF; LOCK.ACQUIRE k bob 60000 BLOCK 20; CLIENT REPLY ON -> OK
    bob: ECHO next -> next
";

#[test]
fn a_waiter_hears_of_each_command_in_its_turn_if_it_wants_to() {
    play(Server::builder, SESSIONS);
}

#[test]
fn a_subscriber_that_waits_gets_its_messages_meanwhile() {
    if is_valkey_since((8, 1)) {
        return; // It gets an error, see `contexts`.
    }
    let session = "# a subscriber
        bob: HELLO 3 -> …
        bob: SUBSCRIBE news -> >subscribe news 1
        bob: LOCK.ACQUIRE k bob 60000 BLOCK 0 -> waits
        PUBLISH news hello -> 1
        bob: -> >message news hello
        LOCK.RELEASE k alice -> 1
        bob: -> B";
    play(Server::builder, session);
}
