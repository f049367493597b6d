//! The workflow files: what they may do, what they run of others, and that what they call is there.

use crate::ROOT;
use std::fs;
use std::path::Path;
use yaml_rust2::{Yaml, YamlLoader};

/// Names and texts.
fn workflows() -> Vec<(String, String)> {
    let folder = Path::new(ROOT).join(".github/workflows");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let read = |entry: fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap())
    };
    let workflows: Vec<_> = files.map(read).collect();
    assert!(workflows.len() >= 3, "{workflows:?}");
    workflows
}

fn parsed(name: &str, text: &str) -> Yaml {
    let file = YamlLoader::load_from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
    file.into_iter().next().unwrap()
}

/// The actions of our own that workflows use, as their files.
fn own_actions() -> Vec<(String, String)> {
    let folder = Path::new(ROOT).join(".github/actions");
    let folders = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = folders.map(|folder| folder.join("action.yml"));
    files.map(|file| (file.display().to_string(), fs::read_to_string(file).unwrap())).collect()
}

#[test]
fn what_others_wrote_is_named_by_its_commit_and_its_version() {
    let mut named = 0;
    for (name, text) in workflows().into_iter().chain(own_actions()) {
        for line in text.lines().filter(|line| line.contains("uses:")) {
            let (_, action) = line.split_once("uses: ").unwrap();
            if let Some(own) = action.strip_prefix("./") {
                assert!(Path::new(ROOT).join(own).join("action.yml").exists(), "{name}: {own}");
                continue;
            }
            let (action, version) = action
                .split_once(" # v")
                .unwrap_or_else(|| panic!("{name}: of which version is {action}?"));
            let (_, commit) = action.split_once('@').unwrap();
            let is_one = commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit());
            assert!(is_one, "{name}: {action} can be moved");
            assert!(version.split('.').all(|part| part.parse::<u32>().is_ok()), "{name}: {line}");
            named += 1;
        }
    }
    assert!(named > 3, "this test no longer understands the workflows");
}

/// What jobs may do besides reading the repository.
const MAY: [(&str, &[(&str, &str)]); 5] = [
    ("gate", &[("actions", "read")]),
    ("attest", &[("attestations", "write"), ("id-token", "write")]),
    ("images", &[("packages", "write")]),
    ("image-index", &[("attestations", "write"), ("id-token", "write"), ("packages", "write")]),
    ("draft", &[("contents", "write")]),
];

/// The jobs that sign or publish something.
const PUBLISHING: [&str; 4] = ["attest", "images", "image-index", "draft"];

#[test]
fn nothing_is_allowed_but_what_each_job_asks_for() {
    for (name, text) in workflows() {
        let file = parsed(&name, &text);
        let everywhere = file["permissions"].as_hash();
        assert!(everywhere.is_some_and(|rights| rights.is_empty()), "{name}: permissions: {{}}");
        for (job, what) in file["jobs"].as_hash().unwrap() {
            let job = job.as_str().unwrap();
            let rights = what["permissions"].as_hash();
            let rights = rights.unwrap_or_else(|| panic!("{name}: {job} asks for nothing"));
            for (right, how) in rights {
                let may = [right, how].map(|word| word.as_str().unwrap());
                let allowed = MAY.iter().filter(|(one, _)| *one == job).flat_map(|(_, may)| *may);
                let is_allowed = name == "release.yml"
                    && allowed.into_iter().any(|&(right, how)| may == [right, how]);
                assert!(may == ["contents", "read"] || is_allowed, "{name}: {job}: {may:?}");
            }
            assert!(what["timeout-minutes"].as_i64().is_some(), "{name}: {job} may never end");
        }
    }
}

/// Whatever a dependency runs while it is built could sign anything, or put it into a release.
#[test]
fn nothing_is_built_where_something_may_be_written() {
    let (_, jobs) = release();
    let mut writing = 0;
    for job in PUBLISHING {
        for script in scripts(&jobs[job]) {
            let names = ["join", "name"].map(|word| format!("scripts/image {word} "));
            let names = names.iter().any(|command| script.starts_with(command));
            let builds = ["make", "cargo", "scripts/", "docker build"];
            let builds = builds.iter().find(|word| script.contains(**word) && !names);
            assert!(builds.is_none(), "{job} runs {script}");
            writing += 1;
        }
    }
    assert!(writing > 3, "this test no longer understands the workflows");
}

fn release() -> (String, Yaml) {
    let path = Path::new(ROOT).join(".github/workflows/release.yml");
    let text = fs::read_to_string(path).unwrap();
    let jobs = parsed("release.yml", &text)["jobs"].clone();
    (text, jobs)
}

fn needs(jobs: &Yaml, job: &str) -> Vec<String> {
    match &jobs[job]["needs"] {
        Yaml::Array(needs) => needs.iter().map(|need| need.as_str().unwrap().to_owned()).collect(),
        Yaml::String(need) => vec![need.clone()],
        _ => vec![],
    }
}

/// All jobs that have to succeed before this one begins.
fn all_needs(jobs: &Yaml, job: &str) -> Vec<String> {
    let mut found = needs(jobs, job);
    for need in needs(jobs, job) {
        found.extend(all_needs(jobs, &need));
    }
    found
}

#[test]
fn what_is_published_passed_the_gate_and_every_check_and_a_person_approved() {
    let (_, jobs) = release();
    for (job, what) in jobs.as_hash().unwrap() {
        let job = job.as_str().unwrap();
        let before = all_needs(&jobs, job);
        assert!(job == "gate" || before.iter().any(|need| need == "gate"), "{job}: {before:?}");
        let asks = what["environment"].as_str();
        assert_eq!(asks.is_some(), PUBLISHING.contains(&job), "{job}: {asks:?}");
        if PUBLISHING.contains(&job) {
            assert_eq!(asks, Some("release"), "{job}");
            for need in ["check", "client"] {
                assert!(before.iter().any(|before| before == need), "{job}: {before:?}");
            }
        }
    }
    // An image has a name only where the packages are signed, and a draft only where all is.
    assert!(needs(&jobs, "image-index").contains(&"attest".to_owned()));
    for need in ["attest", "image-index"] {
        assert!(needs(&jobs, "draft").contains(&need.to_owned()), "{need}");
    }
    let gate: String = scripts(&jobs["gate"]).concat();
    for asked in ["Cargo.toml", "CHANGELOG.md", "origin/main", "ci.yml", "status=success"] {
        assert!(gate.contains(asked), "{asked}: {gate}");
    }
    assert!(Path::new(ROOT).join(".github/workflows/ci.yml").exists());
}

/// The commands and the actions of a job, in their order.
fn scripts(job: &Yaml) -> Vec<String> {
    let steps = job["steps"].as_vec().unwrap().iter();
    let what = |step: &Yaml| step["run"].as_str().or(step["uses"].as_str()).unwrap().to_owned();
    steps.map(what).collect()
}

/// An artifact can be replaced by whatever runs in another job of the same run; an output of a job that has ended cannot.
#[test]
fn what_is_passed_on_is_compared_with_its_sums_before_it_is_used() {
    let (text, jobs) = release();
    let mut compared = 0;
    for (job, what) in jobs.as_hash().unwrap() {
        let job = job.as_str().unwrap();
        let steps = what["steps"].as_vec().unwrap();
        let brings =
            |step: &&Yaml| step["uses"].as_str().is_some_and(|it| it.contains("/download-"));
        for (at, step) in steps.iter().enumerate().filter(|(_, step)| brings(step)) {
            let (maker, output) = match step["with"]["name"].as_str() {
                Some("dist-first") => ("build", "${{ needs.build.outputs.first }}"),
                Some("attestations") => ("attest", "${{ needs.attest.outputs.sum }}"),
                other => panic!("{job}: who says what {other:?} has to be?"),
            };
            assert!(needs(&jobs, job).contains(&maker.to_owned()), "{job}");
            let next = &steps[at + 1];
            let script = next["run"].as_str().unwrap_or_default();
            assert!(
                script.contains("&& diff <(") && script.contains("sha256sum"),
                "{job}: {next:?}"
            );
            let sums = next["env"].as_hash().unwrap().values().next().unwrap();
            assert_eq!(sums.as_str(), Some(output), "{job}");
            compared += 1;
        }
    }
    assert!(compared > 4, "this test no longer understands the workflow");
    for output in ["DIGESTS: >-\n        ${{ needs.images.outputs", "needs.image-index.outputs"] {
        assert!(text.contains(output), "{output}");
    }
}

#[test]
fn an_image_is_signed_before_it_is_named() {
    let (_, jobs) = release();
    let steps = scripts(&jobs["image-index"]);
    let order = ["scripts/image join", "actions/attest-build", "cosign sign", "scripts/image name"];
    let at = order.map(|word| steps.iter().position(|step| step.starts_with(word)));
    assert!(at.iter().all(Option::is_some) && at.is_sorted(), "{steps:?}");
}

/// What builds an image can change it, and what it says of itself.
#[test]
fn images_that_run_are_named_by_their_digests() {
    let mut named = 0;
    for (name, text) in workflows().into_iter().chain(own_actions()) {
        for line in text.lines().map(str::trim) {
            let image = ["container: ", "driver-opts: image=", "sbom: generator="];
            let Some(image) = image.iter().find_map(|key| line.strip_prefix(key)) else { continue };
            let (_, digest) =
                image.split_once("@sha256:").unwrap_or_else(|| panic!("{name}: {line}"));
            assert!(digest.len() == 64 && digest.chars().all(|c| c.is_ascii_hexdigit()), "{line}");
            named += 1;
        }
        // Both would take an image by a tag that is moved.
        let sets_up = text.matches("setup-buildx-action@").count();
        assert_eq!(sets_up, text.matches("driver-opts: image=").count(), "{name}");
        assert!(!text.contains("sbom: true"), "{name}");
    }
    assert!(named > 4, "this test no longer understands the workflows");
}

/// A cache holds what any other run has put there, and no attestation tells of it.
#[test]
fn what_is_released_is_made_without_a_cache_and_signed() {
    let (text, jobs) = release();
    for (name, text) in [("release.yml".to_owned(), text.clone())].into_iter().chain(own_actions())
    {
        let mut used = text.lines().filter(|line| !line.trim().starts_with('#'));
        assert!(used.all(|line| !line.contains("cache")), "{name}");
    }
    let signed = jobs["attest"]["steps"].as_vec().unwrap().iter();
    let signed =
        signed.filter(|step| step["uses"].as_str().is_some_and(|it| it.contains("attest@")));
    let signed = signed.map(|step| step["with"]["subject-path"].as_str().unwrap());
    let signed: Vec<_> = signed.collect();
    for file in ["*.tar.gz", "*.deb", "*.cdx.json"] {
        assert!(
            signed.iter().any(|paths| paths.contains(file)),
            "{file} is not signed: {signed:?}"
        );
    }
    // Each target has its bill of materials, and dist makes no other.
    let dist = fs::read_to_string(Path::new(ROOT).join("scripts/dist")).unwrap();
    assert!(dist.contains("({x86_64,aarch64}-unknown-linux-{gnu,musl})"));
    for machine in ["x86_64", "aarch64"] {
        for libc in ["gnu", "musl"] {
            let bill = format!("sbom-path: {machine}-linux-{libc}.cdx.json");
            assert!(text.contains(&bill), "{bill}");
        }
    }
}

#[test]
fn no_one_elses_words_become_part_of_a_script() {
    for (name, text) in workflows().into_iter().chain(own_actions()) {
        let file = parsed(&name, &text);
        let jobs = file["jobs"].as_hash().into_iter().flat_map(|jobs| jobs.values());
        for job in jobs.chain([&file["runs"]]).filter(|job| !job.is_badvalue()) {
            for step in job["steps"].as_vec().unwrap() {
                let script = step["run"].as_str().unwrap_or_default();
                assert!(!script.contains("${{"), "{name}: through env, not in {script}");
                if step["uses"].as_str().is_some_and(|action| action.contains("/checkout@")) {
                    assert_eq!(
                        step["with"]["persist-credentials"].as_bool(),
                        Some(false),
                        "{name}"
                    );
                }
            }
        }
    }
}

#[test]
fn what_they_make_is_in_the_makefile() {
    let makefile = fs::read_to_string(Path::new(ROOT).join("Makefile")).unwrap();
    let mut made = 0;
    for (name, text) in workflows() {
        let words: Vec<_> = text.split_whitespace().collect();
        for pair in words.windows(2).filter(|pair| pair[0] == "make") {
            let is_rule = |line: &str| line.starts_with(&format!("{}:", pair[1]));
            assert!(makefile.lines().any(is_rule), "{name}: there is no make {}", pair[1]);
            made += 1;
        }
    }
    assert!(made > 5, "this test no longer understands the workflows");
}

#[test]
fn every_server_that_can_be_fetched_is_tested_by_the_compiler_that_is_promised() {
    let text = fs::read_to_string(Path::new(ROOT).join(".github/workflows/ci.yml")).unwrap();
    let test = &parsed("ci.yml", &text)["jobs"]["test"];
    let tested: Vec<_> = test["strategy"]["matrix"]["server"].as_vec().unwrap().clone();
    let tested: Vec<_> = tested.iter().map(|name| name.as_str().unwrap().to_owned()).collect();
    let servers = fs::read_to_string(Path::new(ROOT).join("scripts/servers")).unwrap();
    let wanted = servers.split("wanted=(").nth(1).unwrap().split("\n)").next().unwrap();
    let wanted: Vec<_> = wanted.lines().filter(|line| !line.is_empty()).collect();
    let name = |line: &&str| {
        line.trim().trim_matches('\'').split_whitespace().take(2).collect::<Vec<_>>().join("-")
    };
    assert_eq!(tested, wanted.iter().map(name).collect::<Vec<_>>());

    let manifest = fs::read_to_string(Path::new(ROOT).join("Cargo.toml")).unwrap();
    let rust = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).unwrap();
    let image = test["container"].as_str().unwrap().split('@').next().unwrap();
    assert_eq!(image, format!("rust:{}.0-bookworm", rust.trim_matches('"')));
}
