//! Installing: what `make install` puts where, and why the docs say to write the line into the main file.

mod debian;

use crate::{ROOT, text};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use testkit::{Server, bulk_text, field, items, lacks, module, strings};

/// What `make install` runs, or `make uninstall`, with variables as one writes them behind it.
fn make(words: &[&str]) -> String {
    let mut command = Command::new(Path::new(ROOT).join("scripts/install"));
    for variable in ["DESTDIR", "PREFIX", "MODULEDIR", "TELLER"] {
        command.env_remove(variable);
    }
    // The tests of the command line install that, too.
    command.env("PROGRAM", "");
    for word in words {
        match word.split_once('=') {
            Some((name, value)) => command.env(name, value),
            None => command.arg(word),
        };
    }
    let output = command.env("MODULE", module::path()).output().unwrap();
    let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{told}");
    told
}

#[test]
fn what_is_installed_can_be_loaded_and_what_is_uninstalled_leaves_nothing() {
    for (words, modules, docs) in [
        (&[][..], "usr/local/lib/redis/modules", "usr/local/share/doc/leasehold"),
        (&["PREFIX=/usr"], "usr/lib/redis/modules", "usr/share/doc/leasehold"),
        (&["PREFIX=/opt/x", "MODULEDIR=/srv/m"], "srv/m", "opt/x/share/doc/leasehold"),
    ] {
        let root = tempfile::tempdir().unwrap();
        let there = format!("DESTDIR={}", root.path().display());
        let words = [words, &[&there]].concat();
        make(&words);
        let file = root.path().join(modules).join("libleasehold.so");
        let server = Server::builder().without_module().start();
        let reply = server.cmd(["MODULE", "LOAD", file.to_str().unwrap()]);
        assert_eq!(reply, redis::Value::Okay);
        server.client().grant("k", "alice", 60_000);

        let docs = root.path().join(docs);
        let line = format!("loadmodule /{modules}/libleasehold.so");
        let example = fs::read_to_string(docs.join("examples/leasehold.conf")).unwrap();
        assert!(example.lines().any(|said| said == line), "{example}");
        assert!(docs.join("docs/operating.md").exists() && docs.join("LICENSE").exists());

        make(&[&words[..], &["remove"]].concat());
        let left: Vec<_> = fs::read_dir(root.path()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Without DESTDIR, beside files of others.
#[test]
fn whoever_installs_is_told_the_line_to_add_and_only_what_is_ours_is_uninstalled() {
    let prefix = tempfile::tempdir().unwrap();
    let prefix = prefix.path();
    let modules = prefix.join("lib/redis/modules");
    fs::create_dir_all(&modules).unwrap();
    fs::write(modules.join("other.so"), "").unwrap();
    let there = format!("PREFIX={}", prefix.display());
    let told = make(&[&there]);
    let line = format!("loadmodule {}", modules.join("libleasehold.so").display());
    assert!(told.lines().any(|said| said.trim() == line), "{told}");

    make(&[&there, "remove"]);
    let left = fs::read_dir(&modules).unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["other.so"]);
    assert!(!prefix.join("share/doc/leasehold").exists());
}

/// Redis Software is told the commands by the archive of the module.
#[test]
fn the_archive_for_redis_software_names_the_commands_that_the_server_has() {
    if lacks((7, 0), "flags of commands as newer servers tell them") {
        return;
    }
    let told = text("packaging/redis-software.json");
    let server = Server::start();
    let mut client = server.client();
    let modules = client.cmd("MODULE LIST");
    let name = bulk_text(field(&items(&modules)[0], "name").unwrap());
    assert!(told.contains(&format!("\n  \"module_name\": \"{name}\",\n")), "{told}");
    let commands = client.cmd("COMMAND");
    let registered: BTreeSet<_> = items(&commands)
        .iter()
        .map(items)
        .filter(|its| bulk_text(&its[0]).starts_with("lock."))
        .map(|its| {
            let name = bulk_text(&its[0]).to_uppercase();
            let [arity, first, last, step] = [1, 3, 4, 5].map(|at| its[at].clone());
            let [arity, first, last, step] = [arity, first, last, step].map(number);
            let flags = strings(&its[2]).join("\", \"");
            format!(
                "{{\"command_name\": \"{name}\", \"command_arity\": {arity}, \"first_key\": {first}, \
                 \"last_key\": {last}, \"step\": {step}, \"flags\": [\"{flags}\"]}}"
            )
        })
        .collect();
    let lines = told.lines().map(|line| line.trim().trim_end_matches(','));
    let named: BTreeSet<_> =
        lines.filter(|line| line.starts_with("{\"")).map(str::to_owned).collect();
    assert_eq!(named, registered);
}

fn number(value: redis::Value) -> i64 {
    match value {
        redis::Value::Int(number) => number,
        other => panic!("{other:?}"),
    }
}

/// As the docs warn: the server writes a line for a module that is loaded by an included file.
#[test]
fn a_server_that_wrote_its_configuration_does_not_start_if_an_included_file_loads_the_module() {
    if lacks((7, 0), "modules that CONFIG REWRITE writes down") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let included = folder.path().join("leasehold.conf");
    fs::write(&included, format!("loadmodule {}\n", module::path().display())).unwrap();
    let included = included.to_str().unwrap();
    let by_include = Server::builder().without_module().config("include", included);
    for (setup, comes_back) in [(by_include, false), (Server::builder(), true)] {
        let mut server = setup.start();
        assert_eq!(server.cmd("CONFIG REWRITE"), redis::Value::Okay);
        server.stop();
        assert_eq!(server.start_again_if_it_can(), comes_back);
    }
}
