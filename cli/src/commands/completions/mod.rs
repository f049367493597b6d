//! `leasehold completions`: what a shell needs to complete the arguments of this program.

use crate::arguments;
use crate::exit_code::{Code, Failure};
use crate::output;
use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::{Shell, generate};

/// Prints the completions for a shell.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Known,
}

const EXAMPLES: &str = "\
Examples:
  leasehold completions bash > ~/.local/share/bash-completion/completions/leasehold
  leasehold completions zsh > ~/.zfunc/_leasehold       after fpath+=~/.zfunc, before compinit in ~/.zshrc
  leasehold completions fish > ~/.config/fish/completions/leasehold.fish";

#[derive(Clone, Copy, ValueEnum)]
enum Known {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Code, Failure> {
    let (shell, addition) = match arguments.shell {
        Known::Bash => (Shell::Bash, include_str!("command.bash")),
        Known::Zsh => (Shell::Zsh, ""),
        Known::Fish => (Shell::Fish, include_str!("command.fish")),
    };
    let mut printed = Vec::new();
    generate(shell, &mut arguments::Arguments::command(), "leasehold", &mut printed);
    output::print_whole(&format!("{}{addition}", String::from_utf8_lossy(&printed)))?;
    Ok(Code::Done)
}
