//! What a server refuses: for every subcommand the message names the refusal, the server, and the remedy.

use crate::doctor::healthy;
use crate::program::{Ended, Program};
use crate::scene::{hold, leasehold, server, url, with_module};
use testkit::Server;

/// Each subcommand that asks servers, and the rights that its user needs besides `+@connection` and the lock's key, as
/// in `docs/cli.md`.
const NEEDED: [(&[&str], &str); 9] = [
    (&["run", "free", "--", "true"], "+lock.acquire +lock.release +lock.extend"),
    (&["run", "--also", "b", "free", "--", "true"], "+lock.acquire +lock.release +lock.extend"),
    (&["elect", "free", "--", "true"], "+lock.acquire +lock.release +lock.extend"),
    (&["ls"], "+scan +getrange +lock.info +lock.help"),
    (&["show", "x"], "+lock.holders +lock.waiters"),
    (&["wait", "--wait", "0", "free"], "+lock.info"),
    (&["release", "x"], "+lock.holders +lock.release"),
    (
        &["release", "--owner", "alice", "--all"],
        "+lock.drop +scan +getrange +lock.check +lock.release",
    ),
    (&["doctor"], "+info +time"),
];

fn with_user(server: &Server, user: &str, words: &[&str]) -> Ended {
    let address = url(server.port()).replace("://", &format!("://{user}@"));
    let mut command = leasehold(&address, words);
    command.env("LEASEHOLD_RETRY_FOR_MS", "500");
    Program::start(command).ends()
}

fn set_user(server: &Server, rights: &str) {
    let rules = format!("ACL SETUSER worker reset on >secret ~* +@connection -@dangerous {rights}");
    server.cmd(rules.as_str());
}

/// The message names the refusal, the server and the remedy, and not the password.
fn assert_told(ended: &Ended, server: &Server, what: &str, remedy: &str) {
    assert_eq!((ended.code, ended.printed.as_str()), (77, ""), "{}", ended.said);
    let said = &ended.said;
    assert!(said.starts_with(&format!("leasehold: {} refused: ", url(server.port()))), "{said}");
    assert!(said.contains(what) && said.contains(remedy), "{said}");
    assert!(!said.contains("secret") && !said.contains("wrong"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_wrong_password_is_told_of_by_each_subcommand() {
    let server = server();
    set_user(&server, "+@all");
    for (words, _) in NEEDED {
        let ended = with_user(&server, "worker:wrong", words);
        assert_told(&ended, &server, "it knows no such user and password", "Look at user and");
    }
}

#[test]
fn a_password_that_is_missing_is_told_of_by_each_subcommand() {
    let server = with_module().password("secret").start();
    for (words, _) in NEEDED {
        let mut command = leasehold(&url(server.port()), words);
        command.env("LEASEHOLD_RETRY_FOR_MS", "500");
        let ended = Program::start(command).ends();
        assert_told(&ended, &server, "NOAUTH", "redis://:password@host:port");
    }
}

/// Each subcommand works with the documented rights, and names a right that is missing.
#[test]
fn each_subcommand_needs_the_rights_that_are_documented_and_names_one_that_is_missing() {
    let server = server();
    for (words, needed) in NEEDED {
        let run = || {
            hold(&server, "x", "alice");
            with_user(&server, "worker:secret", words)
        };
        set_user(&server, needed);
        let ended = run();
        assert!(ended.code < 2 && ended.said.is_empty(), "{words:?}: {}", ended.said);
        for missing in needed.split(' ') {
            // These rights are used only during a long command, on a server without the module, or after a command.
            if matches!(missing, "+lock.extend" | "+lock.help")
                || (missing == "+lock.release" && words[0] != "release")
            {
                continue;
            }
            let rest: Vec<_> = needed.split(' ').filter(|right| *right != missing).collect();
            set_user(&server, &rest.join(" "));
            let ended = run();
            let right = missing.trim_start_matches('+');
            assert_told(&ended, &server, "NOPERM", "docs/cli.md lists");
            assert!(ended.said.contains(right), "{words:?} without {right}: {}", ended.said);
        }
    }
}

#[test]
fn a_key_that_the_user_may_not_name_is_told_of() {
    let server = server();
    server.cmd("ACL SETUSER worker reset on >secret ~lock:* +@all");
    for words in [
        &["run", "x", "--", "true"][..],
        &["elect", "x", "--", "true"],
        &["show", "x"],
        &["wait", "x"],
        &["release", "x"],
    ] {
        assert_told(
            &with_user(&server, "worker:secret", words),
            &server,
            "NOPERM",
            "docs/cli.md lists",
        );
    }
    assert_eq!(with_user(&server, "worker:secret", &["run", "lock:x", "--", "true"]).code, 0);
}

#[test]
fn the_rights_that_are_needed_are_on_the_page() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let page = std::fs::read_to_string(root.join("docs/cli.md")).unwrap();
    let section = page.split("### Permissions\n").nth(1).unwrap().split("\n## ").next().unwrap();
    for (words, needed) in NEEDED {
        let of_it = |row: &&str| {
            row.split('|').nth(1).is_some_and(|cell| cell.contains(&format!("`{}`", words[0])))
        };
        let row = section.lines().find(of_it).unwrap();
        for right in needed.split(' ') {
            assert!(
                row.contains(&format!("`{}`", right.trim_start_matches('+'))),
                "{right}: {row}"
            );
        }
    }
}

#[test]
fn what_doctor_may_not_ask_is_a_finding_that_says_what_to_grant() {
    let server = healthy().start();
    set_user(&server, "+info +time");
    let ended = with_user(&server, "worker:secret", &["doctor"]);
    let told = &ended.printed;
    assert_eq!((ended.code, ended.said.as_str()), (1, ""), "{told}");
    assert!(told.contains("appendonly unknown"), "{told}");
    assert!(told.contains("it does not tell maxmemory, maxmemory-policy, appendonly"), "{told}");
    assert!(told.contains("ACL SETUSER user +config|get"), "{told}");
    set_user(&server, "+info +time +config|get");
    let ended = with_user(&server, "worker:secret", &["doctor"]);
    assert_eq!((ended.code, ended.said.as_str()), (0, ""), "{}", ended.printed);
}
