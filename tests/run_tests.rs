//! What `scripts/run-tests` makes of what cargo says. A program named cargo, which stands first in
//! PATH, says it.

use crate::ROOT;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const FIRST: &str = "\
test fine ... ok
test some::late ... [some::late] LEASEHOLD_SEED=17
FAILED
[some::other] LEASEHOLD_SEED=18

failures:

---- some::late stdout ----
    not::a::name

failures:
    some::late

test result: FAILED. 1 passed; 1 failed; 0 ignored

error: test failed, to rerun pass `-p some --test integration`";

/// What a program without tests of its own says, and cargo of it.
const CAMPAIGN_FAILS: &str = "\
violations:
seed=1 L1: two hold the lock
error: test failed, to rerun pass `-p leasehold-campaign --test campaign`";

const PASSES: &str =
    "test some::late ... [some::late] LEASEHOLD_SEED=1\nok\n\ntest result: ok. 1 passed; 0 failed";
const FAILS: &str = "test result: FAILED. 0 passed; 1 failed";
const IS_NOT_RUN: &str = "test result: ok. 0 passed; 0 failed";

/// Two programs, of which the first names its tests twice.
const NAMES_TWICE: &str = "\
test result: FAILED. 1 passed; 1 failed
test result: FAILED. 1 passed; 1 failed
error: doctest failed, to rerun pass `-p some --doc`";

/// What cargo says in turn, and whether it succeeds; then whether the script does, and what cargo was told, with the seed.
fn told(says: &[(&str, bool)]) -> (bool, Vec<String>) {
    told_with_seed(None, says)
}

/// The same where the caller has chosen this seed.
fn told_with_seed(seed: Option<&str>, says: &[(&str, bool)]) -> (bool, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    for (number, (says, succeeds)) in says.iter().enumerate() {
        fs::write(file(&format!("says.{number}")), says).unwrap();
        fs::write(file(&format!("ends.{number}")), if *succeeds { "0" } else { "101" }).unwrap();
    }
    let cargo = format!(
        "#!/bin/sh\ncd {}\nnumber=$(cat told 2>/dev/null | wc -l)\necho \"$*${{LEASEHOLD_SEED:+ by $LEASEHOLD_SEED}}\" >>told\n\
         cat says.$number || exit 99\nexit $(cat ends.$number)\n",
        folder.path().display()
    );
    fs::write(file("cargo"), cargo).unwrap();
    fs::set_permissions(file("cargo"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let output = Command::new(Path::new(ROOT).join("scripts/run-tests"))
        .args(["--workspace", "--", "some::"])
        .env("PATH", path)
        .env("CARGO_TARGET_DIR", folder.path())
        .env_remove("LEASEHOLD_SEED")
        .envs(seed.map(|seed| ("LEASEHOLD_SEED", seed)))
        .output()
        .unwrap();
    let told = fs::read_to_string(file("told")).unwrap();
    (output.status.success(), told.lines().map(str::to_owned).collect())
}

const ALL: &str = "test --locked --no-fail-fast --workspace -- some::";
const ALONE: &str =
    "test --locked --no-fail-fast --workspace -- --exact --test-threads 1 some::late by 17";

#[test]
fn a_run_that_passes_is_made_once() {
    assert_eq!(told(&[("test result: ok. 2 passed", true)]), (true, vec![ALL.to_owned()]));
}

#[test]
fn what_failed_beside_others_has_to_pass_three_times_by_itself() {
    let passes = (PASSES, true);
    let (succeeds, told) = told(&[(FIRST, false), passes, passes, passes]);
    assert!(succeeds, "{told:?}");
    assert_eq!(told, [ALL, ALONE, ALONE, ALONE]);
}

#[test]
fn what_fails_once_by_itself_has_failed() {
    let passes = (PASSES, true);
    let (succeeds, told) = told(&[(FIRST, false), passes, passes, (FAILS, false)]);
    assert!(!succeeds, "{told:?}");
    assert_eq!(told, [ALL, ALONE, ALONE, ALONE]);
}

#[test]
fn what_is_not_found_by_itself_has_failed() {
    assert!(!told(&[(FIRST, false), (IS_NOT_RUN, true)]).0);
}

#[test]
fn a_program_without_names_of_tests_that_fails_beside_a_late_test_has_failed() {
    let says = format!("{FIRST}\n{CAMPAIGN_FAILS}");
    let passes = (PASSES, true);
    let (succeeds, told) = told(&[(&says, false), passes, passes, passes]);
    assert!(!succeeds, "{told:?}");
    assert_eq!(told, [ALL]);
}

#[test]
fn a_program_that_names_its_tests_twice_does_not_speak_for_another() {
    let says = format!("{FIRST}\n{NAMES_TWICE}\n{CAMPAIGN_FAILS}");
    let passes = (PASSES, true);
    assert!(!told(&[(&says, false), passes, passes, passes]).0);
}

#[test]
fn each_test_that_failed_is_run_by_its_own_seed() {
    let second = FIRST.replace("some::late", "some::later").replace("=17", "=19");
    let third = FIRST.replace("some::late", "some::latest").replace(" LEASEHOLD_SEED=17", "");
    let says = format!("{FIRST}\n{second}\n{third}");
    let passes = (PASSES, true);
    let mut all = vec![(says.as_str(), false)];
    all.extend([passes; 9]);
    let (succeeds, told) = told(&all);
    assert!(succeeds, "{told:?}");
    let ends = ["some::late by 17", "some::later by 19", "some::latest"];
    for (told, end) in told[1..].chunks(3).zip(ends) {
        assert!(told.iter().all(|told| told.ends_with(end)), "{told:?}");
    }
}

#[test]
fn a_seed_that_the_caller_has_chosen_is_kept_where_a_test_names_none() {
    let names_none = FIRST.replace(" LEASEHOLD_SEED=17", "");
    let passes = (PASSES, true);
    let says = [(names_none.as_str(), false), passes, passes, passes];
    let (succeeds, told) = told_with_seed(Some("0x2a"), &says);
    assert!(succeeds, "{told:?}");
    assert!(told.iter().all(|told| told.ends_with(" by 0x2a")), "{told:?}");
}

#[test]
fn a_test_in_the_docs_of_the_code_is_run_again_by_its_name() {
    let name = "clients/rust/src/lib.rs - Lock<'a>::try_* (line 6)";
    let says = FIRST.replace("some::late", name).replace("=17", "=23");
    let passes = (PASSES, true);
    let (succeeds, told) = told(&[(&says, false), passes, passes, passes]);
    assert!(succeeds, "{told:?}");
    assert!(told[1..].iter().all(|told| told.ends_with(&format!("{name} by 23"))), "{told:?}");
}

#[test]
fn many_failures_and_those_of_the_compiler_are_not_run_again() {
    let names: String = (0..4).map(|number| format!("    some::late{number}\n")).collect();
    let many = format!("failures:\n{names}\ntest result: FAILED. 0 passed; 4 failed");
    for says in [many.as_str(), "error: could not compile `leasehold`"] {
        assert_eq!(told(&[(says, false)]), (false, vec![ALL.to_owned()]), "{says}");
    }
}
