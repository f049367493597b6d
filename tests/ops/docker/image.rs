//! What gives an image the name of a version, with a registry that a few lines stand for. Almost all else that `scripts/image`
//! does, CI does with each change.

use crate::ROOT;
use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Its registry keeps in a file which digest `$TAG` has; where `$BROKEN` says something, it says only that.
const DOCKER: &str = r#"#!/bin/sh
case "$*" in
    "buildx imagetools create --tag $TAG "*) echo "${6#*@}" >"$REGISTRY" ;;
    "buildx imagetools inspect $TAG "*)
        [ -z "$BROKEN" ] && cat "$REGISTRY" && exit
        echo "ERROR: ${BROKEN:-$TAG: not found}" >&2
        exit 1
        ;;
    *) exit 1 ;;
esac
"#;

#[test]
fn no_version_is_given_to_another_image_and_the_same_one_may_be_named_again() {
    let scene = tempfile::tempdir().unwrap();
    let [docker, registry] = ["docker", "registry"].map(|name| scene.path().join(name));
    fs::write(&docker, DOCKER).unwrap();
    fs::set_permissions(&docker, Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", scene.path().display(), env::var("PATH").unwrap());
    let image = "ghcr.io/somebody/leasehold-redis";
    let tag = format!("{image}:{}", env!("CARGO_PKG_VERSION"));
    let name = |digest: &str, broken: &str| {
        let mut script = Command::new("scripts/image");
        script.args(["name", image, digest]).current_dir(ROOT).env("PATH", &path);
        script.env("TAG", &tag).env("REGISTRY", &registry).env("BROKEN", broken);
        let output = script.output().unwrap();
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8_lossy(&told).into_owned();
        (output.status.success(), fs::read_to_string(&registry).ok(), told)
    };
    let [one, two] = ["a", "b"].map(|letter| format!("sha256:{}", letter.repeat(64)));
    let is_one = |named: Option<String>| named == Some(format!("{one}\n"));
    // A registry that cannot say has not said that there is none.
    let (success, named, told) = name(&one, "503 Service Unavailable");
    assert!(!success && named.is_none() && told.contains("503"), "{told}");
    for _ in 0..2 {
        let (success, named, told) = name(&one, "");
        assert!(success && is_one(named), "{told}");
    }
    let (success, named, told) = name(&two, "");
    assert!(!success && is_one(named) && told.contains("already"), "{told}");
}
