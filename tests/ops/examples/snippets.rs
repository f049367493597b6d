//! What pages show of the package for Node, run as printed with clients/node as it was built.

use super::{ADDRESS, address_of, server};
use crate::ROOT;
use crate::page::{page, pages};
use crate::program::{Missing, Told, available, find, run};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const LANGUAGES: [&str; 4] = ["js", "javascript", "ts", "typescript"];

/// What the pages take for granted.
const GIVEN: &str = r"
globalThis.source = 'data:text/plain,news';
globalThis.store = (fence, text) => { console.log(typeof fence, text); return text; };
globalThis.body = 'news';
";

const LOCKS: &str = r"
import { Leasehold } from 'leasehold';
const locks = new Leasehold(redis);
";

const IOREDIS: &str = "import { Redis } from 'ioredis';
    const redis = new Redis('redis://127.0.0.1:6379');";

/// A folder in which programs find the package, and the client libraries that it is tested with.
struct Project {
    node: PathBuf,
    folder: tempfile::TempDir,
}

impl Project {
    fn find() -> Result<Self, Missing> {
        let node = find("node")?;
        let package = Path::new(ROOT).join("clients/node");
        let libraries = ["ioredis", "redis"].map(|name| package.join("node_modules").join(name));
        let is_built = package.join("dist/esm/index.js").exists();
        if !is_built || libraries.iter().any(|library| !library.exists()) {
            return Err("package in clients/node: npm install and npm run build make it".to_owned());
        }
        let folder = tempfile::tempdir().unwrap();
        let modules = folder.path().join("node_modules");
        fs::create_dir(&modules).unwrap();
        symlink(package, modules.join("leasehold")).unwrap();
        for library in libraries {
            symlink(&library, modules.join(library.file_name().unwrap())).unwrap();
        }
        Ok(Self { node, folder })
    }

    fn run(&self, text: &str, address: &str) -> Told {
        assert_eq!(text.matches(ADDRESS).count(), 1, "for one server: {text}");
        let file = self.folder.path().join("program.mjs");
        fs::write(&file, text.replace(ADDRESS, address)).unwrap();
        run(Command::new(&self.node).current_dir(self.folder.path()).arg(&file))
    }
}

#[test]
fn every_snippet_for_node_runs_and_leaves_no_lock() {
    let Some(project) = available(Project::find()) else { return };
    let mut run = 0;
    for page in pages().into_iter().chain([page("clients/node/README.md")]) {
        let blocks = page.blocks().into_iter();
        for block in blocks.filter(|block| LANGUAGES.contains(&block.language)) {
            let (text, server) = (block.text(), server());
            let address = address_of(&server);
            let (told, wanted) = if text.contains("import ") {
                (project.run(&format!("{GIVEN}{text}"), &address), "bigint news\n")
            } else {
                let whole = format!("{IOREDIS}{LOCKS}{GIVEN}{text}process.exit(0);\n");
                (project.run(&whole, &address), "")
            };
            assert_eq!(told.output(), wanted, "{}: {}", page.name, block.heading);
            let mut client = server.client();
            let counters = ["grants", "releases", "held"].map(|name| client.counter(name));
            assert_eq!(counters, [1, 1, 0], "{}: {}", page.name, block.heading);
            run += 1;
        }
    }
    assert!(run > 2, "this test no longer understands the pages");
}
