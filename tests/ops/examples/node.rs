//! The example for node-redlock, installed out of the tree.

use super::address_of;
use crate::program::{Missing, Told, available, find, folder, install, run, write};
use crate::text;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use testkit::Server;

const EXAMPLE: &str = "examples/migrate/node-redlock";

/// What its story tells; `None`, and it says so, where Node or the registry is missing.
pub(super) fn story_with_redlock(server: &Server) -> Option<Told> {
    let (node, folder) = available(installed())?;
    let mut story = Command::new(node);
    Some(run(story.current_dir(folder).arg("story.js").env("REDIS_URL", address_of(server))))
}

fn installed() -> Result<(PathBuf, PathBuf), Missing> {
    let (node, npm) = (find("node")?, find("npm")?);
    let folder = folder("node-redlock");
    for name in ["package.json", "package-lock.json", "story.js"] {
        write(&folder.join(name), &text(&format!("{EXAMPLE}/{name}")));
    }
    let (stamp, wanted) = (folder.join("installed"), text(&format!("{EXAMPLE}/package-lock.json")));
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok((node, folder));
    }
    let of_npm = |words: &[&str]| install(Command::new(&npm).current_dir(&folder).args(words));
    // From here on a failure is one of ours.
    if !of_npm(&["ping", "--fetch-retries=0", "--fetch-timeout=15000"]).success {
        return Err("answer from the registry of npm".to_owned());
    }
    let told = of_npm(&["ci"]);
    assert!(told.success, "{}{}", told.out, told.err);
    write(&stamp, &wanted);
    Ok((node, folder))
}
