//! Checks the page on the command line: runs its sessions, and compares its tables with the output of the program.

use crate::manual::subcommands;
use crate::scene::{leasehold, server, url};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use testkit::Server;

fn page() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    fs::read_to_string(root.join("docs/cli.md")).unwrap()
}

/// Replaces each number of more than four digits by 1, because these numbers differ from run to run.
fn without_large_numbers(text: &str) -> String {
    let mut shown = String::new();
    let mut digits = String::new();
    for c in text.chars().chain(['\n']) {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        shown.push_str(if digits.len() > 4 { "1" } else { &digits });
        digits.clear();
        shown.push(c);
    }
    shown.pop();
    shown
}

/// Runs the commands of one block in a shell, with standard output and error together, as at a terminal.
fn session(server: &Server, block: &str) -> String {
    let mut shown = String::new();
    let mut code = 0;
    for line in block.lines().filter_map(|line| line.strip_prefix("$ ")) {
        shown.push_str(&format!("$ {line}\n"));
        let mut shell = Command::new("bash");
        let program = leasehold(&url(server.port()), &[]);
        let folder = Path::new(program.get_program()).parent().unwrap().to_owned();
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        // The shell starts with the exit code of the previous command.
        let script = format!(
            "exec 2>&1\nredis-cli() {{ command redis-cli -p {} \"$@\"; }}\n(exit {code})\n{line}",
            server.port()
        );
        shell.args(["-c", &script]).env("PATH", path);
        shell.env("LEASEHOLD_URL", url(server.port()));
        let output = shell.output().unwrap();
        code = output.status.code().unwrap();
        shown.push_str(&String::from_utf8_lossy(&output.stdout));
    }
    shown
}

#[test]
fn every_session_comes_out_as_written() {
    if testkit::find_cli((6, 2)).is_none() {
        return;
    }
    let page = page();
    let mut sessions = 0;
    for block in page.split("```\n").skip(1).step_by(2).filter(|block| block.starts_with("$ ")) {
        let server = server();
        let shown = session(&server, block);
        assert_eq!(without_large_numbers(&shown), without_large_numbers(block));
        sessions += 1;
    }
    assert!(sessions > 2, "this test no longer understands the page");
}

/// The options that `--help` lists, without the two that every subcommand has.
fn options(words: &[&str]) -> BTreeSet<String> {
    let mut command = leasehold("", words);
    let output = command.arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let options = help.lines().filter_map(|line| {
        let line = line.trim_start();
        let long = line.strip_prefix("-").and_then(|_| line.split("--").nth(1))?;
        let end = long.find(|c: char| c != '-' && !c.is_ascii_lowercase()).unwrap_or(long.len());
        Some(format!("--{}", &long[..end]))
    });
    options.filter(|option| option != "--help" && option != "--version").collect()
}

/// The options in the first column of the table below this heading.
fn documented(heading: &str) -> BTreeSet<String> {
    let page = page();
    let section = page.split(&format!("# {heading}\n")).nth(1).unwrap();
    let section = section.split("\n#").next().unwrap();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `--"));
    cells.map(|cell| format!("--{}", cell.split('`').next().unwrap())).collect()
}

#[test]
fn every_option_is_documented_and_the_reverse() {
    let everywhere = documented("Which server");
    assert_eq!(options(&[]), everywhere);
    let run: BTreeSet<_> = options(&["run"]).difference(&everywhere).cloned().collect();
    assert_eq!(run, documented("Options of run"));
    let mut elect = documented("One of several machines");
    elect.extend(["--ttl", "--grace", "--quiet", "--verbose"].map(str::to_owned));
    assert_eq!(
        options(&["elect"]).difference(&everywhere).cloned().collect::<BTreeSet<_>>(),
        elect
    );
    for row in page().lines().filter_map(|line| line.strip_prefix("| `leasehold ")) {
        let name = row.split([' ', '`']).next().unwrap();
        let of_it = options(&[name]).difference(&everywhere).cloned().collect::<BTreeSet<_>>();
        let last = row.trim_end_matches(" |").rsplit('|').next().unwrap();
        let said = last.split('`').filter(|word| word.starts_with("--")).map(str::to_owned);
        assert_eq!(of_it, said.collect(), "{name}");
    }
}

#[test]
fn every_exit_code_is_the_same_on_the_page_and_in_the_help() {
    let help = leasehold("", &["--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let page = page();
    let section = page.split("## Exit codes\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut rows = 0;
    for row in section.lines().filter_map(|line| line.strip_prefix("| ")) {
        let code = row.split([' ', ',']).next().unwrap();
        if code.parse::<u8>().is_ok() {
            rows += 1;
            assert!(help.contains(&format!("\n  {code} ")), "{code} is not in --help");
        }
    }
    assert!(rows > 5, "this test no longer understands the page");
}

/// All listed subcommands, and each subcommand that follows the program's name in code.
#[test]
fn the_subcommands_on_the_page_are_those_of_the_help() {
    let (page, names) = (page(), subcommands());
    let list = page.split("The subcommands are ").nth(1).unwrap().split('.').next().unwrap();
    let listed: Vec<_> = list.split('`').skip(1).step_by(2).collect();
    assert_eq!(listed, names);
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let pages = format!("{page}\n{}", fs::read_to_string(readme).unwrap());
    let mut used = BTreeSet::new();
    for text in pages.split(['`', '\n', ';']) {
        let words = text.strip_prefix("$ ").unwrap_or(text).strip_prefix("leasehold ");
        let name = words.and_then(|words| words.split(' ').find(|word| !word.contains(['-', '/'])));
        let is_name = |name: &&str| name.bytes().all(|byte| byte.is_ascii_lowercase());
        used.extend(name.filter(is_name).map(str::to_owned));
    }
    used.remove("help");
    assert_eq!(used, names.into_iter().collect(), "each has its place, and there are no others");
}
