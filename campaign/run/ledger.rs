//! The ledger: a line for each run of a scenario, so that anyone can add up what is claimed.

use crate::runner::Totals;
use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use testkit::{full_version, today};

pub(crate) fn add(file: &str, scenario: &str, (seed, seconds): (u64, u64), totals: &Totals) {
    // Relative to the root of the repository. Cargo runs tests in the folder of the package.
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let file = format!("{root}/{file}");
    let mut open = OpenOptions::new().create(true).append(true).open(&file).unwrap();
    let commit = env::var("LEASEHOLD_COMMIT").unwrap_or_else(|_| "unknown".to_owned());
    let (product, version) = full_version();
    let line = format!(
        "{}\t{commit}\t{} {version}\t{scenario}\t{}\t{}\t{}\t{seed}\t{seconds}\t{}\t{}\t{}\t{}\n",
        today(),
        product.to_lowercase(),
        totals.operations,
        totals.faults,
        totals.wrong.len(),
        totals.tickets,
        totals.ephemeral,
        totals.several,
        totals.guarded,
    );
    open.write_all(line.as_bytes()).unwrap();
}
