//! The workflow files: what runs with which rights, and what a release has passed. actionlint looks at their syntax.

use crate::{ROOT, files, text, words, yaml};
use std::path::Path;
use yaml_rust2::Yaml;

const RELEASE: &str = ".github/workflows/release.yml";

/// The jobs that sign or publish something, and what they may do besides reading the repository.
const PUBLISHING: [(&str, &[&str]); 4] = [
    ("attest", &["attestations", "id-token"]),
    ("images", &["packages"]),
    ("image-index", &["attestations", "id-token", "packages"]),
    ("draft", &["contents"]),
];

/// What workflows and actions of our own name of others, by which words, and what it is pinned by.
const PINNED: [(&str, &str, usize); 4] = [
    ("uses: ", "@", 40),
    ("container: ", "@sha256:", 64),
    ("driver-opts: image=", "@sha256:", 64),
    ("sbom: generator=", "@sha256:", 64),
];

#[test]
fn what_others_wrote_is_named_by_its_commit_or_digest() {
    let mut named = 0;
    for name in files(".github", ".yml") {
        for line in text(&name).lines().map(|line| line.trim().trim_start_matches("- ")) {
            let pinned = PINNED.iter().find_map(|(key, mark, digits)| {
                Some((line.strip_prefix(key)?.split(" #").next()?, mark, *digits))
            });
            let Some((what, mark, digits)) = pinned else { continue };
            named += 1;
            if let Some(own) = what.strip_prefix("./") {
                assert!(Path::new(ROOT).join(own).join("action.yml").exists(), "{name}: {own}");
                continue;
            }
            let pin = what.split_once(mark).map_or("", |(_, pin)| pin);
            let is_one = pin.len() == digits && pin.chars().all(|c| c.is_ascii_hexdigit());
            assert!(is_one, "{name}: {what} can be moved");
        }
    }
    assert!(named > 20, "this test no longer understands the workflows");
}

#[test]
fn jobs_may_only_read_but_those_of_a_release_that_publish_and_no_text_of_others_is_a_script() {
    for name in files(".github", ".yml") {
        let file = &yaml(&name)[0];
        let jobs = file["jobs"].as_hash();
        if jobs.is_some() {
            assert!(
                file["permissions"].as_hash().is_some_and(|rights| rights.is_empty()),
                "{name}"
            );
        }
        for (job, what) in jobs.into_iter().flatten() {
            let job = job.as_str().unwrap();
            let may = PUBLISHING.iter().find(|(one, _)| *one == job && name == RELEASE);
            for (right, how) in what["permissions"].as_hash().unwrap_or_else(|| panic!("{job}")) {
                let (right, how) = (right.as_str().unwrap(), how.as_str().unwrap());
                let reads = right == "contents" || job == "gate" && right == "actions";
                let writes = may.is_some_and(|(_, may)| may.contains(&right));
                let is_allowed = if how == "read" { reads } else { writes };
                assert!(is_allowed, "{name}: {job} may {how} {right}");
            }
        }
        let actions = Some(&file["runs"]).filter(|runs| !runs.is_badvalue());
        for job in jobs.into_iter().flatten().map(|(_, job)| job).chain(actions) {
            for step in job["steps"].as_vec().unwrap() {
                let script = step["run"].as_str().unwrap_or_default();
                assert!(!script.contains("${{"), "{name}: through env, not in {script}");
                if step["uses"].as_str().is_some_and(|action| action.contains("/checkout@")) {
                    let keeps = step["with"]["persist-credentials"].as_bool();
                    assert_eq!(keeps, Some(false), "{name}");
                }
            }
        }
    }
}

fn needs<'j>(jobs: &'j Yaml, job: &str) -> Vec<&'j str> {
    let needs = &jobs[job]["needs"];
    words(needs).into_iter().chain(needs.as_str()).collect()
}

/// All jobs that have to succeed before this one begins.
fn all_needs<'j>(jobs: &'j Yaml, job: &str) -> Vec<&'j str> {
    let direct = needs(jobs, job);
    direct.iter().flat_map(|need| all_needs(jobs, need)).chain(direct.clone()).collect()
}

#[test]
fn what_is_published_passed_the_gate_and_every_check_and_a_person_approved() {
    let jobs = &yaml(RELEASE)[0]["jobs"];
    for (job, what) in jobs.as_hash().unwrap() {
        let (job, steps) = (job.as_str().unwrap(), what["steps"].as_vec().unwrap());
        let before = all_needs(jobs, job);
        assert!(job == "gate" || before.contains(&"gate"), "{job}: {before:?}");
        let publishes = PUBLISHING.iter().any(|(one, _)| *one == job);
        assert_eq!(what["environment"].as_str(), publishes.then_some("release"), "{job}");
        assert!(
            !publishes || ["check", "client"].iter().all(|need| before.contains(need)),
            "{job}"
        );
        // Whatever a dependency runs while it is built could sign anything.
        let mut scripts = steps.iter().filter_map(|step| step["run"].as_str());
        let builds = ["make", "cargo", "docker build"];
        let builds = |script: &str| builds.iter().any(|word| script.contains(word));
        assert!(!publishes || !scripts.any(builds), "{job}");
    }
    // An image has a name only where the packages are signed, and a draft only where all is.
    assert!(needs(jobs, "image-index").contains(&"attest"));
    assert!(["attest", "image-index"].iter().all(|need| needs(jobs, "draft").contains(need)));
}

#[test]
fn every_server_that_can_be_fetched_is_tested_by_the_compiler_that_is_promised() {
    let test = &yaml(".github/workflows/ci.yml")[0]["jobs"]["test"];
    let servers = text("scripts/servers");
    let wanted = servers.split("wanted=(").nth(1).unwrap().split("\n)").next().unwrap();
    let wanted = wanted.lines().filter(|line| !line.is_empty()).map(|line| {
        line.trim().trim_matches('\'').split_whitespace().take(2).collect::<Vec<_>>().join("-")
    });
    assert_eq!(words(&test["strategy"]["matrix"]["server"]), wanted.collect::<Vec<_>>());

    let manifest = text("Cargo.toml");
    let rust = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap();
    let image = test["container"].as_str().unwrap().split('@').next().unwrap();
    assert_eq!(image, format!("rust:{}.0-bookworm", rust.trim_matches('"')));
}
