//! At home under every setting of the server's: a smoke run each, and what the setting itself may do to a lock.

mod connections;
mod memory;
mod scripts;
mod threads;

use crate::waiting::{owners, waiters};
use redis::Value;
use testkit::{Client, Server, Session, Setup, becomes, bulk, lacks, strings};

const LONG: u64 = 60_000;

/// How many wait for one lock in a smoke run.
const CROWD: usize = 200;

/// Starts a server with one setting, and sees that it is in force.
fn start_with(setup: Setup, name: &str, value: &str) -> Server {
    let server = setup.config(name, value).start();
    let reply = server.cmd(["CONFIG", "GET", name]);
    assert_eq!(strings(&reply), [name, value]);
    server
}

/// Alone; handed over at a release, at the end of a lease and at a deletion by hand; leaving; a transaction and a script.
const USE: &str = r#"
    LOCK.ACQUIRE alone alice 60000 -> A
    LOCK.ACQUIRE alone bob 60000; LOCK.ACQUIRE alone alice 60000 -> nil; A
    LOCK.ACQUIRE alone bob 60000 BLOCK 1; LOCK.EXTEND alone bob 60000 -> nil; 0
    LOCK.EXTEND alone alice 120000; LOCK.CHECK alone alice; LOCK.CHECK alone bob -> 1; A; nil
    LOCK.INFO alone; LOCK.INFO alone; PTTL alone -> owner alice fence {A}…; …waiters 0; 60001..120000
    LOCK.RELEASE alone bob; LOCK.RELEASE alone alice; LOCK.INFO alone -> 0; 1; nil
    LOCK.ACQUIRE passed alice 60000 -> B
    bob: LOCK.ACQUIRE passed bob 60000 BLOCK 0 -> waits
    LOCK.RELEASE passed alice -> 1
    bob: -> C
    carol: LOCK.ACQUIRE passed carol 60000 BLOCK 0 -> waits
    bob: LOCK.EXTEND passed bob 20 -> 1
    carol: -> D
    dave: LOCK.ACQUIRE passed dave 60000 BLOCK 0 -> waits
    DEL passed -> 1
    dave: -> E
    LOCK.CHECK passed dave; LOCK.RELEASE passed dave -> E; 1
    LOCK.ACQUIRE left alice 60000 -> F
    first: LOCK.ACQUIRE left first 60000 BLOCK 0 -> waits
    gone: LOCK.ACQUIRE left gone 60000 BLOCK 0 -> waits
    last: LOCK.ACQUIRE left last 60000 BLOCK 0 -> waits
    gone: leaves
    LOCK.WAITERS left -> until first last
    LOCK.RELEASE left alice -> 1
    first: -> G
    LOCK.RELEASE left first -> 1
    last: -> H
    LOCK.RELEASE left last -> 1
    MULTI: LOCK.ACQUIRE whole alice 60000; LOCK.ACQUIRE whole bob 60000 BLOCK 0; SET guarded by-alice; LOCK.CHECK whole alice; LOCK.RELEASE whole alice -> I; nil; OK; I; 1
    EVAL "return {redis.call('LOCK.ACQUIRE', KEYS[1], 'alice', 60000), redis.call('LOCK.ACQUIRE', KEYS[1], 'bob', 60000, 'BLOCK', 0), redis.call('LOCK.INFO', KEYS[1])[2], redis.call('LOCK.RELEASE', KEYS[1], 'alice')}" 1 whole -> {J} nil alice 1
    LOCK.ACQUIRE wanted alice 60000 -> K
"#;

/// Uses a server in earnest, as a fleet of clients would.
fn smoke(server: &Server) {
    let mut client = server.client();
    let waited_before = client.counter("waiters");
    Session::of(server, 0).steps(USE);
    crowd(server);
    assert_eq!(client.counter("waiters"), waited_before);
    assert_eq!(client.counter("panics_caught"), 0);
    becomes("how many are blocked", waited_before, || {
        client.info_number("clients", "blocked_clients")
    });
}

/// Each is handed the lock in its turn, and gives it back.
fn crowd(server: &Server) {
    let mut client = server.client();
    let mut last = client.check("wanted", "alice").unwrap().cast_signed();
    let mut waiting = crowd_for(server, "wanted", "member-");
    let turns = owners(server, "wanted");
    assert_eq!(turns.len(), CROWD);
    assert!(client.release("wanted", "alice"));
    for owner in turns {
        let index: usize = owner.strip_prefix("member-").unwrap().parse().unwrap();
        let reply = waiting[index].receive();
        let Value::Int(fence) = reply else { panic!("{owner}: {reply:?}") };
        assert!(fence > last, "{fence} is not larger than {last}");
        last = fence;
        assert!(waiting[index].release("wanted", &owner));
    }
}

/// Clients who wait for a lock that is held. Their owners are numbered.
fn crowd_for(server: &Server, key: &str, owner: &str) -> Vec<Client> {
    let already = waiters(server);
    let mut crowd: Vec<_> = (0..CROWD).map(|_| server.client()).collect();
    for (number, client) in crowd.iter_mut().enumerate() {
        client.send(format!("LOCK.ACQUIRE {key} {owner}{number} 60000 BLOCK 0"));
    }
    becomes("how many wait", CROWD as u64, || waiters(server) - already);
    crowd
}

/// Settings that no lock is to notice. A name may be unknown to older servers.
const UNNOTICED: [(&str, &str); 12] = [
    ("hz", "1"),
    ("hz", "500"),
    ("databases", "1"),
    ("timeout", "60"),
    ("slowlog-log-slower-than", "0"),
    ("latency-monitor-threshold", "1"),
    ("protected-mode", "yes"),
    ("tcp-keepalive", "1"),
    ("requirepass", "open-sesame"),
    ("appendfsync", "always"),
    ("maxmemory-clients", "16777216"),
    ("client-output-buffer-limit", "normal 65536 32768 60"),
];

#[test]
fn a_server_with_any_of_these_settings() {
    for (name, value) in UNNOTICED {
        if name == "maxmemory-clients" && lacks((7, 0), name) {
            continue;
        }
        eprintln!("{name} {value}");
        let setup = Server::builder();
        let server = match name {
            "requirepass" => setup.password(value).start(),
            "client-output-buffer-limit" => setup.config(name, value).start(),
            "appendfsync" => start_with(setup.aof(), name, value),
            "hz" => start_with(setup.config("dynamic-hz", "no"), name, value),
            "protected-mode" | "tcp-keepalive" => start_with(setup.clients_over_tcp(), name, value),
            _ => start_with(setup, name, value),
        };
        smoke(&server);
        match name {
            "databases" => assert!(matches!(server.cmd("SELECT 1"), Value::ServerError(_))),
            "slowlog-log-slower-than" => {
                server.client().grant("k", "alice", LONG);
                let log = format!("{:?}", server.cmd("SLOWLOG GET 128"));
                for command in ["LOCK.ACQUIRE", "LOCK.RELEASE"].map(bulk) {
                    assert!(log.contains(&format!("{command:?}")), "{command:?} is not in {log}");
                }
            }
            "latency-monitor-threshold" if !lacks((7, 0), "LATENCY HISTOGRAM") => {
                let reply = server.cmd("LATENCY HISTOGRAM lock.acquire lock.release");
                assert!(matches!(&reply, Value::Array(both) if both.len() == 4), "{reply:?}");
            }
            _ => {}
        }
    }
}

/// Those that the module itself has the server run, and what operators like to hide.
#[test]
fn one_that_hides_other_commands() {
    let hidden = ["GETRANGE", "EXISTS", "COMMAND", "CONFIG", "MODULE", "FLUSHALL", "KEYS", "DEBUG"];
    let hide = |setup: Setup, name: &&str| setup.config("rename-command", &format!("{name} \"\""));
    let server = hidden.iter().fold(Server::builder(), hide).start();
    smoke(&server);
    let reply = server.cmd("GETRANGE k 0 1");
    assert!(matches!(reply, Value::ServerError(_)), "{reply:?}");
}
