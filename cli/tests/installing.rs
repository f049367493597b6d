//! What `make install` does with the command line.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");

fn install(folder: &Path, words: &[&str], variables: &[(&str, &str)]) -> (bool, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut script = Command::new(root.join("scripts/install"));
    for variable in ["PREFIX", "MODULEDIR", "PROGRAM", "TELLER"] {
        script.env_remove(variable);
    }
    // Any file does as the module: the module's tests check its installation.
    script.env("MODULE", root.join("LICENSE")).env("DESTDIR", folder);
    let output = script.args(words).envs(variables.iter().copied()).output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(told).unwrap())
}

fn printed(program: &Path, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_program_is_installed_with_its_manual_and_completions_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [("PROGRAM", PROGRAM), ("PREFIX", "/usr")];
    let (success, told) = install(folder.path(), &[], &variables);
    assert!(success, "{told}");
    let usr = folder.path().join("usr");
    let program = usr.join("bin/leasehold");
    assert_eq!(printed(&program, &["--version"]), printed(Path::new(PROGRAM), &["--version"]));
    for (file, words) in [
        ("man/man1/leasehold.1", &["man"][..]),
        ("man/man1/leasehold-run.1", &["man", "run"]),
        ("bash-completion/completions/leasehold", &["completions", "bash"]),
        ("zsh/site-functions/_leasehold", &["completions", "zsh"]),
        ("fish/vendor_completions.d/leasehold.fish", &["completions", "fish"]),
    ] {
        let there = fs::read_to_string(usr.join("share").join(file)).unwrap();
        assert_eq!(there, printed(&program, words), "{file}");
    }
    let (success, told) = install(folder.path(), &["remove"], &variables);
    assert!(success, "{told}");
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_program_for_another_machine_is_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let foreign = folder.path().join("foreign");
    fs::write(&foreign, "nothing that this machine can run").unwrap();
    let there = folder.path().join("there");
    let foreign = foreign.to_str().unwrap();
    let variables = [("PROGRAM", foreign), ("TELLER", PROGRAM), ("PREFIX", "/usr")];
    let (success, told) = install(&there, &[], &variables);
    assert!(success, "{told}");
    let installed = fs::read_to_string(there.join("usr/bin/leasehold")).unwrap();
    assert_eq!(installed, "nothing that this machine can run");
    assert!(there.join("usr/share/man/man1/leasehold-ls.1").exists());
}

#[test]
fn a_program_that_was_asked_for_and_is_not_there_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (success, told) = install(folder.path(), &[], &[("PROGRAM", "/nowhere/leasehold")]);
    assert!(!success && told.contains("there is no /nowhere/leasehold: build it first"), "{told}");
    let (success, told) = install(folder.path(), &[], &[("PROGRAM", "")]);
    assert!(success, "{told}");
    assert!(!folder.path().join("usr/local/bin").exists());
}
