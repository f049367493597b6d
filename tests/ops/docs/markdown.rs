//! As much of Markdown as the docs use.

use std::collections::BTreeSet;

const FENCE: &str = "```";

pub(super) struct Page {
    /// The path from the root of the repository.
    pub(super) name: String,
    pub(super) text: String,
}

/// What stands between two lines of backticks.
pub(super) struct Block<'p> {
    pub(super) page: &'p str,
    /// The number of its first line in the page, from 1.
    pub(super) first_line: usize,
    pub(super) lines: Vec<&'p str>,
}

impl Page {
    pub(super) fn new(name: &str, text: &str) -> Self {
        Self { name: name.to_owned(), text: text.to_owned() }
    }

    pub(super) fn is_of_a_command(&self) -> bool {
        self.name.starts_with("docs/commands/")
    }

    pub(super) fn blocks(&self) -> Vec<Block<'_>> {
        let mut blocks = Vec::new();
        let mut open: Option<Block<'_>> = None;
        for (number, line) in (1..).zip(self.text.lines()) {
            match (&mut open, line.starts_with(FENCE)) {
                (Some(_), true) => blocks.extend(open.take()),
                (Some(block), false) => block.lines.push(line),
                (None, true) => {
                    open = Some(Block { page: &self.name, first_line: number + 1, lines: vec![] });
                }
                (None, false) => {}
            }
        }
        assert!(open.is_none(), "{} has a block that does not end", self.name);
        blocks
    }

    pub(super) fn headings(&self, level: usize) -> Vec<&str> {
        let mark = format!("{} ", "#".repeat(level));
        self.prose().into_iter().filter_map(|line| line.strip_prefix(&mark)).collect()
    }

    /// The names by which headings can be linked to.
    pub(super) fn anchors(&self) -> BTreeSet<String> {
        let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
        (1..=6)
            .flat_map(|level| self.headings(level))
            .map(|heading| heading.to_lowercase().chars().filter(kept).collect::<String>())
            .map(|anchor| anchor.replace(' ', "-"))
            .collect()
    }

    /// The rows of all tables whose first column has this title.
    pub(super) fn table(&self, title: &str) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        let mut inside = false;
        for line in self.prose() {
            let Some(cells) = line.strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
                inside = false;
                continue;
            };
            // A bar within a cell has a backslash before it.
            let cells = cells.replace(r"\|", "\0");
            let cells = cells.split('|').map(|cell| cell.trim().replace('\0', "|"));
            let cells: Vec<_> = cells.collect();
            if cells[0] == title {
                inside = true;
            } else if inside && !cells[0].starts_with("---") {
                rows.push(cells);
            }
        }
        assert!(!rows.is_empty(), "{} has no table of {title}", self.name);
        rows
    }

    /// Where its links lead.
    pub(super) fn links(&self) -> Vec<&str> {
        let after = self.prose().into_iter().flat_map(|line| line.split("](").skip(1));
        after.map(|rest| rest.split(')').next().unwrap()).collect()
    }

    /// The words that follow `program` where the page shows it being called: at the start of a line in a
    /// block, or of something between backticks.
    pub(super) fn first_arguments(&self, program: &str) -> BTreeSet<&str> {
        let in_blocks = self.blocks().into_iter().flat_map(|block| block.lines);
        in_blocks
            .chain(self.spans())
            .filter_map(|call| call.strip_prefix(program)?.strip_prefix(' ')?.split(' ').next())
            .collect()
    }

    /// What stands between backticks in a line.
    pub(super) fn spans(&self) -> impl Iterator<Item = &str> {
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
