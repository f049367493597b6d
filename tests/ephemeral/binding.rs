//! To which connection a hold is bound, and to which no more.

use super::{LONG, asks, bindings, binds, let_it_work, until_free, until_short};
use redis::Value;
use testkit::waiter::id_of;
use testkit::{Client, Server, Waiter, error, eventually, int};

/// Whether alice still holds the lock by this grant, with nearly all of the ttl left.
#[track_caller]
fn keeps(client: &mut Client, fence: u64) {
    let_it_work(client);
    assert_eq!(client.check("k", "alice"), Some(fence));
    let Value::Int(left) = client.cmd("PTTL k") else { panic!("no lease") };
    assert!(left > 30_000, "{left} ms are left");
}

#[test]
fn who_asks_again_before_the_former_connection_ends_keeps_the_lock_when_it_does() {
    let server = Server::start();
    let mut client = server.client();
    let (mut former, mut present) = (server.client(), server.client());
    let fence = binds(&mut former, "k", "alice", 0);
    assert_eq!(binds(&mut present, "k", "alice", 0), fence);
    assert_eq!(bindings(&mut client), 1);
    drop(former);
    keeps(&mut client, fence);
    drop(present);
    until_free(&mut client, "k");
}

#[test]
fn who_asks_again_within_the_grace_has_the_same_fence_and_the_full_ttl() {
    let server = Server::start();
    let mut client = server.client();
    let mut former = server.client();
    let fence = binds(&mut former, "k", "alice", 20_000);
    drop(former);
    until_short(&mut client, "k", 20_000);
    let mut present = server.client();
    assert_eq!(binds(&mut present, "k", "alice", 0), fence);
    keeps(&mut client, fence);
    drop(present);
    until_free(&mut client, "k");
}

#[test]
fn who_asks_again_without_the_option_stays_bound_as_before() {
    let server = Server::start();
    let mut client = server.client();
    let mut alice = server.client();
    let fence = binds(&mut alice, "k", "alice", 0);
    assert_eq!(client.acquire("k", "alice", 2 * LONG), Some(fence));
    drop(alice);
    until_free(&mut client, "k");
}

#[test]
fn the_last_grace_that_was_asked_for_counts() {
    let server = Server::start();
    let mut client = server.client();
    let mut alice = server.client();
    binds(&mut alice, "k", "alice", 0);
    binds(&mut alice, "k", "alice", 20_000);
    drop(alice);
    assert!(until_short(&mut client, "k", 20_000) > 10_000);
}

#[test]
fn an_extension_from_elsewhere_lengthens_the_lease_and_binds_nothing() {
    let server = Server::start();
    let mut client = server.client();
    let (mut alice, mut elsewhere) = (server.client(), server.client());
    let fence = binds(&mut alice, "k", "alice", 20_000);
    assert!(elsewhere.extend("k", "alice", 2 * LONG));
    drop(elsewhere);
    keeps(&mut client, fence);
    drop(alice);
    until_short(&mut client, "k", 20_000);
    // Also in the very packet in which the connection ends: the extension comes later, and counts.
    assert!(client.extend("k", "alice", LONG));
    keeps(&mut client, fence);
}

#[test]
fn a_command_that_comes_right_behind_the_end_of_the_connection_finds_the_lock_as_it_is_then() {
    let server = Server::start();
    let mut client = server.client();
    let mut alice = server.client();
    let id = testkit::waiter::id_of(&mut alice);
    let kill = format!("CLIENT KILL ID {id}");
    let held = binds(&mut alice, "k", "alice", 0);
    binds(&mut alice, "later", "alice", 20_000);
    let replies = client.pipeline(&[
        "LOCK.CHECK k alice",
        &kill,
        "LOCK.CHECK k alice",
        "LOCK.INFO k",
        "LOCK.EXTEND k alice 60000",
        "LOCK.ACQUIRE k bob 60000",
        "LOCK.EXTEND later alice 60000",
    ]);
    assert_eq!(replies[..5], [int(held), int(1), Value::Nil, Value::Nil, int(0)]);
    assert!(matches!(replies[5], Value::Int(fence) if fence.cast_unsigned() > held), "{replies:?}");
    assert_eq!(replies[6], int(1));
    let_it_work(&mut client);
    let Value::Int(left) = client.cmd("PTTL later") else { panic!("no lease") };
    assert!(left > 30_000, "the extension came behind the end: {left}");
}

#[test]
fn a_release_ends_the_binding_and_the_next_grant_is_not_bound() {
    let server = Server::start();
    let mut client = server.client();
    let mut alice = server.client();
    binds(&mut alice, "k", "alice", 0);
    assert!(client.release("k", "alice"));
    assert_eq!(bindings(&mut client), 0);
    let fence = client.grant("k", "alice", LONG);
    drop(alice);
    keeps(&mut client, fence);
}

#[test]
fn a_binding_frees_no_other_grant_than_its_own() {
    let server = Server::start();
    let mut client = server.client();
    for end in ["FLUSHALL", "FLUSHDB", "DEL k", "PEXPIRE k 1", "SET k other"] {
        let mut alice = server.client();
        binds(&mut alice, "k", "alice", 0);
        client.cmd(end);
        let_it_work(&mut client);
        client.cmd("DEL k");
        let fence = client.grant("k", "alice", LONG);
        drop(alice);
        keeps(&mut client, fence);
        assert!(client.release("k", "alice"));
    }
}

#[test]
fn what_is_bound_to_nothing_any_more_is_soon_forgotten_where_all_is_flushed() {
    let server = Server::start();
    let mut client = server.client();
    for number in 0..2_000 {
        // Longer than this test waits.
        client.cmd(format!("LOCK.ACQUIRE k{number} alice 600000 EPHEMERAL 0"));
    }
    assert_eq!(bindings(&mut client), 2_000);
    assert_eq!(client.cmd("FLUSHALL"), Value::Okay);
    testkit::eventually("they are forgotten", || match bindings(&mut client) {
        0 => Ok(()),
        some => Err(some),
    });
}

/// However long their leases would have lasted.
#[test]
fn holds_that_somebody_deletes_all_the_time_leave_no_bindings_behind() {
    let server = Server::start();
    let (mut client, mut alice) = (server.client(), server.client());
    let cycle = ["LOCK.ACQUIRE k alice 86400000 EPHEMERAL 0", "DEL k"];
    for _ in 0..10 {
        alice.pipeline(&cycle.repeat(1_000));
    }
    testkit::eventually("they are forgotten", || match bindings(&mut client) {
        0 => Ok(()),
        some => Err(some),
    });
}

#[test]
fn a_binding_is_forgotten_soon_after_the_lease_ran_out() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("LOCK.ACQUIRE k alice 30 EPHEMERAL 0");
    client.cmd("LOCK.ACQUIRE longer alice 30 EPHEMERAL 0");
    assert!(client.extend("longer", "alice", LONG));
    testkit::eventually("one is forgotten", || match bindings(&mut client) {
        1 => Ok(()),
        some => Err(some),
    });
    let_it_work(&mut client);
    assert_eq!(bindings(&mut client), 1);
}

#[test]
fn a_higher_fence_takes_the_binding_with_it() {
    let server = Server::start();
    let mut client = server.client();
    let mut alice = server.client();
    let fence = binds(&mut alice, "k", "alice", 0) + 1_000_000;
    assert_eq!(client.cmd(format!("LOCK.RAISE k alice {fence}")), int(fence));
    drop(alice);
    until_free(&mut client, "k");
}

#[test]
fn two_locks_with_the_same_fence_are_two_holds() {
    let server = Server::start();
    let mut client = server.client();
    let (mut alice, mut bob) = (server.client(), server.client());
    let fence = binds(&mut alice, "k", "alice", 0).max(binds(&mut bob, "other", "bob", 0)) + 1_000;
    for (key, owner) in [("k", "alice"), ("other", "bob")] {
        assert_eq!(client.cmd(format!("LOCK.RAISE {key} {owner} {fence}")), int(fence));
    }
    drop(alice);
    until_free(&mut client, "k");
    assert_eq!(client.check("other", "bob"), Some(fence));
    drop(bob);
    until_free(&mut client, "other");
}

#[test]
fn two_holders_of_one_lock_with_the_same_fence_are_two_holds() {
    let server = Server::start();
    let mut client = server.client();
    let (mut a, mut b) = (server.client(), server.client());
    let mut fence = 0;
    for (reader, owner) in [(&mut a, "a"), (&mut b, "b")] {
        let asked = reader.cmd(format!("LOCK.ACQUIRE k {owner} 60000 SHARE 0 EPHEMERAL 0"));
        let Value::Int(granted) = asked else { panic!("{owner}: {asked:?}") };
        fence = granted + 1_000;
    }
    for owner in ["a", "b"] {
        assert_eq!(client.cmd(format!("LOCK.RAISE k {owner} {fence}")), int(fence));
    }
    assert_eq!(bindings(&mut client), 2);
    drop(a);
    testkit::eventually("one has left", || client.check("k", "a").map_or(Ok(()), Err));
    assert_eq!(client.check("k", "b"), Some(fence.cast_unsigned()));
    drop(b);
    until_free(&mut client, "k");
}

#[test]
fn one_of_several_holders_leaves_with_its_connection_and_the_others_stay() {
    let server = Server::start();
    let mut client = server.client();
    let (mut a, mut b) = (server.client(), server.client());
    for (reader, owner, grace) in [(&mut a, "a", 0), (&mut b, "b", 20_000)] {
        reader.cmd(format!("LOCK.ACQUIRE k {owner} 60000 SHARE 0 EPHEMERAL {grace}"));
    }
    client.cmd("LOCK.ACQUIRE k c 60000 SHARE 0");
    let mut writer = Waiter::of(&server, "k", "w");
    drop(a);
    testkit::eventually("one has left", || match client.cmd("LOCK.HOLDERS k") {
        Value::Array(rows) if rows.len() == 2 => Ok(()),
        other => Err(other),
    });
    drop(b);
    testkit::eventually("the other is to end soon", || match client.cmd("LOCK.HOLDERS k") {
        Value::Array(rows) => match testkit::field(&rows[0], "ttl") {
            Some(&Value::Int(..=20_000)) => Ok(()),
            other => Err(format!("{other:?}")),
        },
        other => Err(format!("{other:?}")),
    });
    writer.assert_waits(&server);
    assert!(client.release("k", "b") && client.release("k", "c"));
    writer.fence();
}

#[test]
fn a_tighter_share_is_a_new_grant_and_bound_only_if_that_is_asked_for() {
    let server = Server::start();
    let mut client = server.client();
    let mut alice = server.client();
    for (option, stays) in [("", true), (" EPHEMERAL 0", false)] {
        alice.cmd("LOCK.ACQUIRE k alice 60000 SHARE 0 EPHEMERAL 0");
        let Value::Int(fence) = alice.cmd(format!("LOCK.ACQUIRE k alice 60000{option}")) else {
            panic!("no upgrade")
        };
        drop(std::mem::replace(&mut alice, server.client()));
        if stays {
            keeps(&mut client, fence.cast_unsigned());
            assert!(client.release("k", "alice"));
        } else {
            until_free(&mut client, "k");
        }
    }
}

#[test]
fn one_who_waited_is_bound_when_it_is_granted_the_lock() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "first", LONG);
    let mut alice = Waiter::sends(&server, &format!("{} BLOCK 0", asks("k", "alice", 0)));
    assert_eq!(bindings(&mut client), 0);
    assert!(client.release("k", "first"));
    let fence = alice.fence();
    assert_eq!((bindings(&mut client), client.check("k", "alice")), (1, Some(fence)));
    drop(alice);
    until_free(&mut client, "k");
}

#[test]
fn one_who_waited_for_its_own_lock_is_bound_too() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "first", LONG);
    let mut alice = Waiter::sends(&server, &format!("{} BLOCK 0", asks("k", "alice", 0)));
    // The lock comes to be alice's by hand.
    let Value::BulkString(value) = client.cmd("GET k") else { panic!("no value") };
    let value = String::from_utf8(value).unwrap().replace("first", "alice");
    client.cmd(["SET", "k", &value, "PX", "60000"]);
    alice.fence();
    drop(alice);
    until_free(&mut client, "k");
}

#[test]
fn a_transaction_binds_to_the_connection_that_executes_it() {
    let server = Server::start();
    let mut client = server.client();
    let mut alice = server.client();
    alice.transaction(&[&asks("k", "alice", 0), &asks("other", "alice", 0)]);
    assert_eq!(bindings(&mut client), 2);
    drop(alice);
    until_free(&mut client, "k");
    until_free(&mut client, "other");
}

const NO_CONNECTION: &str = "ERR EPHEMERAL is not possible in a script or a call of another module, which have no connection";

#[test]
fn a_script_has_no_connection_to_bind_to() {
    let server = Server::start();
    let mut client = server.client();
    for block in ["", ", 'BLOCK', 0"] {
        let words = format!("'LOCK.ACQUIRE', KEYS[1], 'alice', 60000, 'EPHEMERAL', 0{block}");
        let script = format!("return redis.pcall({words})");
        assert_eq!(client.cmd(["EVAL", &script, "1", "k"]), error(NO_CONNECTION));
    }
    assert_eq!(client.cmd("EXISTS k"), int(0));
}

#[test]
fn a_call_of_another_module_has_no_connection_either() {
    let server = Server::builder().with_caller().start();
    let mut client = server.client();
    let reply = client.cmd(format!("CALLER.CALL {}", asks("k", "alice", 0)));
    assert_eq!(reply, error(NO_CONNECTION));
    assert_eq!(client.cmd("EXISTS k"), int(0));
}

#[test]
fn a_foreign_lock_is_not_bound() {
    let server = Server::start();
    let mut client = server.client();
    client.cmd("SET k alice PX 60000");
    let mut alice = server.client();
    assert_eq!(binds(&mut alice, "k", "alice", 0), 0);
    assert_eq!(bindings(&mut client), 0);
    drop(alice);
    let_it_work(&mut client);
    assert_eq!(client.check("k", "alice"), Some(0));
}

#[test]
fn a_hold_without_an_end_gets_the_grace() {
    let server = Server::start();
    let mut client = server.client();
    let mut alice = server.client();
    binds(&mut alice, "k", "alice", 20_000);
    assert_eq!(client.cmd("PERSIST k"), int(1));
    drop(alice);
    assert!(until_short(&mut client, "k", 20_000) > 10_000);
}

#[test]
fn a_hold_follows_its_database_and_no_other_name() {
    let server = Server::start();
    let mut client = server.client();
    let mut alice = server.client();
    binds(&mut alice, "k", "alice", 0);
    let moved = binds(&mut alice, "moved", "alice", 0);
    client.cmd("RENAME moved elsewhere");
    assert_eq!(client.cmd("SWAPDB 0 1"), Value::Okay);
    drop(alice);
    client.cmd("SELECT 1");
    until_free(&mut client, "k");
    let_it_work(&mut client);
    assert_eq!(client.check("elsewhere", "alice"), Some(moved));
    assert_eq!(bindings(&mut client), 0);
}

/// The transaction frees the lock without telling the module, so that the grant comes about within the request of the owner.
#[test]
fn an_owner_is_told_of_no_grant_that_came_to_a_ticket_whose_connection_has_ended() {
    let server = Server::start();
    let mut client = server.client();
    for also in ["", " ALSO 1 other"] {
        client.grant("k", "bob", LONG);
        let mut alice = server.client();
        let id = id_of(&mut alice);
        assert_eq!(
            alice.cmd(format!("LOCK.ACQUIRE k alice {LONG} TICKET {LONG} EPHEMERAL 0{also}")),
            Value::Nil
        );
        drop(alice);
        eventually("the connection has ended", || {
            match client.cmd(format!("CLIENT LIST ID {id}")) {
                Value::BulkString(list) if list.is_empty() => Ok(()),
                other => Err(other),
            }
        });
        let asks = format!("LOCK.ACQUIRE k alice {LONG}{also}");
        let told = client.transaction(&["DEL k", &asks]);
        let Some(&Value::Int(fence)) = told.last() else { panic!("{told:?}") };
        let_it_work(&mut client);
        assert_eq!(client.check("k", "alice"), Some(fence.cast_unsigned()), "{asks}");
        client.cmd(format!("LOCK.RELEASE k alice{also}"));
    }
}
