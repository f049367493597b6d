//! Who comes too late, as `INFO leasehold` counts it; and what is not claimed, because it is not known.

use super::{Figures, play};
use testkit::{Server, Session, start_pair, wait_until_in_sync};

const LATE: &str = "
# a release that is repeated is refused and is not late
LOCK.ACQUIRE k alice 60000; LOCK.RELEASE k alice -> A; 1 | grants+1 releases+1
LOCK.RELEASE k alice A; LOCK.EXTEND k alice 60000 A -> 0; 0 | releases_refused+1 extends_refused+1
LOCK.ACQUIRE k bob 60000 -> B | grants+1 held+1
LOCK.RELEASE k alice A; LOCK.EXTEND k alice 60000 A -> 0; 0 | releases_refused+1 extends_refused+1
LOCK.RELEASE k bob; LOCK.ACQUIRE k alice 60000 -> 1; C | releases+1 grants+1
LOCK.RELEASE k alice A; LOCK.EXTEND k alice 60000 A -> 0; 0 | releases_refused+1 extends_refused+1
# a late release is counted as often as it comes, and noted once
LOCK.ACQUIRE k alice 5 -> A
LOCK.INFO k -> until nil | grants+1
LOCK.RELEASE k alice -> 0 | releases_refused+1 releases_late+1 log_len+1
LOCK.RELEASE k alice; LOCK.RELEASE k alice A -> 0; 0 | releases_refused+2 releases_late+2
LOCK.EXTEND k alice 60000 -> 0 | extends_refused+1 extends_late+1
# who is late after others had the lock is late all the same
LOCK.ACQUIRE k alice 5 -> A
LOCK.INFO k -> until nil
LOCK.ACQUIRE k bob 60000 -> B | grants+2 held+1
LOCK.RELEASE k alice A+1 -> 0 | releases_refused+1
LOCK.RELEASE k alice A -> 0 | releases_refused+1 releases_late+1 log_len+1
LOCK.EXTEND k alice 60000 -> 0 | extends_refused+1 extends_late+1
LOCK.RELEASE k bob; LOCK.ACQUIRE k carol 60000 -> 1; C | releases+1 grants+1
LOCK.RELEASE k alice -> 0 | releases_refused+1 releases_late+1
# who is late after an old client took the lock is late all the same
LOCK.ACQUIRE k alice 5 -> A
LOCK.INFO k -> until nil | grants+1
SET k stranger NX PX 60000 -> OK
LOCK.RELEASE k alice -> 0 | releases_refused+1 releases_late+1 log_len+1
# after a flush holders that come back are not late
LOCK.ACQUIRE k alice 60000; FLUSHALL -> A; OK | grants+1 held+1
LOCK.RELEASE k alice -> 0 | releases_refused+1 log_len+1 held-1
";

#[test]
fn who_is_late_is_told_from_who_is_refused() {
    play("", "", LATE);
}

/// Alice holds `k`; the lease of `late` has run out.
const HELD_AND_LATE: &str = "
LOCK.ACQUIRE k alice 60000; LOCK.ACQUIRE late alice 5 -> A; B
LOCK.INFO late -> until nil
";

/// Then everything was forgotten: it is not claimed that she is late, nor that somebody deleted her lock, whether or not it
/// is still there.
const FORGOTTEN: &str = "
LOCK.CHECK k alice -> A
LOCK.RELEASE late alice; LOCK.EXTEND late alice 60000 -> 0; 0 | releases_refused+1 extends_refused+1
DEL k; LOCK.RELEASE k alice -> 1; 0 | releases_refused+1
LOCK.ACQUIRE k bob 60000 -> C | grants+1 held+1
";

#[test]
fn after_a_reload_of_the_data_or_a_time_as_a_replica_nothing_is_claimed_of_grants_before() {
    for ends in ["DEBUG RELOAD -> OK", "REPLICAOF 127.0.0.1 1; REPLICAOF NO ONE -> OK; OK"] {
        let story = format!("# forgotten\n{ends}\nLOCK.CHECK k alice -> A | held-1\n{FORGOTTEN}");
        play("", HELD_AND_LATE, &story);
    }
}

#[test]
fn a_replica_counts_nothing_and_claims_nothing_of_the_grants_of_its_primary_when_promoted() {
    let (primary, replica) = start_pair(Server::builder(), Server::builder());
    let mut figures = Figures::of(&replica);
    Session::of(&primary, 0).steps(HELD_AND_LATE);
    wait_until_in_sync(&primary, &replica);
    let mut session = Session::of(&replica, 0);
    session.step("LOCK.RELEASE k alice", "-READONLY");
    figures.moved(&[]);
    session.step("REPLICAOF NO ONE", "OK");
    session.steps(FORGOTTEN);
    figures.moved(&[("releases_refused", 2), ("extends_refused", 1), ("grants", 1), ("held", 1)]);
}
