//! Loading, refusing to load, and refusing to be unloaded.

use redis::Value;
use testkit::{
    Server, UNLOAD, Waiter, bulk, error, field, int, is_older_than, items, lacks, module,
};

const LONG: u64 = 60_000;

/// The reply to `MODULE UNLOAD` is the server's own; the log says why.
const REFUSED: &str = "ERR Error unloading module: operation not possible.";
const WHY: &str = "<leasehold> cannot be unloaded: restart the server without its loadmodule line";

/// The warnings in a log, without process and time: `123:M 21 Nov 2026 04:00:05.123 # text`.
fn warnings(log: &str) -> Vec<&str> {
    let texts = log.lines().filter_map(|line| line.split_once(" # ")).map(|(_, text)| text);
    texts.filter(|text| !text.contains("pid=")).collect()
}

fn module_load(args: &str) -> String {
    format!("MODULE LOAD {}{args}", module::path().display())
}

/// Of the server's own weaknesses it does, where they are known: the table has a test beside it.
#[test]
fn an_ordinary_load_warns_of_nothing_in_the_module() {
    let (with, without) = (Server::start(), Server::builder().without_module().start());
    let from = with.client().counter("server_patched_from");
    let (with, without) = (with.log(), without.log());
    let (of_server, others): (Vec<_>, Vec<_>) =
        warnings(&with).into_iter().partition(|warning| warning.contains("has known weaknesses"));
    assert_eq!(others, warnings(&without));
    assert_eq!(of_server.len(), usize::from(from > 0));
    let version = format!("{}.{}.{}", from / 10_000, from / 100 % 100, from % 100);
    assert!(of_server.iter().all(|warning| warning.contains(&version)), "{of_server:?}");
    let ready = format!("<leasehold> version {} is ready", env!("CARGO_PKG_VERSION"));
    assert_eq!(with.matches(&ready).count(), 1, "{with}");
}

#[test]
fn the_server_lists_the_module_with_its_version() {
    let server = Server::start();
    let reply = server.cmd("MODULE LIST");
    let ours =
        items(&reply).iter().find(|module| field(module, "name") == Some(&bulk("leasehold")));
    let part = |part: &str| part.parse::<i64>().unwrap();
    let version = 10_000 * part(env!("CARGO_PKG_VERSION_MAJOR"))
        + 100 * part(env!("CARGO_PKG_VERSION_MINOR"))
        + part(env!("CARGO_PKG_VERSION_PATCH"));
    assert_eq!(field(ours.unwrap(), "ver"), Some(&int(version)));
    assert_eq!(server.client().counter("version"), version.cast_unsigned());
}

#[test]
fn a_server_without_a_command_that_locks_are_replicated_as_is_refused() {
    for (name, why) in [
        ("SET", "a grant is replicated as SET"),
        ("DEL", "a release is replicated as DEL"),
        ("APPEND", "a grant beside others is replicated as APPEND"),
        ("SETRANGE", "a change beside others is replicated as SETRANGE"),
        ("PEXPIREAT", "a change beside others is replicated as PEXPIREAT"),
    ] {
        for renamed in ["\"\"", "SOMETHING-ELSE"] {
            let setup = Server::builder().config("rename-command", &format!("{name} {renamed}"));
            let log = setup.refuse();
            let line = format!(
                "<leasehold> cannot load: the command {name} is renamed or disabled (rename-command), \
                 and {why}"
            );
            assert!(log.contains(&line), "no {line:?} in:\n{log}");
        }
    }
}

#[test]
fn the_module_is_not_unloaded_and_the_log_says_how_to_be_rid_of_it() {
    let mut server = Server::start();
    assert_eq!(server.cmd(UNLOAD), error(REFUSED), "nobody has used it");
    let mut client = server.client();
    let fence = client.grant("k", "alice", LONG);
    let check = "LOCK.CHECK k alice";
    assert_eq!(client.pipeline(&[UNLOAD, check]), [error(REFUSED), int(fence.cast_signed())]);
    assert_eq!(server.log().matches(WHY).count(), 2, "{}", server.log());
    let mut bob = Waiter::of(&server, "k", "bob");
    let Value::ServerError(refusal) = client.cmd(UNLOAD) else { panic!("it is gone") };
    assert!(refusal.to_string().contains("blocked clients"), "{refusal}");
    assert!(client.extend("k", "alice", LONG));
    assert!(client.release("k", "alice"));
    assert!(bob.fence() > fence);
    server.stop();
    assert_eq!(server.log().matches(WHY).count(), 2, "it is not in the way of the server's end");
}

#[test]
fn restarted_without_its_line_the_module_is_gone_and_its_locks_are_strings() {
    let mut server = Server::builder().aof().start();
    let mut client = server.client();
    let fence = client.grant("k", "alice", LONG);
    let shares = format!("LOCK.ACQUIRE s alice {LONG} SHARE 0");
    assert!(matches!(client.cmd(&*shares), Value::Int(_)));
    assert_eq!(client.cmd(UNLOAD), error(REFUSED));
    server.stop();
    let setup = Server::builder().aof().without_module();
    let mut without = setup.in_the_directory_of(&server).start();
    let mut client = without.client();
    assert!(matches!(client.cmd("LOCK.INFO k"), Value::ServerError(_)));
    assert_eq!(client.cmd("GET k"), bulk(format!("{fence}:alice")));
    assert_eq!(client.cmd("SET k older NX"), Value::Nil, "older clients are kept out");
    for key in ["k", "s"] {
        assert!(matches!(client.cmd(format!("PTTL {key}")), Value::Int(1..)), "{key}");
    }
    without.stop();
    server.start_again();
    let mut client = server.client();
    assert_eq!(client.check("k", "alice"), Some(fence));
    assert!(client.release("k", "alice"));
    assert!(client.grant("k", "bob", LONG) > fence);
}

#[test]
fn a_load_refused_at_run_time_leaves_nothing_behind_and_so_does_a_second_one() {
    let server = Server::builder().without_module().start();
    let mut client = server.client();
    for _ in 0..3 {
        let reply = client.cmd(module_load(" max-ttl 0"));
        assert!(matches!(reply, Value::ServerError(_)), "{reply:?}");
    }
    assert_eq!(client.cmd(module_load("")), Value::Okay);
    let fence = client.grant("k", "alice", 86_400_000);
    for args in ["", " max-ttl 5", ""] {
        let reply = client.cmd(module_load(args));
        assert!(matches!(reply, Value::ServerError(_)), "{reply:?}");
        assert_eq!(client.check("k", "alice"), Some(fence));
        assert!(client.extend("k", "alice", 86_400_000));
    }
}

/// The server asks the module as if it were unloaded, and Redis 8.6 ends if it objects. Redis 7.0 does not say which it is.
#[test]
fn a_load_that_the_server_takes_back_is_not_objected_to() {
    if lacks((7, 0), "MODULE LOADEX") {
        return;
    }
    let server = Server::builder().without_module().start();
    let mut client = server.client();
    let load = format!("MODULE LOADEX {} CONFIG leasehold.unheard-of 5", module::path().display());
    for _ in 0..3 {
        let replies = client.pipeline(&[&load, "LOCK.HELP"]);
        assert!(matches!(replies[0], Value::ServerError(_)), "{replies:?}");
        assert_eq!(matches!(client.cmd("LOCK.HELP"), Value::Array(_)), is_older_than((7, 2)));
    }
    if !is_older_than((7, 2)) {
        assert_eq!(client.cmd(module_load("")), Value::Okay);
    }
    client.grant("k", "alice", LONG);
}
