//! A table in Markdown.

use std::fmt::Write;

/// Rows under a heading.
pub(crate) struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[&str]) -> Self {
        Self { columns: columns.iter().map(|&name| name.to_owned()).collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "{cells:?}");
        self.rows.push(cells);
    }

    /// As a table in Markdown whose source is aligned too. Figures are aligned to the right.
    pub(crate) fn markdown(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.columns[column].chars().count(), 4]).max().unwrap()
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let begins_a_figure = |c: char| c.is_ascii_digit() || "–-+≤≥*".contains(c);
        let is_figure = |column: usize| {
            column > 0 && self.rows.iter().all(|row| row[column].starts_with(begins_a_figure))
        };
        let mut text = String::new();
        let mut line = |cells: &[String]| {
            for (column, cell) in cells.iter().enumerate() {
                let width = widths[column];
                if is_figure(column) {
                    write!(text, "| {cell:>width$} ").unwrap();
                } else {
                    write!(text, "| {cell:<width$} ").unwrap();
                }
            }
            text.push_str("|\n");
        };
        line(&self.columns);
        let rule = |column: usize| {
            let dashes = "-".repeat(widths[column] - 1);
            if is_figure(column) { format!("{dashes}:") } else { format!("{dashes}-") }
        };
        line(&(0..widths.len()).map(rule).collect::<Vec<_>>());
        self.rows.iter().for_each(|row| line(row));
        text
    }
}
