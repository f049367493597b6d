//! The docs are true: every transcript is run, and every table is compared with the server, both ways.

mod comparison;
mod log_lines;
mod permissions;
mod terminal;
mod transcript;

use crate::page::{Page, page, pages};
use crate::{ROOT, files, text};
use redis::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use testkit::{Client, Server, bulk_text, field, items, lacks, strings};

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

/// Where tests are that pages name.
const TESTS: [(&str, &str); 5] = [
    ("tests", ".rs"),
    ("clients/rust", ".rs"),
    ("clients/conformance/src/scenarios", ".rs"),
    ("clients/python/tests", ".py"),
    ("examples", ".rs"),
];

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
            match transcript::run(&block) {
                Ok(is_one) => transcripts += usize::from(is_one),
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

    let linked =
        |usage: &String| format!("[`{usage}`](docs/commands/{}.md)", name_of(usage).to_lowercase());
    let rows: BTreeSet<_> =
        page("README.md").table("Command").into_iter().map(|mut row| row.swap_remove(0)).collect();
    assert_eq!(rows, usages.iter().map(linked).collect(), "README.md and LOCK.HELP");
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
        let flags = strings(item(item(&info, 0), 2));
        // That it belongs to a module goes without saying.
        let flags: Vec<_> = flags.into_iter().filter(|flag| flag != "module").collect();
        let [since, complexity] =
            ["since", "complexity"].map(|part| bulk_text(field(docs, part).unwrap()));
        let flags = flags.join(", ");
        let mut wanted = vec![format!("Since {since}. Complexity: {complexity}. Flags: {flags}.")];
        for change in field(docs, "history").map_or(&[][..], items) {
            wanted.push(format!("Changed in {}. {}", strings(change)[0], strings(change)[1]));
        }
        let begins = ["Since ", "Changed in "];
        let told = page.text.lines().filter(|line| begins.iter().any(|of| line.starts_with(of)));
        assert_eq!(told.collect::<Vec<_>>(), wanted, "{}", page.name);
    }
}

#[test]
fn every_error_is_explained_and_every_explained_error_exists() {
    let is_error = |literal: &str| {
        let word = literal.split(' ').next().unwrap();
        word.len() > 2 && word.chars().all(|c| c.is_ascii_uppercase())
    };
    let templates = literals("core/src/command/error.rs", is_error);
    let mut unexplained: BTreeSet<_> = templates.iter().collect();
    for page in pages().into_iter().filter(Page::is_of_a_command) {
        for said in page.names("Error") {
            let template = templates.iter().find(|template| fits(template, &said));
            let template =
                template.unwrap_or_else(|| panic!("{}: no such error: {said}", page.name));
            unexplained.remove(template);
        }
    }
    assert!(unexplained.is_empty(), "in no page: {unexplained:?}");
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

#[test]
fn every_promise_is_shown_by_tests_that_exist() {
    let promises = page("docs/safety.md").table("Promise");
    let number = |row: &Vec<String>| row[0].split("**").nth(1).unwrap_or(&row[0]).to_owned();
    let promises: BTreeSet<_> = promises.iter().map(number).collect();
    let of_code = (1..=8).map(|number| format!("L{number}"));
    let unlisted = of_code.filter(|key| !promises.iter().any(|other| other.starts_with(key)));
    assert_eq!(unlisted.collect::<Vec<_>>(), [""; 0], "cited in the code, and not in the page");
    let tests = page("docs/verification/promises.md").table("Test of");
    let that_it_holds = tests.iter().filter(|test| test[1] == "that it holds");
    let shown: BTreeSet<_> = that_it_holds.map(|test| test[0].clone()).collect();
    assert_eq!(shown, promises, "what is shown to hold, and what is promised");
    let other = tests.iter().find(|test| test[1] != "that it holds" && test[1] != "where it ends");
    assert_eq!(other, None);
    let ends = tests.iter().find(|test| !promises.contains(&test[0]));
    assert_eq!(ends, None, "a test of a promise that the page does not make");
    assert_shown(tests.iter().map(|test| &test[2]));
}

#[test]
fn what_pages_say_that_tests_show_is_shown_by_tests_that_exist() {
    let offered = page("docs/clients.md").table("What lock libraries offer");
    let quorum = page("docs/redlock.md").table("Said above");
    assert_shown(offered.iter().map(|row| &row[6]).chain(quorum.iter().map(|row| &row[1])));
}

/// That each of these names tests that exist.
fn assert_shown<'s>(cells: impl Iterator<Item = &'s String>) {
    let known: BTreeSet<_> = TESTS
        .iter()
        .flat_map(|(folder, ending)| files(folder, ending))
        .flat_map(tests_in)
        .collect();
    for cell in cells {
        let mut tests = cell.split('`').skip(1).step_by(2).peekable();
        assert!(tests.peek().is_some(), "no test is named: {cell}");
        for test in tests {
            // Beside the code they are in a module of its file.
            let is_known = [test, &test.replace("::tests::", "::")].iter().any(|path| {
                let end: Vec<_> = path.rsplitn(3, "::").collect();
                known.contains(&format!("{}::{}", end[1], end[0]))
            });
            assert!(is_known, "no test {test}");
        }
    }
}

/// The tests in a file: each with the name of the file, or of its folder, before it.
fn tests_in(file: String) -> Vec<String> {
    let path = file.trim_end_matches("/mod.rs").trim_end_matches(".rs").trim_end_matches(".py");
    let (folder, module) = path.rsplit_once('/').unwrap();
    let text = text(&file);
    if folder.ends_with("/scenarios") {
        let text: String = text.split_whitespace().collect();
        let parts = ["quick(\"", "slow(\""].map(|speed| text.split(speed).skip(1));
        let names = parts.into_iter().flatten().map(|rest| rest.split('"').next().unwrap());
        return names.map(|name| format!("conformance::{name}")).collect();
    }
    let marks = ["#[test]", "#[tokio::test"];
    let name = |(before, line): (&str, &str)| {
        let line = line.trim_start().trim_start_matches("async ");
        let is_marked = marks.iter().any(|mark| before.trim_start().starts_with(mark));
        let function = line.strip_prefix("fn ").filter(|_| is_marked);
        let (name, _) = function.or(line.strip_prefix("def "))?.split_once('(')?;
        Some(format!("{module}::{name}"))
    };
    text.lines().zip(text.lines().skip(1)).filter_map(name).collect()
}

#[test]
fn every_configuration_is_documented_with_its_default_and_bounds_and_the_reverse() {
    if lacks((7, 0), "CONFIG GET of a module") {
        return;
    }
    let server = Server::start();
    let mut client = server.client();
    let live = strings(&client.cmd("CONFIG GET leasehold.*"));
    let live: BTreeMap<_, _> = live.chunks_exact(2).map(|pair| (&*pair[0], &*pair[1])).collect();

    let rows = page("docs/configuration.md").table("Name");
    let said: BTreeMap<_, _> = rows
        .iter()
        // A default may be followed by what it means.
        .map(|row| (row[0].trim_matches('`'), row[1].split(' ').next().unwrap()))
        .collect();
    assert_eq!(said, live);
    let example = text("packaging/leasehold.conf");
    let commented = |(name, default): (&str, &str)| format!("# {name} {default}");
    let said: Vec<_> = rows.iter().map(|row| row[0].trim_matches('`')).collect();
    let shown: Vec<_> = example.lines().filter(|line| line.starts_with("# leasehold.")).collect();
    assert_eq!(shown, said.iter().map(|&name| commented((name, live[name]))).collect::<Vec<_>>());

    for row in &rows {
        let name = row[0].trim_matches('`');
        let [least, most]: [i64; 2] = [&row[2], &row[3]].map(|bound| bound.parse().unwrap());
        let mut accepts = |value: i64| {
            let reply = client.cmd(["CONFIG", "SET", name, &value.to_string()]);
            !matches!(reply, Value::ServerError(_))
        };
        let outcomes = [least - 1, least, most, most + 1].map(&mut accepts);
        assert_eq!(outcomes, [false, true, true, false], "bounds of {name}");
    }
}

#[test]
fn every_field_of_info_is_documented_and_the_reverse() {
    assert_eq!(page("docs/operating.md").names("Field"), fields_of_info());
}

/// What INFO says of Leasehold: `leasehold_held`.
pub(crate) fn fields_of_info() -> BTreeSet<String> {
    let told = Server::start().client().info_text("leasehold");
    told.lines().filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect()
}

#[test]
fn every_event_is_documented_and_the_reverse() {
    let published = literals("core/src/observe/event.rs", |literal| literal.starts_with("lock."));
    assert_eq!(page("docs/operating.md").names("Event"), published);
    let is_event = |literal: &str| literal.contains('-') || !literal.contains(' ');
    let noted = literals("core/src/observe/log.rs", is_event);
    assert_eq!(page("docs/commands/lock.log.md").names("Event"), noted);
}

/// What stands between quotes in one of the sources, and satisfies this.
fn literals(file: &str, is_one: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let source = text(file);
    let code = source.split("mod tests {").next().unwrap();
    let literals = code.split('"').skip(1).step_by(2).filter(|literal| is_one(literal));
    let literals: BTreeSet<_> = literals.map(str::to_owned).collect();
    assert!(literals.len() > 3, "this test no longer understands {file}");
    literals
}

#[test]
fn every_link_and_every_file_that_the_architecture_names_leads_somewhere() {
    let mut broken = Vec::new();
    for page in pages() {
        let here = Path::new(ROOT).join(&page.name);
        for link in page.links().into_iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target =
                if file.is_empty() { here.clone() } else { here.with_file_name("").join(file) };
            let resolves = match anchor {
                "" => target.exists(),
                _ if !target.exists() => false,
                anchor => self::page(target.to_str().unwrap()).anchors().contains(anchor),
            };
            broken.extend((!resolves).then(|| format!("{}: {link}", page.name)));
        }
    }
    let page = page("docs/architecture.md");
    let is_path = |span: &&str| ["src/", "tests/"].iter().any(|folder| span.starts_with(folder));
    let missing = page.spans().filter(is_path).filter(|name| !Path::new(ROOT).join(name).exists());
    broken.extend(missing.map(str::to_owned));
    assert!(broken.is_empty(), "{broken:#?}");
}

/// What LOCK.HELP says of the commands: `LOCK.RELEASE key owner [fence]`.
fn usages(client: &mut Client) -> BTreeSet<String> {
    let lines = strings(&client.cmd("LOCK.HELP"));
    let is_usage = |line: &String| line.starts_with("LOCK.") && !line.starts_with("LOCK.<");
    lines.into_iter().filter(is_usage).collect()
}

fn registered(client: &mut Client) -> BTreeSet<String> {
    let commands = client.cmd("COMMAND");
    let names = items(&commands).iter().map(|command| bulk_text(item(command, 0)));
    names.filter(|name| name.starts_with("lock.")).collect()
}

fn name_of(usage: &str) -> &str {
    usage.split(' ').next().unwrap()
}

fn item(list: &Value, position: usize) -> &Value {
    &items(list)[position]
}
