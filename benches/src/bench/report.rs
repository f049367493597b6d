//! Writes the figures: tables on the terminal and on the page of each server in `docs/benchmarks/`,
//! files of comma-separated values, and drawings. `docs/benchmarks.md` gets the overview.

use super::table::Table;
use super::{Effort, machine, overview};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const PAGE: &str = "docs/benchmarks.md";

/// A target and the figure.
pub(crate) struct Target {
    pub(crate) what: String,
    pub(crate) against: String,
    pub(crate) wanted: String,
    pub(crate) measured: String,
    pub(crate) met: bool,
}

pub(crate) struct Report {
    effort: Effort,
    /// The server's name in file names and marks, such as `redis-8.6`.
    server: String,
    /// The origin of the figures, which is below each table.
    origin: String,
    /// The folder of the files.
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
        let (machine, date) = (machine::description(), testkit::today());
        let command = effort.pick("cargo test", "make bench QUICK=1", "make bench");
        let origin = format!("{version} on {machine}; {date}, `{command}`");
        println!("{origin}");
        Self { effort, server, origin, folder, targets: Vec::new() }
    }

    /// Prints a table, and puts it on the page with its drawings if the page has a place for it.
    pub(crate) fn table(&self, name: &str, table: &Table, drawings: &[&str]) {
        println!("\n{name}, {}\n\n{}", self.server, table.markdown());
        let mut text = table.markdown();
        for drawing in drawings {
            let file = format!("{}-{drawing}.svg", self.server);
            write!(text, "\n![{drawing}, {}]({file})\n", self.server).unwrap();
        }
        write!(text, "\n{}\n", self.origin).unwrap();
        self.publish(&self.folder.join(format!("{}.md", self.server)), name, &text);
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

    /// Prints the targets and figures of this run. Only those of a whole run are kept.
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
            let overview = overview::of(&self.folder).markdown();
            self.publish(&Path::new(ROOT).join(PAGE), "targets", &overview);
        } else {
            println!("\n{}", table.markdown());
        }
        println!("written to {}", self.folder.display());
    }

    /// Replaces the text between `<!-- NAME -->` and `<!-- end -->` on a page.
    fn publish(&self, page: &Path, name: &str, text: &str) {
        if self.effort != Effort::Full {
            return;
        }
        let mark = format!("<!-- {name} -->\n");
        let before = fs::read_to_string(page).unwrap_or_default();
        let Some((head, rest)) = before.split_once(&mark) else {
            println!("{} has no place for it: no line {}", page.display(), mark.trim_end());
            return;
        };
        let (_, tail) = rest.split_once("<!-- end -->").expect("an end of the place");
        fs::write(page, format!("{head}{mark}\n{text}\n<!-- end -->{tail}")).unwrap();
    }
}
