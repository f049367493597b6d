//! What gives an image the name of a version, with a registry that a few lines stand for. Almost all else that `scripts/image`
//! does, CI does with each change.

use crate::ROOT;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Its registry keeps in a folder which digest a name has; where `$BROKEN` says something, it says only that.
const DOCKER: &str = r#"#!/bin/sh
file=$REGISTRY/$(echo "${5:-}" | tr -c '[:alnum:]\n' _)
case "$*" in
    "buildx imagetools create --tag "*)
        echo "${6#*@}" >"$file"
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
