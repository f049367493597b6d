//! All cases are gone through once for all tests.

use crate::cases::{BROKEN, CLUSTER, Case, FAILOVER, KEPT, LATE_ANSWERS};
use crate::page::{FIGURES, Part, TIMELINES, figures, grouped, timelines};
use crate::search::{Found, explore};
use crate::setting::{GRANTS, Mistake, Owners, Setting, Takeovers};
use crate::step::Step;
use crate::world::Promise::{self, FencesGrow, OneHolder};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{LazyLock, Mutex};
use std::{env, fs, thread};

/// Two at a time: a machine for tests has two processors.
const AT_ONCE: usize = 2;

/// Writes what was found into the docs.
const ACCEPT: &str = "LEASEHOLD_ACCEPT_TIMELINES";

type All = Vec<(&'static Case, Found)>;

static KEPT_FOUND: LazyLock<All> = LazyLock::new(|| all(KEPT));
static BROKEN_FOUND: LazyLock<All> = LazyLock::new(|| all(BROKEN));

fn all(cases: &'static [Case]) -> All {
    let (left, found) = (Mutex::new(cases.iter().enumerate()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = left.lock().unwrap().next();
                    let Some((number, case)) = next else { return };
                    let outcome = explore(&case.setting, case.promises);
                    let (worlds, steps) = (grouped(outcome.worlds), grouped(outcome.steps));
                    println!("{worlds} worlds, {steps} steps: {}", case.says);
                    found.lock().unwrap().push((number, case, outcome));
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap();
    found.sort_by_key(|(number, ..)| *number);
    found.into_iter().map(|(_, case, outcome)| (case, outcome)).collect()
}

fn breaks(found: &Found) -> Option<Promise> {
    found.broken.as_ref().map(|broken| broken.promise)
}

#[test]
fn every_promise_is_kept_in_every_world_where_nothing_is_missing() {
    for (case, found) in KEPT_FOUND.iter() {
        let shown = found.broken.as_ref().map(crate::timeline::of).unwrap_or_default();
        assert!(found.broken.is_none(), "{}:\n{shown}", case.says);
    }
}

#[test]
fn a_promise_is_broken_wherever_something_is_missing() {
    for (case, found) in BROKEN_FOUND.iter() {
        assert_eq!(breaks(found).as_slice(), case.promises, "{}", case.says);
    }
}

/// Otherwise promises would be kept because nothing happens.
#[test]
fn in_every_case_all_grants_are_made_and_in_all_of_them_every_step_is_taken() {
    let late = explore(&LATE_ANSWERS, &[OneHolder, FencesGrow]);
    let mut taken: BTreeSet<_> = late.taken.keys().copied().collect();
    for (case, found) in KEPT_FOUND.iter() {
        assert_eq!(found.grants, GRANTS, "{}", case.says);
        taken.extend(found.taken.keys().copied());
    }
    let kinds: BTreeSet<_> = Step::KINDS.iter().map(|kind| kind.name).collect();
    assert_eq!(taken, kinds);
}

/// By one second too little.
#[test]
fn the_quarantine_and_the_margin_are_as_long_as_they_have_to_be() {
    let shorter = Setting { quarantine: FAILOVER.ttl - 1, ..FAILOVER };
    assert_eq!(breaks(&explore(&shorter, &[OneHolder])), Some(OneHolder));
    let smaller = Setting { margin: FAILOVER.clocks_differ, quarantine: 0, ..FAILOVER };
    assert_eq!(breaks(&explore(&smaller, &[FencesGrow])), Some(FencesGrow));
}

/// An owner that is used again gets back a fence that others have gone beyond.
#[test]
fn an_owner_whose_release_was_lost_is_told_an_earlier_fence() {
    let setting = Setting { owners: Owners::Same, ..FAILOVER };
    assert_eq!(breaks(&explore(&setting, &[FencesGrow])), Some(FencesGrow));
}

/// The rule as it is, and with one mistake.
#[test]
fn every_mistake_in_the_rules_is_found() {
    let restless = Setting { quarantine: 0, ..FAILOVER };
    let heard = Setting { takeovers: Takeovers::SettledOrHeard, deaths: 3, ..restless.clone() };
    let cluster = Setting { quarantine: 0, deaths: 0, ..CLUSTER };
    let mistakes = [
        (Mistake::BeginDoesNotLift, FencesGrow, &restless),
        (Mistake::BeginDoesNotRest, OneHolder, &FAILOVER),
        (Mistake::TakeOverDoesNotLift, FencesGrow, &restless),
        (Mistake::TakeOverDoesNotRest, OneHolder, &FAILOVER),
        (Mistake::TakeOverForgetsKnown, FencesGrow, &heard),
        (Mistake::ReplicaLearnsNothing, FencesGrow, &heard),
        (Mistake::SlotDoesNotLift, FencesGrow, &cluster),
        (Mistake::ComingSlotDoesNotLift, FencesGrow, &cluster),
        (Mistake::LeaseEndsEarly, OneHolder, &Setting::QUIET),
        (Mistake::CountedFromAnswer, OneHolder, &LATE_ANSWERS),
    ];
    for (mistake, promise, setting) in mistakes {
        let mistaken = Setting { mistake: Some(mistake), ..setting.clone() };
        assert_eq!(breaks(&explore(&mistaken, &[promise])), Some(promise), "{mistake:?}");
    }
}

#[test]
fn every_step_is_named_as_the_code_names_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for kind in Step::KINDS.iter().filter(|kind| !kind.file.is_empty()) {
        let source = fs::read_to_string(root.join(kind.file)).unwrap();
        let name = kind.function.rsplit("::").next().unwrap();
        assert!(source.contains(&format!("fn {name}")), "{kind:?}");
    }
}

#[test]
fn the_docs_show_the_shortest_way_to_each_broken_promise() {
    compare(TIMELINES, &timelines(&BROKEN_FOUND));
}

#[test]
fn the_docs_say_how_many_worlds_there_are() {
    compare(FIGURES, &figures(&KEPT_FOUND, &BROKEN_FOUND));
}

fn compare(part: Part, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(part.page);
    let page = fs::read_to_string(&path).unwrap();
    if env::var_os(ACCEPT).is_some() {
        fs::write(&path, part.replaced(&page, text).expect("no marks")).unwrap();
        return;
    }
    let says = part.of(&page).expect("no marks");
    assert!(
        says == text,
        "{} says something else. If the change is meant: {ACCEPT}=1 cargo test -p leasehold-model\n{text}",
        part.page
    );
}
