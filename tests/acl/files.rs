//! Users that the configuration file or the ACL file brings: read before the module is loaded, or after.

use super::{ALL, HELP, all_commands, assert_may_run, authenticated};
use redis::Value;
use std::io::Write;
use tempfile::NamedTempFile;
use testkit::{Server, Setup, lacks, module};

fn assert_has_its_rights(setup: Setup) {
    let server = setup.aof().start();
    let mut worker = authenticated(&server);
    assert_may_run(&server, &mut worker, "mine", &ALL, "a file");
    assert_may_run(&server, &mut worker, "theirs", &HELP, "a file");
}

#[test]
fn a_user_of_the_configuration_file_has_its_rights() {
    let rules = format!("worker on nopass ~mine* {}", all_commands());
    assert_has_its_rights(Server::builder().config("user", &rules));
}

#[test]
fn a_user_of_the_acl_file_has_its_rights() {
    let mut file = NamedTempFile::new().unwrap();
    writeln!(file, "user worker on nopass ~mine* {}", all_commands()).unwrap();
    assert_has_its_rights(Server::builder().config("aclfile", file.path().to_str().unwrap()));
}

#[test]
fn rights_granted_before_the_module_is_loaded_cover_its_commands() {
    let mut rules = vec!["+@all"];
    if !lacks((7, 2), "categories of a module's commands") {
        rules.push("+@read +@write +@fast");
    }
    for rule in rules {
        let server = Server::builder().without_module().aof().start();
        let mut worker = super::log_in(&server, &format!("~mine* {rule}"));
        let load = format!("MODULE LOAD {}", module::path().display());
        assert_eq!(server.cmd(load), Value::Okay);
        assert_may_run(&server, &mut worker, "mine", &ALL, rule);
        assert_may_run(&server, &mut worker, "theirs", &HELP, rule);
    }
}
