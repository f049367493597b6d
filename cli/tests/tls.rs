//! Encrypted connections, and the messages about those that fail.

use crate::dispositions::begin_as_usual;
use crate::program::{Ended, Program};
use crate::scene::leasehold;
use std::fs;
use std::path::Path;
use testkit::{Server, lacks_tls};

/// A server that shows its certificate, and requires one from its clients.
fn encrypted() -> Option<Server> {
    begin_as_usual();
    (!lacks_tls()).then(|| Server::builder().clients_over_tls().start())
}

fn file(server: &Server, name: &str) -> String {
    server.dir().join(name).to_str().unwrap().to_owned()
}

fn url(server: &Server) -> String {
    format!("rediss://127.0.0.1:{}", server.port())
}

fn run(url: &str, options: &[&str], words: &[&str]) -> Ended {
    let mut command = leasehold(url, &[options, words].concat());
    command.env("LEASEHOLD_RETRY_FOR_MS", "2000").env("LEASEHOLD_RESPONSE_TIMEOUT_MS", "2000");
    command.env("LEASEHOLD_UNREACHABLE_AFTER_MS", "2000").env_remove("SSL_CERT_FILE");
    Program::start(command).ends()
}

/// One subcommand that uses the client, and one that asks each server separately.
const BOTH_WAYS: [&[&str]; 2] = [&["show", "x"], &["ls"]];

#[test]
fn every_subcommand_goes_over_tls_with_certificates_of_both_sides() {
    let Some(server) = encrypted() else { return };
    let (certificate, key) = (file(&server, "tls.crt"), file(&server, "tls.key"));
    let options = ["--cacert", &certificate, "--cert", &certificate, "--key", &key];
    for (words, code, printed) in [
        (&["run", "x", "--", "echo", "held"][..], 0, "held\n"),
        (&["elect", "x", "--", "echo", "leads"], 0, "leads\n"),
        (&["ls"], 0, ""),
        (&["show", "x"], 1, "x is free\n"),
        (&["wait", "x"], 0, ""),
        (&["release", "x"], 1, "x is free\n"),
    ] {
        let ended = run(&url(&server), &options, words);
        let seen = (ended.code, ended.printed.as_str(), ended.said.as_str());
        assert_eq!(seen, (code, printed, ""), "{words:?}");
    }
    let ended = run(&url(&server), &options, &["doctor"]);
    assert_eq!((ended.code, ended.said.as_str()), (1, ""));
    assert!(ended.printed.starts_with(&format!("{}: ", url(&server))), "{}", ended.printed);
}

#[test]
fn the_certificates_of_the_system_are_trusted_without_a_file() {
    let Some(server) = encrypted() else { return };
    let (certificate, key) = (file(&server, "tls.crt"), file(&server, "tls.key"));
    for words in [&["ls"][..], &["wait", "x"]] {
        let mut command =
            leasehold(&url(&server), &[&["--cert", &certificate, "--key", &key], words].concat());
        command.env("SSL_CERT_FILE", &certificate);
        let ended = Program::start(command).ends();
        assert_eq!((ended.code, ended.said.as_str()), (0, ""), "{words:?}");
    }
}

/// No option makes the program talk to a server that it does not trust.
#[test]
fn what_keeps_a_connection_from_being_made_is_told_with_what_to_do() {
    let Some(server) = encrypted() else { return };
    let (certificate, key) = (file(&server, "tls.crt"), file(&server, "tls.key"));
    let known = ["--cert", &certificate, "--key", &key];
    let plain = crate::scene::server();
    let at_plain = format!("rediss://127.0.0.1:{}", plain.port());
    let without_tls = format!("redis://127.0.0.1:{}", server.port());
    let by_name = format!("rediss://localhost:{}", server.port());
    let whole = [&known[..], &["--cacert", &certificate]].concat();
    for words in BOTH_WAYS {
        for (address, options, remedy) in [
            (&url(&server), &known[..], "by --cacert."),
            (&url(&server), &["--cacert", &certificate], "by --cert and --key."),
            (&by_name, &whole, "Use a name that is in its certificate."),
            (&at_plain, &whole, "speak TLS on this port"),
            (&without_tls, &[], "use rediss://"),
        ] {
            let ended = run(address, options, words);
            assert_eq!((ended.code, ended.printed.as_str()), (69, ""), "{words:?}: {}", ended.said);
            let begin = format!("leasehold: no answer from {address}: ");
            assert!(ended.said.starts_with(&begin), "{words:?}: {}", ended.said);
            assert!(ended.said.contains(remedy), "{words:?}: {}", ended.said);
        }
    }
}

#[test]
fn a_file_that_is_not_there_or_holds_nothing_of_use_is_named() {
    let Some(server) = encrypted() else { return };
    let (certificate, key) = (file(&server, "tls.crt"), file(&server, "tls.key"));
    let nonsense = file(&server, "nonsense.pem");
    fs::write(Path::new(&nonsense), "nonsense").unwrap();
    let other = encrypted().unwrap();
    let other_key = file(&other, "tls.key");
    for words in BOTH_WAYS {
        for (options, what) in [
            (&["--cacert", "/nowhere"][..], "/nowhere: No such file"),
            (&["--cacert", &nonsense], "no certificate in PEM format"),
            (&["--cert", &certificate, "--key", &other_key], "KeyMismatch"),
            (&["--cert", &certificate], "--key <FILE>"),
            (&["--key", &key], "--cert <FILE>"),
        ] {
            let ended = run(&url(&server), options, words);
            assert_eq!(
                (ended.code, ended.printed.as_str()),
                (64, ""),
                "{options:?}: {}",
                ended.said
            );
            assert!(ended.said.contains(what), "{words:?} {options:?}: {}", ended.said);
        }
    }
}

#[test]
fn certificates_are_no_obstacle_where_nothing_is_encrypted() {
    let Some(server) = encrypted() else { return };
    let certificate = file(&server, "tls.crt");
    let plain = crate::scene::server();
    for words in [&["ls"][..], &["wait", "x"]] {
        let ended = run(&crate::scene::url(plain.port()), &["--cacert", &certificate], words);
        assert_eq!((ended.code, ended.said.as_str()), (0, ""), "{words:?}");
    }
}
