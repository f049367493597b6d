//! The nightly job.

use crate::program::{Program, locks, url};
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::{Server, Setup, eventually, short_or_long};

const BEGINS: &str = "begins the job";
const DONE: &str = "the job is done";
const ANOTHER: &str = "another host does the job tonight";

/// For so long after a grant nobody else does the job.
const A_NIGHT: Duration = Duration::from_secs(3);

/// Cron starts the job on this host.
fn strikes_three(server: &Server, host: &str) -> Program {
    let program = env!("CARGO_BIN_EXE_nightly");
    Program::start(Command::new(program).env("REDIS_URL", url(server)).env("HOST", host))
}

/// The lock is free again: nothing stays for longer than it should.
fn until_the_clocks_are_past_it(server: &Server) {
    eventually("the lock is free", || match locks(server, "nightly") {
        held if held.is_empty() => Ok(()),
        held => Err(held),
    });
}

/// How many of them do the job.
fn how_many_do_it(hosts: &mut [Program]) -> usize {
    for host in &mut *hosts {
        host.ends_well();
    }
    let does_it = |host: &&mut Program| {
        eventually("it says what it did", || match host.said() {
            said if said.iter().any(|line| line.contains(DONE)) => Ok(true),
            said if said.iter().any(|line| line.contains(ANOTHER)) => Ok(false),
            said => Err(said),
        })
    };
    hosts.iter_mut().filter(does_it).count()
}

/// The clocks of the second and the third are late by more than the job takes. The first was
/// started then. On a machine that hangs for that long the night may be over.
fn late_hosts_have_nothing_to_do(server: &Server, first: Instant) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        let mut late = ["host-2", "host-3"].map(|host| strikes_three(server, host));
        let done = how_many_do_it(&mut late);
        assert!(done == 0 || first.elapsed() >= A_NIGHT, "after {:?}", first.elapsed());
    }
}

fn nights_on(setup: Setup) {
    let server = setup.tcp().start();
    for _ in 0..short_or_long(3, 30) {
        let begun = Instant::now();
        assert_eq!(how_many_do_it(&mut [strikes_three(&server, "host-1")]), 1);
        late_hosts_have_nothing_to_do(&server, begun);
        until_the_clocks_are_past_it(&server);
    }
    all_clocks_agree(&server);

    // The host that does the job is killed in the middle.
    let begun = Instant::now();
    let first = strikes_three(&server, "host-1");
    first.says(BEGINS);
    first.kill();
    late_hosts_have_nothing_to_do(&server, begun);
    until_the_clocks_are_past_it(&server);
    all_clocks_agree(&server);
}

fn all_clocks_agree(server: &Server) {
    let begun = Instant::now();
    let mut hosts = ["host-1", "host-2", "host-3"].map(|host| strikes_three(server, host));
    let done = how_many_do_it(&mut hosts);
    assert!(done == 1 || done > 1 && begun.elapsed() >= A_NIGHT, "{done} hosts");
    until_the_clocks_are_past_it(server);
}

#[test]
fn one_of_three_hosts_does_the_job_though_their_clocks_differ_and_one_is_killed() {
    nights_on(Server::builder());
}

#[test]
fn one_of_three_hosts_does_the_job_without_the_module_too() {
    nights_on(Server::builder().without_module());
}

#[test]
fn a_host_that_reaches_no_server_says_so_and_fails() {
    let mut server = Server::builder().tcp().start();
    server.kill();
    let mut host = strikes_three(&server, "host-1");
    assert!(!host.ends().success());
    host.says("no server");
    assert!(!host.said().iter().any(|line| line.contains(BEGINS)));
}
