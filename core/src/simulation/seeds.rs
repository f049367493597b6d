//! Runs the schedule of each seed, and shows the last steps of a schedule that fails.

use std::collections::VecDeque;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// How many of its last steps a failed schedule shows.
const SHOWN: usize = 25;

/// Where the steps of a schedule are reported, if anywhere.
pub(super) type Trace<'t> = Option<&'t mut dyn FnMut(String)>;

/// Runs the requested seed, or the requested number of seeds, or the usual number. `test` is the name by which cargo
/// finds the caller.
pub(super) fn run_each(usual: u64, test: &str, run: fn(u64, Trace<'_>)) {
    if let Some(seed) = setting("LEASEHOLD_SEED") {
        // Not println: the test harness hides its output while all is well.
        let mut terminal = std::io::stderr().lock();
        return run(seed, Some(&mut |line| writeln!(terminal, "{line}").expect("a terminal")));
    }
    for seed in 0..setting("LEASEHOLD_SEEDS").unwrap_or(usual) {
        if let Err(failure) = catch_unwind(|| run(seed, None)) {
            show_the_end_of(seed, run);
            println!("replay: LEASEHOLD_SEED={seed:#x} cargo test {test}\n");
            resume_unwind(failure);
        }
    }
}

fn show_the_end_of(seed: u64, run: fn(u64, Trace<'_>)) {
    let mut last = VecDeque::new();
    let _failure = catch_unwind(AssertUnwindSafe(|| {
        let mut remember = |line| {
            last.truncate(SHOWN - 1);
            last.push_front(line);
        };
        run(seed, Some(&mut remember));
    }));
    println!("\nseed {seed:#x} failed. Its last steps:");
    last.iter().rev().for_each(|line| println!("{line}"));
}

/// A number, as `42` or as `0x2a`.
fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    let parsed = match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => value.parse(),
    };
    Some(parsed.unwrap_or_else(|_| panic!("{name} is not a number: {value}")))
}
