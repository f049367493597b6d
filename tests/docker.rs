//! The images and compose files: what they say fits the rest, and their scripts and commands do what they say, run as
//! they stand, without containers.

mod container;
mod stack;

use crate::support::{Client, Cluster, Server, find_cli, int, lacks, start_pair};
use container::{Container, server_name};
use redis::Value;
use stack::Stack;
use std::fs;
use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

const IMAGES: [(&str, &str); 2] = [("redis", "Redis"), ("valkey", "Valkey")];

/// Since when redis-cli knows all that is asked of it.
const CLI_SINCE: (u32, u32) = (5, 0);

fn text(name: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn images_have_the_oldest_compiler_that_is_promised_and_servers_that_are_tested() {
    let (manifest, readme) = (text("Cargo.toml"), text("README.md"));
    let rust = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap();
    for (name, product) in IMAGES {
        let file = text(&format!("docker/{name}.Dockerfile"));
        let bases: Vec<_> = file.lines().filter_map(|line| line.strip_prefix("FROM ")).collect();
        let [builder, server] = bases[..] else { panic!("{bases:?}") };
        let builder = builder.split('@').next().unwrap().split(' ').next().unwrap();
        assert_eq!(builder, format!("rust:{}.0-slim-bookworm", rust.trim_matches('"')));
        let version = server.rsplit(':').next().unwrap();
        let is_its_row = |line: &str| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            cells.len() > 3
                && cells[1].starts_with(product)
                && cells[2].split(", ").any(|tested| tested == version)
        };
        assert!(readme.lines().any(is_its_row), "{server} is not tested, says README.md");
        assert!(file.lines().any(|line| line == format!("USER {name}")), "runs as root");
    }
}

#[test]
fn what_images_copy_is_there_and_not_ignored() {
    let ignored = text(".dockerignore");
    let kept: Vec<_> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    assert!(kept.iter().all(|name| Path::new(ROOT).join(name).exists()), "{kept:?}");
    for (name, _) in IMAGES {
        let file = text(&format!("docker/{name}.Dockerfile"));
        let copied = file.split_whitespace().filter(|word| word.starts_with("docker/"));
        let copied: Vec<_> = copied.filter(|word| !word.ends_with(".Dockerfile")).collect();
        assert_eq!(copied, ["docker/entrypoint", "docker/healthcheck"]);
        assert!(copied.iter().all(|name| kept.contains(name)), "{copied:?}");
    }
}

#[test]
fn the_entrypoint_loads_the_module_whatever_else_it_is_told() {
    if find_cli(CLI_SINCE).is_none() {
        return;
    }
    let own = "maxmemory 104857600\n";
    for words in [&[][..], &["--maxmemory", "104857600"], &["own.conf"], &["NAME", "own.conf"]] {
        let mut container = Container::new();
        let file = container.write("own.conf", own);
        let words: Vec<_> = words
            .iter()
            .map(|&word| match word {
                "own.conf" => &*file,
                "NAME" => server_name(),
                word => word,
            })
            .collect();
        // It serves when it has granted a lock.
        container.serve(&words);
        let expected = if words.is_empty() { "0" } else { "104857600" };
        let told = container.tell(&["CONFIG", "GET", "maxmemory"]);
        assert_eq!(told, format!("maxmemory\n{expected}"), "{words:?}");
    }
}

#[test]
fn the_entrypoint_passes_on_settings_of_the_module() {
    if find_cli(CLI_SINCE).is_none() || lacks((7, 0), "settings of a module") {
        return;
    }
    let mut container = Container::new();
    container.serve(&["--leasehold.max-ttl", "60000"]);
    let told = container.tell(&["CONFIG", "GET", "leasehold.max-ttl"]);
    assert_eq!(told, "leasehold.max-ttl\n60000");
}

#[test]
fn the_entrypoint_runs_other_programs_as_they_are() {
    let container = Container::new();
    assert_eq!(container.run(&["sh", "-c", "echo $#:$1", "sh", "a b"]), "1:a b");
    assert!(container.run(&["--version"]).contains(" server v="));
    if find_cli(CLI_SINCE).is_some() {
        assert!(container.run(&["cli", "--version"]).contains("-cli "));
    }
}

/// As the health check of an image calls it.
fn check(server: &Server) -> Result<(), String> {
    check_with(server, "")
}

fn check_with(server: &Server, password: &str) -> Result<(), String> {
    let socket = server.socket();
    Container::new().check(&["-s", socket.to_str().unwrap()], password)
}

#[test]
fn a_server_that_grants_and_takes_back_a_lock_is_healthy_and_nothing_is_left() {
    if find_cli(CLI_SINCE).is_none() {
        return;
    }
    let server = Server::start();
    assert_eq!(check(&server), Ok(()));
    let mut client = server.client();
    assert_eq!(client.cmd("DBSIZE"), int(0));
    let count = |client: &mut Client, name: &str| client.info_field("leasehold", name).unwrap();
    assert_eq!(count(&mut client, "leasehold_grants"), "1");
    assert_eq!(count(&mut client, "leasehold_releases"), "1");
}

#[test]
fn a_server_without_the_module_or_none_at_all_is_not_healthy() {
    if find_cli(CLI_SINCE).is_none() {
        return;
    }
    let mut server = Server::builder().without_module().start();
    let told = check(&server).unwrap_err();
    assert!(told.to_lowercase().contains("unknown command"), "{told}");
    server.stop();
    assert!(check(&server).is_err());
    server.start_again();
}

#[test]
fn a_server_that_has_no_memory_for_a_lock_is_not_healthy() {
    if find_cli(CLI_SINCE).is_none() {
        return;
    }
    let server = Server::builder().config("maxmemory", "1").start();
    let told = check(&server).unwrap_err();
    assert!(told.starts_with("OOM"), "{told}");
}

#[test]
fn a_server_with_a_password_is_healthy_for_those_who_know_it() {
    if find_cli(CLI_SINCE).is_none() {
        return;
    }
    let server = Server::builder().password("secret").start();
    let told = check(&server).unwrap_err();
    assert!(told.starts_with("NOAUTH"), "{told}");
    assert_eq!(check_with(&server, "secret"), Ok(()));
}

#[test]
fn a_server_in_quarantine_is_healthy_and_one_that_grants_nothing_for_no_reason_is_not() {
    if find_cli(CLI_SINCE).is_none() {
        return;
    }
    let server = Server::builder().module_args("quarantine-ms 60000").start();
    assert_eq!(server.cmd("LOCK.ACQUIRE k alice 1000"), Value::Nil);
    assert_eq!(check(&server), Ok(()));
}

#[test]
fn a_replica_is_healthy_if_it_has_the_module() {
    if find_cli(CLI_SINCE).is_none() {
        return;
    }
    let (_primary, replica) = start_pair(Server::builder(), Server::builder());
    let reply = replica.cmd("LOCK.ACQUIRE k alice 1000");
    assert!(matches!(&reply, Value::ServerError(error) if error.code() == "READONLY"), "{reply:?}");
    assert_eq!(check(&replica), Ok(()));
    let (_primary, replica) = start_pair(Server::builder(), Server::builder().without_module());
    assert!(check(&replica).is_err());
}

#[test]
fn each_node_of_a_cluster_is_healthy_whose_slot_it_may_be() {
    if find_cli(CLI_SINCE).is_none() {
        return;
    }
    let cluster = Cluster::start();
    // The name of the lock has the number of a process in it, so that its slot is another each time.
    for _ in 0..4 {
        for index in 0..3 {
            assert_eq!(check(cluster.node(index)), Ok(()));
        }
    }
    let alone = Server::builder().config("cluster-enabled", "yes").tcp().start();
    assert_eq!(check(&alone), Ok(()));
}

#[test]
fn every_compose_file_names_images_and_files_that_are_there() {
    for name in ["compose.yaml", "compose.sentinel.yaml", "compose.cluster.yaml"] {
        Stack::read(name).assert_whole();
    }
}

#[test]
fn the_steps_of_the_page_kill_a_primary_and_its_lock_survives() {
    if find_cli(CLI_SINCE).is_none() {
        return;
    }
    let mut stack = Stack::start("compose.sentinel.yaml");
    let acquire = "exec primary leasehold-entrypoint cli LOCK.ACQUIRE printer alice 600000";
    let fence = stack.eventually(acquire, is_number);
    stack.eventually("exec primary leasehold-entrypoint cli WAIT 2 1000", |heard| heard == "2");
    // A sentinel that has not heard of replicas and of the others cannot choose.
    for sentinel in ["sentinel-1", "sentinel-2", "sentinel-3"] {
        let ask =
            format!("exec {sentinel} leasehold-entrypoint cli -p 26379 SENTINEL MASTER locks");
        stack.eventually(&ask, |told| {
            told.contains("num-slaves\n2\n") && told.contains("num-other-sentinels\n2\n")
        });
    }
    stack.step("kill primary");
    let ask =
        "exec sentinel-1 leasehold-entrypoint cli -p 26379 SENTINEL GET-MASTER-ADDR-BY-NAME locks";
    let chosen = stack.eventually(ask, |address| {
        address.starts_with("172.28.7.1") && !address.starts_with("172.28.7.11\n")
    });
    let address = chosen.lines().next().unwrap();
    // The page has one of the two.
    stack.call("172.28.7.12", address);
    let there = "exec sentinel-1 leasehold-entrypoint cli -h 172.28.7.12";
    stack.eventually(&format!("{there} LOCK.CHECK printer alice"), |held| held == fence);
    assert_eq!(stack.step(&format!("{there} LOCK.ACQUIRE printer bob 600000")), "");
    assert_eq!(stack.step(&format!("{there} LOCK.RELEASE printer alice")), "1");
    let next = stack.step(&format!("{there} LOCK.ACQUIRE printer bob 600000"));
    assert!(number(&next) > number(&fence), "{next} after {fence}");
    stack.step("start primary");
    let role = "exec primary leasehold-entrypoint cli ROLE";
    stack.eventually(role, |role| role.starts_with("slave\n"));
}

#[test]
fn the_steps_of_the_page_kill_a_node_and_its_lock_survives() {
    if find_cli(CLI_SINCE).is_none() {
        return;
    }
    let mut stack = Stack::start("compose.cluster.yaml");
    let state = "exec node-1 leasehold-entrypoint cli CLUSTER INFO";
    stack.eventually(state, |info| {
        info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:6")
    });
    // Other nodes may need a moment more.
    let acquire = "exec node-1 leasehold-entrypoint cli -c LOCK.ACQUIRE printer alice 600000";
    let fence = stack.eventually(acquire, is_number);
    let slot = stack.step("exec node-1 leasehold-entrypoint cli CLUSTER KEYSLOT printer");
    assert!(
        (10_923..=16_383).contains(&number(&slot)),
        "the page kills node-3, but the slot is {slot}"
    );
    // Whom the page kills has to have told its replica.
    let heard = "exec node-3 leasehold-entrypoint cli WAIT 1 1000";
    stack.eventually(heard, |heard| heard == "1");
    stack.step("kill node-3");
    let check = "exec node-1 leasehold-entrypoint cli -c LOCK.CHECK printer alice";
    stack.eventually(check, |held| held == fence);
    // Until all nodes agree, some say once more that the cluster is down.
    let release = "exec node-1 leasehold-entrypoint cli -c LOCK.RELEASE printer alice";
    stack.eventually(release, |released| released == "1");
    let acquire = "exec node-1 leasehold-entrypoint cli -c LOCK.ACQUIRE printer bob 600000";
    let next = stack.eventually(acquire, is_number);
    assert!(number(&next) > number(&fence), "{next} after {fence}");
}

fn is_number(text: &str) -> bool {
    text.parse::<u64>().is_ok()
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("no number: {text}"))
}
