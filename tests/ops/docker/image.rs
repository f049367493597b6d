//! What the release alone asks of images, with a registry that a few lines stand for. All else that `scripts/image` does, CI
//! does with each change.

use crate::ROOT;
use crate::program::{available, find};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Its registry keeps in a folder which digest a name has; where `$BROKEN` says something, it says only that. The image
/// whose digest begins with b was made on the base `$BASE`.
const DOCKER: &str = r#"#!/bin/sh
file=$REGISTRY/$(echo "${5:-}" | tr -c '[:alnum:]\n' _)
case "$*" in
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
        name=org.opencontainers.image.base
        echo "{\"config\":{\"Labels\":{\"$name.name\":\"redis:8\",\"$name.digest\":\"$base\"}}}"
        ;;
    *) exit 1 ;;
esac
"#;

const IMAGE: &str = "ghcr.io/somebody/leasehold-redis";

/// With a registry that is in `scene`, and with these variables.
fn image(scene: &Path, variables: &[(&str, &str)], words: &[&str]) -> (bool, String) {
    let docker = scene.join("docker");
    fs::write(&docker, DOCKER).unwrap();
    fs::set_permissions(&docker, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", scene.display(), std::env::var("PATH").unwrap());
    let mut script = Command::new("scripts/image");
    script.args(words).current_dir(ROOT).env("PATH", path).env("REGISTRY", scene);
    let output = script.envs(variables.iter().copied()).output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&told).into_owned())
}

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
    if available(find("jq")).is_none() {
        return;
    }
    let scene = tempfile::tempdir().unwrap();
    let join = |variables: &[(&str, &str)], digests: &[&str]| {
        image(scene.path(), variables, &[&["join", IMAGE], digests].concat())
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
        image(scene.path(), variables, &["name", IMAGE, digest])
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
