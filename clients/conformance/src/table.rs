//! What came of the scenarios, as a page.

use crate::run::{Outcome, Results};
use std::fmt::Write;
use std::fs;
use std::path::Path;

const HEAD: &str = "\
# What each client does

One list of behaviour for all clients. Each line is a scenario that the driver in `clients/conformance` plays with real servers; this page
was written by a run of it. How to run it, also with a client of your own: `clients/conformance/README.md`.

";

pub(crate) fn write(file: &Path, results: &Results) {
    let mut reasons: Vec<String> = Vec::new();
    let mut page = String::from(HEAD);
    let (name, version) = testkit::full_version();
    let _ = writeln!(page, "Server: {name} {version}.\n");
    let names: Vec<_> = results.clients.iter().map(|client| client.name.as_str()).collect();
    let _ = writeln!(page, "| Scenario | What must be seen | {} |", names.join(" | "));
    let _ = writeln!(page, "|---|---|{}", "---|".repeat(names.len()));
    for (number, scenario) in results.scenarios.iter().enumerate() {
        let cells: Vec<_> = (0..names.len())
            .map(|client| match results.of(number, client) {
                Some(Outcome::Passed(_)) => "yes".to_owned(),
                Some(Outcome::Failed(_)) => "**no**".to_owned(),
                Some(Outcome::Without(why)) => footnote(&mut reasons, why),
                None => {
                    let missing = results.clients[client].missing.clone();
                    footnote(&mut reasons, &missing.unwrap_or_else(|| "not run".into()))
                }
            })
            .collect();
        let _ = writeln!(page, "| {} | {} | {} |", scenario.name, scenario.what, cells.join(" | "));
    }
    for (number, reason) in reasons.iter().enumerate() {
        let _ = write!(page, "\n[{}] {reason}\n", number + 1);
    }
    fs::write(file, page).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

fn footnote(reasons: &mut Vec<String>, why: &str) -> String {
    let known = reasons.iter().position(|reason| reason == why);
    let number = known.unwrap_or_else(|| {
        reasons.push(why.to_owned());
        reasons.len() - 1
    });
    format!("[{}]", number + 1)
}
