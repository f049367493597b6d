//! The house rules of CONTRIBUTING.md that a machine can check and clippy does not.

use crate::ROOT;
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

/// Words that mean too many things in the literature; see Style in CONTRIBUTING.md.
const AMBIGUOUS: [&str; 2] = ["token", "mutex"];
/// Where others have named something so, and the one sentence that says so.
const NAMED_BY_OTHERS: [&str; 8] = [
    "token: ptr::null(),",
    "token: arg.keyword",
    "REDISMODULE_ARG_TYPE_PURE_TOKEN",
    "text_field(arg, \"token\")",
    ".over.child_token()",
    "\"id-token\"",
    "automountServiceAccountToken",
    "The number is the **fence** (also called fencing token)",
];

/// Types of the standard library, and of tokio.
const TYPES_OF_OTHERS: [&str; 2] = ["Mutex", "CancellationToken"];

/// What the fuzzers begin with, which is no text.
const INPUTS: &str = "fuzz/corpus";

/// What whoever runs an example or the tests of a client has there.
const INSTALLED: [&str; 10] = [
    ".build",
    "node_modules",
    "target",
    "__pycache__",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".venv",
    "build",
    "dist",
];

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

    fn is_in(&self, folder: &str) -> bool {
        self.name.starts_with(&format!("core/src/{folder}/"))
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
    for (folder, allowed) in IMPORTS {
        for file in files(".rs").iter().filter(|file| file.is_in(folder)) {
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
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn imports_of_the_module_go_down_the_list_of_its_rooms() {
    let mut wrong = Vec::new();
    for file in &files(".rs") {
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
    let files = files(".rs");
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
            && !file.is_in("simulation")
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
fn every_folder_of_the_core_has_its_rule() {
    let unruled = files(".rs").into_iter().find(|file| {
        file.name.starts_with("core/")
            && file.name != "core/src/lib.rs"
            && !IMPORTS.iter().any(|(folder, _)| file.is_in(folder))
    });
    assert!(unruled.is_none(), "{}", unruled.unwrap().name);
}

#[test]
fn no_file_is_too_long_or_has_a_name_that_says_nothing() {
    for file in files(".rs") {
        let lines = file.text.lines().count();
        assert!(lines <= LONGEST_FILE, "{} has {lines} lines", file.name);
        let mut parts = file.name.trim_end_matches(".rs").split('/');
        assert!(!parts.any(|part| NAMELESS.contains(&part)), "{}", file.name);
    }
}

#[test]
fn ambiguous_words_are_not_used() {
    let mut wrong = Vec::new();
    let files = [".rs", ".md", ".js", ".sh"].map(files).into_iter().flatten();
    for file in files.filter(|file| !is_this(file)) {
        for (number, line) in file.code() {
            let known = TYPES_OF_OTHERS.iter();
            let line = known.fold(line.to_owned(), |line, name| line.replace(name, ""));
            let found = AMBIGUOUS.iter().any(|word| line.to_lowercase().contains(word));
            if found && !NAMED_BY_OTHERS.iter().any(|known| line.contains(known)) {
                wrong.push(format!("{}:{number}: {line}", file.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_is_left_to_do_has_a_reason() {
    for file in files("").iter().filter(|file| !is_this(file)) {
        for (number, line) in (1..).zip(file.text.lines()) {
            let hasty = line.contains("FIXME") || line.contains("XXX");
            let bare = line.contains("TODO") && !line.contains("TODO(");
            assert!(!hasty && !bare, "{}:{number}: {line}", file.name);
        }
    }
}

#[test]
fn no_line_ends_in_blanks_and_every_file_in_a_new_line() {
    // A patch has a blank before each line that it keeps, also before an empty one.
    for file in files("").into_iter().filter(|file| !file.name.ends_with(".patch")) {
        for (number, line) in (1..).zip(file.text.lines()) {
            assert_eq!(line, line.trim_end(), "{}:{number}", file.name);
        }
        let ends = file.text.ends_with('\n') && !file.text.ends_with("\n\n");
        assert!(ends, "the end of {}", file.name);
    }
}

#[test]
fn every_planted_bug_is_looked_for_and_the_page_says_how_many_there_are() {
    let patches = fs::read_dir(Path::new(ROOT).join("plants")).unwrap();
    let patches = patches.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let patches: Vec<_> = patches.collect();
    let mut names: Vec<_> =
        patches.iter().map(|file| file.strip_suffix(".patch").unwrap()).collect();
    names.sort_unstable();
    assert!(names.len() > 20, "{names:?}");
    let script = read("scripts/plants".to_owned());
    let looked_for_by = |kinds: &[&str]| -> Vec<_> {
        let is_looked_for = |name: &str| {
            script.text.lines().any(|line| {
                let words: Vec<_> = line.split_whitespace().collect();
                words.len() > 2 && words[0] == name && kinds.contains(&words[1])
            })
        };
        names.iter().copied().filter(|name| is_looked_for(name)).collect()
    };
    let by_tests = looked_for_by(&["units", "servers"]);
    assert_eq!(by_tests, names, "the tests of scripts/plants, and the bugs of plants/");
    // The clients of the campaign do not ask for everything.
    let by_campaign = looked_for_by(&["campaign"]).len();
    let page = read("docs/verification.md".to_owned());
    for said in [format!("all {} bugs", names.len()), format!("{by_campaign} of them")] {
        assert!(page.text.contains(&said), "docs/verification.md does not say: {said}");
    }
}

#[test]
fn the_changelog_begins_with_the_version_of_the_crate() {
    let changelog = fs::read_to_string(Path::new(ROOT).join("CHANGELOG.md")).unwrap();
    let head = changelog.lines().find_map(|line| line.strip_prefix("## [")?.split(']').next());
    assert_eq!(head, Some(env!("CARGO_PKG_VERSION")));
}

#[track_caller]
fn refuse(refused: &[&str], of_concern: impl Fn(&File) -> bool) {
    let mut wrong = Vec::new();
    let files = files(".rs");
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

/// This file has to name what it refuses.
fn is_this(file: &File) -> bool {
    file.name == "tests/tidy.rs"
}

/// Every file of ours whose name ends so.
fn files(ending: &str) -> Vec<File> {
    let mut files = Vec::new();
    let names = [
        "core",
        "src",
        "tests",
        "benches",
        "campaign",
        "cli",
        "clients",
        "docker",
        "docs",
        "examples",
        "fuzz",
        "kubernetes",
        "model",
        "monitoring",
        "packaging",
        "scripts",
        ".ci",
        ".github",
    ];
    for name in names {
        collect(name, ending, &mut files);
    }
    for entry in fs::read_dir(ROOT).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_file() && name != "Cargo.lock" && name.ends_with(ending) {
            files.push(read(name));
        }
    }
    files
}

/// The text of every source of the module.
pub(crate) fn sources_of_the_module() -> Vec<String> {
    let mut files = Vec::new();
    collect("src", ".rs", &mut files);
    files.into_iter().map(|file| file.text).collect()
}

fn collect(folder: &str, ending: &str, files: &mut Vec<File>) {
    for entry in fs::read_dir(Path::new(ROOT).join(folder)).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{folder}/{}", entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() {
            if name != INPUTS && !INSTALLED.iter().any(|installed| entry.file_name() == *installed)
            {
                collect(&name, ending, files);
            }
        } else if name.ends_with(ending) {
            files.push(read(name));
        }
    }
}

fn read(name: String) -> File {
    let text = fs::read_to_string(Path::new(ROOT).join(&name));
    File { text: text.unwrap_or_else(|error| panic!("{name}: {error}")), name }
}
