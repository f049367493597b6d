//! With `SHARE`, `TICKET`, `NOTIFY` and `EPHEMERAL`. What all orders of these come to is found in the simulation.

use testkit::{Server, Session, lacks_notify};

#[test]
fn the_other_options_are_of_all_locks() {
    Session::play(
        &Server::start(),
        "
        # readers of all go in together and a writer of one keeps them out
        LOCK.ACQUIRE a r0 60000 ALSO 1 b SHARE 0; LOCK.ACQUIRE a r1 60000 ALSO 1 b SHARE 0 -> A; B
        LOCK.CHECK a r0; LOCK.CHECK b r0; LOCK.CHECK a r1; LOCK.CHECK b r1 -> A; A; B; B
        LOCK.ACQUIRE b w 60000 ALSO 1 c -> nil
        w: LOCK.ACQUIRE b w 60000 ALSO 1 c BLOCK 0 -> waits
        LOCK.ACQUIRE a r2 60000 ALSO 1 b SHARE 0; LOCK.RELEASE a r0 ALSO 1 b -> nil; 2
        w: -> waits
        LOCK.RELEASE a r1 ALSO 1 b -> 2
        w: -> W
        # a ticket keeps all places and claims all
        LOCK.ACQUIRE a alice 60000 ALSO 1 b -> A
        LOCK.ACQUIRE a bob 60000 ALSO 1 b TICKET 60000; LOCK.WAITERS a; LOCK.WAITERS b -> nil; ticket(bob); ticket(bob)
        carol: LOCK.ACQUIRE a carol 60000 ALSO 1 b BLOCK 0 -> waits
        LOCK.RELEASE a alice; LOCK.ACQUIRE a bob 60000 ALSO 1 b TICKET 60000 -> 1; nil
        LOCK.RELEASE b alice; LOCK.ACQUIRE a bob 60000 ALSO 1 b TICKET 60000 -> 1; B
        LOCK.CHECK a bob; LOCK.CHECK b bob -> B; B
        carol: -> waits
        LOCK.RELEASE b bob ALSO 1 a -> 2
        carol: -> C
        # one that nobody claims holds all no longer than it lasts
        LOCK.ACQUIRE a alice 60000 ALSO 1 b; LOCK.ACQUIRE a bob 60000 ALSO 1 b TICKET 300 -> A; nil
        carol: LOCK.ACQUIRE a carol 60000 ALSO 1 b BLOCK 0 -> waits
        LOCK.ACQUIRE a bob 60000 ALSO 1 b TICKET 300; LOCK.RELEASE a alice ALSO 1 b -> nil; 2
        carol: -> C
        LOCK.CHECK a carol; LOCK.CHECK b carol; LOCK.CHECK a bob; LOCK.CHECK b bob -> C; C; nil; nil
        # all end with the connection that they are bound to
        alice: LOCK.ACQUIRE a alice 60000 ALSO 1 b EPHEMERAL 0 -> A
        INFO leasehold_bindings -> 2
        bob: LOCK.ACQUIRE b bob 60000 ALSO 1 a BLOCK 0 EPHEMERAL 0 -> waits
        alice: leaves
        bob: -> B
        LOCK.CHECK a bob; LOCK.CHECK b bob -> B; B
        bob: leaves
        LOCK.ACQUIRE a carol 60000 ALSO 1 b -> until C
        INFO leasehold_bindings -> until 0
        ",
    );
}

#[test]
fn the_grant_of_a_ticket_is_published_once_with_the_first_key() {
    if lacks_notify() {
        return;
    }
    Session::play(
        &Server::start(),
        "
        # which is not the first that is free
        hears: SUBSCRIBE grants -> …
        LOCK.ACQUIRE a alice 60000 ALSO 1 b -> A
        LOCK.ACQUIRE b bob 60000 ALSO 1 a TICKET 60000 NOTIFY grants -> nil
        LOCK.RELEASE b alice; LOCK.RELEASE a alice; LOCK.CHECK a bob -> 1; 1; B
        PUBLISH grants end -> 1
        hears: -> message grants {B} 3 bob b
        hears: -> message grants end
        ",
    );
}
