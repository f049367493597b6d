//! Unloaded and loaded again: rights that outlive the commands.
//!
//! Left to itself a server dies of a rule about a command that is gone: at once, or at the next ACL LIST.

use super::{ALL, assert_may_run, log_in};
use redis::Value;
use testkit::{Server, UNLOAD, lacks, strings};

#[test]
fn a_category_outlives_the_module_and_covers_it_again() {
    let mut rules = vec!["+@all"];
    if !lacks((7, 2), "categories of a module's commands") {
        rules.push("+@read +@write +@fast");
    }
    if !lacks((7, 4), "categories of a module's own") {
        rules.push("+@lock");
    }
    for rule in rules {
        let server = Server::builder().aof().start();
        let mut worker = log_in(&server, &format!("~* {rule}"));
        for _ in 0..3 {
            // Always allowed, and no command of ours: the last of those keeps the module loaded.
            assert_eq!(worker.cmd("AUTH worker x"), Value::Okay);
            server.unload();
            server.load(&[]);
            assert_may_run(&server, &mut worker, "k", &ALL, rule);
            assert_may_run(&server, &mut log_in(&server, &format!("~* {rule}")), "k", &ALL, rule);
        }
    }
}

#[test]
fn a_rule_that_names_a_command_keeps_the_module_loaded() {
    let server = Server::builder().aof().start();
    let mut rules = vec!["~* +lock.acquire", "~* +@all -lock.help", "~* +lock.check|k"];
    if !lacks((7, 0), "selectors") {
        rules.push("+@all (~* +lock.release)");
    }
    for rule in rules {
        log_in(&server, rule);
        let fence = server.client().grant("k", "alice", super::LONG);
        for _ in 0..2 {
            let reply = server.cmd(UNLOAD);
            assert!(matches!(reply, Value::ServerError(_)), "{rule}: {reply:?}");
        }
        assert_eq!(strings(&server.cmd("ACL LIST")).len(), 2);
        assert_eq!(server.client().check("k", "alice"), Some(fence));

        let named = rule.split(['(', ')', ' ']).rfind(|word| word.contains("lock.")).unwrap();
        let ours = format!("cannot unload: user worker has the rule {named}");
        // Valkey from 8.1 on sees it coming by itself.
        let theirs = format!("unload blocked: An ACL user has reference to rule '{named}'");
        let log = server.log();
        assert!(log.contains(&ours) || log.contains(&theirs), "{rule}:\n{log}");

        assert_eq!(server.cmd("ACL SETUSER worker reset"), Value::Okay);
        server.unload();
        assert_eq!(strings(&server.cmd("ACL LIST")).len(), 2);
        server.load(&[]);
    }
}
