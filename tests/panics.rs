//! A panic in any entry of the module is survived: the server lives and goes on.
//!
//! Debug builds panic where the environment tells them to, by the name that each entry gives its guard.

use crate::tidy::sources_of_the_module;
use redis::Value;
use std::collections::BTreeSet;
use testkit::errors::INTERNAL;
use testkit::{
    Client, Cluster, Server, SlotMove, Snapshot, UNLOAD, becomes, bulk, error, eventually, int,
    is_older_than, is_valkey_since, lacks, lacks_moves_at_once, misplaces_clients, module, number,
    start_pair, until, wait_until_in_sync,
};

const LONG: u64 = 60_000;

/// Makes the server call an entry, as a rule by this command, and checks that the panic in it was survived.
type Survival = fn(entry: &str, command: &str);

const ANY: (u32, u32) = (0, 0);

/// With the server that calls it first.
const ENTRIES: [(&str, (u32, u32), Survival, &str); 42] = [
    ("lock.acquire", ANY, answers_with_an_error, "LOCK.ACQUIRE k alice 5"),
    ("lock.release", ANY, answers_with_an_error, "LOCK.RELEASE k alice"),
    ("lock.extend", ANY, answers_with_an_error, "LOCK.EXTEND k alice 5"),
    ("lock.raise", ANY, answers_with_an_error, "LOCK.RAISE k alice 5"),
    ("lock.check", ANY, answers_with_an_error, "LOCK.CHECK k alice"),
    ("lock.guard", ANY, answers_with_an_error, "LOCK.GUARD k foreign 0 SET other v"),
    ("lock.info", ANY, answers_with_an_error, "LOCK.INFO k"),
    ("lock.holders", ANY, answers_with_an_error, "LOCK.HOLDERS k"),
    ("lock.waiters", ANY, answers_with_an_error, "LOCK.WAITERS k"),
    ("lock.top", ANY, answers_with_an_error, "LOCK.TOP"),
    ("lock.log", ANY, answers_with_an_error, "LOCK.LOG"),
    ("lock.drop", ANY, answers_with_an_error, "LOCK.DROP alice"),
    ("lock.help", ANY, answers_with_an_error, "LOCK.HELP"),
    // The server sets every setting once while it loads the module.
    ("load", ANY, refuses_to_load, ""),
    ("config-set", (7, 0), refuses_to_load, ""),
    ("keys-asked", ANY, finds_no_keys, ""),
    // What the module calls is executed as it is.
    ("called", ANY, goes_on_after, "LOCK.GUARD foreign foreign 0 SET another v"),
    ("reply-kept", ANY, answers_a_held_back_reply_with_an_error, ""),
    ("role-changed", ANY, is_promoted, ""),
    ("key-event", ANY, is_promoted, ""),
    ("loading", ANY, goes_on_after, "DEBUG RELOAD"),
    ("saving", ANY, goes_on_after, "SAVE"),
    ("forked", ANY, goes_on_after, "BGSAVE"),
    ("unload", ANY, goes_on_after, UNLOAD),
    ("config-get", (7, 0), goes_on_after, "CONFIG GET leasehold.*"),
    ("config-changed", (7, 0), goes_on_after, "CONFIG SET maxmemory-policy volatile-lru"),
    ("info", ANY, tells_the_other_sections, ""),
    ("shutdown", ANY, stops, ""),
    ("evicted", ANY, takes_an_eviction_for_a_deletion, ""),
    ("unlinked", (7, 2), takes_an_eviction_for_a_deletion, ""),
    ("waiter-reply", ANY, answers_a_waiter_with_an_error, ""),
    ("interrupted", (7, 4), answers_an_interrupted_waiter_with_an_error, ""),
    ("disconnected", ANY, outlives_a_waiter_that_leaves, ""),
    ("connection-ended", ANY, leaves_a_hold_its_ttl, ""),
    // What a callback did not see, the look each second does. There the timer and the server's routine have something
    // to do, because somebody waits.
    ("waiter-free", ANY, hands_on_after, "LOCK.RELEASE k alice"),
    ("alarm", ANY, hands_on_after, "LOCK.RELEASE k alice"),
    ("routine", ANY, hands_on_after, "LOCK.RELEASE k alice"),
    ("filter", ANY, hands_on_after, "DEL k"),
    ("flush", ANY, hands_on_after, "FLUSHALL"),
    ("swapdb", ANY, hands_on_after, "SWAPDB 0 1"),
    ("slots-moved", ANY, gets_a_slot, ""),
    ("replica-joined", ANY, is_joined_by_a_replica, ""),
];

/// Looks for `guard::anything("name"` and `command!("name"` in the sources.
fn entries_in_the_sources() -> BTreeSet<String> {
    let mut entries = BTreeSet::new();
    for text in sources_of_the_module() {
        for call in text.split("guard::").skip(1).chain(text.split("command!").skip(1)) {
            let name = call
                .trim_start_matches(|letter: char| letter.is_ascii_lowercase() || letter == '_');
            let literal =
                name.strip_prefix('(').and_then(|rest| rest.trim_start().strip_prefix('"'));
            entries.extend(literal.and_then(|rest| rest.split('"').next()).map(str::to_owned));
        }
    }
    entries
}

#[test]
fn a_panic_in_any_entry_is_survived() {
    let tested: BTreeSet<_> = ENTRIES.iter().map(|(entry, ..)| (*entry).to_owned()).collect();
    assert_eq!(entries_in_the_sources(), tested, "an entry without a test, or the reverse");
    if !module::can_inject_panics() {
        return;
    }
    for (entry, since, survives, command) in ENTRIES {
        let what = format!("a panic in {entry}");
        eprintln!("{what}");
        if !lacks(since, &what) {
            survives(entry, command);
        }
    }
}

fn start_told_to_panic_in(entry: &str) -> Server {
    Server::builder().panic_at(entry).start()
}

#[track_caller]
fn assert_counted(server: &Server) {
    becomes("whether the panic is counted", true, || server.client().counter("panics_caught") > 0);
}

#[track_caller]
fn assert_logged(server: &Server, entry: &str) {
    let logged = format!("panic in {entry}: ");
    until("the panic is logged", || server.log(), |log| log.contains(&logged));
}

/// The panic was logged and counted, and everything else works.
#[track_caller]
fn assert_caught(server: &Server, entry: &str) {
    // A replica may know that it has joined before its primary does.
    assert_logged(server, entry);
    let mut client = server.client();
    assert_ne!(client.counter("panics_caught"), 0);
    let commands = [
        ("lock.acquire", "LOCK.ACQUIRE other alice 60000"),
        ("lock.check", "LOCK.CHECK other alice"),
        ("lock.info", "LOCK.INFO other"),
        ("lock.holders", "LOCK.HOLDERS other"),
        ("lock.waiters", "LOCK.WAITERS other"),
        ("lock.extend", "LOCK.EXTEND other alice 60000"),
        ("lock.release", "LOCK.RELEASE other alice"),
    ];
    for (name, command) in commands {
        let reply = client.cmd(command);
        assert_eq!(matches!(reply, Value::ServerError(_)), name == entry, "{command}: {reply:?}");
    }
}

fn answers_with_an_error(entry: &str, command: &str) {
    let server = start_told_to_panic_in(entry);
    let mut client = server.client();
    client.cmd("SET k foreign");
    let before = Snapshot::of(&server);
    for panics in 1..=3 {
        assert_eq!(client.cmd(command), error(INTERNAL), "{command}");
        assert_eq!(client.counter("panics_caught"), panics);
    }
    assert_eq!(client.transaction(&[command, "DBSIZE"])[0], error(INTERNAL));
    assert_eq!(Snapshot::of(&server), before);
    assert_caught(&server, entry);
}

/// The server goes on, and so does who holds a lock.
fn goes_on_after(entry: &str, command: &str) {
    let server = start_told_to_panic_in(entry);
    let mut client = server.client();
    client.cmd("SET foreign foreign");
    let fence = client.grant("k", "alice", LONG);
    let reply = client.cmd(command);
    let is_refused = matches!(reply, Value::ServerError(_));
    assert_eq!(is_refused, command == UNLOAD, "{command}: {reply:?}");
    assert_caught(&server, entry);
    assert_eq!(client.check("k", "alice"), Some(fence), "{command}");
}

/// Who may use every key is not asked for them.
fn finds_no_keys(entry: &str, _: &str) {
    let server = start_told_to_panic_in(entry);
    let mut client = server.client();
    let fence = client.grant("k", "alice", LONG);
    let request = format!("LOCK.GUARD k alice {fence} SET other v");
    let reply = client.cmd(format!("COMMAND GETKEYS {request}"));
    assert!(matches!(reply, Value::ServerError(_)), "{reply:?}");
    assert_counted(&server);
    assert_eq!(client.cmd(request), Value::Okay);
    client.cmd("DEL other");
    assert_caught(&server, entry);
}

fn refuses_to_load(entry: &str, _: &str) {
    let log = Server::builder().panic_at(entry).refuse();
    assert!(log.contains(&format!("panic in {entry}: ")), "{log}");
}

fn is_promoted(entry: &str, _: &str) {
    if entry == "key-event" && misplaces_clients() {
        return;
    }
    let (primary, replica) = start_pair(Server::builder(), Server::builder().panic_at(entry));
    let fence = primary.client().grant("k", "alice", LONG);
    wait_until_in_sync(&primary, &replica);
    assert_eq!(Snapshot::of(&replica), Snapshot::of(&primary));
    replica.cmd("REPLICAOF NO ONE");
    assert_caught(&replica, entry);
    assert_eq!(replica.client().check("k", "alice"), Some(fence));
}

fn tells_the_other_sections(entry: &str, _: &str) {
    let server = start_told_to_panic_in(entry);
    let mut client = server.client();
    assert_eq!(client.info_field("leasehold", "leasehold_panics_caught"), None);
    assert!(client.info_field("everything", "process_id").is_some());
    assert_logged(&server, entry);
    client.grant("k", "alice", LONG);
}

fn stops(entry: &str, _: &str) {
    let mut server = start_told_to_panic_in(entry);
    server.stop();
    assert_logged(&server, entry);
}

/// A lock that alice holds and bob waits for.
fn contended(entry: &str) -> (Server, Client) {
    let server = start_told_to_panic_in(entry);
    server.client().grant("k", "alice", LONG);
    let mut bob = server.client();
    bob.send(format!("LOCK.ACQUIRE k bob {LONG} BLOCK 0"));
    becomes("the queue", 1, || server.client().info("k").map_or(0, |info| info.waiters));
    (server, bob)
}

fn answers_a_waiter_with_an_error(entry: &str, _: &str) {
    let (server, mut bob) = contended(entry);
    assert!(server.client().release("k", "alice"));
    assert_eq!(bob.receive(), error(INTERNAL));
    // Nobody has heard of the grant, so it is taken back.
    eventually("the lock is free", || server.client().info("k").map_or(Ok(()), Err));
    assert_caught(&server, entry);
}

/// What frees the lock hands it to bob, whichever callback panics.
fn hands_on_after(entry: &str, frees: &str) {
    let (server, mut bob) = contended(entry);
    if ["alarm", "routine"].contains(&entry) {
        assert_counted(&server);
    }
    let reply = server.cmd(frees);
    assert!(!matches!(reply, Value::ServerError(_)), "{reply:?}");
    assert!(matches!(bob.receive(), Value::Int(_)));
    assert_counted(&server);
    assert_caught(&server, entry);
}

fn outlives_a_waiter_that_leaves(entry: &str, _: &str) {
    let (server, bob) = contended(entry);
    drop(bob);
    assert_counted(&server);
    assert!(server.client().release("k", "alice"));
    assert_caught(&server, entry);
}

fn leaves_a_hold_its_ttl(entry: &str, _: &str) {
    let server = start_told_to_panic_in(entry);
    let mut alice = server.client();
    let fence = alice.fence(format!("LOCK.ACQUIRE k alice {LONG} EPHEMERAL 0")).unwrap();
    drop(alice);
    assert_counted(&server);
    assert_caught(&server, entry);
    assert_eq!(server.client().check("k", "alice"), Some(fence));
}

fn answers_an_interrupted_waiter_with_an_error(entry: &str, _: &str) {
    let (server, mut bob) = contended(entry);
    let Value::Array(rows) = server.cmd("LOCK.WAITERS k") else { panic!("nobody waits") };
    let unblock = format!("CLIENT UNBLOCK {}", number(&rows[0], "client"));
    assert_eq!(server.cmd(unblock), int(1));
    assert_eq!(bob.receive(), error(INTERNAL));
    assert_caught(&server, entry);
}

fn answers_a_held_back_reply_with_an_error(entry: &str, _: &str) {
    if !is_valkey_since((9, 0)) {
        return;
    }
    let server = Server::builder().with_caller_that("hold").panic_at(entry).start();
    let mut client = server.client();
    client.cmd("SET k foreign");
    assert_eq!(client.cmd("LOCK.GUARD k foreign 0 HSET h field v"), error(INTERNAL));
    assert_eq!(client.cmd("HGET h field"), bulk("v"));
    assert_caught(&server, entry);
}

/// Nobody says that the lock was evicted, so it is taken for free.
fn takes_an_eviction_for_a_deletion(entry: &str, _: &str) {
    if entry == "evicted" && !is_older_than((7, 2)) {
        return;
    }
    let (server, mut bob) = contended(entry);
    server.cmd("CONFIG SET maxmemory-policy volatile-lru");
    server.cmd("CONFIG SET maxmemory 1");
    eventually("the lock is evicted", || {
        server.cmd("SET filler x");
        server.cmd("GET k").eq(&Value::Nil).then_some(()).ok_or("it is not")
    });
    server.cmd("CONFIG SET maxmemory 0");
    assert!(matches!(bob.receive(), Value::Int(_)));
    assert_caught(&server, entry);
}

fn gets_a_slot(entry: &str, _: &str) {
    if lacks_moves_at_once() {
        return;
    }
    let cluster = Cluster::with(2, 0, |_, setup| setup.panic_at(entry));
    let slot = cluster.slot_of(0);
    let fence = cluster.node(0).client().grant(slot.key("k"), "alice", LONG);
    SlotMove { slot: slot.number, from: 0, to: 1 }.at_once(&cluster);
    for node in cluster.nodes() {
        assert_logged(node, entry);
        assert_ne!(node.client().counter("panics_caught"), 0);
    }
    let mut client = cluster.node(1).client();
    assert_eq!(client.check(slot.key("k"), "alice"), Some(fence));
    client.grant(slot.key("another"), "alice", LONG);
}

fn is_joined_by_a_replica(entry: &str, _: &str) {
    let (primary, replica) = start_pair(Server::builder().panic_at(entry), Server::builder());
    assert_caught(&primary, entry);
    wait_until_in_sync(&primary, &replica);
}
