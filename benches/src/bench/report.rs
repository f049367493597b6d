//! What is written down: tables for people on the terminal and in `docs/benchmarks.md`, the same figures in files of
//! comma-separated values, and drawings.

use super::{Effort, machine};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const PAGE: &str = "docs/benchmarks.md";

/// A figure that was to be reached.
pub(crate) struct Target {
    pub(crate) what: String,
    pub(crate) against: String,
    pub(crate) wanted: String,
    pub(crate) measured: String,
    pub(crate) met: bool,
}

/// Rows under a heading.
pub(crate) struct Table {
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[&'static str]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "{cells:?}");
        self.rows.push(cells);
    }

    /// As a table of Markdown whose columns are aligned in the source too. Figures are to the right.
    fn markdown(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.columns[column].chars().count(), 4]).max().unwrap()
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let begins_a_figure = |c: char| c.is_ascii_digit() || "–-+≤≥".contains(c);
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
        line(&self.columns.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let rule = |column: usize| {
            let dashes = "-".repeat(widths[column] - 1);
            if is_figure(column) { format!("{dashes}:") } else { format!("{dashes}-") }
        };
        line(&(0..widths.len()).map(rule).collect::<Vec<_>>());
        self.rows.iter().for_each(|row| line(row));
        text
    }

    fn comma_separated(&self) -> String {
        let cell =
            |cell: &str| if cell.contains(',') { format!("\"{cell}\"") } else { cell.into() };
        let mut text = self.columns.join(",") + "\n";
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(|text| cell(text)).collect();
            text += &(cells.join(",") + "\n");
        }
        text
    }
}

pub(crate) struct Report {
    effort: Effort,
    /// The server's name in file names and marks, such as `redis-8.6`.
    server: String,
    /// What the figures are of: a line below each table.
    origin: String,
    /// Where files go.
    folder: PathBuf,
    targets: Vec<Target>,
}

impl Report {
    pub(crate) fn begun(effort: Effort) -> Self {
        let (server, version) = machine::names_of_the_server();
        let target = std::env::var_os("CARGO_TARGET_DIR");
        let target = target.map_or_else(|| Path::new(ROOT).join("target"), PathBuf::from);
        let folder = match effort {
            Effort::Full => Path::new(ROOT).join("docs/benchmarks"),
            Effort::Quick => target.join("bench"),
            Effort::Smoke => target.join("bench-smoke"),
        };
        fs::create_dir_all(&folder).unwrap();
        let (machine, date) = (machine::description(), machine::today());
        let command = effort.pick("cargo test", "make bench QUICK=1", "make bench");
        let origin = format!("{version} on {machine}; {date}, `{command}`");
        println!("{origin}");
        Self { effort, server, origin, folder, targets: Vec::new() }
    }

    /// One table of figures: shown, and where the page has a place for it, put there with its drawings.
    pub(crate) fn table(&self, name: &str, table: &Table, drawings: &[&str]) {
        println!("\n{name}, {}\n\n{}", self.server, table.markdown());
        let mut text = table.markdown();
        for drawing in drawings {
            let file = format!("{}-{drawing}.svg", self.server);
            write!(text, "\n![{drawing}, {}](benchmarks/{file})\n", self.server).unwrap();
        }
        self.publish(name, &text);
    }

    /// The same figures, for programs.
    pub(crate) fn file(&self, name: &str, table: &Table) {
        fs::write(self.path(name, "csv"), table.comma_separated()).unwrap();
    }

    /// Where a file about this server goes.
    pub(crate) fn path(&self, name: &str, extension: &str) -> PathBuf {
        self.folder.join(format!("{}-{name}.{extension}", self.server))
    }

    /// The server, for titles.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    pub(crate) fn target(&mut self, target: Target) {
        self.targets.push(target);
    }

    /// The figures to be reached, of all that was measured. Only those of a whole run are kept.
    pub(crate) fn finish(self, whole: bool) {
        let mut table = Table::new(&["What", "Against", "Wanted", "Measured", "Met"]);
        for target in &self.targets {
            let met = if target.met { "yes" } else { "**no**" };
            table.row(vec![
                target.what.clone(),
                target.against.clone(),
                target.wanted.clone(),
                target.measured.clone(),
                met.to_owned(),
            ]);
        }
        if whole {
            self.table("targets", &table, &[]);
            self.file("targets", &table);
        } else {
            println!("\n{}", table.markdown());
        }
        println!("written to {}", self.folder.display());
    }

    /// Replaces what stands between `<!-- NAME SERVER -->` and `<!-- end -->`.
    fn publish(&self, name: &str, text: &str) {
        if self.effort != Effort::Full {
            return;
        }
        let file = Path::new(ROOT).join(PAGE);
        let page = fs::read_to_string(&file).unwrap();
        let mark = format!("<!-- {name} {} -->\n", self.server);
        let Some((before, rest)) = page.split_once(&mark) else {
            println!("{PAGE} has no place for it: no line {}", mark.trim_end());
            return;
        };
        let (_, after) = rest.split_once("<!-- end -->").expect("an end of the place");
        let origin = &self.origin;
        let text = format!("{before}{mark}\n{text}\n{origin}\n\n<!-- end -->{after}");
        fs::write(file, text).unwrap();
    }
}
