//! `INFO leasehold`: each field moves when the manual says so, once, and no other does.

use super::{fresh, let_run_out};
use crate::waiting::LONG;
use redis::Value;
use testkit::int;

#[test]
fn nothing_is_counted_before_anything_happens() {
    let (_server, _client, mut figures) = fresh();
    assert!(figures.last.len() > 30);
    figures.assert_nothing_counted();
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

/// The alert for contention compares the two: who tries first and then waits is not meant.
#[test]
fn a_wait_behind_a_refused_try_is_told_from_a_wait_without_one() {
    let (server, mut client, mut figures) = fresh();
    client.grant("k", "alice", LONG);
    figures.moved(&[("grants", 1), ("held", 1)]);
    let ended = [("waits_timed_out", 1), ("waits_started", 1)];
    let wait = |owner: &str| {
        let reply = server.cmd(format!("LOCK.ACQUIRE k {owner} {LONG} BLOCK 1").as_str());
        assert_eq!(reply, Value::Nil);
    };
    assert_eq!(client.acquire("k", "bob", LONG), None);
    figures.moved(&[("tries_refused", 1)]);
    wait("bob");
    figures.moved(&[&ended[..], &[("waits_started_after_try", 1), ("waiters_most", 1)]].concat());
    // The next is another wait, and others have not tried.
    for owner in ["bob", "carol"] {
        wait(owner);
        figures.moved(&ended);
    }
    // On other connections, as of a pool, and with others in between.
    for owner in ["bob", "carol", "dave"] {
        assert_eq!(server.client().acquire("k", owner, LONG), None);
    }
    figures.moved(&[("tries_refused", 3)]);
    wait("dave");
    wait("bob");
    figures.moved(&[("waits_timed_out", 2), ("waits_started", 2), ("waits_started_after_try", 2)]);
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
