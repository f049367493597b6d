//! The house rules of CONTRIBUTING.md that a machine can check and clippy does not.

use crate::ROOT;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const LONGEST_FILE: usize = 800;

/// What each folder of the core may import, itself included: one way only. Cargo sees to the rest.
const IMPORTS: [(&str, &[&str]); 6] = [
    ("lock", &["lock"]),
    ("cluster", &["cluster"]),
    ("command", &["command", "lock"]),
    ("observe", &["observe", "lock"]),
    ("engine", &["engine", "command", "observe", "lock"]),
    ("simulation", &["simulation", "engine", "command", "observe", "lock"]),
];

/// The folders of the module, from the top: each may import itself and what is below it. The one without a name has
/// the files of `src` itself.
const ROOMS: [&str; 8] =
    ["server", "commands", "clients", "keys", "cluster", "replication", "", "ffi"];

/// How what knows the world would look in the core, which does not.
const WORLDLY: [&str; 8] =
    ["unsafe", "redis_module", "libc::", "rand::", "uuid::", "std::time", "SystemTime", "Instant"];

/// How the time is told: by the server, in one file, and by no other means.
const SERVER_CLOCKS: [&str; 4] = [
    "!(RedisModule_Milliseconds",
    "!(RedisModule_Microseconds",
    "!(RedisModule_CachedMicroseconds",
    "!(RedisModule_MonotonicMicroseconds",
];
const OTHER_CLOCKS: [&str; 4] = ["std::time", "SystemTime", "Instant", "clock_gettime"];

/// File names that say nothing of what is inside.
const NAMELESS: [&str; 5] = ["utils", "util", "helpers", "common", "misc"];

struct File {
    /// The path from the root of the repository.
    name: String,
    text: String,
}

impl File {
    /// The lines with their numbers, without comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let without_comment = |line| str::split(line, "//").next().unwrap_or_default();
        (1..).zip(self.text.lines().map(without_comment))
    }

    /// The path by which other files of the module import this one.
    fn path(&self) -> Option<String> {
        let path = self.name.strip_prefix("src/")?.strip_suffix(".rs")?;
        let has_imports = path != "lib" && !path.ends_with("/mod");
        has_imports.then(|| path.replace('/', "::"))
    }

    /// What a file of the module imports of the others: `clock`, or `keys::eviction`.
    fn imports(&self) -> Vec<String> {
        let code: String = self.code().map(|(_, line)| line).collect();
        let path = self.path().unwrap_or_default();
        let room = path.rsplit_once("::").map_or("", |(room, _)| room);
        let code = code.replace("super::", &format!("crate::{room}::"));
        let mut imports = Vec::new();
        for import in code.split("crate::").skip(1) {
            let mut rooms = ROOMS.iter().map(|room| format!("{room}::"));
            let room = rooms.find(|room| import.starts_with(room)).unwrap_or_default();
            let names = match import[room.len()..].strip_prefix('{') {
                Some(list) => list.split('}').next(),
                None => import[room.len()..].split([';', ',']).next(),
            };
            for name in names.unwrap_or_default().split(',') {
                let is_of_word = |letter: char| letter.is_alphanumeric() || letter == '_';
                let word = name.trim().split(|letter| !is_of_word(letter)).next();
                imports.push(format!("{room}{}", word.unwrap_or_default()));
            }
        }
        imports.retain(|import| *import != path);
        imports
    }
}

fn room_of(path: &str) -> Option<usize> {
    let room = path.split_once("::").map_or("", |(room, _)| room);
    ROOMS.iter().position(|other| *other == room)
}

#[test]
fn imports_go_one_way() {
    let mut wrong = Vec::new();
    for file in files().iter().filter(|file| file.name.starts_with("core/src/")) {
        let Some((folder, _)) = file.name["core/src/".len()..].split_once('/') else { continue };
        let allowed = IMPORTS.iter().find(|(ruled, _)| *ruled == folder);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("{folder} has no rule"));
        for (number, line) in file.code() {
            let others = IMPORTS.iter().map(|(other, _)| *other);
            let forbidden = others.filter(|other| !allowed.contains(other)).find(|other| {
                let paths = [format!("crate::{other}"), format!("super::{other}::")];
                paths.iter().any(|path| line.contains(path))
            });
            // A list would hide its second entry from the search above.
            let forbidden = forbidden.or(line.contains("crate::{").then_some("a list"));
            wrong.extend(forbidden.map(|what| format!("{}:{number}: {what}", file.name)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn imports_of_the_module_go_down_the_list_of_its_rooms() {
    let mut wrong = Vec::new();
    for file in &files() {
        let Some(path) = file.path() else { continue };
        let room = room_of(&path).unwrap_or_else(|| panic!("{path} is in no room"));
        let imports = file.imports().into_iter();
        let up = imports.filter(|import| room_of(import).is_none_or(|other| other < room));
        wrong.extend(up.map(|import| format!("{}: {import}", file.name)));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What is left when nothing is left that imports none of the rest is a circle.
#[test]
fn no_imports_of_the_module_go_round_in_a_circle() {
    let files = files();
    let in_module = files.iter().filter_map(|file| Some((file.path()?, file.imports())));
    let mut left: Vec<_> = in_module.collect();
    assert!(left.len() > 30, "where is the module?");
    loop {
        let names: Vec<_> = left.iter().map(|(name, _)| name.clone()).collect();
        let before = left.len();
        left.retain(|(_, imports)| imports.iter().any(|import| names.contains(import)));
        if left.len() == before {
            return assert!(left.is_empty(), "{names:#?}");
        }
    }
}

#[test]
fn the_wrappers_of_the_servers_functions_know_nothing_of_locks() {
    refuse(&["leasehold_core", "super::super"], |file| file.name.starts_with("src/ffi/"));
}

#[test]
fn what_decides_knows_no_server_no_clock_and_no_chance() {
    // The simulation draws its schedules from a seed; it is compiled for tests only.
    refuse(&WORLDLY, |file| {
        file.name.starts_with("core/")
            && !file.name.starts_with("core/src/simulation/")
            && file.name != "core/src/lib.rs"
    });
}

#[test]
fn one_file_reads_the_clock() {
    for clocks in [&SERVER_CLOCKS[..], &OTHER_CLOCKS] {
        refuse(clocks, |file| {
            ["src/", "core/"].iter().any(|folder| file.name.starts_with(folder))
                && file.name != "src/clock.rs"
        });
    }
}

#[test]
fn no_file_is_too_long_or_has_a_name_that_says_nothing() {
    for file in files() {
        let lines = file.text.lines().count();
        assert!(lines <= LONGEST_FILE, "{} has {lines} lines", file.name);
        let mut parts = file.name.trim_end_matches(".rs").split('/');
        assert!(!parts.any(|part| NAMELESS.contains(&part)), "{}", file.name);
    }
}

#[test]
fn every_planted_bug_is_looked_for_and_the_page_says_how_many_there_are() {
    let patches = fs::read_dir(Path::new(ROOT).join("plants")).unwrap();
    let patches = patches.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: BTreeSet<_> = patches.map(|file| file.replace(".patch", "")).collect();
    let script = text("scripts/plants");
    let looked_for_by = |kinds: &[&str]| -> BTreeSet<_> {
        let rows = script.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let rows = rows.filter(|row| row.len() > 2 && kinds.contains(&row[1]));
        rows.map(|row| row[0].to_owned()).filter(|name| names.contains(name)).collect()
    };
    assert_eq!(looked_for_by(&["units", "servers"]), names, "scripts/plants, and plants/");
    // The clients of the campaign do not ask for everything.
    let by_campaign = looked_for_by(&["campaign"]).len();
    let page = text("docs/verification.md");
    for said in [format!("all {} bugs", names.len()), format!("{by_campaign} of them")] {
        assert!(page.contains(&said), "docs/verification.md does not say: {said}");
    }
}

#[track_caller]
fn refuse(refused: &[&str], of_concern: impl Fn(&File) -> bool) {
    let mut wrong = Vec::new();
    let files = files();
    let mut concerned = files.iter().filter(|file| of_concern(file)).peekable();
    assert!(concerned.peek().is_some(), "a rule for no file at all");
    for file in concerned {
        for (number, line) in file.code() {
            let found = refused.iter().filter(|refused| line.contains(**refused));
            wrong.extend(found.map(|found| format!("{}:{number}: {found}", file.name)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The sources below these folders of ours.
fn files() -> Vec<File> {
    let mut files = Vec::new();
    for folder in ["core", "src", "tests", "testkit", "benches", "campaign", "cli", "clients"] {
        collect(folder, &mut files);
    }
    files
}

/// The text of every source of the module.
pub(crate) fn sources_of_the_module() -> Vec<String> {
    let mut files = Vec::new();
    collect("src", &mut files);
    files.into_iter().map(|file| file.text).collect()
}

fn collect(folder: &str, files: &mut Vec<File>) {
    for entry in fs::read_dir(Path::new(ROOT).join(folder)).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{folder}/{}", entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() && entry.file_name() != "node_modules" {
            collect(&name, files);
        } else if name.ends_with(".rs") {
            files.push(File { text: text(&name), name });
        }
    }
}

fn text(name: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}
