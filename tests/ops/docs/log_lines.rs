//! What docs/log-lines.md says that the module writes to the server's log, compared with the source.

use crate::page::page;
use crate::{files, text};
use std::collections::BTreeSet;

const PAGE: &str = "docs/log-lines.md";
const LEVELS: [&str; 2] = ["notice", "warning"];

/// Where the page leaves out what is filled in.
const FILLED_IN: char = '…';

/// The table of what may follow the line that ends with a reason.
const REASONS: &str = "Reason";

#[test]
fn every_line_of_the_log_is_documented_and_the_reverse() {
    let said: BTreeSet<_> = page(PAGE)
        .table("Line")
        .iter()
        .map(|row| (row[1].clone(), row[0].trim_matches('`').to_owned()))
        .collect();
    assert_eq!(said, logged());
}

#[test]
fn every_reason_that_the_page_quotes_from_the_log_is_in_the_source() {
    let code: String = sources_of_the_module().iter().map(|source| joined(source)).collect();
    let page = page(PAGE);
    let rows = page.table(REASONS);
    let quoted: Vec<_> = rows.iter().flat_map(|row| row[0].split('`').skip(1).step_by(2)).collect();
    assert!(quoted.len() > 4, "this test no longer understands the table of reasons");
    for wording in quoted {
        let missing = wording.split(FILLED_IN).find(|part| !code.contains(part));
        assert_eq!(missing, None, "nothing in src/ says: {wording}");
    }
}

/// The text of every source of the module.
fn sources_of_the_module() -> Vec<String> {
    files("src", ".rs").iter().map(|name| text(name)).collect()
}

/// Level and wording of every line that is logged.
fn logged() -> BTreeSet<(String, String)> {
    let mut lines = BTreeSet::new();
    for source in sources_of_the_module() {
        for level in LEVELS {
            let call = format!("log::{level}(");
            let calls = source.split(&call).skip(1);
            lines.extend(calls.map(|call| (level.to_owned(), wording(call))));
        }
    }
    assert!(lines.len() > 5, "this test no longer understands src/");
    lines
}

/// The texts among the arguments of a call that begins here, as the page shows them.
fn wording(call: &str) -> String {
    let (mut text, mut is_text, mut is_hole, mut depth) = (String::new(), false, false, 1);
    let call = joined(call).replace("env!(\"CARGO_PKG_VERSION\")", "\"{}\"");
    for c in call.chars() {
        match c {
            '"' => is_text = !is_text,
            '{' if is_text => (is_hole, text) = (true, text + &FILLED_IN.to_string()),
            '}' if is_text => is_hole = false,
            _ if is_text => text.extend((!is_hole).then_some(c)),
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    assert!(!text.is_empty(), "no text in {call:.200}");
    text
}

/// With the lines of each text in one.
fn joined(code: &str) -> String {
    let mut lines = code.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |text, line| text + line.trim_start())
}
