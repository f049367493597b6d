//! One test, two lengths: as long as every run can bear, or as long as it takes to be sure (`make test-long`). And figures,
//! which are printed together when all tests have run.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;

/// What this run has time for.
pub fn short_or_long<T>(short: T, long: T) -> T {
    if env::var_os("LEASEHOLD_SOAK").is_some() { long } else { short }
}

/// Notes a figure, as one line for people.
pub fn figure(line: &str) {
    println!("{line}");
    if let Some(file) = env::var_os("LEASEHOLD_FIGURES") {
        let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
        // In one write, because other tests note theirs at the same time.
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}
