//! Who comes too late, as `INFO leasehold` counts it; and what is not claimed, because it is not known.

use super::{Figures, let_run_out, play};
use crate::waiting::LONG;
use redis::Value;
use testkit::{Client, Server, error, start_pair, wait_until_in_sync};

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

/// Alice held `k` and `late`, whose lease has run out, and everything was forgotten: it is not claimed that she is
/// late, nor that somebody deleted her lock, whether or not it is still there.
#[track_caller]
fn assert_forgotten(client: &mut Client, figures: &mut Figures) {
    assert!(!client.release("late", "alice"));
    assert!(!client.extend("late", "alice", LONG));
    figures.moved(&[("releases_refused", 1), ("extends_refused", 1)]);
    client.cmd("DEL k");
    assert!(!client.release("k", "alice"));
    figures.moved(&[("releases_refused", 1)]);
    client.grant("k", "bob", LONG);
    figures.moved(&[("grants", 1), ("held", 1)]);
}

#[track_caller]
fn hold_and_be_late(client: &mut Client) {
    client.grant("k", "alice", LONG);
    client.grant("late", "alice", 5);
    let_run_out(client, "late");
}

#[test]
fn after_a_reload_of_the_data_nothing_is_claimed_of_grants_before() {
    let server = Server::start();
    let (mut client, mut figures) = (server.client(), Figures::of(&server));
    hold_and_be_late(&mut client);
    figures.moved(&[("grants", 2), ("held", 1)]);
    assert_eq!(client.cmd("DEBUG RELOAD"), Value::Okay);
    assert!(client.check("k", "alice").is_some());
    figures.moved(&[("held", -1)]);
    assert_forgotten(&mut client, &mut figures);
}

#[test]
fn a_replica_counts_nothing_and_claims_nothing_of_its_time_as_a_primary_when_it_is_one_again() {
    let (primary, replica) = start_pair(Server::builder(), Server::builder().tcp());
    let mut client = primary.client();
    let mut figures = Figures::of(&replica);
    hold_and_be_late(&mut client);
    client.grant("gone", "alice", LONG);
    assert!(client.extend("k", "alice", LONG));
    assert!(!client.release("k", "bob"));
    assert!(client.release("gone", "alice"));
    wait_until_in_sync(&primary, &replica);
    figures.moved(&[]);
    let read_only = "READONLY You can't write against a read only replica.";
    assert_eq!(replica.cmd("LOCK.RELEASE k alice"), error(read_only));
    figures.moved(&[]);

    let mut figures = Figures::of(&primary);
    primary.cmd(format!("REPLICAOF 127.0.0.1 {}", replica.port()));
    figures.moved(&[("held", -1)]);
    assert_eq!(primary.cmd("REPLICAOF NO ONE"), Value::Okay);
    figures.moved(&[]);
    assert_forgotten(&mut client, &mut figures);
}

#[test]
fn a_promoted_replica_claims_nothing_of_the_grants_of_its_primary() {
    let (primary, replica) = start_pair(Server::builder(), Server::builder());
    hold_and_be_late(&mut primary.client());
    wait_until_in_sync(&primary, &replica);
    assert_eq!(replica.cmd("REPLICAOF NO ONE"), Value::Okay);
    let (mut client, mut figures) = (replica.client(), Figures::of(&replica));
    assert!(client.check("k", "alice").is_some());
    assert_forgotten(&mut client, &mut figures);
}
