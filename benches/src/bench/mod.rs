//! What is measured, and how much of it.
//!
//! ```text
//!   same_work   one lock after another, taken and given back: against scripts and native commands
//!   contended   many workers, one lock: against whatever else one can wait by
//!   shared      a lock with several holders: one joins, one leaves, against scripts that count
//!   hand_off    a lock with many waiters, against one with few
//!   held        among many held locks, against among few
//!   memory      of a lock, of one who waits
//!   leaving     many who wait leave at once: does anyone else notice?
//!   named       others name contended locks all the time: who pays, and how much?
//!   innocent    those who have nothing to do with locks: what do they pay?
//! ```
//!
//! Whatever is compared is measured in turns, round by round, and compared within each round: a machine that is slower
//! for a while is so for all. `contenders` and `ways` are what is compared, `load` and `crowd` drive it, `report` writes
//! it down, `plot` draws it.

mod contended;
mod contenders;
mod cores;
pub(crate) mod fairness;
mod hand_off;
mod held;
mod innocent;
mod leaving;
mod load;
pub(crate) mod machine;
mod memory;
mod named;
pub(crate) mod overview;
mod plot;
pub(crate) mod report;
mod same_work;
mod shared;
pub(crate) mod statistics;
pub(crate) mod table;
mod ways;

use report::Report;

/// How long a run may take.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// A few operations of everything: does it still work?
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

pub(crate) type Section = (&'static str, fn(Effort, &mut Report));

pub(crate) const SECTIONS: [Section; 9] = [
    ("same-work", same_work::run),
    ("contended", contended::run),
    ("shared", shared::run),
    ("hand-off", hand_off::run),
    ("held", held::run),
    ("memory", memory::run),
    ("leaving", leaving::run),
    ("named", named::run),
    ("innocent", innocent::run),
];

/// Without names of sections, all of them.
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
