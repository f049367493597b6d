//! The words of the command line that all subcommands share. Each has its own beside its code.

use crate::commands::{doctor, elect, ls, release, run, show, top, wait};
use crate::connecting::Connection;
use clap::{Parser, Subcommand};

/// Locks of Redis and Valkey from the command line: runs commands while a lock is held, and shows, releases and examines
/// locks.
#[derive(Parser)]
#[command(name = "leasehold", version, after_help = AFTER, max_term_width = 100)]
#[command(disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER: &str = "\
Exit codes:
  run and elect end with the code of their command, or 128+n if signal n ended it
  1   no: not held, not released, or something endangers locks (show, release, doctor)
  64  usage: the words, a variable or an address have no sense
  69  no server that grants locks has answered
  70  the system refused something, or this program has a defect
  75  not obtained: others had the lock for as long as --wait said
  77  the server refused, as its message says
  79  the lock was lost, and the command was ended, or its end was not covered
  126 the command cannot be run; 127 there is no such command

Examples:
  leasehold run backup -- tar czf /backup/home.tgz /home
  leasehold run --at-least 50s nightly -- ./job       in the crontab of several machines
  leasehold ls";

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
