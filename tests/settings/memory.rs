//! What the server does to keep its memory small and in order.

use super::{LONG, smoke, start_with};
use crate::waiting::{owners, waiters};
use redis::Value;
use testkit::{Client, Server, Setup, Waiter, eventually, lacks, lacks_setting};

fn stat(client: &mut Client, name: &str) -> u64 {
    let field = client.info_field("stats", name);
    field.unwrap_or_else(|| panic!("INFO stats has no {name}")).parse().unwrap()
}

#[test]
fn a_server_that_frees_everything_lazily() {
    let reasons =
        ["lazy-eviction", "lazy-expire", "lazy-server-del", "lazy-user-del", "lazy-user-flush"];
    let lazy = |setup: Setup, reason: &&str| setup.config(&format!("lazyfree-{reason}"), "yes");
    let server = reasons.iter().fold(Server::builder(), lazy).start();
    smoke(&server);
    let mut client = server.client();
    for by_hand in ["DEL k", "FLUSHALL", "FLUSHDB", "RENAME k other", "SET k x PX 5"] {
        client.grant("k", "alice", LONG);
        let mut bob = Waiter::of(&server, "k", "bob");
        let reply = client.cmd(by_hand);
        assert!(!matches!(reply, Value::ServerError(_)), "{by_hand}: {reply:?}");
        bob.fence();
        assert!(client.release("k", "bob"), "{by_hand}");
    }
}

#[test]
fn one_that_moves_what_it_holds_together() {
    if lacks_setting("activedefrag", "yes", "active defragmentation") {
        return;
    }
    let setup = Server::builder()
        .config("active-defrag-ignore-bytes", "1")
        .config("active-defrag-threshold-lower", "0")
        .config("active-defrag-cycle-min", "50");
    let server = start_with(setup, "activedefrag", "yes");
    let mut client = server.client();
    let long = "x".repeat(200);
    let fill = "for i = 1, 40000 do redis.call('LOCK.ACQUIRE', 'many:' .. i, ARGV[1], 60000) end \
                for i = 1, 40000 do if i % 4 > 0 then redis.call('DEL', 'many:' .. i) end end";
    client.cmd(["EVAL", fill, "0", &long]);
    let held: Vec<_> = (1..=10_000).map(|n| format!("many:{}", 4 * n)).collect();
    let fences: Vec<_> = held.iter().map(|key| client.check(key, &long).unwrap()).collect();
    let mut bob = Waiter::of(&server, &held[0], "bob");
    let carol = Waiter::of(&server, &held[0], "carol");
    eventually("locks are moved", || match stat(&mut client, "active_defrag_key_hits") {
        0 => Err(stat(&mut client, "active_defrag_hits")),
        _ => Ok(()),
    });
    smoke(&server);
    for (key, fence) in held.iter().zip(fences) {
        assert_eq!(client.check(key, &long), Some(fence), "{key}");
    }
    assert!(client.release(&held[0], &long));
    bob.fence();
    carol.assert_waits(&server);
}

#[test]
fn one_that_limits_the_memory_of_its_clients() {
    if lacks((7, 0), "maxmemory-clients") {
        return;
    }
    smoke(&start_with(Server::builder(), "maxmemory-clients", "16777216"));
}

#[test]
fn waiters_who_are_thrown_out_for_their_memory_leave_the_queue() {
    if lacks((7, 0), "maxmemory-clients") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", LONG);
    let mut first = Waiter::of(&server, "k", "first");
    let mut fat: Vec<_> = (0..5)
        .map(|n| {
            let mut waiter = Waiter::of(&server, "k", &format!("fat-{n}"));
            // The server keeps it until the waiter has its reply.
            waiter.client.send_bytes(&[b'\n'; 300_000]);
            waiter
        })
        .collect();
    let mut last = Waiter::of(&server, "k", "last");
    assert_eq!(waiters(&server), 7);
    client.cmd("CONFIG SET maxmemory-clients 500000");
    eventually("those who take most are gone", || match owners(&server, "k") {
        owners if owners.len() <= 3 => Ok(()),
        owners => Err(owners),
    });
    let left = owners(&server, "k");
    assert_eq!((&left[0][..], &left[left.len() - 1][..]), ("first", "last"), "of {left:?}");
    assert!(stat(&mut client, "evicted_clients") >= 4);
    let info = client.info("k").unwrap();
    assert_eq!((info.owner.as_slice(), info.fence), (&b"alice"[..], fence));
    client.cmd("CONFIG SET maxmemory-clients 0");
    client.release("k", "alice");
    first.fence();
    for (number, waiter) in fat.iter_mut().enumerate() {
        let owner = format!("fat-{number}");
        if left.contains(&owner) {
            client.release("k", "first");
            waiter.fence();
            client.release("k", &owner);
        } else {
            waiter.client.assert_closed();
        }
    }
    client.release("k", "first");
    last.fence();
}
