//! The manual: a page for each subcommand, which `man` shows without a warning and which agrees with the help.

use crate::program::Program;
use crate::scene::leasehold;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

fn printed(words: &[&str]) -> String {
    let ended = Program::start(leasehold("", words)).ends();
    assert_eq!((ended.code, ended.said.as_str()), (0, ""), "{words:?}");
    ended.printed
}

/// The subcommands that the help lists, except `help`.
pub(crate) fn subcommands() -> Vec<String> {
    let help = printed(&["--help"]);
    let section = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let lines = section.lines().filter_map(|line| line.strip_prefix("  "));
    let names = lines.filter_map(|line| line.split(' ').next()).filter(|name| !name.is_empty());
    let names: Vec<_> = names.filter(|name| *name != "help").map(str::to_owned).collect();
    assert!(names.len() > 6, "{names:?}");
    names
}

/// What a reader sees, in one line with single spaces.
fn shown(file: &Path, locale: &str) -> String {
    let mut man = Command::new("man");
    // Words are not hyphenated, but lines may end anywhere.
    man.args(["--local-file", "--warnings=w", "--no-hyphenation", "--no-justification"]).arg(file);
    man.env("LC_ALL", locale).env("MANWIDTH", "100").stdin(Stdio::null());
    let output = man.output().unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaints.is_empty(), "{}: {complaints}", file.display());
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_subcommand_has_a_page_that_man_shows_without_a_complaint() {
    if Command::new("man").arg("--version").output().is_err() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("share/man1");
    assert_eq!(printed(&["man", "--into", into.to_str().unwrap()]), "");
    let mut written = fs::read_dir(&into).unwrap().count();
    for name in subcommands().iter().map(String::as_str).chain([""]) {
        let title =
            if name.is_empty() { "leasehold".to_owned() } else { format!("leasehold-{name}") };
        let file = into.join(format!("{title}.1"));
        written -= 1;
        let words: Vec<_> = ["man", name].into_iter().filter(|word| !word.is_empty()).collect();
        assert_eq!(fs::read_to_string(&file).unwrap(), printed(&words));
        let text = shown(&file, "C.UTF-8");
        shown(&file, "C");
        let begin = format!(
            "{}(1) Leasehold {}(1) NAME {title} - ",
            title.to_uppercase(),
            title.to_uppercase()
        );
        assert!(text.starts_with(&begin), "{text}");
        for section in [
            "SYNOPSIS leasehold",
            "DESCRIPTION",
            "OPTIONS",
            "EXIT STATUS",
            "EXAMPLES leasehold",
            "SEE ALSO leasehold",
        ] {
            assert!(text.contains(&format!(" {section}")), "{title}: no {section}: {text}");
        }
        let help = printed(&[&words[1..], &["--help"]].concat());
        let longs = help.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 2);
        let longs: Vec<_> =
            longs.map(|word| word.trim_end_matches([',', '.', '\'', ')', ':'])).collect();
        assert!(longs.contains(&"--url"), "{help}");
        for long in longs {
            assert!(text.contains(long), "{title}: no {long}");
        }
    }
    assert_eq!(written, 0, "there is a page of nothing in {}", into.display());
}

#[test]
fn every_variable_of_the_client_is_in_the_manual() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let settings = fs::read_to_string(root.join("clients/rust/src/settings.rs")).unwrap();
    let page = printed(&["man"]);
    let rows = settings.lines().filter_map(|line| line.strip_prefix("/// | `"));
    let names = rows.filter_map(|row| row.split("`LEASEHOLD_").nth(1)?.split('`').next());
    let names: Vec<_> = names.collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert!(page.contains(&format!("LEASEHOLD_{name}\\fR")), "{name}");
    }
}

#[test]
fn what_has_no_page_is_refused_with_the_names_of_those_that_have_one() {
    let ended = Program::start(leasehold("", &["man", "help\x1b"])).ends();
    assert_eq!((ended.code, ended.printed.as_str()), (64, ""));
    assert!(
        ended.said.starts_with("leasehold: there is no subcommand help\\u{1b}: "),
        "{}",
        ended.said
    );
    for name in subcommands() {
        assert!(ended.said.contains(&format!(" {name}")), "{}", ended.said);
    }
    let ended = Program::start(leasehold("", &["man", "--into", "/dev/null/x"])).ends();
    assert_eq!(ended.code, 70);
    assert!(ended.said.starts_with("leasehold: /dev/null/x cannot be written: "), "{}", ended.said);
}
