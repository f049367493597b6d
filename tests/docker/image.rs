//! What CI and the release ask of an image, with a registry and a builder that a few lines stand for.

use super::{IMAGES, ROOT, text};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Knows base images for the machines of `$MACHINES`, and what the digest of Valkey's is.
const DOCKER: &str = r#"#!/bin/sh
case "$*" in
    *--raw*)
        list=
        for machine in $MACHINES; do
            list="$list${list:+,}{\"platform\":{\"os\":\"${machine%/*}\",\"architecture\":\"${machine#*/}\"}}"
        done
        echo "{\"manifests\":[$list]}"
        ;;
    *Manifest.Digest*) echo sha256:resolved ;;
    *) exit 1 ;;
esac
"#;

const BOTH: &str = "linux/amd64 unknown/unknown linux/arm64";

fn image(machines: &str, words: &[&str]) -> (bool, String) {
    let bin = tempfile::tempdir().unwrap();
    let docker = bin.path().join("docker");
    fs::write(&docker, DOCKER).unwrap();
    fs::set_permissions(&docker, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.path().display(), std::env::var("PATH").unwrap());
    let output = Command::new("scripts/image")
        .args(words)
        .current_dir(ROOT)
        .env("PATH", path)
        .env("MACHINES", machines)
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
fn images_are_built_on_a_digest_that_is_in_the_dockerfile_or_of_the_registry() {
    if !has("jq") || !Path::new(ROOT).join(".git").exists() {
        return;
    }
    for (name, _) in IMAGES {
        let file = text(&format!("docker/{name}.Dockerfile"));
        let said = file.lines().find_map(|line| line.strip_prefix("ARG BASE=")).unwrap();
        let base =
            if said.contains('@') { said.to_owned() } else { format!("{said}@sha256:resolved") };
        let (success, told) = image(BOTH, &["describe", name]);
        assert!(success, "{told}");
        assert!(told.starts_with(&format!("base={base}\nlabels<<END\n")), "{told}");
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
