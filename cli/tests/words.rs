//! What the program says about its arguments, and where: results on standard output, errors on standard
//! error.

use crate::program::{Ended, Program};
use crate::scene::leasehold;
use std::fs::File;
use std::process::Stdio;

fn ended(words: &[&str]) -> Ended {
    Program::start(leasehold("", words)).ends()
}

fn printed(words: &[&str]) -> String {
    let ended = ended(words);
    assert_eq!((ended.code, ended.said.as_str()), (0, ""), "{words:?}");
    ended.printed
}

#[test]
fn without_words_the_help_is_a_mistake_and_with_them_a_result() {
    let help = printed(&["--help"]);
    let mut without_address = leasehold("", &[]);
    without_address.env_remove("LEASEHOLD_URL");
    for without in [ended(&[]), Program::start(without_address).ends()] {
        assert_eq!((without.code, without.printed.as_str()), (64, ""));
        assert_eq!(without.said, help);
    }
    assert_eq!(printed(&["help"]), help);
    assert!(help.contains("\nUsage: leasehold [OPTIONS] <COMMAND>\n"), "{help}");
    assert_eq!(printed(&["help", "run"]), printed(&["run", "--help"]));
    assert_eq!(printed(&["help", "completions"]), printed(&["completions", "--help"]));
}

#[test]
fn the_version_is_one_line() {
    let version = concat!("leasehold ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!([printed(&["--version"]), printed(&["-V"])], [version, version]);
}

#[test]
fn a_mistake_is_named_with_how_it_is_written() {
    for (words, what, usage) in [
        (&["frobnicate"][..], "'frobnicate'", "leasehold [OPTIONS] <COMMAND>"),
        (&["shwo", "x"], "a similar subcommand exists: 'show'", "leasehold [OPTIONS] <COMMAND>"),
        (&["help", "frobnicate"], "'frobnicate'", "leasehold [OPTIONS] <COMMAND>"),
        (&["--frob", "ls"], "'--frob'", "leasehold [OPTIONS] <COMMAND>"),
        (
            &["run", "--wiat", "1s", "x", "--", "true"],
            "a similar argument exists: '--wait'",
            "leasehold run",
        ),
        (&["run", "x", "true"], "'true'", "<NAME> -- <COMMAND>..."),
        (&["run", "x"], "<COMMAND>...", "<NAME> -- <COMMAND>..."),
        (&["run", "--ttl", "soon", "x", "--", "true"], "'soon'", "--help"),
        (&["completions", "tcsh"], "bash, zsh, fish", "--help"),
    ] {
        let ended = ended(words);
        assert_eq!((ended.code, ended.printed.as_str()), (64, ""), "{words:?}: {}", ended.said);
        assert!(
            ended.said.contains(what) && ended.said.contains(usage),
            "{words:?}: {}",
            ended.said
        );
    }
}

/// An unset variable in a script gives an empty argument.
#[test]
fn what_is_empty_is_a_mistake() {
    for words in [
        &["run", "", "--", "true"][..],
        &["run", "--also", "", "x", "--", "true"],
        &["run", "--owner", "", "x", "--", "true"],
        &["run", "--wait", "", "x", "--", "true"],
        &["elect", "", "--", "true"],
        &["elect", "--candidate", "", "x", "--", "true"],
        &["ls", ""],
        &["show", ""],
        &["wait", ""],
        &["release", ""],
        &["release", "--owner", "", "x"],
        &["top", "--once", ""],
        &["--cacert", "", "ls"],
        &["man", "--into", ""],
    ] {
        let ended = Program::start(leasehold("redis://127.0.0.1:1", words)).ends();
        assert_eq!((ended.code, ended.printed.as_str()), (64, ""), "{words:?}: {}", ended.said);
        assert!(ended.said.starts_with("error: "), "{words:?}: {}", ended.said);
    }
    for words in [
        &["run", "x", "--", "true"][..],
        &["elect", "x", "--", "true"],
        &["ls"],
        &["show", "x"],
        &["wait", "x"],
        &["release", "x"],
        &["top", "--once"],
        &["doctor"],
    ] {
        for ended in [ended(words), ended(&[&["--url", ""], words].concat())] {
            let said = "leasehold: --url, or LEASEHOLD_URL: it is empty: is a variable unset?\n";
            assert_eq!((ended.code, ended.said.as_str()), (64, said), "{words:?}");
        }
    }
}

#[test]
fn what_cannot_be_written_whole_is_an_error_and_a_reader_that_has_had_enough_is_none() {
    for words in [&["completions", "bash"][..], &["man", "run"], &["man"]] {
        let mut command = leasehold("", words);
        command.stdout(File::options().write(true).open("/dev/full").unwrap());
        let output = command.stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(70), "{words:?}: {said}");
        assert!(said.starts_with("leasehold: it cannot be written: "), "{said}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = leasehold("", words);
        let output = command.stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{words:?}");
    }
}
