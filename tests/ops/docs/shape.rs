//! How the pages are made: how long, after which template, and found from where.

use super::markdown::Page;
use super::{page, pages};
use crate::ROOT;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What is to be read in one go, and the most lines that it may have.
const SHORT: [(&str, usize); 2] = [("README.md", 150), ("docs/architecture.md", 200)];

const INDEX: &str = "docs/README.md";

/// In each page of a command: a heading, and what stands below it.
const TEMPLATE: [(&str, &[&str]); 4] = [
    (
        "Replies",
        &[
            "In order of precedence: the first line that applies is the reply.",
            "| When | RESP2 | RESP3 |",
        ],
    ),
    ("Errors", &["| Error | Cause | What to do |", "The server itself refuses the command"]),
    ("Example", &["```", "Mistakes:"]),
    ("Related", &["]("]),
];

#[test]
fn what_is_to_be_read_in_one_go_is_short() {
    for (name, most) in SHORT {
        let lines = page(name).text.lines().count();
        assert!(lines <= most, "{name} has {lines} lines");
    }
}

#[test]
fn every_page_of_a_command_is_of_one_template() {
    for page in pages().into_iter().filter(Page::is_of_a_command) {
        let name = &page.name;
        let lines: Vec<_> = page.text.lines().collect();
        assert_eq!([lines[1], lines[2], lines[4], lines[5]], ["", "```", "```", ""], "{name}");
        assert!(lines[6].starts_with("Since "), "{name}: {}", lines[6]);
        assert!(!lines[8].is_empty() && !lines[8].starts_with('#'), "{name} says not what it does");

        let arguments = section(&page, "Arguments");
        let has_table = arguments.contains("\n| Argument | Meaning |\n");
        assert!(has_table || arguments.trim() == "None.", "{name}: {arguments}");
        for (heading, wanted) in TEMPLATE {
            let section = section(&page, heading);
            for words in wanted {
                assert!(section.contains(words), "{name}: {heading} lacks {words}");
            }
        }
    }
}

/// What stands below a heading of the second level, to the next one.
fn section<'p>(page: &'p Page, heading: &str) -> &'p str {
    let mut sections = page.text.split("\n## ");
    let found = sections.find_map(|section| section.strip_prefix(heading)?.strip_prefix('\n'));
    found.unwrap_or_else(|| panic!("{} has no {heading}", page.name))
}

#[test]
fn every_page_is_found_from_the_index_and_the_index_from_the_readme() {
    let file = |name: &str| fs::canonicalize(Path::new(ROOT).join(name)).unwrap();
    let linked = |name: &str| -> BTreeSet<PathBuf> {
        let page = page(name);
        let here = file(name);
        let targets = page.links().into_iter().filter(|link| !link.contains("://"));
        let files = targets.map(|link| here.with_file_name(link.split('#').next().unwrap()));
        files.filter_map(|target| fs::canonicalize(target).ok()).collect()
    };
    assert!(linked("README.md").contains(&file(INDEX)), "README.md has no link to {INDEX}");
    let listed = linked(INDEX);
    let all = pages().into_iter().map(|page| page.name).filter(|name| name != INDEX);
    let unlisted: Vec<_> = all.filter(|name| !listed.contains(&file(name))).collect();
    assert!(unlisted.is_empty(), "not in {INDEX}: {unlisted:?}");
}
