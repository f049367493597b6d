//! `LOCK.HELP`: what a person at the prompt gets.

use redis::Value;
use testkit::errors::wrong_arity;
use testkit::{Server, error, strings};

#[test]
fn help_has_a_line_for_every_command() {
    let server = Server::start();
    let reply = server.cmd("LOCK.HELP");
    let Value::Array(lines) = &reply else { panic!("{reply:?}") };
    for line in lines {
        assert!(matches!(line, Value::SimpleString(_)), "{line:?} is no simple string");
    }
    let lines = strings(&reply);
    for usage in [
        "LOCK.ACQUIRE key owner ttl [SHARE holders] \
         [BLOCK milliseconds | TICKET milliseconds [NOTIFY channel]] [EPHEMERAL grace] \
         [ALSO numkeys key [key ...]]",
        "LOCK.RELEASE key owner [fence] [ALSO numkeys key [key ...]]",
        "LOCK.EXTEND key owner ttl [fence] [ALSO numkeys key [key ...]]",
        "LOCK.CHECK key owner [fence]",
        "LOCK.GUARD key owner fence command [arg ...]",
        "LOCK.INFO key",
        "LOCK.HOLDERS key [COUNT count]",
        "LOCK.WAITERS key [COUNT count]",
        "LOCK.HELP",
    ] {
        assert!(lines.iter().any(|line| line == usage), "no {usage:?} in {lines:#?}");
    }
}

#[test]
fn help_takes_no_argument() {
    let server = Server::start();
    assert_eq!(server.cmd("LOCK.HELP me"), error(&wrong_arity("LOCK.HELP")));
}
