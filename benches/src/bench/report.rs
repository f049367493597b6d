//! Writes the figures to a folder in `target/`: a page of tables for each server, files of
//! comma-separated values, and the overview, of which `docs/benchmarks.md` has an excerpt.

use super::table::Table;
use super::{Effort, machine, overview};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A target and the figure.
pub(crate) struct Target {
    pub(crate) what: String,
    pub(crate) against: String,
    pub(crate) wanted: String,
    pub(crate) measured: String,
    pub(crate) met: bool,
}

pub(crate) struct Report {
    /// The server's name in file names, such as `redis-8.6`.
    server: String,
    /// The folder of the files.
    folder: PathBuf,
    /// The page of the server, as far as it is written.
    page: String,
    targets: Vec<Target>,
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
        Self { server, folder, page, targets: Vec::new() }
    }

    /// Prints a table, and puts it on the page.
    pub(crate) fn table(&mut self, name: &str, table: &Table) {
        println!("\n{name}, {}\n\n{}", self.server, table.markdown());
        write!(self.page, "\n## {name}\n\n{}", table.markdown()).unwrap();
    }

    /// Writes a table as a file for programs.
    pub(crate) fn file(&self, name: &str, table: &Table) {
        fs::write(self.path(name, "csv"), table.comma_separated()).unwrap();
    }

    /// The path of a file about this server.
    pub(crate) fn path(&self, name: &str, extension: &str) -> PathBuf {
        self.folder.join(format!("{}-{name}.{extension}", self.server))
    }

    pub(crate) fn target(&mut self, target: Target) {
        self.targets.push(target);
    }

    /// Writes the page, and prints the targets and figures of this run. Only those of a whole run are
    /// kept.
    pub(crate) fn finish(mut self, whole: bool) {
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
            self.table("targets", &table);
            self.file("targets", &table);
            let overview = overview::of(&self.folder).markdown();
            fs::write(self.folder.join("overview.md"), overview).unwrap();
        } else {
            println!("\n{}", table.markdown());
        }
        fs::write(self.folder.join(format!("{}.md", self.server)), &self.page).unwrap();
        println!("written to {}", self.folder.display());
    }
}
