//! A panic in any entry of the module is survived: the server lives and goes on.
//!
//! Debug builds panic where the environment tells them to, by the name that each entry gives its guard.

use crate::tidy::sources_of_the_module;
use redis::Value;
use std::collections::BTreeSet;
use testkit::errors::INTERNAL;
use testkit::{
    Client, Cluster, Server, SlotMove, Snapshot, bulk, error, eventually, field, int,
    is_older_than, is_valkey_since, lacks, lacks_moves_at_once, misplaces_clients, module,
    start_pair, wait_until_in_sync,
};

const LONG: u64 = 60_000;

/// Makes the server call an entry, and checks that the panic in it was survived.
type Survival = fn(entry: &str);

const ENTRIES: [(&str, Survival); 41] = [
    ("load", refuses_to_load),
    ("lock.acquire", |entry| answers_with_an_error(entry, "LOCK.ACQUIRE k alice 5")),
    ("lock.release", |entry| answers_with_an_error(entry, "LOCK.RELEASE k alice")),
    ("lock.extend", |entry| answers_with_an_error(entry, "LOCK.EXTEND k alice 5")),
    ("lock.raise", |entry| answers_with_an_error(entry, "LOCK.RAISE k alice 5")),
    ("lock.check", |entry| answers_with_an_error(entry, "LOCK.CHECK k alice")),
    ("lock.guard", |entry| answers_with_an_error(entry, "LOCK.GUARD k foreign 0 SET other v")),
    ("keys-asked", finds_no_keys),
    ("called", runs_a_guarded_command),
    ("reply-kept", answers_a_held_back_reply_with_an_error),
    ("lock.info", |entry| answers_with_an_error(entry, "LOCK.INFO k")),
    ("lock.holders", |entry| answers_with_an_error(entry, "LOCK.HOLDERS k")),
    ("lock.waiters", |entry| answers_with_an_error(entry, "LOCK.WAITERS k")),
    ("lock.top", |entry| answers_with_an_error(entry, "LOCK.TOP")),
    ("lock.log", |entry| answers_with_an_error(entry, "LOCK.LOG")),
    ("lock.help", |entry| answers_with_an_error(entry, "LOCK.HELP")),
    ("role-changed", is_promoted),
    ("loading", reloads),
    ("key-event", stays_in_sync),
    ("filter", |entry| hands_on_in_spite_of(entry, "DEL k")),
    ("evicted", |entry| {
        if is_older_than((7, 2)) {
            takes_an_eviction_for_a_deletion(entry);
        }
    }),
    ("unlinked", |entry| {
        if !lacks((7, 2), "events of keys before they go") {
            takes_an_eviction_for_a_deletion(entry);
        }
    }),
    ("info", tells_the_other_sections),
    ("config-get", reads_a_setting),
    ("config-set", cannot_be_configured),
    ("unload", stays_loaded),
    ("shutdown", stops),
    ("waiter-reply", answers_a_waiter_with_an_error),
    ("waiter-free", hands_on_at_a_release),
    ("disconnected", outlives_a_waiter_that_leaves),
    ("connection-ended", leaves_a_hold_its_ttl),
    ("interrupted", answers_an_interrupted_waiter_with_an_error),
    ("alarm", hands_on_after_a_panic),
    ("routine", hands_on_after_a_panic),
    ("flush", |entry| hands_on_in_spite_of(entry, "FLUSHALL")),
    ("swapdb", |entry| hands_on_in_spite_of(entry, "SWAPDB 0 1")),
    ("config-changed", changes_the_policy),
    ("slots-moved", gets_a_slot),
    ("replica-joined", is_joined_by_a_replica),
    ("forked", saves_in_a_child),
    ("saving", saves),
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
    let tested: BTreeSet<_> = ENTRIES.iter().map(|(entry, _)| (*entry).to_owned()).collect();
    assert_eq!(entries_in_the_sources(), tested, "an entry without a test, or the reverse");
    if !module::can_inject_panics() {
        return;
    }
    for (entry, survives) in ENTRIES {
        eprintln!("a panic in {entry}");
        survives(entry);
    }
}

fn start_told_to_panic_in(entry: &str) -> Server {
    Server::builder().panic_at(entry).start()
}

#[track_caller]
fn assert_counted(server: &Server) {
    eventually("the panic is counted", || match server.client().counter("panics_caught") {
        0 => Err("it is not"),
        _ => Ok(()),
    });
}

/// The panic was logged and counted, and everything else works.
#[track_caller]
fn assert_caught(server: &Server, entry: &str) {
    // A replica may know that it has joined before its primary does.
    let logged = format!("panic in {entry}: ");
    eventually("the panic is logged", || match server.log() {
        log if log.contains(&logged) => Ok(()),
        log => Err(log),
    });
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
        assert_eq!(client.cmd(command), error(INTERNAL));
        assert_eq!(client.counter("panics_caught"), panics);
    }
    assert_eq!(client.transaction(&[command, "DBSIZE"])[0], error(INTERNAL));
    assert_eq!(Snapshot::of(&server), before);
    assert_caught(&server, entry);
}

/// Who may use every key is not asked for them.
fn finds_no_keys(entry: &str) {
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

fn refuses_to_load(entry: &str) {
    let log = Server::builder().panic_at(entry).refuse();
    assert!(log.contains(&format!("panic in {entry}: ")), "{log}");
}

fn is_promoted(entry: &str) {
    let (primary, replica) = start_pair(Server::builder(), Server::builder().panic_at(entry));
    let fence = primary.client().grant("k", "alice", LONG);
    wait_until_in_sync(&primary, &replica);
    replica.cmd("REPLICAOF NO ONE");
    assert_caught(&replica, entry);
    assert_eq!(replica.client().check("k", "alice"), Some(fence));
}

fn reloads(entry: &str) {
    let server = start_told_to_panic_in(entry);
    let fence = server.client().grant("k", "alice", LONG);
    assert_eq!(server.cmd("DEBUG RELOAD"), Value::Okay);
    assert_caught(&server, entry);
    assert_eq!(server.client().check("k", "alice"), Some(fence));
}

fn stays_in_sync(entry: &str) {
    if misplaces_clients() {
        return;
    }
    let (primary, replica) = start_pair(Server::builder(), Server::builder().panic_at(entry));
    primary.client().grant("k", "alice", LONG);
    wait_until_in_sync(&primary, &replica);
    assert_eq!(Snapshot::of(&replica), Snapshot::of(&primary));
    replica.cmd("REPLICAOF NO ONE");
    assert_caught(&replica, entry);
}

fn tells_the_other_sections(entry: &str) {
    let server = start_told_to_panic_in(entry);
    let mut client = server.client();
    assert_eq!(client.info_field("leasehold", "leasehold_panics_caught"), None);
    assert!(client.info_field("everything", "process_id").is_some());
    eventually("the panic is logged", || {
        let log = server.log();
        if log.contains("panic in info: ") { Ok(()) } else { Err(log) }
    });
    client.grant("k", "alice", LONG);
}

fn reads_a_setting(entry: &str) {
    if lacks((7, 0), "a panic in the reading of a setting") {
        return;
    }
    let server = start_told_to_panic_in(entry);
    server.cmd("CONFIG GET leasehold.*");
    assert_caught(&server, entry);
}

/// The server sets every setting once while it loads the module, so that is how far it gets.
fn cannot_be_configured(entry: &str) {
    if lacks((7, 0), "a panic in the change of a setting") {
        return;
    }
    refuses_to_load(entry);
}

fn stays_loaded(entry: &str) {
    let server = start_told_to_panic_in(entry);
    let reply = server.cmd("MODULE UNLOAD leasehold");
    assert!(matches!(reply, Value::ServerError(_)), "{reply:?}");
    assert_caught(&server, entry);
}

fn stops(entry: &str) {
    let mut server = start_told_to_panic_in(entry);
    server.stop();
    assert!(server.log().contains(&format!("panic in {entry}: ")), "{}", server.log());
}

/// A lock that alice holds and bob waits for.
fn contended(entry: &str) -> (Server, Client) {
    let server = start_told_to_panic_in(entry);
    server.client().grant("k", "alice", LONG);
    let mut bob = server.client();
    bob.send(format!("LOCK.ACQUIRE k bob {LONG} BLOCK 0"));
    eventually("bob is queued", || match server.client().info("k").map(|info| info.waiters) {
        Some(1) => Ok(()),
        other => Err(other),
    });
    (server, bob)
}

fn answers_a_waiter_with_an_error(entry: &str) {
    let (server, mut bob) = contended(entry);
    assert!(server.client().release("k", "alice"));
    assert_eq!(bob.receive(), error(INTERNAL));
    // Nobody has heard of the grant, so it is taken back.
    eventually("the lock is free", || server.client().info("k").map_or(Ok(()), Err));
    assert_caught(&server, entry);
}

fn hands_on_at_a_release(entry: &str) {
    let (server, mut bob) = contended(entry);
    assert!(server.client().release("k", "alice"));
    assert!(matches!(bob.receive(), Value::Int(_)));
    assert_counted(&server);
    assert_caught(&server, entry);
}

/// Somebody waits, so the timer and the server's routine have something to do within a second.
fn hands_on_after_a_panic(entry: &str) {
    let (server, mut bob) = contended(entry);
    assert_counted(&server);
    assert!(server.client().release("k", "alice"));
    assert!(matches!(bob.receive(), Value::Int(_)));
    assert_caught(&server, entry);
}

fn outlives_a_waiter_that_leaves(entry: &str) {
    let (server, bob) = contended(entry);
    drop(bob);
    assert_counted(&server);
    assert!(server.client().release("k", "alice"));
    assert_caught(&server, entry);
}

fn leaves_a_hold_its_ttl(entry: &str) {
    let server = start_told_to_panic_in(entry);
    let mut alice = server.client();
    let Value::Int(fence) = alice.cmd(format!("LOCK.ACQUIRE k alice {LONG} EPHEMERAL 0")) else {
        panic!("no fence")
    };
    drop(alice);
    assert_counted(&server);
    assert_caught(&server, entry);
    assert_eq!(server.client().check("k", "alice"), Some(fence.cast_unsigned()));
}

fn answers_an_interrupted_waiter_with_an_error(entry: &str) {
    if lacks((7, 4), "CLIENT UNBLOCK of a waiter") {
        return;
    }
    let (server, mut bob) = contended(entry);
    let Value::Array(rows) = server.cmd("LOCK.WAITERS k") else { panic!("nobody waits") };
    let Some(Value::Int(id)) = field(&rows[0], "client") else { panic!("{rows:?}") };
    assert_eq!(server.cmd(format!("CLIENT UNBLOCK {id}")), int(1));
    assert_eq!(bob.receive(), error(INTERNAL));
    assert_caught(&server, entry);
}

/// What the callback did not see, the look each second does.
fn hands_on_in_spite_of(entry: &str, command: &str) {
    let (server, mut bob) = contended(entry);
    let reply = server.cmd(command);
    assert!(!matches!(reply, Value::ServerError(_)), "{reply:?}");
    assert!(matches!(bob.receive(), Value::Int(_)));
    assert_caught(&server, entry);
}

/// What the module calls is executed as it is.
fn runs_a_guarded_command(entry: &str) {
    let server = start_told_to_panic_in(entry);
    let mut client = server.client();
    client.cmd("SET k foreign");
    assert_eq!(client.cmd("LOCK.GUARD k foreign 0 SET other v"), Value::Okay);
    assert_caught(&server, entry);
}

fn answers_a_held_back_reply_with_an_error(entry: &str) {
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
fn takes_an_eviction_for_a_deletion(entry: &str) {
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

fn changes_the_policy(entry: &str) {
    if lacks((7, 0), "events of a changed configuration") {
        return;
    }
    let server = start_told_to_panic_in(entry);
    assert_eq!(server.cmd("CONFIG SET maxmemory-policy volatile-lru"), Value::Okay);
    assert_caught(&server, entry);
}

fn gets_a_slot(entry: &str) {
    if lacks_moves_at_once() {
        return;
    }
    let cluster = Cluster::with(2, 0, |_, setup| setup.panic_at(entry));
    let slot = cluster.slot_of(0);
    let fence = cluster.node(0).client().grant(slot.key("k"), "alice", LONG);
    SlotMove { slot: slot.number, from: 0, to: 1 }.at_once(&cluster);
    for node in cluster.nodes() {
        assert!(node.log().contains(&format!("panic in {entry}: ")), "{}", node.log());
        assert_ne!(node.client().counter("panics_caught"), 0);
    }
    let mut client = cluster.node(1).client();
    assert_eq!(client.check(slot.key("k"), "alice"), Some(fence));
    client.grant(slot.key("another"), "alice", LONG);
}

fn is_joined_by_a_replica(entry: &str) {
    let (primary, replica) = start_pair(Server::builder().panic_at(entry), Server::builder());
    assert_caught(&primary, entry);
    wait_until_in_sync(&primary, &replica);
}

fn saves(entry: &str) {
    let server = start_told_to_panic_in(entry);
    assert_eq!(server.cmd("SAVE"), Value::Okay);
    assert_caught(&server, entry);
}

fn saves_in_a_child(entry: &str) {
    let server = start_told_to_panic_in(entry);
    assert!(matches!(server.cmd("BGSAVE"), Value::SimpleString(_)));
    assert_caught(&server, entry);
}
