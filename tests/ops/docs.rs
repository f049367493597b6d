//! The docs are true: every transcript is run, and every table is compared with the server, both ways.

mod comparison;
mod log_lines;
mod markdown;
mod permissions;
mod pictures;
mod session;
mod shape;
mod terminal;
mod transcript;

use crate::ROOT;
use markdown::Page;
use redis::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use testkit::{Client, Server, field, items, lacks, strings};
use transcript::Transcript;

/// The headings of every page in docs/commands.
const HEADINGS: [&str; 7] = [
    "Arguments",
    "Replies",
    "Errors",
    "In MULTI, EXEC and scripts",
    "On replicas and in a cluster",
    "Example",
    "Related",
];

/// What only transcripts for 7.0 and newer have: the server's wording, maps, settings.
const SINCE_7_0: [&str; 4] =
    ["wrong number of arguments for", "redis-cli -3", "leasehold.", " NOTIFY "];

#[test]
fn every_transcript_comes_out_as_written() {
    let is_old = lacks((7, 0), "transcripts with maps, settings, or what the server says of words");
    let mut complaints = Vec::new();
    for page in pages() {
        let mut transcripts = 0;
        for block in page.blocks() {
            let is_of_7_0 = |line: &&str| SINCE_7_0.iter().any(|sign| line.contains(sign));
            if is_old && block.lines.iter().any(is_of_7_0) {
                transcripts += 1;
                continue;
            }
            match Transcript::parse(&block) {
                Ok(Some(transcript)) => {
                    transcripts += 1;
                    complaints.extend(transcript.run(&Server::start()).err());
                }
                Ok(None) => {}
                Err(complaint) => complaints.push(complaint),
            }
        }
        if transcripts == 0 && (page.is_of_a_command() || page.name == "README.md") {
            complaints.push(format!("{} shows no session", page.name));
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n\n"));
}

#[test]
fn every_command_has_a_page_and_a_row_in_the_readme_and_the_reverse() {
    let server = Server::start();
    let usages = usages(&mut server.client());

    let named: BTreeSet<_> = usages.iter().map(|usage| name_of(usage).to_lowercase()).collect();
    assert_eq!(named, registered(&mut server.client()), "LOCK.HELP and COMMAND");

    let mut shown = BTreeSet::new();
    for page in pages().into_iter().filter(Page::is_of_a_command) {
        let syntax = page.blocks()[0].lines[0].to_owned();
        let name = name_of(&syntax);
        assert_eq!(page.name, format!("docs/commands/{}.md", name.to_lowercase()));
        assert_eq!(page.headings(1), [name], "{}", page.name);
        assert_eq!(page.headings(2), HEADINGS, "{}", page.name);
        shown.insert(syntax);
    }
    assert_eq!(shown, usages, "docs/commands and LOCK.HELP");

    let readme = page("README.md");
    let rows = readme.table("Command");
    for cell in rows.iter().map(|row| &row[0]) {
        let usage = cell.split('`').nth(1).unwrap();
        let file = format!("docs/commands/{}.md", name_of(usage).to_lowercase());
        assert_eq!(cell, &format!("[`{usage}`]({file})"));
    }
    let rows: BTreeSet<_> =
        rows.iter().map(|row| row[0].split('`').nth(1).unwrap().to_owned()).collect();
    assert_eq!(rows, usages, "README.md and LOCK.HELP");
}

#[test]
fn every_page_says_of_its_command_what_the_server_says() {
    if lacks((7, 0), "COMMAND DOCS") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    for page in pages().into_iter().filter(Page::is_of_a_command) {
        let name = page.headings(1)[0].to_lowercase();
        let docs = client.cmd(["COMMAND", "DOCS", &name]);
        let docs = field(&docs, &name).unwrap_or_else(|| panic!("no COMMAND DOCS for {name}"));
        let info = client.cmd(["COMMAND", "INFO", &name]);
        let Value::Array(info) = item(&info, 0) else { panic!("COMMAND INFO {name}: {info:?}") };
        // That it belongs to a module goes without saying.
        let flags: Vec<_> = strings(&info[2]).into_iter().filter(|flag| flag != "module").collect();
        let line = format!(
            "Since {}. Complexity: {}. Flags: {}.",
            text(field(docs, "since").unwrap()),
            text(field(docs, "complexity").unwrap()),
            flags.join(", "),
        );
        assert_says(&page, &line);
        let history = field(docs, "history").map_or(&[][..], items);
        for change in history {
            let [version, what] = &strings(change)[..] else { panic!("{change:?}") };
            assert_says(&page, &format!("Changed in {version}. {what}"));
        }
        let told = page.text.lines().filter(|said| said.starts_with("Changed in ")).count();
        assert_eq!(told, history.len(), "{}: changes that the server does not tell", page.name);
    }
}

fn assert_says(page: &Page, line: &str) {
    assert!(page.text.lines().any(|said| said == line), "{} does not say: {line}", page.name);
}

#[test]
fn every_error_is_explained_and_every_explained_error_exists() {
    let templates = error_templates();
    let mut unexplained: BTreeSet<_> = templates.iter().collect();
    for page in pages().into_iter().filter(Page::is_of_a_command) {
        for row in page.table("Error") {
            let said = row[0].trim_matches('`');
            let template = templates.iter().find(|template| fits(template, said));
            let template =
                template.unwrap_or_else(|| panic!("{}: no such error: {said}", page.name));
            unexplained.remove(template);
        }
    }
    assert!(unexplained.is_empty(), "in no page: {unexplained:?}");
}

#[test]
fn every_promise_is_shown_by_tests_that_exist() {
    let page = page("docs/safety.md");
    let rows = page.table("Promise");
    let promises: Vec<_> = rows
        .iter()
        .map(|row| row[0].split("**").nth(1).unwrap_or_else(|| panic!("no number: {}", row[0])))
        .collect();
    let cited: BTreeSet<_> = promises.iter().filter(|key| key.starts_with('L')).collect();
    let cited: BTreeSet<_> = cited
        .into_iter()
        .map(|key| key.trim_end_matches(|c: char| c.is_ascii_lowercase()))
        .collect();
    let numbers: Vec<_> = (1..=8).map(|n| format!("L{n}")).collect();
    assert_eq!(cited.into_iter().collect::<Vec<_>>(), numbers);

    let tests = self::page("docs/verification/promises.md").table("Test of");
    let of_nothing = tests.iter().find(|test| !promises.contains(&test[0].as_str()));
    assert_eq!(of_nothing, None, "a test of a promise that the page does not make");
    for (at, promise) in promises.iter().enumerate() {
        assert!(!promises[..at].contains(promise), "two promises are {promise}");
        let named = |shows: &str| -> String {
            let shown = tests.iter().filter(|test| test[0] == *promise && test[1] == shows);
            shown.map(|test| &*test[2]).collect()
        };
        assert_shown(promise, &named("that it holds"));
    }
    for test in &tests {
        assert!(["that it holds", "where it ends"].contains(&&*test[1]), "{test:?}");
        assert_shown(&test[0], &test[2]);
    }
}

#[test]
fn everything_that_lock_libraries_offer_is_shown_by_tests_that_exist() {
    let rows = page("docs/clients.md").table("What lock libraries offer");
    assert!(rows.len() > 30, "this test no longer understands docs/clients.md");
    for row in &rows {
        assert!(row.iter().all(|cell| !cell.is_empty()), "{row:?}");
        assert_shown(&row[0], &row[4]);
    }
}

#[test]
fn what_the_page_on_redlock_says_is_shown_by_tests_that_exist() {
    page("docs/redlock.md")
        .table("Said above")
        .iter()
        .for_each(|row| assert_shown(&row[0], &row[1]));
}

/// That tests are named there, and exist.
fn assert_shown(what: &str, named: &str) {
    let tests: Vec<_> = named.split('`').skip(1).step_by(2).collect();
    assert!(!tests.is_empty(), "nothing shows {what}");
    for test in tests {
        let (module, function) = test.rsplit_once("::").unwrap();
        let exists = match module.split_once("::").unwrap_or((module, "")) {
            ("conformance", _) => is_scenario(function),
            ("python", module) => {
                let file = Path::new(ROOT).join(format!("clients/python/tests/{module}.py"));
                let text = fs::read_to_string(file).unwrap_or_default();
                text.lines().any(|line| line.starts_with(&format!("def {function}(")))
            }
            _ => is_test(&file_of(module), function),
        };
        assert!(exists, "no test {test}");
    }
}

/// One of those that are played with each client.
fn is_scenario(name: &str) -> bool {
    let folder = Path::new(ROOT).join("clients/conformance/src/scenarios");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let texts: String = files.map(|file| fs::read_to_string(file).unwrap()).collect();
    let texts: String = texts.split_whitespace().collect();
    ["quick", "slow"].iter().any(|speed| texts.contains(&format!("{speed}(\"{name}\",")))
}

fn is_test(file: &Path, function: &str) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().zip(text.lines().skip(1)).any(|(before, line)| {
        let name = line.trim_start().trim_start_matches("async ").strip_prefix("fn ");
        let is_marked = ["#[test]", "#[tokio::test"].iter();
        name.is_some_and(|name| name.starts_with(&format!("{function}()")))
            && is_marked.into_iter().any(|mark| before.trim_start().starts_with(mark))
    })
}

/// Where the tests of this name are; those within the source of the client end in `tests`.
fn file_of(module: &str) -> PathBuf {
    let (folder, module) = match module.split_once("::") {
        Some(("client", module)) => ("clients/rust", module),
        Some(("booking", module)) => ("examples/booking", module),
        Some(("programs", module)) => ("examples/programs", module),
        _ => ("", module),
    };
    let (kind, module) = match module.strip_suffix("::tests") {
        Some(module) => ("src", module),
        None => ("tests", module),
    };
    let folder = Path::new(ROOT).join(folder).join(kind);
    let file = format!("{}.rs", module.replace("::", "/"));
    let files = [folder.join(&file), folder.join("ops").join(&file)];
    files.into_iter().find(|file| file.exists()).unwrap_or_default()
}

#[test]
fn every_configuration_is_documented_with_its_default_and_bounds_and_the_reverse() {
    if lacks((7, 0), "CONFIG GET of a module") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    let live = client.cmd("CONFIG GET leasehold.*");
    let live: Vec<_> = strings(&live);
    let live: BTreeSet<_> =
        live.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();

    let rows = page("docs/configuration.md").table("Name");
    let said: BTreeSet<_> = rows
        .iter()
        // A default may be followed by what it means.
        .map(|row| (row[0].replace('`', ""), row[1].split(' ').next().unwrap().to_owned()))
        .collect();
    assert_eq!(said, live);

    for row in rows {
        let name = row[0].replace('`', "");
        let [least, most]: [i64; 2] = [&row[2], &row[3]].map(|bound| bound.parse().unwrap());
        let mut accepts = |value: i64| {
            let reply = client.cmd(["CONFIG", "SET", &name, &value.to_string()]);
            !matches!(reply, Value::ServerError(_))
        };
        let outcomes = [least - 1, least, most, most + 1].map(&mut accepts);
        assert_eq!(outcomes, [false, true, true, false], "bounds of {name}");
    }
}

#[test]
fn every_field_of_info_is_documented_and_the_reverse() {
    let server = Server::start();
    let reply = server.cmd("INFO leasehold");
    let live: BTreeSet<_> =
        text(&reply).lines().filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect();
    let page = page("docs/operating.md");
    let said: BTreeSet<_> = page.table("Field").iter().map(|row| row[0].replace('`', "")).collect();
    assert_eq!(said, live);
}

/// What stands between quotes in one of the sources, and satisfies this.
fn literals(file: &str, is_one: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let source = fs::read_to_string(Path::new(ROOT).join(file)).unwrap();
    let code = source.split("mod tests {").next().unwrap();
    let literals = code.split('"').skip(1).step_by(2).filter(|literal| is_one(literal));
    let literals: BTreeSet<_> = literals.map(str::to_owned).collect();
    assert!(literals.len() > 3, "this test no longer understands {file}");
    literals
}

#[test]
fn every_event_is_documented_and_the_reverse() {
    let said = |name: &str| -> BTreeSet<_> {
        page(name).table("Event").iter().map(|row| row[0].replace('`', "")).collect()
    };
    let published = literals("core/src/observe/event.rs", |literal| literal.starts_with("lock."));
    assert_eq!(said("docs/operating.md"), published);
    let noted = literals("core/src/observe/log.rs", |literal| {
        literal.contains('-') || !literal.contains(' ')
    });
    assert_eq!(said("docs/commands/lock.log.md"), noted);
}

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    for page in pages() {
        for link in page.links().iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => Path::new(ROOT).join(&page.name),
                file => Path::new(ROOT).join(&page.name).with_file_name("").join(file),
            };
            let resolves = match anchor {
                "" => target.exists(),
                anchor => fs::read_to_string(&target)
                    .is_ok_and(|text| Page::new("", &text).anchors().contains(anchor)),
            };
            if !resolves {
                broken.push(format!("{}: {link}", page.name));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_file_that_the_architecture_names_exists() {
    let page = page("docs/architecture.md");
    let is_path = |span: &&str| ["src/", "tests/"].iter().any(|folder| span.starts_with(folder));
    let named: BTreeSet<_> = page.spans().filter(is_path).collect();
    assert!(named.len() > 10, "this test no longer understands {}", page.name);
    let missing: Vec<_> =
        named.into_iter().filter(|name| !Path::new(ROOT).join(name).exists()).collect();
    assert!(missing.is_empty(), "{}: {missing:#?}", page.name);
}

#[test]
fn every_make_target_that_is_mentioned_exists_and_has_a_line_of_help() {
    let makefile = fs::read_to_string(Path::new(ROOT).join("Makefile")).unwrap();
    let target = |line: &str| {
        let (name, _) = line.split_once(':')?;
        name.chars().all(|c| c.is_ascii_lowercase() || c == '-').then(|| name.to_owned())
    };
    let targets: BTreeSet<_> = makefile.lines().filter_map(target).collect();
    let helpless = makefile.lines().find(|line| target(line).is_some() && !line.contains(" ## "));
    assert_eq!(helpless, None, "a target without a line of help");
    for page in pages() {
        for name in page.first_arguments("make") {
            assert!(targets.contains(name), "{}: there is no make {name}", page.name);
        }
    }
}

fn pages() -> Vec<Page> {
    let mut names = vec![
        "README.md".into(),
        "CONTRIBUTING.md".into(),
        "CHANGELOG.md".into(),
        "SECURITY.md".into(),
        "docker/README.md".into(),
        "examples/README.md".into(),
    ];
    for folder in ["docs", "docs/commands", "docs/verification"] {
        for entry in fs::read_dir(Path::new(ROOT).join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") {
                names.push(format!("{folder}/{name}"));
            }
        }
    }
    names.iter().map(|name| page(name)).collect()
}

fn page(name: &str) -> Page {
    Page::new(name, &fs::read_to_string(Path::new(ROOT).join(name)).unwrap())
}

/// What LOCK.HELP says of the commands: `LOCK.RELEASE key owner [fence]`.
fn usages(client: &mut Client) -> BTreeSet<String> {
    let lines = strings(&client.cmd("LOCK.HELP"));
    let is_usage = |line: &String| line.starts_with("LOCK.") && !line.starts_with("LOCK.<");
    lines.into_iter().filter(is_usage).collect()
}

fn registered(client: &mut Client) -> BTreeSet<String> {
    let Value::Array(commands) = client.cmd("COMMAND") else { panic!("COMMAND gave no list") };
    let names = commands.iter().map(|command| text(item(command, 0)));
    names.filter(|name| name.starts_with("lock.")).collect()
}

fn name_of(usage: &str) -> &str {
    usage.split(' ').next().unwrap()
}

/// The texts of the errors as the source words them, with `{}` for what is filled in.
fn error_templates() -> Vec<String> {
    let source = fs::read_to_string(Path::new(ROOT).join("core/src/command/error.rs")).unwrap();
    let code = source.split("#[cfg(test)]").next().unwrap();
    let literals = code.split('"').skip(1).step_by(2);
    let is_error = |literal: &&str| {
        let word = literal.split(' ').next().unwrap();
        word.len() > 2 && word.chars().all(|c| c.is_ascii_uppercase())
    };
    let templates: Vec<_> = literals.filter(is_error).map(str::to_owned).collect();
    assert!(templates.len() > 5, "this test no longer understands core/src/command/error.rs");
    templates
}

/// Whether `said` is the template with something in its holes. The server itself words the rest of an
/// error of arity, so that one need only begin alike.
fn fits(template: &str, said: &str) -> bool {
    let mut parts = template.split("{}");
    let Some(mut rest) = said.strip_prefix(parts.next().unwrap()) else { return false };
    for part in parts {
        let filled = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        match filled.strip_prefix(part) {
            Some(after) if filled.len() < rest.len() => rest = after,
            _ => return false,
        }
    }
    rest.is_empty() || rest.starts_with(" for 'lock.")
}

fn item(list: &Value, position: usize) -> &Value {
    &items(list)[position]
}

fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone(),
        other => panic!("no text: {other:?}"),
    }
}
