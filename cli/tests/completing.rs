//! The completions, loaded by their shells. A shell that is not installed is skipped.

use crate::scene::leasehold;
use std::fs;
use std::path::Path;
use std::process::Command;
use testkit::Terminal;

const TAB: &str = "\t";
const CONTROL_U: &str = "\x15";

/// What is typed, and its completion.
const COMPLETED: [(&str, &str); 4] = [
    ("leasehold comp", "leasehold completions "),
    ("leasehold run --at", "leasehold run --at-least"),
    ("leasehold --cac", "leasehold --cacert"),
    ("leasehold help doc", "leasehold help doctor"),
];

fn completions(shell: &str) -> String {
    let output = leasehold("", &["completions", shell]).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// The shell with these arguments and the program in its PATH.
fn shell(name: &str, words: &[&str]) -> Command {
    let mut shell = Command::new(name);
    let folder = Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    shell.args(words).env("PATH", path).env("TERM", "dumb").env("PS1", "ready> ");
    shell
}

fn is_there(name: &str) -> bool {
    Command::new(name).args(["-c", "exit"]).status().is_ok_and(|status| status.success())
}

/// Presses Tab after each text and checks the completion.
fn complete(terminal: &mut Terminal, completed: &[(&str, &str)]) {
    for (typed, becomes) in completed {
        terminal.types(typed);
        terminal.shows(typed);
        terminal.types(TAB);
        terminal.shows(becomes.strip_prefix(typed).unwrap());
        terminal.types(CONTROL_U);
    }
}

#[test]
fn bash_completes_subcommands_options_and_the_words_of_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("leasehold");
    fs::write(&script, completions("bash")).unwrap();
    let mut terminal = Terminal::run(shell("bash", &["--norc", "--noprofile", "-i"]));
    terminal.shows("ready> ");
    terminal.types(&format!(". {}\n", script.display()));
    terminal.shows("\nready> ");
    complete(&mut terminal, &COMPLETED);
    // Words after `--` are completed by bash-completion, where it is installed.
    let library = Path::new("/usr/share/bash-completion/bash_completion");
    if library.exists() {
        terminal.types(&format!(". {}\n", library.display()));
        terminal.shows("ready> ");
        let behind = "leasehold run --wait 0 x -- leasehold doc";
        complete(&mut terminal, &[(behind, &format!("{behind}tor "))]);
    }
}

#[test]
fn zsh_completes_subcommands_and_options() {
    if !is_there("zsh") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("_leasehold"), completions("zsh")).unwrap();
    let mut terminal = Terminal::run(shell("zsh", &["-f", "-i"]));
    terminal.shows("ready> ");
    let path = folder.path().display();
    terminal.types(&format!(
        "fpath=({path} $fpath); autoload -U compinit; compinit -D -u; echo be''gun\n"
    ));
    terminal.shows("begun");
    terminal.shows("ready> ");
    complete(&mut terminal, &COMPLETED);
}

#[test]
fn fish_completes_subcommands_options_and_the_words_of_the_command() {
    if !is_there("fish") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("leasehold.fish");
    fs::write(&script, completions("fish")).unwrap();
    let offered = |line: &str| {
        let asked = format!("source {}; complete -C '{line}'", script.display());
        let output = shell("fish", &["--no-config", "-c", &asked]).output().unwrap();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .filter_map(|line| line.split('\t').next())
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    // clap's completions for fish offer nothing after `help`.
    for (typed, becomes) in COMPLETED.into_iter().filter(|(typed, _)| !typed.contains(" help ")) {
        let last = becomes.trim_end().rsplit(' ').next().unwrap();
        assert_eq!(offered(typed), [last], "{typed}");
    }
    assert_eq!(offered("leasehold run --wait 0 x -- leasehold doc"), ["doctor"]);
}
