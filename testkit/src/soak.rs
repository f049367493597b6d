//! The two lengths of a test: short for every run, long to be sure (`scripts/test-long`). Also
//! figures, which are printed together after all tests.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;

/// Chooses between the two lengths.
pub fn short_or_long<T>(short: T, long: T) -> T {
    if env::var_os("LEASEHOLD_SOAK").is_some() { long } else { short }
}

/// Prints a line with a figure, and adds the line to the file of figures.
pub fn figure(line: &str) {
    println!("{line}");
    if let Some(file) = env::var_os("LEASEHOLD_FIGURES") {
        let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
        // In one write, because other tests write to the file too.
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}
