//! What pages show of the package for Node, run as printed with clients/node as it was built.

use super::program::{Missing, Told, available, find, run};
use super::{ADDRESS, address_of, page, server};
use crate::ROOT;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::{Cluster, bulk};

const LANGUAGES: [&str; 4] = ["js", "javascript", "ts", "typescript"];

/// Pages with such blocks, and how many each has.
const PAGES: [(&str, usize); 3] =
    [("README.md", 1), ("clients/node/README.md", 1), ("docs/clients.md", 1)];

/// What the pages take for granted.
const GIVEN: &str = r"
globalThis.source = 'data:text/plain,news';
globalThis.store = (fence, text) => { console.log(typeof fence, text); return text; };
globalThis.body = 'news';
";

const IOREDIS: &str = "
import { Redis } from 'ioredis';
import { Leasehold } from 'leasehold';
const redis = new Redis('redis://127.0.0.1:6379');
const locks = new Leasehold(redis);
";

const IOREDIS_CLUSTER: &str = "
import { Cluster } from 'ioredis';
import { Leasehold } from 'leasehold';
const redis = new Cluster(['redis://127.0.0.1:6379']);
const locks = new Leasehold(redis);
";

const NODE_REDIS: &str = "
import { createClient } from 'redis';
import { Leasehold } from 'leasehold';
const redis = await createClient({ url: 'redis://127.0.0.1:6379' }).connect();
const locks = new Leasehold(redis);
";

const NODE_REDIS_CLUSTER: &str = "
import { createCluster } from 'redis';
import { Leasehold } from 'leasehold';
const redis = createCluster({ rootNodes: [{ url: 'redis://127.0.0.1:6379' }] });
await redis.connect();
const locks = new Leasehold(redis);
";

const GUARDED: &str = "Data on the server of the lock";

/// Writes behind the fence of a lock that was deleted, and says what came of that.
const LATE: &str = "
const lease = await locks.acquire('{page}:lock', { ttl: 60_000 });
await redis.del('{page}:lock');
const failed = await lease.guard('SET', '{page}:front', 'late').catch((error) => error);
console.log(failed.name, lease.signal.aborted);
process.exit(0);
";

/// A folder in which programs find the package, and the client libraries that it is tested with.
struct Project {
    node: PathBuf,
    folder: tempfile::TempDir,
}

impl Project {
    /// `None`, and it says so, where Node or the built package is missing.
    fn found() -> Option<Self> {
        available(Self::find())
    }

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

fn in_javascript(page: &str) -> impl Iterator<Item = page::Block> {
    let blocks = page::all_blocks(page).into_iter();
    blocks.filter(|block| LANGUAGES.contains(&block.language.as_str()))
}

#[test]
fn every_snippet_for_node_runs_and_leaves_no_lock() {
    let Some(project) = Project::found() else { return };
    for (page, _) in PAGES {
        for block in in_javascript(page) {
            let is_whole = block.text.contains("import ");
            let text = if is_whole {
                format!("{GIVEN}{}", block.text)
            } else {
                format!("{IOREDIS}{GIVEN}{}process.exit(0);\n", block.text)
            };
            let server = server();
            let said = project.run(&text, &address_of(&server)).output();
            let heading = &block.heading;
            assert_eq!(said, if is_whole { "bigint news\n" } else { "" }, "{page}: {heading}");
            let mut client = server.client();
            let counters = ["grants", "releases", "held"].map(|name| client.counter(name));
            assert_eq!(counters, [1, 1, 0], "{page}: {heading}");
        }
    }
}

/// So that none is shown that is not run.
#[test]
fn the_pages_with_snippets_for_node_are_known() {
    let mut pages = vec!["README.md".to_owned(), "clients/node/README.md".to_owned()];
    for folder in ["docs", "docs/commands"] {
        let names = fs::read_dir(Path::new(ROOT).join(folder)).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let names = names.filter(|name| name.ends_with(".md"));
        pages.extend(names.map(|name| format!("{folder}/{name}")));
    }
    let count = |page: &String| (page.clone(), in_javascript(page).count());
    let mut found: Vec<_> = pages.iter().map(count).filter(|(_, count)| *count > 0).collect();
    found.sort();
    assert_eq!(found, PAGES.map(|(page, count)| (page.to_owned(), count)));
}

#[test]
fn the_holder_writes_with_node_and_whoever_has_lost_the_lock_does_not() {
    let Some(project) = Project::found() else { return };
    let snippet = page::blocks("docs/clients.md", GUARDED, "js");
    let program = |client: &str| format!("{client}{GIVEN}{snippet}{LATE}");
    for client in [IOREDIS, NODE_REDIS] {
        let server = server();
        let told = project.run(&program(client), &address_of(&server));
        assert_eq!(told.out, "LostError true\n", "{}", told.err);
        assert_eq!(server.cmd("GET {page}:front"), bulk("news"));
    }
    let cluster = Cluster::of(3, 0);
    for client in [IOREDIS_CLUSTER, NODE_REDIS_CLUSTER] {
        cluster.client_for("{page}:front").cmd("DEL {page}:front");
        let told = project.run(&program(client), &address_of(cluster.node(0)));
        assert_eq!(told.out, "LostError true\n", "{}", told.err);
        assert_eq!(cluster.client_for("{page}:front").cmd("GET {page}:front"), bulk("news"));
    }
}
