//! The campaign: clients and faults on real servers. Every operation is recorded, and the record is judged.
//!
//! ```text
//!   cargo test -p leasehold-campaign --test campaign          every scenario for some seconds
//!   cargo test -p leasehold-campaign --test campaign -- --scenario alone --seconds 60 --seed 7
//!   scripts/soak 8                                             and a line for each in the ledger
//! ```
//!
//! `LEASEHOLD_SERVER` and `LEASEHOLD_MODULE` choose the server and the module, as for the other
//! tests. `LEASEHOLD_COMMIT` tells the ledger what was built. The exit status is 0 if no promise
//! was broken, 1 if one was, and 2 for an option that is not known.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "a test stops at the first surprise"
)]

mod bound;
mod claims;
mod clients;
mod connection;
mod faults;
mod leaks;
mod ledger;
mod probes;
mod queue_watcher;
mod registers;
mod request;
mod runner;
mod scenarios;
mod shares;
mod tickets;

use runner::Totals;
use scenarios::Scenario;
use std::any::Any;
use std::collections::HashMap;
use std::env;
use std::panic;
use std::process::exit;
use std::time::{Duration, Instant};
use testkit::Seed;

/// Short enough for every run of all tests. `LEASEHOLD_CAMPAIGN_SECONDS` chooses another length.
const USUAL_SECONDS: u64 = 4;

struct Options {
    scenario: Option<String>,
    seconds: u64,
    seed: Option<u64>,
    ledger: Option<String>,
    transcript: Option<String>,
}

fn main() {
    if env::args().any(|word| word == "--list") {
        scenarios::ALL.iter().for_each(|(name, _)| println!("{name}"));
        return;
    }
    // Tests are to be run by their names, and cargo tells them to every target. None of them is here.
    if env::args().any(|word| word == "--exact") {
        return;
    }
    let options = match options(env::args().skip(1)) {
        Ok(options) => options,
        Err(what) => {
            eprintln!(
                "{what}; known: --scenario NAME --seconds N --seed N --ledger FILE --transcript FILE.jsonl or FILE.edn, and --list"
            );
            exit(2);
        }
    };
    let chosen =
        |(known, _): &&Scenario| options.scenario.as_ref().is_none_or(|name| name == known);
    let all: Vec<_> = scenarios::ALL.iter().filter(chosen).collect();
    if all.is_empty() {
        let names = scenarios::ALL.map(|(name, _)| name);
        eprintln!("no such scenario; there are {}", names.join(", "));
        exit(2);
    }
    if let Some(file) = &options.transcript {
        runner::write_transcript(file);
    }
    let broken: Vec<_> = all.into_iter().flat_map(|scenario| run(scenario, &options)).collect();
    if !broken.is_empty() {
        // Repeated, because often only the end of a long log is kept.
        println!("violations:");
        broken.iter().for_each(|line| println!("{line}"));
        exit(1);
    }
}

fn options(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let usual = env::var("LEASEHOLD_CAMPAIGN_SECONDS");
    let usual = usual.map_or(Ok(USUAL_SECONDS), number)?;
    let mut options =
        Options { scenario: None, seconds: usual, seed: None, ledger: None, transcript: None };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        match &*word {
            "--scenario" => options.scenario = Some(value()?),
            "--seconds" => options.seconds = number(value()?)?,
            "--seed" => options.seed = Some(number(value()?)?),
            "--ledger" => options.ledger = Some(value()?),
            "--transcript" => options.transcript = Some(value()?),
            // Options that cargo gives to every program of tests.
            "--nocapture" | "--quiet" | "-q" => {}
            other => return Err(format!("{other} is not known")),
        }
    }
    Ok(options)
}

fn number(text: String) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

/// Runs a scenario and prints its totals. Returns some violations of each promise.
fn run(&(name, scenario): &Scenario, options: &Options) -> Vec<String> {
    let seed = options.seed.unwrap_or_else(|| Seed::fresh().value());
    println!("{name}: seed={seed}");
    let length = Duration::from_secs(options.seconds);
    let begun = Instant::now();
    // A server that died, or a fault that cannot be made, makes the harness panic. That is a finding too.
    let totals = panic::catch_unwind(|| scenario(seed, length))
        .unwrap_or_else(|end| end.downcast().map_or_else(could_not_go_on, |totals| *totals));
    let took = begun.elapsed();
    let Totals { operations, grants, waited, faults, wrong, micros, .. } = &totals;
    let Totals { tickets, ephemeral, several, guarded, .. } = &totals;
    let seconds = (*micros as f64 / 1e6).max(0.001);
    println!(
        "{name}: {operations} operations ({:.0}/s), {grants} grants, {waited} after a wait, {tickets} by tickets, {ephemeral} ephemeral, {several} of several locks, {guarded} guarded, {faults} faults ({:.0}/min), {} violations",
        *operations as f64 / seconds,
        *faults as f64 * 60.0 / seconds,
        wrong.len(),
    );
    let mut of_promise: HashMap<&str, u32> = HashMap::new();
    let mut shown = Vec::new();
    for one in wrong {
        let count = of_promise.entry(one.get(..2).unwrap_or_default()).or_default();
        *count += 1;
        if *count <= 3 {
            println!("seed={seed} {one}");
            shown.push(format!("{name}: seed={seed} {one}"));
        }
    }
    if let Some(file) = &options.ledger {
        ledger::add(file, name, (seed, took.as_secs()), &totals);
    }
    shown
}

/// The message of a panic of the harness, as a violation.
fn could_not_go_on(end: Box<dyn Any + Send>) -> Totals {
    let message = match end.downcast::<String>() {
        Ok(message) => *message,
        Err(_) => "see above".to_owned(),
    };
    Totals { wrong: vec![format!("the scenario could not go on: {message}")], ..Totals::default() }
}
