//! The only server, and what a stock image is brought.

use super::group::{Group, PASSWORD};
use crate::{ROOT, files, text};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// The only server, ready.
fn started() -> Group {
    let mut group = Group::single();
    group.start("leasehold-0");
    group.wait_until_ready("leasehold-0");
    group
}

#[test]
fn the_only_server_comes_back_with_its_locks_and_its_password_and_only_when_it_is_not_alive() {
    let mut group = started();
    group.assert_probes_pass("leasehold-0");
    let fence = group.tell("leasehold-0", "LOCK.ACQUIRE printer alice 600000");
    assert!(fence.parse::<u64>().is_ok(), "{fence}");
    for _ in 0..2 {
        group.kill("leasehold-0");
        group.start("leasehold-0");
        group.wait_until_ready("leasehold-0");
        assert_eq!(group.tell("leasehold-0", "LOCK.CHECK printer alice"), fence);
    }
    let secret =
        fs::metadata(group.container("leasehold-0").folder().join("data/server.conf")).unwrap();
    assert_eq!(secret.permissions().mode() & 0o077, 0, "others may read {PASSWORD}");
    // What a restart cannot mend ends in no restart.
    assert_eq!(group.tell("leasehold-0", "CONFIG SET maxmemory 1"), "OK");
    let told = group.probe("leasehold-0", "readinessProbe").unwrap_err();
    assert!(told.contains("OOM"), "{told}");
    assert_eq!(group.probe("leasehold-0", "livenessProbe"), Ok(()));
}

/// A script of the ConfigMap with this password, which has nothing else.
fn started_with(password: Option<&str>, script: &str) -> (bool, String) {
    let etc = tempfile::tempdir().unwrap();
    for file in BTreeSet::from([script, "kubernetes/base/password"]) {
        let file = Path::new(ROOT).join(file);
        symlink(&file, etc.path().join(file.file_name().unwrap())).unwrap();
    }
    let program = etc.path().join(Path::new(script).file_name().unwrap());
    let mut command = Command::new(program);
    command.current_dir(etc.path()).env_remove("REDISCLI_AUTH");
    command.envs(password.map(|password| ("REDISCLI_AUTH", password)));
    let output = command.output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(told).unwrap())
}

#[test]
fn nothing_starts_with_a_password_that_no_client_could_give() {
    let said = "the password in the secret is empty, or has a control character";
    assert!(text("docs/kubernetes.md").contains(said));
    let scripts =
        ["base/password", "base/start-server", "sentinel/start-server", "sentinel/start-sentinel"];
    for script in scripts {
        for password in ["", "secret\n", "sec\nret", "sec\tret"] {
            let (success, told) = started_with(Some(password), &format!("kubernetes/{script}"));
            assert!(!success && told.starts_with(said), "{script}, {password:?}: {told}");
        }
    }
    let quoted = |password| started_with(password, "kubernetes/base/password");
    assert_eq!(quoted(Some(PASSWORD)), (true, r#"a \"b\" \\c"#.to_owned()));
    assert_eq!(quoted(None), (true, String::new()));
}

/// What the init containers of the manifests and of the values for charts run.
fn commands_that_bring() -> BTreeSet<String> {
    let files = ["stock", "values"].map(|folder| files(&format!("kubernetes/{folder}"), ".yaml"));
    let texts: String = files.iter().flatten().map(|file| text(file)).collect();
    let commands = texts.lines().filter_map(|line| line.split_once(r#"command: ["sh", "-c", ""#));
    commands.map(|(_, script)| script.trim_end_matches("\"]").to_owned()).collect()
}

#[test]
fn every_init_container_brings_what_scripts_image_brings_to_a_stock_image() {
    let brings = "cp -pR /usr/lib/leasehold/* /usr/local/bin/leasehold-* /leasehold/";
    assert!(text("scripts/image").contains(brings), "there it is seen that a server is ready then");
    assert_eq!(commands_that_bring(), BTreeSet::from([brings.to_owned()]));
}
