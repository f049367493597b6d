//! A table, as Markdown and as comma-separated values.

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

    pub(crate) fn comma_separated(&self) -> String {
        let cell =
            |cell: &str| if cell.contains(',') { format!("\"{cell}\"") } else { cell.into() };
        let mut text = self.columns.join(",") + "\n";
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(|text| cell(text)).collect();
            text += &(cells.join(",") + "\n");
        }
        text
    }

    /// Reads what `comma_separated` has written.
    pub(crate) fn parse(text: &str) -> Self {
        let mut lines = text.lines().map(cells);
        Self { columns: lines.next().expect("a line of names"), rows: lines.collect() }
    }

    pub(crate) fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }
}

/// The cells of a line. Cells with commas are between quotes.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut is_quoted = false;
    for letter in line.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(String::new()),
            other => cells.last_mut().expect("it begins with one").push(other),
        }
    }
    cells
}
