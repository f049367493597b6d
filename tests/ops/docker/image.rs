//! What CI and the release ask of an image, with a registry and a builder that a few lines stand for.

use super::{IMAGES, text};
use crate::ROOT;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Knows base images for the machines of `$MACHINES`. Its registry keeps in a folder which digest a name has; where
/// `$BROKEN` says something, it says only that. The image whose digest begins with b was made on the base `$BASE`.
const DOCKER: &str = r#"#!/bin/sh
file=$REGISTRY/$(echo "${5:-}" | tr -c '[:alnum:]\n' _)
case "$*" in
    *--raw*)
        list=
        for machine in $MACHINES; do
            list="$list${list:+,}{\"platform\":{\"os\":\"${machine%/*}\",\"architecture\":\"${machine#*/}\"}}"
        done
        echo "{\"manifests\":[$list]}"
        ;;
    "buildx imagetools create --tag "*)
        shift 5
        case $# in
            1) echo "${1#*@}" ;;
            *) echo "sha256:$(echo "$@" | sha256sum | cut -d ' ' -f 1)" ;;
        esac >"$file"
        ;;
    *.Manifest.Digest*)
        file=$REGISTRY/$(echo "$4" | tr -c '[:alnum:]\n' _)
        if [ -n "${BROKEN:-}" ]; then
            echo "ERROR: $BROKEN" >&2
            exit 1
        elif [ ! -e "$file" ]; then
            echo "ERROR: $4: not found" >&2
            exit 1
        fi
        cat "$file"
        ;;
    *"json .Image"*)
        case $4 in *@sha256:b*) base=${BASE:-one} ;; *) base=one ;; esac
        echo "{\"config\":{\"Labels\":{\"org.opencontainers.image.base.name\":\"redis:8\",\"org.opencontainers.image.base.digest\":\"$base\"}}}"
        ;;
    *) exit 1 ;;
esac
"#;

const BOTH: &str = "linux/amd64 unknown/unknown linux/arm64";

fn image(machines: &str, words: &[&str]) -> (bool, String) {
    let scene = tempfile::tempdir().unwrap();
    image_with(scene.path(), &[("MACHINES", machines)], words)
}

/// With a registry and a folder for what is built, both of which are in `scene`, and with these variables.
fn image_with(scene: &Path, variables: &[(&str, &str)], words: &[&str]) -> (bool, String) {
    let docker = scene.join("docker");
    fs::write(&docker, DOCKER).unwrap();
    fs::set_permissions(&docker, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", scene.display(), std::env::var("PATH").unwrap());
    let output = Command::new("scripts/image")
        .args(words)
        .current_dir(ROOT)
        .env("PATH", path)
        .env("REGISTRY", scene)
        .env("CARGO_TARGET_DIR", scene)
        .envs(variables.iter().copied())
        .env("GITHUB_REPOSITORY", "somebody/leasehold")
        // Whoever owns the tree.
        .envs([("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "safe.directory")])
        .env("GIT_CONFIG_VALUE_0", "*")
        .output()
        .unwrap();
    let told = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&told).into_owned())
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        testkit::announce(&format!("skipped: no {program} in PATH"));
    }
    found
}

#[test]
fn images_are_built_on_a_digest_that_is_in_the_dockerfile() {
    if !has("jq") || !Path::new(ROOT).join(".git").exists() {
        return;
    }
    for (name, _) in IMAGES {
        let file = text(&format!("docker/{name}.Dockerfile"));
        let base = file.lines().find_map(|line| line.strip_prefix("ARG BASE=")).unwrap();
        let (success, told) = image(BOTH, &["describe", name]);
        assert!(success, "{told}");
        assert!(told.starts_with("labels<<END\n"), "{told}");
        let (tag, digest) = base.split_once('@').unwrap();
        for label in [
            format!("version={}", env!("CARGO_PKG_VERSION")),
            "source=https://github.com/somebody/leasehold".to_owned(),
            format!("base.name={tag}"),
            format!("base.digest={digest}"),
        ] {
            let line = format!("org.opencontainers.image.{label}");
            assert!(told.lines().any(|said| said == line), "{line} is not in {told}");
        }
        // Renovate finds what to renew by this.
        let hint =
            format!("# renovate: datasource=docker depName={}", tag.split(':').next().unwrap());
        assert!(file.contains(&format!("{hint}\nARG BASE=")), "{hint}");
    }
}

#[test]
fn a_base_image_has_to_be_for_both_machines() {
    if !has("jq") {
        return;
    }
    let (success, told) = image("linux/amd64", &["describe", "redis"]);
    assert!(!success && told.contains("is not for linux/arm64"), "{told}");
}

/// An image as it is packed into a file, with these statements about it.
fn packed(predicates: &[&str]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let blobs = dir.path().join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let layers: Vec<_> = predicates
        .iter()
        .map(|what| format!(r#"{{"annotations":{{"in-toto.io/predicate-type":"{what}"}}}}"#))
        .collect();
    let said = r#""annotations":{"vnd.docker.reference.type":"attestation-manifest"}"#;
    let index =
        format!(r#"{{"manifests":[{{"digest":"sha256:1"}},{{"digest":"sha256:2",{said}}}]}}"#);
    fs::write(blobs.join("1"), r#"{"layers":[]}"#).unwrap();
    fs::write(blobs.join("2"), format!(r#"{{"layers":[{}]}}"#, layers.join(","))).unwrap();
    fs::write(blobs.join("3"), index).unwrap();
    fs::write(dir.path().join("index.json"), r#"{"manifests":[{"digest":"sha256:3"}]}"#).unwrap();
    let file = dir.path().join("image.tar");
    let mut tar = Command::new("tar");
    tar.arg("-cf").arg(file).args(["index.json", "blobs"]).current_dir(dir.path());
    assert!(tar.status().unwrap().success());
    dir
}

#[test]
fn an_image_without_its_packages_or_its_provenance_is_not_released() {
    if !has("jq") || !has("tar") {
        return;
    }
    let (packages, provenance) = ("https://spdx.dev/Document", "https://slsa.dev/provenance/v1");
    for (predicates, lacks) in [
        (&[packages, provenance][..], None),
        (&[packages], Some("slsa.dev")),
        (&[provenance], Some("spdx.dev")),
        (&[], Some("spdx.dev")),
    ] {
        let dir = packed(predicates);
        let file = dir.path().join("image.tar");
        let (success, told) = image(BOTH, &["attested", file.to_str().unwrap()]);
        assert_eq!(success, lacks.is_none(), "{told}");
        assert!(lacks.is_none_or(|what| told.contains(what)), "{told}");
    }
}

/// What stands for `scripts/dist`: a file of each kind, for this machine.
fn make_dist(scene: &Path) {
    let script = r#"
        cd "$0"
        mkdir dist
        for libc in gnu musl; do
            title=leasehold-$1-$(uname -m)-linux-$libc
            mkdir "$title"
            for file in libleasehold.so leasehold THIRD-PARTY; do echo "$file for $libc" >"$title/$file"; done
            tar -czf "dist/$title.tar.gz" "$title"
            echo "crates for $libc" >"dist/$title.cdx.json"
            (cd dist && for file in "$title".*; do sha256sum "$file" >"$file.sha256"; done)
        done
    "#;
    let mut made = Command::new("sh");
    made.args(["-ec", script]).arg(scene).arg(env!("CARGO_PKG_VERSION"));
    assert!(made.status().unwrap().success());
}

#[test]
fn an_image_gets_the_files_for_both_c_libraries_with_what_is_in_them() {
    if !has("tar") {
        return;
    }
    let scene = tempfile::tempdir().unwrap();
    make_dist(scene.path());
    // Nothing of an earlier try stays.
    fs::create_dir_all(scene.path().join("image/lib")).unwrap();
    fs::write(scene.path().join("image/lib/old.so"), "").unwrap();
    let (success, told) = image_with(scene.path(), &[], &["files"]);
    assert!(success, "{told}");
    let files = scene.path().join("image");
    for (file, content) in [
        ("bin/leasehold", "leasehold for gnu\n"),
        ("lib/libleasehold.so", "libleasehold.so for gnu\n"),
        ("lib/musl/libleasehold.so", "libleasehold.so for musl\n"),
        ("doc/gnu/THIRD-PARTY", "THIRD-PARTY for gnu\n"),
        ("doc/musl/THIRD-PARTY", "THIRD-PARTY for musl\n"),
        ("doc/gnu/leasehold.cdx.json", "crates for gnu\n"),
        ("doc/musl/leasehold.cdx.json", "crates for musl\n"),
        ("doc/LICENSE", &text("LICENSE")),
    ] {
        assert_eq!(fs::read_to_string(files.join(file)).unwrap(), content, "{file}");
        let mode = fs::metadata(files.join(file)).unwrap().permissions().mode();
        let wanted = if file.starts_with("doc/") { 0o644 } else { 0o755 };
        assert_eq!(mode & 0o777, wanted, "{file}");
    }
    assert!(!files.join("lib/old.so").exists());
}

#[test]
fn an_image_gets_no_file_that_is_not_what_its_sum_says() {
    let scene = tempfile::tempdir().unwrap();
    let (success, told) = image_with(scene.path(), &[], &["files"]);
    assert!(!success, "{told}");
    make_dist(scene.path());
    let bills = fs::read_dir(scene.path().join("dist")).unwrap().map(|file| file.unwrap().path());
    let mut bills = bills.filter(|file| file.to_str().unwrap().ends_with("-musl.cdx.json"));
    fs::write(bills.next().unwrap(), "other crates").unwrap();
    let (success, told) = image_with(scene.path(), &[], &["files"]);
    assert!(!success && told.contains("another one than its sum says"), "{told}");
}

const IMAGE: &str = "ghcr.io/somebody/leasehold-redis";

fn digest(letter: &str) -> String {
    format!("sha256:{}", letter.repeat(64))
}

/// What the registry calls this, if anything.
fn called(scene: &Path, tag: &str) -> Option<String> {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let file: String = format!("{IMAGE}:{tag}").chars().map(plain).collect();
    Some(fs::read_to_string(scene.join(file)).ok()?.trim_end().to_owned())
}

#[test]
fn images_of_two_machines_are_joined_without_the_name_of_the_version() {
    if !has("jq") {
        return;
    }
    let scene = tempfile::tempdir().unwrap();
    let join = |variables: &[(&str, &str)], digests: &[&str]| {
        image_with(scene.path(), variables, &[&["join", IMAGE], digests].concat())
    };
    let [one, two] = ["a", "b"].map(digest);
    let (success, told) = join(&[], &[&one, &two]);
    assert!(success, "{told}");
    let made = called(scene.path(), concat!("candidate-", env!("CARGO_PKG_VERSION"))).unwrap();
    assert_eq!(told, format!("image={IMAGE}\ndigest={made}\nbase=redis:8@one\n"));
    assert_eq!(called(scene.path(), env!("CARGO_PKG_VERSION")), None);
    for (variables, digests, why) in [
        (&[][..], &[&*one][..], "two machines"),
        (&[], &[&*one, "latest"], "no digest"),
        (&[("BASE", "two")], &[&*one, &*two], "different bases"),
        (&[("BROKEN", "unauthorized")], &[&*one, &*two], "unauthorized"),
    ] {
        let (success, told) = join(variables, digests);
        assert!(!success && told.contains(why), "{why}: {told}");
    }
}

#[test]
fn no_version_is_given_to_another_image_and_the_same_one_may_be_named_again() {
    let scene = tempfile::tempdir().unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let name = |variables: &[(&str, &str)], digest: &str| {
        image_with(scene.path(), variables, &["name", IMAGE, digest])
    };
    let [one, two] = ["a", "b"].map(digest);
    // A registry that cannot say has not said that there is none.
    let (success, told) = name(&[("BROKEN", "503 Service Unavailable")], &one);
    assert!(!success && told.contains("503"), "{told}");
    assert_eq!(called(scene.path(), version), None);
    for _ in 0..2 {
        let (success, told) = name(&[], &one);
        assert!(success, "{told}");
        assert_eq!(called(scene.path(), version).as_ref(), Some(&one));
    }
    let (success, told) = name(&[], &two);
    assert!(!success && told.contains("already"), "{told}");
    assert_eq!(called(scene.path(), version), Some(one));
}
