//! Who comes too late, as `INFO leasehold` counts it; and what is not claimed, because it is not known.

use super::{Figures, fresh, let_run_out};
use crate::waiting::LONG;
use redis::Value;
use testkit::{Client, Server, error, int, start_pair, wait_until_in_sync};

#[test]
fn a_release_that_is_repeated_is_refused_and_is_not_late() {
    let (_server, mut client, mut figures) = fresh();
    let fence = client.grant("k", "alice", LONG);
    assert!(client.release("k", "alice"));
    figures.moved(&[("grants", 1), ("releases", 1)]);
    for holder in [None, Some("bob"), Some("alice")] {
        if let Some(holder) = holder {
            client.grant("k", holder, LONG);
            figures.moved(&[("grants", 1), ("held", 1)]);
        }
        assert_eq!(client.cmd(format!("LOCK.RELEASE k alice {fence}")), int(0));
        figures.moved(&[("releases_refused", 1)]);
        assert_eq!(client.cmd(format!("LOCK.EXTEND k alice {LONG} {fence}")), int(0));
        figures.moved(&[("extends_refused", 1)]);
        if let Some(holder) = holder {
            assert!(client.release("k", holder));
            figures.moved(&[("releases", 1), ("held", -1)]);
        }
    }
}

#[test]
fn a_late_release_is_counted_as_often_as_it_comes_and_logged_once() {
    let (_server, mut client, mut figures) = fresh();
    let fence = client.grant("k", "alice", 5);
    let_run_out(&mut client, "k");
    figures.moved(&[("grants", 1)]);
    assert!(!client.release("k", "alice"));
    figures.moved(&[("releases_refused", 1), ("releases_late", 1), ("log_len", 1)]);
    for repeated in ["LOCK.RELEASE k alice".to_owned(), format!("LOCK.RELEASE k alice {fence}")] {
        assert_eq!(client.cmd(repeated), int(0));
        figures.moved(&[("releases_refused", 1), ("releases_late", 1)]);
    }
    assert!(!client.extend("k", "alice", LONG));
    figures.moved(&[("extends_refused", 1), ("extends_late", 1)]);
}

#[test]
fn a_late_extension_is_counted_as_often_as_it_comes_and_logged_once() {
    let (_server, mut client, mut figures) = fresh();
    let fence = client.grant("k", "alice", 5);
    let_run_out(&mut client, "k");
    figures.moved(&[("grants", 1)]);
    assert_eq!(client.cmd(format!("LOCK.EXTEND k alice {LONG} {}", fence + 1)), int(0));
    figures.moved(&[("extends_refused", 1)]);
    assert_eq!(client.cmd(format!("LOCK.EXTEND k alice {LONG} {fence}")), int(0));
    figures.moved(&[("extends_refused", 1), ("extends_late", 1), ("log_len", 1)]);
    assert!(!client.extend("k", "alice", LONG));
    figures.moved(&[("extends_refused", 1), ("extends_late", 1)]);
    assert!(!client.release("k", "alice"));
    figures.moved(&[("releases_refused", 1), ("releases_late", 1)]);
}

#[test]
fn who_is_late_after_another_was_granted_the_lock_is_late_all_the_same() {
    let (_server, mut client, mut figures) = fresh();
    let first = client.grant("k", "alice", 5);
    let_run_out(&mut client, "k");
    client.grant("k", "bob", LONG);
    figures.moved(&[("grants", 2), ("held", 1)]);
    assert_eq!(client.cmd(format!("LOCK.RELEASE k alice {}", first + 1)), int(0));
    figures.moved(&[("releases_refused", 1)]);
    assert_eq!(client.cmd(format!("LOCK.RELEASE k alice {first}")), int(0));
    figures.moved(&[("releases_refused", 1), ("releases_late", 1), ("log_len", 1)]);
    assert!(!client.extend("k", "alice", LONG));
    figures.moved(&[("extends_refused", 1), ("extends_late", 1)]);
    assert!(client.release("k", "bob"));
    figures.moved(&[("releases", 1), ("held", -1)]);
    assert!(!client.release("k", "alice"));
    figures.moved(&[("releases_refused", 1), ("releases_late", 1)]);
}

#[test]
fn a_holder_that_is_late_with_its_former_grant_still_has_the_new_one() {
    let (_server, mut client, mut figures) = fresh();
    let first = client.grant("k", "alice", 5);
    let_run_out(&mut client, "k");
    client.grant("k", "alice", LONG);
    figures.moved(&[("grants", 2), ("held", 1)]);
    assert_eq!(client.cmd(format!("LOCK.RELEASE k alice {first}")), int(0));
    figures.moved(&[("releases_refused", 1), ("releases_late", 1), ("log_len", 1)]);
    assert!(client.release("k", "alice"));
    figures.moved(&[("releases", 1), ("held", -1)]);
}

#[test]
fn who_is_late_after_an_old_client_took_the_lock_is_late_all_the_same() {
    let (_server, mut client, mut figures) = fresh();
    client.grant("k", "alice", 5);
    let_run_out(&mut client, "k");
    figures.moved(&[("grants", 1)]);
    client.cmd("SET k stranger NX PX 60000");
    assert!(!client.release("k", "alice"));
    figures.moved(&[("releases_refused", 1), ("releases_late", 1), ("log_len", 1)]);
}

#[test]
fn an_extended_lease_is_late_only_after_its_new_end() {
    let (_server, mut client, mut figures) = fresh();
    client.grant("k", "alice", LONG);
    assert!(client.extend("k", "alice", 5));
    let_run_out(&mut client, "k");
    figures.moved(&[("grants", 1), ("extends", 1)]);
    assert!(!client.release("k", "alice"));
    figures.moved(&[("releases_refused", 1), ("releases_late", 1), ("log_len", 1)]);
    let fence = client.grant("k", "alice", 5);
    assert_eq!(client.grant("k", "alice", LONG), fence, "and so does a retry move the end");
    figures.moved(&[("grants", 1), ("retries", 1), ("held", 1)]);
    assert!(client.release("k", "alice"));
    figures.moved(&[("releases", 1), ("held", -1)]);
}

#[test]
fn who_is_late_after_others_had_the_lock_and_released_it_is_late_all_the_same() {
    let (_server, mut client, mut figures) = fresh();
    client.grant("k", "alice", 5);
    let_run_out(&mut client, "k");
    client.grant("k", "bob", LONG);
    assert!(client.release("k", "bob"));
    client.grant("k", "carol", LONG);
    figures.moved(&[("grants", 3), ("releases", 1), ("held", 1)]);
    assert!(!client.release("k", "alice"));
    figures.moved(&[("releases_refused", 1), ("releases_late", 1), ("log_len", 1)]);
}

#[test]
fn a_release_that_is_repeated_is_not_taken_for_a_late_one_of_an_earlier_grant() {
    let (_server, mut client, mut figures) = fresh();
    let first = client.grant("k", "alice", 5);
    let_run_out(&mut client, "k");
    client.grant("k", "alice", LONG);
    assert!(client.release("k", "alice"));
    figures.moved(&[("grants", 2), ("releases", 1)]);
    assert!(!client.release("k", "alice"));
    figures.moved(&[("releases_refused", 1)]);
    client.grant("k", "bob", LONG);
    figures.moved(&[("grants", 1), ("held", 1)]);
    assert!(!client.release("k", "alice"));
    assert_eq!(client.cmd(format!("LOCK.RELEASE k alice {}", first + 1)), int(0));
    figures.moved(&[("releases_refused", 2)]);
}

#[test]
fn after_a_flush_holders_that_come_back_are_not_late() {
    let (_server, mut client, mut figures) = fresh();
    client.grant("k", "alice", LONG);
    figures.moved(&[("grants", 1), ("held", 1)]);
    client.cmd("FLUSHALL");
    assert!(!client.release("k", "alice"));
    figures.moved(&[("releases_refused", 1), ("log_len", 1), ("held", -1)]);
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
    let (_server, mut client, mut figures) = fresh();
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
