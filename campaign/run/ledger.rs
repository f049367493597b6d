//! The ledger: a line for each run of a scenario, so that anyone can add up what is claimed.

use crate::runner::Totals;
use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use testkit::{full_version, today};

const HEAD: &str = "date\tcommit\tserver\tscenario\toperations\tfaults\tviolations\tseed\tseconds\ttickets\tephemeral\tseveral\tguarded\n";

/// One run of a scenario.
pub(crate) struct Run<'a> {
    pub(crate) scenario: &'a str,
    pub(crate) seed: u64,
    pub(crate) seconds: u64,
    pub(crate) totals: &'a Totals,
}

pub(crate) fn add(file: &str, run: &Run<'_>) {
    let Run { scenario, seed, seconds, totals } = run;
    // Relative to the root of the repository. Cargo runs tests in the folder of the package.
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let file = format!("{root}/{file}");
    let is_new = fs::metadata(&file).map_or(true, |metadata| metadata.len() == 0);
    let mut open = OpenOptions::new().create(true).append(true).open(&file).unwrap();
    let line = format!(
        "{}\t{}\t{}\t{scenario}\t{}\t{}\t{}\t{seed}\t{seconds}\t{}\t{}\t{}\t{}\n",
        today(),
        commit(),
        server(),
        totals.operations,
        totals.faults,
        totals.wrong.len(),
        totals.tickets,
        totals.ephemeral,
        totals.several,
        totals.guarded,
    );
    let head = if is_new { HEAD } else { "" };
    open.write_all(format!("{head}{line}").as_bytes()).unwrap();
}

/// The commit, as the caller of the campaign names it.
fn commit() -> String {
    env::var("LEASEHOLD_COMMIT").unwrap_or_else(|_| "unknown".to_owned())
}

/// `valkey 9.1.0`.
fn server() -> String {
    let (product, version) = full_version();
    format!("{} {version}", product.to_lowercase())
}
