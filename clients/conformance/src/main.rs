//! One list of what a client of Leasehold does, checked against clients in any language: see `README.md`.
//!
//! ```text
//!   cargo test -p leasehold-conformance                    the quick scenarios, with each client that can run here
//!   cargo test -p leasehold-conformance -- --all           all of them
//!      --client node-redis --scenario renewal              some of them
//!      --adapter "mine=./adapter --quiet"                   a client of one's own, beside or instead of ours
//!      --table target/conformance.md                        writes what came of it
//!      --rounds 10 --threads 4 --list
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a scenario stops at the first surprise"
)]

mod adapter;
mod clients;
mod options;
mod program;
mod run;
mod scenarios;
mod scene;
mod table;

use options::Options;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Tests are to be run by their names, and cargo tells them to every target. None of them is here.
    if std::env::args().any(|word| word == "--exact") {
        return ExitCode::SUCCESS;
    }
    let options = match Options::read(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(complaint) => {
            eprintln!("conformance: {complaint}");
            return ExitCode::from(2);
        }
    };
    let scenarios = scenarios::all().into_iter().filter(|scenario| options.takes(scenario));
    let scenarios: Vec<_> = scenarios.collect();
    if options.only_list {
        for scenario in scenarios {
            println!("{}: {}", scenario.name, scenario.what);
        }
        return ExitCode::SUCCESS;
    }
    let results = run::run(&scenarios, &options);
    results.print();
    if let Some(file) = &options.table {
        table::write(file, &results);
    }
    if results.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
