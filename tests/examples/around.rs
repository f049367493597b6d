//! What docs/clients.md puts around acquiring and releasing, on top of either client for Node.

use super::recipe::{Recipe, Script};
use super::{address_of, server};
use std::fs;
use std::thread;
use testkit::{Server, eventually};

const LONG: u64 = 60_000;

/// The lease of a lock that is extended. A program that is stopped for so long loses it.
const TTL: u64 = 1_500;

/// As many extensions as take longer than one lease.
const MORE_THAN_A_LEASE: u64 = 4;

pub(super) fn scripts() -> impl Iterator<Item = Script> {
    Recipe::of_javascript().map(Script)
}

/// Work that goes on until it is told that the lock is lost.
fn until_it_is_lost(then: &str) -> String {
    format!(
        "withLock('k', {{ ttl: {TTL} }}, ({{ signal }}) => new Promise((resolve) =>
            signal.addEventListener('abort', () => {{ {then}; resolve('told'); }})))"
    )
}

fn wait_until_it_was_extended(server: &Server) {
    let mut client = server.client();
    eventually("it was extended beyond a lease", || match client.counter("extends") {
        extends if extends >= MORE_THAN_A_LEASE => Ok(()),
        extends => Err(extends),
    });
    assert_eq!(client.counter("grants"), 1);
    assert!(client.info("k").is_some(), "it was lost meanwhile");
}

#[test]
fn work_with_a_lock_keeps_it_and_is_told_when_it_is_lost() {
    for script in scripts() {
        let server = server();
        let address = address_of(&server);
        let expression = until_it_is_lost("");
        let told = thread::scope(|scope| {
            let works = scope.spawn(|| script.program(&[], &expression, &address));
            wait_until_it_was_extended(&server);
            server.cmd("DEL k");
            server.client().grant("k", "bob", LONG);
            works.join().unwrap()
        });
        assert_eq!(told.out, "told\n", "{}", told.err);
        assert_eq!(server.client().counter("extends_refused"), 1, "it was told at once");
        let warning = "k was lost before it was released: ";
        assert!(told.err.starts_with(warning), "{}", told.err);
        assert!(server.client().check("k", "bob").is_some(), "the next one still has it");
    }
}

#[test]
fn a_watchdog_stops_when_the_lock_is_lost() {
    for script in scripts() {
        let server = server();
        let address = address_of(&server);
        // Time enough for three more extensions.
        let expression = "withLock('k', { ttl: 1500 }, ({ signal }) => new Promise((resolve) =>
            signal.addEventListener('abort', () => setTimeout(resolve, 2000))))";
        thread::scope(|scope| {
            let works = scope.spawn(|| script.program(&[], expression, &address));
            eventually("it holds the lock", || server.client().info("k").map(drop).ok_or(()));
            server.cmd("DEL k");
            works.join().unwrap()
        });
        assert_eq!(server.client().counter("extends_refused"), 1);
    }
}

#[test]
fn each_work_with_a_lock_has_an_owner_of_its_own() {
    for script in scripts() {
        let server = server();
        // The key holds the fence and the owner.
        let work = "() => redis.get('k').then((value) => value.split(':').slice(1).join(':'))";
        let expression =
            format!("Promise.all([1, 2].map(() => withLock('k', {{ ttl: {LONG}, patience: {LONG} }}, {work})))
                .then((owners) => [process.pid, ...owners].join(' '))");
        let said = script.program(&[], &expression, &address_of(&server)).output();
        let words: Vec<_> = said.split_whitespace().collect();
        let [pid, one, other] = words[..] else { panic!("{said}") };
        for owner in [one, other] {
            let uuid = owner.strip_prefix(&format!("{pid}:")).unwrap();
            assert_eq!((uuid.len(), uuid.matches('-').count()), (36, 4), "{owner}");
        }
        assert_ne!(one, other);
    }
}

#[test]
fn the_ttl_comes_from_the_environment_unless_it_is_given() {
    for script in scripts() {
        let server = server();
        let address = address_of(&server);
        let ends = |before: &str, options: &str| -> i64 {
            let expression = format!(
                "({before}, withLock('k', {options}, () => redis.pTTL ? redis.pTTL('k') : redis.pttl('k')))"
            );
            let said = script.program(&[], &expression, &address).output();
            said.trim_end().parse().unwrap()
        };
        let millis = ends("process.env.LOCK_TTL_MS = '500000'", "{}");
        assert!((400_000..=500_000).contains(&millis), "{millis}");
        let millis = ends("process.env.LOCK_TTL_MS = '500000'", "{ ttl: 300000 }");
        assert!((200_000..=300_000).contains(&millis), "{millis}");
        let millis = ends("delete process.env.LOCK_TTL_MS", "{}");
        assert!((1..=5_000).contains(&millis), "{millis}");
    }
}

#[test]
fn work_with_a_lock_is_told_when_the_server_is_silent_for_a_lease() {
    for script in scripts() {
        let mut server = server();
        let address = address_of(&server);
        let folder = tempfile::tempdir().unwrap();
        let sign = folder.path().join("told");
        let note =
            format!("import('node:fs').then((fs) => fs.writeFileSync('{}', ''))", sign.display());
        let expression = until_it_is_lost(&note);
        thread::scope(|scope| {
            let works = scope.spawn(|| script.program(&[], &expression, &address));
            wait_until_it_was_extended(&server);
            server.freeze();
            eventually("it is told", || fs::metadata(&sign).map(|_| ()));
            server.thaw();
            assert_eq!(works.join().unwrap().out, "told\n");
        });
    }
}

#[test]
fn work_with_a_lock_releases_it_in_the_end_and_refuses_nobody_in_error() {
    for script in scripts() {
        let server = server();
        let address = address_of(&server);
        let with_a_lock = |work: &str| {
            let expression = format!("withLock('k', {{ ttl: {LONG} }}, {work})");
            script.program(&[], &expression, &address)
        };
        assert_eq!(with_a_lock("({ fence }) => fence > 0").output(), "true\n");
        let failed = with_a_lock("() => { throw new Error('the work fails') }");
        assert!(failed.err.contains("the work fails"), "{}", failed.err);
        let mut client = server.client();
        assert_eq!((client.counter("releases"), client.counter("held")), (2, 0));
        client.grant("k", "alice", LONG);
        assert_eq!(with_a_lock("() => 'not reached'").output(), "null\n");
    }
}

#[test]
fn who_asks_again_and_again_asks_as_often_as_it_says() {
    for script in scripts() {
        let server = server();
        let address = address_of(&server);
        let headings = ["Ask again and again"];
        let expression = "acquireWithRetries('k', { ttl: 1000, retries: 2, delay: 1 })";
        server.client().grant("k", "alice", LONG);
        let told = script.program(&headings, expression, &address);
        assert_eq!(told.output(), "null\n");
        assert_eq!(server.client().counter("tries_refused"), 3);

        let patient = "acquireWithRetries('k', { ttl: 1000, retries: 20, delay: 1 })";
        thread::scope(|scope| {
            let asks = scope.spawn(|| script.program(&headings, patient, &address));
            eventually("it asks", || {
                let refused = server.client().counter("tries_refused");
                if refused > 4 { Ok(()) } else { Err(refused) }
            });
            assert!(server.client().release("k", "alice"));
            assert_ne!(asks.join().unwrap().output(), "null\n");
        });
    }
}

fn through_the_trouble() -> String {
    format!("acquire('k', {{ ttl: {LONG}, patience: 30000 }}).then((lease) => lease.fence)")
}

#[test]
fn who_waits_through_a_failover_has_the_lock_in_the_end() {
    for script in scripts() {
        let server = server();
        let address = address_of(&server);
        let mut client = server.client();
        client.grant("k", "alice", LONG);
        let expression = through_the_trouble();
        let told = thread::scope(|scope| {
            let waits = scope.spawn(|| script.program(&[], &expression, &address));
            client.wait_until_waiters(1);
            // A replica of nobody there, and a primary again.
            client.cmd("REPLICAOF 127.0.0.1 1");
            eventually("it is refused as by a replica", || {
                let errors = server.client().info_text("errorstats");
                if errors.contains("errorstat_READONLY") { Ok(()) } else { Err(errors) }
            });
            server.cmd("REPLICAOF NO ONE");
            server.client().wait_until_waiters(1);
            assert!(server.client().release("k", "alice"));
            waits.join().unwrap()
        });
        let fence = server.client().info("k").expect("it has the lock").fence;
        assert_eq!(told.out, format!("{fence}\n"), "{}", told.err);
    }
}

#[test]
fn who_waits_while_the_server_is_started_again_has_the_lock_in_the_end() {
    for script in scripts() {
        let mut server = server();
        let address = address_of(&server);
        server.client().grant("k", "alice", LONG);
        let expression = through_the_trouble();
        let told = thread::scope(|scope| {
            let waits = scope.spawn(|| script.program(&[], &expression, &address));
            server.client().wait_until_waiters(1);
            server.kill();
            server.start_again();
            waits.join().unwrap()
        });
        let fence = server.client().info("k").expect("it has the lock").fence;
        assert_eq!(told.out, format!("{fence}\n"), "{}", told.err);
    }
}

#[test]
fn what_is_done_once_a_night_keeps_its_lock() {
    for script in scripts() {
        let server = server();
        let once = |work: &str| {
            let expression = format!("onceANight('k', {work}, {{ ttl: {LONG} }})");
            script.program(&["Once a night"], &expression, &address_of(&server))
        };
        assert_eq!(once("({ fence }) => fence > 0").output(), "true\n");
        assert_eq!(once("() => 'a second time'").output(), "null\n");
        server.cmd("DEL k");
        assert!(once("() => { throw new Error('the work fails') }").err.contains("the work fails"));
        assert_eq!(once("() => 'a second time'").output(), "null\n");
        assert_eq!(server.client().counter("releases"), 0);
    }
}

#[test]
fn several_locks_are_taken_in_one_order_and_all_given_back() {
    for script in scripts() {
        let server = server();
        let address = address_of(&server);
        let headings = ["Several locks"];
        let expression = format!(
            "withLocks(['b', 'c', 'a'], {{ ttl: {LONG} }}, (leases) => Object.entries(leases).map(([key, {{ fence }}]) => [key, fence]).flat().join(' '))"
        );
        let told = script.program(&headings, &expression, &address).output();
        let words: Vec<_> = told.split_whitespace().collect();
        assert!(
            matches!(words[..], ["a", one, "b", two, "c", three] if one < two && two < three),
            "{told}"
        );
        let mut client = server.client();
        assert_eq!((client.counter("releases"), client.counter("held")), (3, 0));
        client.grant("b", "alice", LONG);
        assert_eq!(script.program(&headings, &expression, &address).output(), "null\n");
        assert_eq!((client.counter("releases"), client.counter("held")), (4, 1));
    }
}

#[test]
fn a_health_check_holds_whatever_is_no_grant_for_down() {
    for script in scripts() {
        let headings = ["A health check"];
        let healthy = |server: &Server| {
            script.program(&headings, "isHealthy()", &address_of(server)).output()
        };
        let server = server();
        assert_eq!(healthy(&server), "true\n");
        let without = Server::builder().without_module().clients_over_tcp().start();
        assert_eq!(healthy(&without), "false\n");
        server.cmd("REPLICAOF 127.0.0.1 1");
        assert_eq!(healthy(&server), "false\n");
    }
}
