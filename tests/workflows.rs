//! The workflow files: what they may do, what they run of others, and that what they call is there.

use std::fs;
use std::path::Path;
use yaml_rust2::{Yaml, YamlLoader};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

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
    ("attest", &[("attestations", "write"), ("id-token", "write")]),
    ("draft", &[("contents", "write")]),
    ("images", &[("packages", "write")]),
    ("image-index", &[("attestations", "write"), ("id-token", "write"), ("packages", "write")]),
    ("image-notes", &[("contents", "write")]),
];

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
    let mut writing = 0;
    for (name, text) in workflows() {
        let file = parsed(&name, &text);
        // The job `images` pushes what it has built, and may do nothing else.
        for (job, _) in MAY.iter().filter(|(job, _)| *job != "images") {
            for step in file["jobs"][*job]["steps"].as_vec().unwrap_or(&vec![]) {
                let script = step["run"].as_str().unwrap_or_default();
                let builds = ["make", "cargo", "scripts/", "docker build"];
                let joins = script.starts_with("scripts/image index ");
                let builds = builds.iter().find(|word| script.contains(**word) && !joins);
                assert!(builds.is_none(), "{name}: {job} runs {script}");
                writing += 1;
            }
        }
    }
    assert!(writing > 3, "this test no longer understands the workflows");
}

/// A cache holds what any other run has put there, and no attestation tells of it.
#[test]
fn what_is_released_is_made_without_a_cache_and_signed_before_it_is_drafted() {
    let path = Path::new(ROOT).join(".github/workflows/release.yml");
    let text = fs::read_to_string(path).unwrap();
    let used = text.lines().filter(|line| line.contains("uses:"));
    assert!(used.clone().all(|line| !line.contains("cache")), "{text}");

    let jobs = &parsed("release.yml", &text)["jobs"];
    let needs = |job: &str| match &jobs[job]["needs"] {
        Yaml::Array(needs) => needs.iter().map(|need| need.as_str().unwrap().to_owned()).collect(),
        Yaml::String(need) => vec![need.clone()],
        _ => vec![],
    };
    assert!(needs("draft").contains(&"attest".into()), "{:?}", needs("draft"));
    assert!(needs("attest").contains(&"check".into()), "{:?}", needs("attest"));
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
    let image = test["container"].as_str().unwrap();
    assert_eq!(image, format!("rust:{}.0-bookworm", rust.trim_matches('"')));
}
