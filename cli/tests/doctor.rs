//! `leasehold doctor`: finds what endangers locks, and nothing else.

use crate::program::Program;
use crate::scene::{leasehold, server, start, url, with_module};
use testkit::replica::{start_pair, wait_until_in_sync};
use testkit::{Clock, Server, eventually, free_port, is_older_than, lacks};

fn doctor(server: &Server) -> (String, i32) {
    let ended = start(server, &["doctor"]).ends();
    assert_eq!(ended.said, "");
    (ended.printed, ended.code)
}

/// A server without findings.
pub(crate) fn healthy() -> testkit::Setup {
    with_module().aof().config("appendfsync", "everysec").config("maxmemory-policy", "noeviction")
}

#[test]
fn of_a_server_that_is_as_it_should_be_nothing_is_said() {
    let server = healthy().start();
    let (told, code) = doctor(&server);
    assert!(told.ends_with("\nNothing was found that endangers locks.\n"), "{told}");
    assert!(told.contains(&format!("{}: ", url(server.port()))), "{told}");
    assert!(told.contains(", leasehold 0.3.0, primary\n"), "{told}");
    assert_eq!(code, 0);
    let json = start(&server, &["doctor", "--json"]).ends();
    assert!(
        json.printed.contains("\"module\":\"0.3.0\"")
            && json.printed.ends_with("\"findings\":[]}\n")
    );
}

#[test]
fn each_danger_is_found_by_itself() {
    let dangers = [
        ("maxmemory-policy allkeys-lru", "it evicts keys"),
        ("appendonly no", "it keeps no append-only file"),
        ("appendfsync no", "it leaves it to the system"),
        ("leasehold.max-waiters 0", "0 wait, and at most 0 may"),
        ("leasehold.max-tickets 0", "0 wait by tickets, and at most 0 may"),
    ];
    for (setting, what) in dangers {
        if setting.starts_with("leasehold") && is_older_than((7, 0)) {
            continue;
        }
        let server = healthy().config("maxmemory", "1gb").start();
        server.cmd(format!("CONFIG SET {setting}"));
        let (told, code) = doctor(&server);
        assert!(told.contains(&format!("! {}: {what}", url(server.port()))), "{setting}: {told}");
        assert_eq!((told.matches("\n! ").count(), code), (1, 1), "{setting}: {told}");
    }
}

#[test]
fn a_quarantine_does_instead_of_a_file() {
    let server = server();
    let (told, code) = doctor(&server);
    assert_eq!(code, 1, "{told}");
    let hides = "it keeps no append-only file, and does not tell its quarantine-ms";
    assert_eq!(told.contains(hides), is_older_than((7, 0)), "{told}");
    if lacks((7, 0), "CONFIG SET of a module's setting") {
        return;
    }
    server.cmd("CONFIG SET leasehold.quarantine-ms 60000");
    let (told, code) = doctor(&server);
    assert_eq!(code, 0, "{told}");
}

#[test]
fn replicas_are_examined_too_and_clocks_compared() {
    let mut clock = Clock::new();
    clock.step_back(std::time::Duration::from_secs(60));
    let follower = healthy().clock(&clock).config("appendonly", "yes");
    let (primary, replica) = start_pair(healthy(), follower);
    let (told, code) = doctor(&primary);
    assert!(told.contains("it goes on granting when it is cut off"), "{told}");
    let behind = format!("! redis://127.0.0.1:{}: its clock is ", replica.port());
    assert!(told.contains(&behind) && told.contains("fences may go back"), "{told}");
    assert!(told.contains("once it has taken over, it goes on granting"), "{told}");
    assert_eq!((told.matches("\n! ").count(), code), (3, 1), "{told}");
    assert!(told.contains(", replica\n"), "{told}");
}

/// All servers are examined, whichever of them the address names.
#[test]
fn of_a_replica_its_primary_and_the_others_are_examined() {
    let (mut primary, replica) = start_pair(healthy(), healthy());
    let second = healthy().replica_of(&replica).start();
    wait_until_in_sync(&replica, &second);
    primary.cmd("CONFIG SET appendonly no");
    for asked in [&primary, &replica, &second] {
        let (told, code) = doctor(asked);
        let danger = format!("! {}: it keeps no append-only file", url(primary.port()));
        assert!(told.contains(&danger), "{told}");
        for (server, role) in [(&primary, "primary"), (&replica, "replica"), (&second, "replica")] {
            let line = format!("{}: ", url(server.port()));
            let lines: Vec<_> = told.lines().filter(|seen| seen.starts_with(&line)).collect();
            assert!(lines.len() == 1 && lines[0].ends_with(&format!(", {role}")), "{told}");
        }
        assert_eq!(code, 1);
    }
    primary.kill();
    let cut_off = format!("! {}: its link to the primary is down", url(replica.port()));
    let told = eventually("the replica has noticed", || {
        let (told, code) = doctor(&second);
        assert_eq!(code, 1, "{told}");
        if told.contains(&cut_off) { Ok(told) } else { Err(told) }
    });
    let gone = format!("! 127.0.0.1:{}: nothing is known of this primary: ", primary.port());
    assert!(told.contains(&gone), "{told}");
}

#[test]
fn a_replica_that_grants_locks_by_itself_is_told_of() {
    let setup = || healthy().config("min-replicas-to-write", "1");
    let (primary, replica) = start_pair(setup(), setup());
    assert_eq!(doctor(&primary).1, 0);
    replica.cmd("CONFIG SET replica-read-only no");
    let (told, code) = doctor(&primary);
    assert!(told.contains(&format!("! {}: it takes writes", url(replica.port()))), "{told}");
    assert_eq!((told.matches("\n! ").count(), code), (1, 1), "{told}");
    replica.cmd("CONFIG SET replica-read-only yes");
    // A lag of 0 disables min-replicas-to-write.
    primary.cmd("CONFIG SET min-replicas-max-lag 0");
    let (told, _) = doctor(&replica);
    assert!(told.contains("it goes on granting when it is cut off"), "{told}");
}

#[test]
fn a_server_without_the_module_is_no_danger_by_itself_and_is_examined_like_others() {
    let server = healthy().without_module().start();
    let (told, code) = doctor(&server);
    assert!(told.contains("no module, primary\n") && told.contains("waiters      poll"), "{told}");
    assert_eq!(code, 0, "{told}");
    server.cmd("CONFIG SET appendonly no");
    let (told, code) = doctor(&server);
    assert!(told.contains("it keeps no append-only file: after a restart"), "{told}");
    assert_eq!(code, 1, "{told}");
}

#[test]
fn a_server_that_does_not_answer_is_named() {
    let address = url(free_port());
    let ended = Program::start(leasehold(&address, &["doctor"])).ends();
    assert_eq!((ended.code, ended.printed.as_str()), (69, ""));
    assert!(ended.said.contains(&address), "{}", ended.said);
}
