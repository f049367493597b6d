//! Writes the figures to a folder in `target/`: a page of tables for each server.

use super::table::Table;
use super::{Effort, machine};
use std::fmt::Write;
use std::fs;
use std::mem;
use std::path::{Path, PathBuf};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

pub(crate) struct Report {
    /// The server's name in file names, such as `redis-8.6`.
    server: String,
    /// The folder of the files.
    folder: PathBuf,
    /// The page of the server, as far as it is written.
    pub(crate) page: String,
    targets: Table,
}

impl Report {
    pub(crate) fn begun(effort: Effort) -> Self {
        let (server, version) = machine::names_of_the_server();
        let target = std::env::var_os("CARGO_TARGET_DIR");
        let target = target.map_or_else(|| Path::new(ROOT).join("target"), PathBuf::from);
        let folder = match effort {
            Effort::Full => target.join("benchmarks"),
            Effort::Quick => target.join("bench"),
            Effort::Smoke => target.join("bench-smoke"),
        };
        fs::create_dir_all(&folder).unwrap();
        let (machine, date) = (machine::description(), testkit::today());
        let command = effort.pick("cargo test", "make bench QUICK=1", "make bench");
        let origin = format!("{version} on {machine}; {date}, `{command}`");
        println!("{origin}");
        let page = format!("# {server}\n\n{origin}\n");
        let targets = Table::new(&["What", "Against", "Wanted", "Measured", "Met"]);
        Self { server, folder, page, targets }
    }

    /// Prints a table, and puts it on the page.
    pub(crate) fn table(&mut self, name: &str, table: &Table) {
        println!("\n{name}, {}\n\n{}", self.server, table.markdown());
        write!(self.page, "\n## {name}\n\n{}", table.markdown()).unwrap();
    }

    /// What was measured against what, with so many digits, and the limit, such as `≤ 1.20 × the time`.
    pub(crate) fn target(
        &mut self,
        (what, against): (&str, &str),
        wanted: &str,
        (measured, digits): (f64, usize),
    ) {
        let mut words = wanted.split(' ');
        let sign = words.next();
        let limit: f64 = words.next().and_then(|limit| limit.parse().ok()).expect("a limit");
        let met = if sign == Some("≥") { measured >= limit } else { measured <= limit };
        let unit = words.next().unwrap_or_default();
        self.target_as((what, against), wanted, format!("{measured:.digits$} {unit}"), met);
    }

    /// The same, worded and judged by the caller.
    pub(crate) fn target_as(
        &mut self,
        (what, against): (&str, &str),
        wanted: &str,
        measured: String,
        met: bool,
    ) {
        let met = if met { "yes" } else { "**no**" };
        let row = [what, against, wanted, &measured, met];
        self.targets.row(row.map(str::to_owned).into());
    }

    /// Writes the page, and prints the targets and figures of this run. Only those of a whole run are kept.
    pub(crate) fn finish(mut self, whole: bool) {
        let table = mem::replace(&mut self.targets, Table::new(&[]));
        if whole {
            self.table("targets", &table);
        } else {
            println!("\n{}", table.markdown());
        }
        fs::write(self.folder.join(format!("{}.md", self.server)), &self.page).unwrap();
        println!("written to {}", self.folder.display());
    }
}
