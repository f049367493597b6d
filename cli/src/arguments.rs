//! The arguments that all subcommands share. Each subcommand's own arguments are beside its code.

use crate::commands::{completions, doctor, elect, ls, man, mcp, release, run, show, top, wait};
use crate::connecting::Connection;
use crate::exit_code::{MEANINGS, Meaning};
use clap::{Parser, Subcommand};

/// Locks of Redis and Valkey from the command line: runs commands while a lock is held, and shows, releases and examines
/// locks.
#[derive(Parser)]
#[command(name = "leasehold", version, after_help = after(), max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// An empty argument usually comes from an unset variable in a script.
pub(crate) fn not_empty(text: &str) -> Result<String, &'static str> {
    if text.is_empty() { Err(EMPTY) } else { Ok(text.to_owned()) }
}

pub(crate) const EMPTY: &str = "it is empty: is a variable unset?";

const EXAMPLES: &str = "\
Examples:
  leasehold run backup -- tar czf /backup/home.tgz /home
  leasehold run --at-least 50s nightly -- ./job       in the crontab of several machines
  leasehold ls";

fn after() -> String {
    let mut text = "Exit codes:\n  run and elect end with the code of their command, or 128+n if signal n ended it\n".to_owned();
    for Meaning { code, text: meaning, .. } in &MEANINGS {
        text.push_str(&format!("  {code:<3} {meaning}\n"));
    }
    text + "\n" + EXAMPLES
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Run(run::Arguments),
    Elect(elect::Arguments),
    Ls(ls::Arguments),
    Show(show::Arguments),
    Top(top::Arguments),
    Wait(wait::Arguments),
    Release(release::Arguments),
    Doctor(doctor::Arguments),
    Mcp(mcp::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent_and_every_subcommand_has_examples() {
        let command = Arguments::command();
        command.clone().debug_assert();
        for subcommand in command.get_subcommands() {
            let after = subcommand.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(after.starts_with("Example"), "{}", subcommand.get_name());
        }
    }
}
