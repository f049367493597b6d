//! A waiter leaves: its connection ends, in whatever way, or an operator takes it away. Nobody else notices.

use super::{LONG, Waiter, can_be_unblocked, owners, waiters};
use redis::Value;
use std::os::fd::{AsFd, AsRawFd};
use testkit::{Client, Server, error, eventually, int, lacks};

/// Alice holds `k`; `first` and `last` wait, and in between one whose connection `end` ends.
fn assert_only_it_leaves(end: impl FnOnce(&Server, Waiter)) {
    let server = Server::builder().clients_over_tcp().start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut first = Waiter::of(&server, "k", "first");
    let gone = Waiter::of(&server, "k", "gone");
    let mut last = Waiter::of(&server, "k", "last");
    assert_eq!(owners(&server, "k"), ["first", "gone", "last"]);
    end(&server, gone);
    eventually("it leaves the queue", || match owners(&server, "k") {
        owners if owners == ["first", "last"] => Ok(()),
        owners => Err(owners),
    });
    assert_eq!(client.info("k").unwrap().owner, b"alice");
    client.release("k", "alice");
    first.fence();
    client.release("k", "first");
    last.fence();
    eventually("the server forgets its client", || {
        match client.info_field("clients", "blocked_clients").as_deref() {
            Some("0") => Ok(()),
            other => Err(other.map(str::to_owned)),
        }
    });
}

/// Makes the end of a connection a reset, as after a crash of the machine.
fn reset_when_closed(client: &Client) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let size = u32::try_from(size_of::<libc::linger>()).unwrap();
    let outcome = unsafe {
        let option = (&raw const linger).cast();
        libc::setsockopt(
            client.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            option,
            size,
        )
    };
    assert_eq!(outcome, 0);
}

#[test]
fn who_closes_its_connection_leaves() {
    assert_only_it_leaves(|_, gone| drop(gone));
}

#[test]
fn who_closes_half_of_its_connection_leaves() {
    assert_only_it_leaves(|server, mut gone| {
        gone.client.end_sending();
        // The server closes the other half.
        gone.client.assert_closed();
        drop(server.client());
    });
}

#[test]
fn whose_connection_is_reset_leaves() {
    assert_only_it_leaves(|_, gone| {
        reset_when_closed(&gone.client);
        drop(gone);
    });
}

#[test]
fn who_is_killed_leaves() {
    assert_only_it_leaves(|server, mut gone| {
        assert_eq!(server.cmd(format!("CLIENT KILL ID {}", gone.id)), int(1));
        assert_eq!(owners(server, "k"), ["first", "last"], "there and then");
        gone.client.assert_closed();
    });
}

#[test]
fn who_closes_its_connection_takes_the_commands_behind_its_request_along() {
    assert_only_it_leaves(|_, mut gone| {
        gone.client.send("LOCK.RELEASE k alice");
        drop(gone);
    });
}

#[test]
fn the_last_waiter_may_leave_and_others_may_come() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    for _ in 0..3 {
        let bob = Waiter::of(&server, "k", "bob");
        client.cmd(format!("CLIENT KILL ID {}", bob.id));
        assert_eq!(owners(&server, "k").len(), 0);
    }
    let mut carol = Waiter::of(&server, "k", "carol");
    client.release("k", "alice");
    carol.fence();
}

#[test]
fn who_is_killed_in_the_packet_in_which_the_lease_ends_is_passed_over() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let bob = Waiter::of(&server, "k", "bob");
    let mut carol = Waiter::of(&server, "k", "carol");
    client.pipeline(&[&format!("CLIENT KILL ID {}", bob.id), "LOCK.RELEASE k alice"]);
    let fence = carol.fence();
    assert_eq!(client.check("k", "carol"), Some(fence));
}

#[test]
fn client_unblock_ends_patience_where_that_is_safe_and_is_refused_elsewhere() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let safe = can_be_unblocked();
    let error = error("UNBLOCKED client unblocked via CLIENT UNBLOCK");
    for (word, told) in [("", Value::Nil), (" TIMEOUT", Value::Nil), (" ERROR", error)] {
        let mut bob = Waiter::of(&server, "k", "bob");
        let mut carol = Waiter::of(&server, "k", "carol");
        let reply = client.cmd(format!("CLIENT UNBLOCK {}{word}", bob.id));
        assert_eq!(reply, int(i32::from(safe)), "CLIENT UNBLOCK{word}");
        if safe {
            assert_eq!(bob.reply(), told);
            assert_eq!(owners(&server, "k"), ["carol"]);
            assert_eq!(bob.client.cmd("LOCK.ACQUIRE k bob 60000"), Value::Nil);
        } else {
            assert_eq!(owners(&server, "k"), ["bob", "carol"]);
            client.release("k", "alice");
            bob.fence();
            client.release("k", "bob");
        }
        client.release("k", "alice");
        carol.fence();
        client.release("k", "carol");
        client.grant("k", "alice", LONG);
    }
    assert_eq!(waiters(&server), 0);
}

/// Releases the lock that bob waits for and unblocks him, in one packet: his reply is not written yet.
fn released_and_unblocked(server: &Server, bob: &Waiter, word: &str) -> bool {
    let unblock = format!("CLIENT UNBLOCK {} {word}", bob.id);
    let replies = server.client().pipeline(&["LOCK.RELEASE k alice", &unblock]);
    assert_eq!(replies[0], int(1));
    replies[1] == int(1)
}

#[test]
fn client_unblock_comes_too_late_for_a_waiter_that_was_granted_the_lock() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    // Whatever it replies to the one who sent it.
    released_and_unblocked(&server, &bob, "TIMEOUT");
    let fence = bob.fence();
    assert_eq!(client.check("k", "bob"), Some(fence));
    assert!(bob.client.release("k", "bob"), "and the connection goes on");
}

#[test]
fn a_waiter_unblocked_with_an_error_between_grant_and_reply_does_not_keep_the_lock() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut bob = Waiter::of(&server, "k", "bob");
    let mut carol = Waiter::of(&server, "k", "carol");
    if released_and_unblocked(&server, &bob, "ERROR") {
        assert_eq!(bob.reply(), error("UNBLOCKED client unblocked via CLIENT UNBLOCK"));
        let fence = carol.fence();
        assert_eq!(client.check("k", "carol"), Some(fence));
        assert!(!bob.client.release("k", "bob"), "and the connection goes on");
    } else {
        let fence = bob.fence();
        assert_eq!(client.check("k", "bob"), Some(fence));
    }
}

#[test]
fn a_minted_owner_that_is_unblocked_gets_plain_nil() {
    let server = Server::start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    if !can_be_unblocked() {
        return;
    }
    let mut waiter = Waiter::of(&server, "k", "*");
    client.cmd(format!("CLIENT UNBLOCK {}", waiter.id));
    assert_eq!(waiter.reply(), Value::Nil);
}

/// A waiter with many commands behind its request, which the server keeps for later.
struct Fat {
    client: Client,
    id: i64,
}

impl Fat {
    fn waits(server: &Server, owner: &str, exempt: &str) -> Self {
        let mut client = server.client();
        assert_eq!(client.cmd(format!("CLIENT NO-EVICT {exempt}")), Value::Okay);
        let waiter =
            Waiter::sends_on(client, server, &format!("LOCK.ACQUIRE k {owner} {LONG} BLOCK 0"));
        Self { client: waiter.client, id: waiter.id }
    }

    /// As far as it gets.
    fn grow_by(&mut self, bytes: usize) {
        let echo = format!("ECHO {}\r\n", "x".repeat(60_000));
        let _ =
            (0..bytes / echo.len()).try_for_each(|_| self.client.try_send_bytes(echo.as_bytes()));
    }
}

#[test]
fn a_waiter_that_the_server_evicts_leaves_and_one_exempt_from_that_stays() {
    if lacks((7, 0), "maxmemory-clients") {
        return;
    }
    let server = Server::builder().config("maxmemory-clients", "14mb").start();
    let mut client = server.client();
    client.grant("k", "alice", LONG);
    let mut evicted = Fat::waits(&server, "evicted", "OFF");
    let mut exempt = Fat::waits(&server, "exempt", "ON");
    let mut thin = Waiter::of(&server, "k", "thin");
    exempt.grow_by(6_000_000);
    let memory = format!("CLIENT LIST ID {}", exempt.id);
    eventually("it is fat", || match client.cmd(&*memory) {
        Value::BulkString(line) if memory_of(&line) > 5_000_000 => Ok(()),
        other => Err(other),
    });
    assert_eq!(owners(&server, "k"), ["evicted", "exempt", "thin"]);
    evicted.grow_by(24_000_000);
    eventually("the other is evicted", || match owners(&server, "k") {
        owners if owners == ["exempt", "thin"] => Ok(()),
        owners => Err(owners),
    });
    assert_eq!(client.info_field("stats", "evicted_clients").as_deref(), Some("1"));
    client.release("k", "alice");
    assert!(matches!(exempt.client.receive(), Value::Int(1..)));
    client.release("k", "exempt");
    thin.fence();
}

/// What a line of CLIENT LIST says of the client's memory.
fn memory_of(line: &[u8]) -> u64 {
    let line = String::from_utf8_lossy(line);
    let field = line.split(' ').find_map(|field| field.strip_prefix("tot-mem="));
    field.expect("CLIENT LIST has no tot-mem").parse().unwrap()
}
