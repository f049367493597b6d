//! `leasehold elect`: one of several candidates runs the command.

use crate::program::Program;
use crate::scene::{both_kinds, eventually_free, eventually_held, held, hold, server, start};
use testkit::Server;

const LEADS: &str = "echo leads $LEASEHOLD_FENCE; read line; exit 4";

fn candidate(server: &Server, name: &str) -> Program {
    candidate_for(server, name, "900ms")
}

fn candidate_for(server: &Server, name: &str, ttl: &str) -> Program {
    let words = ["--ttl", ttl, "--candidate", name, "jobs", "--", "sh", "-c", LEADS];
    start(server, &[&["elect"], &words[..]].concat())
}

#[test]
fn the_next_candidate_leads_when_the_leader_has_ended() {
    for server in both_kinds() {
        let mut first = candidate(&server, "one");
        first.prints("leads ");
        assert!(eventually_held(&server, "jobs").contains(":one/"));
        let mut second = candidate(&server, "two");
        second.says("held by one");
        first.types("end\n");
        assert_eq!(first.ends().code, 4);
        second.prints("leads ");
        assert!(eventually_held(&server, "jobs").contains(":two/"));
        second.types("end\n");
        assert_eq!(second.ends().code, 4);
        assert_eq!(held(&server, "jobs"), None);
    }
}

#[test]
fn whoever_leads_no_more_ends_the_command_and_stands_again() {
    let server = server();
    let program = candidate(&server, "one");
    let first = program.prints("leads ");
    server.cmd("DEL jobs");
    program.says("lost jobs: ");
    hold(&server, "jobs", "other");
    program.says("held by other");
    server.cmd("DEL jobs");
    let both = program.prints("\nleads ");
    assert!(both.len() > first.len());
    assert_eq!(program.ends_by("TERM").code, 128 + 15);
    eventually_free(&server, "jobs");
}

#[test]
fn a_candidate_outlives_a_server_that_comes_back_empty() {
    let mut server = server();
    let program = candidate(&server, "one");
    program.prints("leads ");
    server.kill();
    program.says("lost jobs: ");
    server.start_again();
    program.prints("\nleads ");
    assert_eq!(program.ends_by("TERM").code, 128 + 15);
}

#[test]
fn a_command_that_has_ended_by_itself_is_not_run_again_though_its_lock_was_lost() {
    let server = server();
    // With a lease this long, no renewal notices the loss before the command ends.
    let mut program = candidate_for(&server, "one", "60s");
    program.prints("leads ");
    server.cmd("SET jobs somebody PX 60000");
    program.types("end\n");
    let ended = program.ends();
    assert_eq!(ended.code, 79, "{}", ended.said);
    assert_eq!(ended.printed.matches("leads ").count(), 1);
    assert!(ended.said.contains("jobs was lost before the command ended"), "{}", ended.said);
}

#[test]
fn whoever_is_told_to_end_while_it_loses_the_lead_does_not_stand_again() {
    let server = server();
    for told_first in [true, false] {
        let command = "trap 'echo heard' TERM; echo leads; while :; do sleep 0.02; done";
        let words = ["elect", "--ttl", "900ms", "--grace", "2s", "jobs", "--", "sh", "-c", command];
        let program = start(&server, &words);
        program.prints("leads");
        if told_first {
            program.signal("TERM");
            program.prints("heard");
        }
        server.cmd("DEL jobs");
        program.says("lost jobs: ");
        if !told_first {
            program.signal("TERM");
        }
        let ended = program.ends();
        assert_eq!(ended.code, 79, "{}", ended.said);
        assert_eq!(ended.printed.matches("leads").count(), 1, "{}", ended.printed);
    }
}
