//! Patterns of keys: `~`, and from 7.0 on `%R~` and `%W~`, and selectors.

use super::{ALL, HELP, NONE, READS_AND_HELP, assert_may_run, log_in};
use redis::Value;
use testkit::{Server, lacks};

/// The rights to keys, and which commands they allow on the lock `mine` and on the lock `theirs`.
type Row = (&'static str, &'static [&'static str], &'static [&'static str]);

const PATTERNS: [Row; 5] = [
    ("~*", &ALL, &ALL),
    ("~mine*", &ALL, &HELP),
    ("~theirs*", &HELP, &ALL),
    ("~mine* ~theirs*", &ALL, &ALL),
    ("", &HELP, &HELP),
];

/// Who changes a lock learns something of it as well, so the right to write is not enough for anything.
const RIGHTS: [Row; 8] = [
    ("%RW~mine*", &ALL, &HELP),
    ("%R~mine* %W~mine*", &ALL, &HELP),
    ("%R~mine*", &READS_AND_HELP, &HELP),
    ("%W~mine*", &HELP, &HELP),
    ("%W~*", &HELP, &HELP),
    ("~mine* %R~*", &ALL, &READS_AND_HELP),
    ("%R~mine* %W~theirs*", &READS_AND_HELP, &HELP),
    // Each pattern has to give both rights by itself, unless it is the same pattern.
    ("%R~* %W~theirs*", &READS_AND_HELP, &READS_AND_HELP),
];

#[test]
fn a_user_runs_on_a_lock_what_its_rights_to_the_key_allow() {
    let server = Server::builder().aof().start();
    check(&server, &PATTERNS);
    if !lacks((7, 0), "rights to read and to write in the ACL") {
        check(&server, &RIGHTS);
    }
}

fn check(server: &Server, rows: &[Row]) {
    for (keys, mine, theirs) in rows {
        let mut worker = log_in(server, format!("+@all {keys}").trim_end());
        assert_may_run(server, &mut worker, "mine", mine, keys);
        assert_may_run(server, &mut worker, "theirs", theirs, keys);
    }
}

#[test]
fn the_server_foretells_what_a_user_may_run() {
    if lacks((7, 0), "ACL DRYRUN") {
        return;
    }
    let server = Server::start();
    for (keys, mine, theirs) in PATTERNS.iter().chain(&RIGHTS) {
        log_in(&server, format!("+@all {keys}").trim_end());
        for (key, allowed) in [("mine", mine), ("theirs", theirs)] {
            for name in ALL {
                let request = super::request(name, key);
                let reply = server.cmd(format!("ACL DRYRUN worker {request}"));
                let may = reply == Value::Okay;
                assert_eq!(may, allowed.contains(&name), "{request} with {keys:?}: {reply:?}");
            }
        }
    }
}

#[test]
fn each_selector_of_a_user_stands_for_itself() {
    if lacks((7, 0), "selectors") {
        return;
    }
    let server = Server::builder().aof().start();
    for (selectors, mine, theirs) in [
        (
            "(~mine* +@all) (%R~* +lock.check +lock.info)",
            &ALL[..],
            &["LOCK.CHECK", "LOCK.INFO", "LOCK.HELP"][..],
        ),
        ("~mine* +@all -@all (~theirs* +@all)", &HELP, &ALL),
        // Both rights to one key, but each for itself is not enough.
        ("(%R~mine* +@all) (%W~mine* +@all)", &READS_AND_HELP, &HELP),
        ("~mine* (+@all)", &HELP, &HELP),
        ("~* (~mine* +lock.check)", &["LOCK.CHECK"], &NONE),
    ] {
        let mut worker = log_in(&server, selectors);
        assert_may_run(&server, &mut worker, "mine", mine, selectors);
        assert_may_run(&server, &mut worker, "theirs", theirs, selectors);
    }
}
