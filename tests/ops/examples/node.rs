//! Examples for Node, installed out of the tree.

use super::address_of;
use super::program::{Missing, Told, available, find, folder, install, run, write};
use crate::ROOT;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use testkit::Server;

/// The oldest Node on which the examples run.
const SINCE: (u32, u32) = (20, 11);

/// Several tests use each, at the same time.
pub(super) struct Package {
    /// Of its folder in examples/.
    name: &'static str,
    installed: OnceLock<Result<Installed, Missing>>,
}

pub(super) struct Installed {
    node: PathBuf,
    folder: PathBuf,
}

pub(super) static REDLOCK: Package = Package::new("migrate/node-redlock");

impl Package {
    const fn new(name: &'static str) -> Self {
        Self { name, installed: OnceLock::new() }
    }

    /// `None`, and it says so, where Node or the registry is missing.
    pub(super) fn installed(&self) -> Option<&Installed> {
        available(self.installed.get_or_init(|| self.install()).as_ref())
    }

    fn install(&self) -> Result<Installed, Missing> {
        let (node, npm) = (find("node")?, find("npm")?);
        if version(&node) < SINCE {
            return Err(format!("node from {}.{} on", SINCE.0, SINCE.1));
        }
        let folder = folder(self.name);
        let wanted = self.copied_to(&folder);
        let stamp = folder.join("installed");
        if fs::read_to_string(&stamp).ok().as_ref() != Some(&wanted) {
            let of_npm =
                |words: &[&str]| install(Command::new(&npm).current_dir(&folder).args(words));
            // From here on a failure is one of ours.
            if !of_npm(&["ping", "--fetch-retries=0", "--fetch-timeout=15000"]).success {
                return Err("answer from the registry of npm".to_owned());
            }
            let told = of_npm(&["ci"]);
            assert!(told.success, "{}{}", told.out, told.err);
            write(&stamp, &wanted);
        }
        Ok(Installed { node, folder })
    }

    /// The list of what it needs.
    fn copied_to(&self, folder: &Path) -> String {
        for entry in fs::read_dir(Path::new(ROOT).join("examples").join(self.name)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                let text = fs::read_to_string(entry.path()).unwrap();
                write(&folder.join(entry.file_name()), &text);
            }
        }
        fs::read_to_string(folder.join("package-lock.json")).unwrap()
    }
}

impl Installed {
    pub(super) fn story(&self, server: &Server) -> Told {
        run(self.node().arg("story.js").env("REDIS_URL", address_of(server)))
    }

    /// Runs the story with a changed text.
    pub(super) fn changed_story(&self, server: &Server, text: &str) -> Told {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let file = self.folder.join(format!("story-{}-{number}.mjs", process::id()));
        fs::write(&file, text).unwrap();
        let told = run(self.node().arg(&file).env("REDIS_URL", address_of(server)));
        fs::remove_file(&file).unwrap();
        told
    }

    fn node(&self) -> Command {
        let mut command = Command::new(&self.node);
        command.current_dir(&self.folder);
        command
    }
}

/// `v20.11.0`
fn version(node: &Path) -> (u32, u32) {
    let line = run(Command::new(node).arg("--version")).output();
    let mut parts = line.trim_start_matches('v').split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}
