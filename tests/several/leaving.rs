//! Those who leave, leave all queues; a grant that nobody has heard of goes back as a whole.

use testkit::{Server, Session, lacks};

const OPENING: &str = "
    LOCK.ACQUIRE a alice 60000 ALSO 2 b c -> A
    bob: LOCK.ACQUIRE a bob 60000 ALSO 2 b c BLOCK 0 -> waits
";

const LEAVES: &str = "
# whoever is killed leaves all queues and those behind it go on
OPENING
r0: LOCK.ACQUIRE a r0 60000 BLOCK 0 -> waits
r1: LOCK.ACQUIRE b r1 60000 ALSO 1 c BLOCK 0 -> waits
CLIENT KILL ID {bob} -> 1
LOCK.WAITERS a; LOCK.WAITERS b; LOCK.WAITERS c -> r0; r1; r1
LOCK.RELEASE a alice ALSO 2 b c -> 3
r0: -> B
r1: -> C
# a grant to one who is killed in the same step goes back as a whole
OPENING
carol: LOCK.ACQUIRE c carol 60000 ALSO 2 b a BLOCK 0 -> waits
LOCK.RELEASE a alice ALSO 2 b c; CLIENT KILL ID {bob} -> 3; 1
carol: -> C
LOCK.CHECK a carol; LOCK.CHECK b carol; LOCK.CHECK c carol -> C; C; C
# a part of it is nobody's when a command comes first
OPENING
LOCK.RELEASE a alice ALSO 2 b c; CLIENT KILL ID {bob}; LOCK.CHECK b bob; LOCK.ACQUIRE b carol 60000 -> 3; 1; nil; B
LOCK.ACQUIRE a bob 60000 ALSO 1 c -> C
LOCK.CHECK b carol; LOCK.CHECK a bob; LOCK.CHECK c bob -> B; C; C
# who comes back with the same request is not told of the grant that it missed
OPENING
LOCK.RELEASE a alice ALSO 2 b c; CLIENT KILL ID {bob}; LOCK.CHECK a bob -> 3; 1; nil
LOCK.ACQUIRE a bob 60000 ALSO 2 b c -> B
LOCK.CHECK a bob; LOCK.CHECK b bob; LOCK.CHECK c bob -> B; B; B
";

const UNBLOCKED: &str = "
# who is unblocked, too
OPENING
r0: LOCK.ACQUIRE a r0 60000 BLOCK 0 -> waits
CLIENT UNBLOCK {bob} -> 1
bob: -> nil
LOCK.WAITERS a; LOCK.WAITERS b; LOCK.RELEASE a alice ALSO 2 b c -> r0; (empty); 3
r0: -> B
";

#[test]
fn whoever_leaves_leaves_all_queues_and_a_grant_that_nobody_has_heard_of_goes_back_as_a_whole() {
    Session::play(&Server::start(), &LEAVES.replace("OPENING", OPENING));
    if !lacks((7, 4), "CLIENT UNBLOCK of waiters") {
        Session::play(&Server::start(), &UNBLOCKED.replace("OPENING", OPENING));
    }
}
