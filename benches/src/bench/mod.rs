//! The sections of the benchmark, and how long each runs.
//!
//! ```text
//!   same_work   one lock after another, acquired and released: against scripts and native commands
//!   contended   many workers, one lock: against other ways to wait
//!   shared      a lock with several holders: one joins and one leaves, against scripts
//!   tickets     places in a queue without a connection: their memory, and how soon one hears of a grant
//!   several     several locks in one request, against a request for each
//!   ephemeral   holds that end with their connection: how soon, and what bindings cost everybody else
//!   guarded     a write that only a holder can make, against the script that checks and writes
//!   hand_off    a lock with many waiters, against one with few
//!   held        a lock among many held locks, against one among few
//!   memory      the memory of a lock and of a waiter
//!   named       others name contended locks all the time: what that costs either
//!   crowds      what waiters cost an idle server, and how late they make the next grant
//!   innocent    what the module costs clients that use no locks
//! ```
//!
//! All that is compared takes turns, and is compared within each round. A machine that is slower for a while slows all
//! of it. `contenders` and `ways` are compared, `load` and `crowd` drive them, and `report` writes the figures.

mod contended;
mod contenders;
mod cores;
mod crowds;
mod ephemeral;
mod guarded;
mod hand_off;
mod held;
mod innocent;
mod load;
pub(crate) mod machine;
mod memory;
mod named;
pub(crate) mod order;
mod pings;
pub(crate) mod report;
mod same_work;
mod several;
mod shared;
pub(crate) mod statistics;
pub(crate) mod table;
mod tickets;
mod ways;

use report::Report;

/// The length of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// A few operations of each section, to see that it still works.
    Smoke,
    /// The base cases, in less than three minutes.
    Quick,
    /// Everything.
    Full,
}

impl Effort {
    pub(crate) fn pick<T>(self, smoke: T, quick: T, full: T) -> T {
        match self {
            Self::Smoke => smoke,
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

/// Has so many take turns, round by round. Their order changes, because the first finds the processor's caches in
/// another state.
fn in_turns(rounds: usize, count: usize, mut each: impl FnMut(usize, usize)) {
    for round in 0..rounds {
        (0..count).for_each(|turn| each(round, (round + turn) % count));
    }
}

pub(crate) type Section = (&'static str, fn(Effort, &mut Report));

pub(crate) const SECTIONS: [Section; 13] = [
    ("same-work", same_work::run),
    ("contended", contended::run),
    ("shared", shared::run),
    ("tickets", tickets::run),
    ("several", several::run),
    ("ephemeral", ephemeral::run),
    ("guarded", guarded::run),
    ("hand-off", hand_off::run),
    ("held", held::run),
    ("memory", memory::run),
    ("named", named::run),
    ("crowds", crowds::run),
    ("innocent", innocent::run),
];

/// Runs the named sections, or all.
pub(crate) fn run(arguments: impl Iterator<Item = String>) {
    // Cargo adds `--bench`.
    let arguments: Vec<String> = arguments.filter(|argument| argument != "--bench").collect();
    let (flags, names): (Vec<_>, Vec<_>) =
        arguments.into_iter().partition(|argument| argument.starts_with("--"));
    let effort = match flags.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Effort::Full,
        ["--quick"] => Effort::Quick,
        ["--smoke"] => Effort::Smoke,
        _ => panic!("the flags are --quick and --smoke, not {flags:?}"),
    };
    let known = |name: &String| SECTIONS.iter().any(|(section, _)| section == name);
    let unknown = names.iter().find(|name| !known(name));
    assert_eq!(unknown, None, "sections are {:?}", SECTIONS.map(|(section, _)| section));
    let mut report = Report::begun(effort);
    for (section, run) in SECTIONS {
        if names.is_empty() || names.iter().any(|name| name == section) {
            run(effort, &mut report);
        }
    }
    report.finish(names.is_empty());
}
