//! The health check: `alive` for what restarts a server, `ready` for what sends clients to one.

use super::container::Container;
use redis::Value;
use testkit::{
    Cluster, Server, eventually, int, is_older_than, lacks, start_pair, wait_until_it_is,
};

const QUESTIONS: [&str; 2] = ["alive", "ready"];

fn ask(question: &str, server: &Server) -> Result<(), String> {
    ask_with(question, server, &[], "")
}

fn ask_with(question: &str, server: &Server, words: &[&str], password: &str) -> Result<(), String> {
    let socket = server.socket();
    let words = [&["-s", socket.to_str().unwrap()], words].concat();
    Container::new().check(question, &words, password)
}

/// It is not to be restarted, and no client is to be sent to it.
#[track_caller]
fn assert_only_alive(server: &Server, reason: &str) {
    assert_eq!(ask("alive", server), Ok(()));
    let told = ask("ready", server).unwrap_err();
    assert!(told.contains(reason), "{told}");
}

#[test]
fn a_server_that_grants_and_takes_back_a_lock_is_ready_and_nothing_is_left() {
    let server = Server::start();
    assert_eq!(QUESTIONS.map(|question| ask(question, &server)), [Ok(()), Ok(())]);
    let mut client = server.client();
    assert_eq!(client.cmd("DBSIZE"), int(0));
    // To be alive takes no lock.
    assert_eq!(["grants", "releases"].map(|name| client.counter(name)), [1, 1]);
    // Nor is there an error, which somebody may count.
    assert_eq!(client.info_number("stats", "total_error_replies"), 0);
}

#[test]
fn what_is_no_server_with_the_module_or_hangs_is_neither_alive_nor_ready() {
    let mut server = Server::builder().without_module().start();
    assert_eq!(ask("alive", &server), Err("the server has not loaded the module".into()));
    let told = ask("ready", &server).unwrap_err();
    assert!(told.to_lowercase().contains("unknown command"), "{told}");
    server.stop();
    for question in QUESTIONS {
        let told = ask(question, &server).unwrap_err();
        assert!(told.contains("Could not connect"), "{told}");
        let told = Container::new().without_client().check(question, &[], "");
        assert_eq!(told, Err("there is neither redis-cli nor valkey-cli in PATH".into()));
    }
    server.start_again();
    server.freeze();
    for question in QUESTIONS {
        let told = ask(question, &server).unwrap_err();
        assert!(told.starts_with("the server does not answer"), "{told}");
    }
    server.thaw();
    assert_eq!(Container::new().check("", &[], ""), Err("alive or ready?".into()));
}

#[test]
fn a_server_that_cannot_grant_is_only_alive() {
    let with = |name: &str, value: &str| Server::builder().config(name, value);
    for (setup, reason) in [
        (with("maxmemory", "1"), "OOM"),
        (with("min-replicas-to-write", "1"), "NOREPLICAS"),
        (with("cluster-enabled", "yes").tcp(), "CLUSTERDOWN"),
        (Server::builder().module_args("quarantine-ms 60000"), "quarantine"),
    ] {
        assert_only_alive(&setup.start(), reason);
    }
}

#[test]
fn a_server_in_a_pause_is_only_alive_by_whichever_variable_the_password_comes() {
    let all = !lacks((7, 0), "answers in a pause of all commands");
    for what in ["WRITE", "ALL"].into_iter().filter(|&what| all || what != "ALL") {
        let server = Server::builder().password("secret").start();
        server.cmd(["CLIENT", "PAUSE", "60000", what]);
        // In a pause of all commands not even a password is looked at.
        for words in [&[][..], &["-a", "secret", "--no-auth-warning"], &["--user", "default"]] {
            assert_eq!(ask_with("alive", &server, words, "secret"), Ok(()), "{what}: {words:?}");
        }
        let told = ask_with("ready", &server, &[], "secret").unwrap_err();
        assert!(told.contains("paused"), "{what}: {told}");
        let socket = server.socket();
        // Newer clients of Valkey take the password from a variable of their own.
        for variable in ["REDISCLI_AUTH", "VALKEYCLI_AUTH"].into_iter().filter(|_| all) {
            let container = Container::new().with(variable, "secret");
            let told = container.check("alive", &["-s", socket.to_str().unwrap()], "");
            assert_eq!(told, Ok(()), "{variable}");
        }

        let mut server = Server::start();
        server.cmd(["CLIENT", "PAUSE", "60000", what]);
        assert_only_alive(&server, "paused");
        // It would not answer when it is asked to stop.
        server.kill();
    }
}

#[test]
fn a_server_that_grants_only_short_leases_is_ready_and_no_release_is_late() {
    for ttl in ["1999", "1"] {
        let server = Server::builder().module_args(&format!("max-ttl {ttl}")).start();
        for _ in 0..3 {
            assert_eq!(ask("ready", &server), Ok(()), "max-ttl {ttl}");
        }
        let mut client = server.client();
        assert_eq!(["grants", "releases_late"].map(|name| client.counter(name)), [3, 0]);
    }
}

#[test]
fn a_server_that_runs_a_long_script_or_has_no_room_for_a_connection_is_only_alive() {
    let limit = if is_older_than((7, 0)) { "lua-time-limit" } else { "busy-reply-threshold" };
    let server = Server::builder().config(limit, "10").start();
    let mut busy = server.client();
    busy.send(["EVAL", "while true do end", "0"]);
    eventually("the script is too long", || {
        let told = server.client().try_cmd("PING");
        if matches!(&told, Ok(Value::ServerError(_))) { Ok(()) } else { Err(told) }
    });
    assert_only_alive(&server, "BUSY");
    server.cmd("SCRIPT KILL");
    assert!(busy.try_receive().is_ok());

    let server = Server::builder().config("maxclients", "1").start();
    // The connection that saw the server start may not have ended yet.
    let mut only = eventually("there is room for one", || {
        let mut client = server.client();
        match client.try_cmd("PING") {
            Ok(Value::SimpleString(_)) => Ok(client),
            told => Err(told),
        }
    });
    for _ in 0..10 {
        assert_eq!(only.cmd("PING"), Value::SimpleString("PONG".into()));
        assert_eq!(ask("alive", &server), Ok(()));
        if !is_older_than((7, 0)) {
            let told = ask("ready", &server).unwrap_err();
            assert!(!told.contains("quarantine"), "{told}");
        }
    }
    drop(only);
}

#[test]
fn a_server_that_is_loading_is_only_alive() {
    if lacks((7, 0), "answers during a short load") {
        return;
    }
    let mut container = Container::new();
    container.serve(&["--enable-debug-command", "yes"]);
    container.tell(&["DEBUG", "POPULATE", "20000"]);
    container.tell(&["SAVE"]);
    container.kill();
    // Forty seconds, in which it looks up every 1024 bytes.
    let slow = ["--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024"];
    container.launch(&slow);
    eventually("the server is alive", || container.ask("alive"));
    let told = container.ask("ready").unwrap_err();
    assert!(told.starts_with("LOADING"), "{told}");
    assert_eq!(container.ask("alive"), Ok(()));
}

#[test]
fn a_replica_is_only_alive_until_it_is_promoted() {
    let stale = Server::builder().config("replica-serve-stale-data", "no");
    let (mut primary, replica) = start_pair(Server::builder(), stale);
    assert_only_alive(&replica, "READONLY");
    primary.stop();
    eventually("the replica has lost its primary", || match replica.cmd("GET k") {
        Value::ServerError(error) if error.code() == "MASTERDOWN" => Ok(()),
        told => Err(told),
    });
    assert_only_alive(&replica, "READONLY");
    replica.cmd("REPLICAOF NO ONE");
    wait_until_it_is(&replica, "master");
    assert_eq!(ask("ready", &replica), Ok(()));

    let (_primary, replica) = start_pair(Server::builder(), Server::builder().without_module());
    assert!(ask("alive", &replica).is_err());
}

#[test]
fn a_server_with_a_password_is_alive_for_everyone_and_ready_for_those_who_know_it() {
    let server = Server::builder().password("secret").start();
    assert_only_alive(&server, "NOAUTH");
    // What docker/README.md says that the user of the health check needs.
    let page = crate::text("docker/README.md");
    let rule = page.lines().find_map(|line| line.strip_prefix("ACL SETUSER health ")).unwrap();
    assert_eq!(server.client().cmd(&*format!("ACL SETUSER health {rule}")), Value::Okay);
    let password = rule.split(' ').find_map(|word| word.strip_prefix('>')).unwrap();
    let ask_as = |words: &[&str], password: &str| {
        QUESTIONS.map(|question| ask_with(question, &server, words, password).is_ok())
    };
    assert_eq!(ask_as(&[], "secret"), [true, true]);
    assert_eq!(ask_as(&[], "wrong"), [true, false]);
    assert_eq!(ask_as(&["--user", "health"], password), [true, true]);
    server.client().cmd("ACL SETUSER health -@all");
    assert_eq!(ask_as(&["--user", "health"], password), [true, false]);
}

#[test]
fn each_node_of_a_cluster_is_ready_by_a_slot_of_its_own() {
    let cluster = Cluster::start();
    // The name of the lock has the number of a process in it, so that its slot is another each time.
    for _ in 0..4 {
        for index in 0..3 {
            let told = QUESTIONS.map(|question| ask(question, cluster.node(index)));
            assert_eq!(told, [Ok(()), Ok(())]);
        }
    }
}
