//! As much of Markdown as the pages use.

use crate::{files, text};
use std::collections::BTreeSet;

const FENCE: &str = "```";

pub(crate) struct Page {
    /// The path from the root of the repository.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// What stands between two lines of backticks.
pub(crate) struct Block<'p> {
    pub(crate) page: &'p str,
    /// The number of its first line in the page, from 1.
    pub(crate) first_line: usize,
    /// The last heading before it.
    pub(crate) heading: &'p str,
    pub(crate) language: &'p str,
    pub(crate) lines: Vec<&'p str>,
}

/// All that are for users, and CONTRIBUTING.md.
pub(crate) fn pages() -> Vec<Page> {
    let others = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"];
    let others = others.into_iter().chain(["docker/README.md", "examples/README.md"]);
    others.map(str::to_owned).chain(files("docs", ".md")).map(|name| page(&name)).collect()
}

pub(crate) fn page(name: &str) -> Page {
    Page { name: name.to_owned(), text: text(name) }
}

/// The blocks of this language under this heading, one after another.
pub(crate) fn shown(name: &str, heading: &str, language: &str) -> String {
    let page = page(name);
    let blocks = page.blocks().into_iter();
    let blocks = blocks.filter(|block| block.heading == heading && block.language == language);
    let found: String = blocks.map(|block| block.text()).collect();
    assert!(!found.is_empty(), "{name} has no {language} under {heading}");
    found
}

impl Block<'_> {
    pub(crate) fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

impl Page {
    pub(crate) fn is_of_a_command(&self) -> bool {
        self.name.starts_with("docs/commands/")
    }

    pub(crate) fn blocks(&self) -> Vec<Block<'_>> {
        let (mut blocks, mut open, mut heading) = (Vec::new(), None::<Block<'_>>, "");
        for (number, line) in (1..).zip(self.text.lines()) {
            match (&mut open, line.strip_prefix(FENCE)) {
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(block), None) => block.lines.push(line),
                (None, Some(language)) => {
                    let (page, first_line, lines) = (&*self.name, number + 1, Vec::new());
                    open = Some(Block { page, first_line, heading, language, lines });
                }
                (None, None) if line.starts_with('#') => heading = line.trim_matches(['#', ' ']),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{} has a block that does not end", self.name);
        blocks
    }

    pub(crate) fn headings(&self, level: usize) -> Vec<&str> {
        let mark = format!("{} ", "#".repeat(level));
        self.prose().into_iter().filter_map(|line| line.strip_prefix(&mark)).collect()
    }

    /// The names by which headings can be linked to.
    pub(crate) fn anchors(&self) -> BTreeSet<String> {
        let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
        (1..=6)
            .flat_map(|level| self.headings(level))
            .map(|heading| heading.to_lowercase().chars().filter(kept).collect::<String>())
            .map(|anchor| anchor.replace(' ', "-"))
            .collect()
    }

    /// The rows of all tables whose first column has this title.
    pub(crate) fn table(&self, title: &str) -> Vec<Vec<String>> {
        let (mut rows, mut inside) = (Vec::new(), false);
        for line in self.prose() {
            let Some(cells) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
                inside = false;
                continue;
            };
            // A bar within a cell has a backslash before it.
            let cells = cells.replace(r"\|", "\0");
            let cells: Vec<_> =
                cells.split('|').map(|cell| cell.trim().replace('\0', "|")).collect();
            if cells[0] == title {
                inside = true;
            } else if inside && !cells[0].starts_with("---") {
                rows.push(cells);
            }
        }
        assert!(!rows.is_empty(), "{} has no table of {title}", self.name);
        rows
    }

    /// The first column of such a table, without backticks.
    pub(crate) fn names(&self, title: &str) -> BTreeSet<String> {
        self.table(title).iter().map(|row| row[0].replace('`', "")).collect()
    }

    /// Where its links lead.
    pub(crate) fn links(&self) -> Vec<&str> {
        let after = self.prose().into_iter().flat_map(|line| line.split("](").skip(1));
        after.map(|rest| rest.split(')').next().unwrap()).collect()
    }

    /// What stands between backticks in a line.
    pub(crate) fn spans(&self) -> impl Iterator<Item = &str> {
        self.prose().into_iter().flat_map(|line| line.split('`').skip(1).step_by(2))
    }

    /// The lines outside blocks.
    fn prose(&self) -> Vec<&str> {
        let mut inside = false;
        let outside = |line: &&str| {
            let is_fence = line.starts_with(FENCE);
            inside ^= is_fence;
            !inside && !is_fence
        };
        self.text.lines().filter(outside).collect()
    }
}
