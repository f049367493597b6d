//! `leasehold man`: the pages of the manual.

mod page;
mod variables;

use crate::arguments;
use crate::connecting::usage;
use crate::exit_code::{Code, Failure};
use crate::output::{self, printable};
use clap::{Args, CommandFactory, ValueHint};
use page::page;
use std::fs;
use std::path::{Path, PathBuf};

/// Prints a page of the manual, for man.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The subcommand; without it, the page is that of leasehold itself
    #[arg(value_name = "SUBCOMMAND")]
    subcommand: Option<String>,
    /// Write all pages into this folder instead
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath, conflicts_with = "subcommand")]
    into: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  leasehold man run | man -l -
  leasehold man --into ~/.local/share/man/man1          then: man leasehold, man leasehold-run";

pub(crate) fn run(arguments: &Arguments) -> Result<Code, Failure> {
    let mut program = arguments::Arguments::command().disable_help_subcommand(true);
    program.build();
    if let Some(folder) = &arguments.into {
        return write_all(&program, folder);
    }
    let Some(wanted) = &arguments.subcommand else {
        output::print_whole(&page(&program, &program))?;
        return Ok(Code::Done);
    };
    let Some(subcommand) = program.find_subcommand(wanted) else {
        let names: Vec<_> = program.get_subcommands().map(clap::Command::get_name).collect();
        let (wanted, names) = (printable(wanted), names.join(", "));
        return Err(usage(&format!("there is no subcommand {wanted}: it is one of {names}")));
    };
    output::print_whole(&page(&program, subcommand))?;
    Ok(Code::Done)
}

fn write_all(program: &clap::Command, folder: &Path) -> Result<Code, Failure> {
    let failed = |path: &Path, error| {
        Failure::of_system(&format!("{} cannot be written", path.display()), &error)
    };
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    for command in std::iter::once(program).chain(program.get_subcommands()) {
        let path = folder.join(format!("{}.1", page::name(program, command)));
        fs::write(&path, page(program, command)).map_err(|error| failed(&path, error))?;
    }
    Ok(Code::Done)
}
