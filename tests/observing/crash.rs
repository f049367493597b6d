//! What the server's report of a crash has of the module's.

use testkit::{Crash, Server};

/// A field of `INFO leasehold`.
const FIELD: &str = "leasehold_grants:";

#[test]
fn the_report_of_a_crash_has_the_figures_of_the_module() {
    let server = Server::start();
    server.client().grant("k", "alice", 60_000);
    let log = server.crash(Crash::OfMainThread);
    assert!(log.contains(&format!("{FIELD}1")), "{log}");
}

/// The main thread goes on meanwhile, and with it the module.
#[test]
fn a_crash_of_another_thread_has_nothing_of_what_the_main_thread_uses() {
    let log = Server::start().crash(Crash::OfAnother);
    assert!(log.contains("crashed by signal: 11"), "{log}");
    assert!(log.contains("# Memory"), "no report at all: {log}");
    assert!(!log.contains(FIELD), "{log}");
}
