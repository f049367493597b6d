//! `INFO leasehold`: each field moves when the manual says so, once, and no other does.

use super::{Figures, let_run_out};
use crate::support::{Client, Server, error, int, module, start_pair, wait_until_in_sync};
use crate::waiting::LONG;
use redis::Value;

/// A server, one connection, and its figures before anything was done.
fn fresh() -> (Server, Client, Figures) {
    let server = Server::start();
    let (client, figures) = (server.client(), Figures::of(&server));
    (server, client, figures)
}

#[test]
fn nothing_is_counted_before_anything_happens() {
    let (_server, _client, mut figures) = fresh();
    let steady = figures.last.iter().filter(|(name, _)| *name != "fence_ahead_us");
    assert!(steady.clone().count() > 30);
    let counted: Vec<_> = steady.filter(|(_, value)| **value > 0).collect();
    assert!(counted.is_empty(), "{counted:?}");
    figures.moved(&[]);
}

#[test]
fn a_grant_its_retries_its_extensions_and_its_release_are_counted_once_each() {
    let (_server, mut client, mut figures) = fresh();
    let fence = client.grant("k", "alice", LONG);
    figures.moved(&[("grants", 1), ("held", 1)]);
    client.grant("k", "alice", 1);
    figures.moved(&[("retries", 1)]);
    client.grant("k", "alice", 2 * LONG);
    figures.moved(&[("retries", 1)]);
    assert!(client.extend("k", "alice", 3 * LONG));
    figures.moved(&[("extends", 1)]);
    assert!(client.extend("k", "alice", LONG), "shorter");
    figures.moved(&[("extends", 1)]);
    assert_eq!(client.cmd(format!("LOCK.EXTEND k alice {LONG} {fence}")), int(1));
    figures.moved(&[("extends", 1)]);
    assert_eq!(client.cmd(format!("LOCK.RELEASE k alice {fence}")), int(1));
    figures.moved(&[("releases", 1), ("held", -1)]);
    client.grant("k", "alice", LONG);
    figures.moved(&[("grants", 1), ("held", 1)]);
    assert!(client.release("k", "alice"));
    figures.moved(&[("releases", 1), ("held", -1)]);
}

#[test]
fn a_grant_to_one_who_would_have_waited_is_a_grant_and_no_wait() {
    let (_server, mut client, mut figures) = fresh();
    assert!(matches!(client.cmd("LOCK.ACQUIRE k alice 60000 BLOCK 0"), Value::Int(_)));
    figures.moved(&[("grants", 1), ("held", 1)]);
    assert!(matches!(client.cmd("LOCK.ACQUIRE k alice 60000 BLOCK 0"), Value::Int(_)));
    figures.moved(&[("retries", 1)]);
    assert!(matches!(client.cmd("LOCK.ACQUIRE minted * 60000"), Value::Array(_)));
    figures.moved(&[("grants", 1), ("held", 1)]);
}

#[test]
fn what_a_stranger_is_refused_is_counted_as_that_and_is_not_late() {
    let (_server, mut client, mut figures) = fresh();
    assert!(!client.release("k", "bob"), "nobody ever held it");
    figures.moved(&[("releases_refused", 1)]);
    assert!(!client.extend("k", "bob", LONG));
    figures.moved(&[("extends_refused", 1)]);
    let fence = client.grant("k", "alice", LONG);
    figures.moved(&[("grants", 1), ("held", 1)]);
    assert_eq!(client.acquire("k", "bob", LONG), None);
    figures.moved(&[("tries_refused", 1)]);
    assert!(!client.release("k", "bob"));
    figures.moved(&[("releases_refused", 1)]);
    assert!(!client.extend("k", "bob", LONG));
    figures.moved(&[("extends_refused", 1)]);
    assert_eq!(client.cmd(format!("LOCK.RELEASE k bob {fence}")), int(0));
    figures.moved(&[("releases_refused", 1)]);
    assert_eq!(client.cmd(format!("LOCK.RELEASE k alice {}", fence - 1)), int(0));
    figures.moved(&[("releases_refused", 1)]);
    assert_eq!(client.cmd(format!("LOCK.EXTEND k alice {LONG} {}", fence + 1)), int(0));
    figures.moved(&[("extends_refused", 1)]);
}

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
fn a_foreign_lock_is_counted_when_it_is_asked_for_extended_or_released_by_its_value() {
    let (_server, mut client, mut figures) = fresh();
    client.cmd("SET k uuid NX PX 60000");
    figures.moved(&[]);
    assert_eq!(client.acquire("k", "alice", LONG), None);
    figures.moved(&[("tries_refused", 1)]);
    assert_eq!(client.acquire("k", "uuid", LONG), Some(0));
    figures.moved(&[("retries", 1)]);
    assert!(client.extend("k", "uuid", LONG));
    figures.moved(&[("extends", 1)]);
    assert!(!client.release("k", "alice"));
    figures.moved(&[("releases_refused", 1)]);
    assert_eq!(client.cmd("LOCK.RELEASE k uuid 0"), int(1));
    figures.moved(&[("releases", 1)]);
    // No fence says when it was granted.
    assert_eq!((figures.get("hold_us_max"), figures.get("hold_us_p50")), (0, 0));
    assert!(!client.release("k", "uuid"));
    figures.moved(&[("releases_refused", 1)]);
}

#[test]
fn who_only_looks_is_not_counted() {
    let (_server, mut client, mut figures) = fresh();
    client.grant("k", "alice", LONG);
    figures.moved(&[("grants", 1), ("held", 1)]);
    for look in [
        "LOCK.CHECK k alice",
        "LOCK.CHECK k bob",
        "LOCK.CHECK free bob",
        "LOCK.INFO k",
        "LOCK.INFO free",
        "LOCK.WAITERS k",
        "LOCK.TOP",
        "LOCK.TOP RESET",
        "LOCK.LOG -1",
        "LOCK.LOG RESET",
        "LOCK.HELP",
        "GET k",
        "INFO",
    ] {
        let reply = client.cmd(look);
        assert!(!matches!(reply, Value::ServerError(_)), "{look}: {reply:?}");
        figures.moved(&[]);
    }
}

#[test]
fn a_request_with_a_mistake_is_not_counted() {
    let (server, mut client, mut figures) = fresh();
    client.grant("k", "alice", LONG);
    client.cmd("RPUSH list x");
    client.cmd("ACL SETUSER worker on nopass ~mine* +lock.check");
    let mut worker = server.client();
    worker.cmd("AUTH worker x");
    figures.moved(&[("grants", 1), ("held", 1)]);
    for (client, mistakes) in [
        (
            &mut client,
            &[
                "LOCK.ACQUIRE k bob",
                "LOCK.ACQUIRE k bob 0",
                "LOCK.ACQUIRE k bob 86400001",
                "LOCK.ACQUIRE k bob 60000 BLOCK",
                "LOCK.ACQUIRE k bob 60000 BLOCK -1",
                "LOCK.ACQUIRE k bob 60000 WAIT 5",
                "LOCK.ACQUIRE k \"\" 60000",
                "LOCK.ACQUIRE list bob 60000",
                "LOCK.ACQUIRE list bob 60000 BLOCK 0",
                "LOCK.RELEASE k",
                "LOCK.RELEASE k \"\"",
                "LOCK.RELEASE k alice -1",
                "LOCK.RELEASE list bob",
                "LOCK.EXTEND k alice 0",
                "LOCK.EXTEND k alice",
                "LOCK.EXTEND list alice 60000",
                "LOCK.CHECK list alice",
                "LOCK.TOP 0",
                "LOCK.LOG x",
                "LOCK.UNHEARD-OF k",
            ][..],
        ),
        (
            &mut worker,
            &[
                "LOCK.ACQUIRE mine worker 60000",
                "LOCK.ACQUIRE k worker 60000",
                "LOCK.RELEASE k alice",
                "LOCK.EXTEND k alice 60000",
            ][..],
        ),
    ] {
        for mistake in mistakes {
            let reply = client.cmd(*mistake);
            assert!(matches!(reply, Value::ServerError(_)), "{mistake}: {reply:?}");
            figures.moved(&[]);
        }
    }
}

#[test]
fn what_the_server_refuses_for_want_of_memory_is_not_counted() {
    let (_server, mut client, mut figures) = fresh();
    client.grant("k", "alice", LONG);
    figures.moved(&[("grants", 1), ("held", 1)]);
    client.cmd("CONFIG SET maxmemory 1");
    for request in ["LOCK.ACQUIRE free bob 60000", "LOCK.ACQUIRE k bob 60000 BLOCK 0"] {
        let reply = client.cmd(request);
        assert!(matches!(&reply, Value::ServerError(error) if error.code() == "OOM"), "{reply:?}");
        figures.moved(&[]);
    }
    assert!(client.extend("k", "alice", LONG));
    assert!(client.release("k", "alice"));
    figures.moved(&[("extends", 1), ("releases", 1), ("held", -1)]);
}

#[test]
fn what_is_done_in_a_transaction_is_counted_once_and_when_it_is_done() {
    let (server, mut client, mut figures) = fresh();
    client.cmd("MULTI");
    for command in ["ACQUIRE k alice 60000", "RELEASE k alice"] {
        client.cmd(format!("LOCK.{command}"));
    }
    figures.moved(&[]);
    client.cmd("DISCARD");
    figures.moved(&[]);
    let replies = client.transaction(&[
        "LOCK.ACQUIRE k alice 60000",
        "LOCK.ACQUIRE k alice 60000",
        "LOCK.ACQUIRE k bob 60000",
        "LOCK.ACQUIRE k bob 60000 BLOCK 0",
        "LOCK.EXTEND k alice 60000",
        "LOCK.RELEASE k bob",
        "LOCK.RELEASE k alice",
        "LOCK.ACQUIRE k bob 0",
    ]);
    assert!(matches!(replies[0], Value::Int(_)), "{replies:?}");
    figures.moved(&[
        ("grants", 1),
        ("retries", 1),
        ("tries_refused", 2),
        ("extends", 1),
        ("releases_refused", 1),
        ("releases", 1),
    ]);
    client.cmd("WATCH k");
    server.cmd("SET k stranger");
    let aborted = client.pipeline(&["MULTI", "LOCK.ACQUIRE k alice 60000", "EXEC"]);
    assert_eq!(aborted[2], Value::Nil);
    figures.moved(&[]);
}

#[test]
fn what_a_script_does_is_counted_once() {
    let (_server, mut client, mut figures) = fresh();
    let script = "local call, k = redis.call, KEYS[1]
        call('LOCK.ACQUIRE', k, 'alice', 60000)
        call('LOCK.ACQUIRE', k, 'alice', 60000)
        call('LOCK.ACQUIRE', k, 'bob', 60000, 'BLOCK', 0)
        call('LOCK.EXTEND', k, 'alice', 60000)
        call('LOCK.EXTEND', k, 'bob', 60000)
        return call('LOCK.RELEASE', k, 'alice')";
    assert_eq!(client.cmd(["EVAL", script, "1", "k"]), int(1));
    figures.moved(&[
        ("grants", 1),
        ("retries", 1),
        ("tries_refused", 1),
        ("extends", 1),
        ("extends_refused", 1),
        ("releases", 1),
    ]);
}

#[test]
fn what_is_held_falls_when_leases_run_out_and_when_a_loss_is_noticed() {
    let (_server, mut client, mut figures) = fresh();
    for (key, ttl) in [("short", 5), ("deleted", LONG), ("kept", LONG)] {
        client.grant(key, "alice", ttl);
    }
    let_run_out(&mut client, "short");
    figures.moved(&[("grants", 3), ("held", 2)]);
    client.cmd("DEL deleted");
    // Nobody has noticed: no key is watched that nobody waits for.
    figures.moved(&[]);
    assert!(!client.release("deleted", "alice"));
    figures.moved(&[("releases_refused", 1), ("log_len", 1), ("held", -1)]);
    client.cmd("SELECT 3");
    client.grant("kept", "alice", LONG);
    figures.moved(&[("grants", 1), ("held", 1)]);
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
fn a_module_that_is_loaded_again_counts_from_0_and_claims_nothing_of_grants_before() {
    let (server, mut client, _) = fresh();
    hold_and_be_late(&mut client);
    assert!(!client.release("late", "alice"));
    assert_eq!(client.acquire("k", "bob", LONG), None);
    assert_eq!(client.cmd("MODULE UNLOAD leasehold"), Value::Okay);
    assert_eq!(client.cmd(format!("MODULE LOAD {}", module::path().display())), Value::Okay);
    let mut figures = Figures::of(&server);
    let counted: Vec<_> = figures
        .last
        .iter()
        .filter(|(name, value)| *name != "fence_ahead_us" && **value > 0)
        .collect();
    assert!(counted.is_empty(), "{counted:?}");
    for list in ["LOCK.LOG -1", "LOCK.TOP -1"] {
        assert_eq!(client.cmd(list), Value::Array(Vec::new()), "{list}");
    }
    assert!(client.extend("k", "alice", LONG), "it is still held");
    figures.moved(&[("extends", 1)]);
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
