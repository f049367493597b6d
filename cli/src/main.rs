//! The command line of Leasehold: locks for scripts, and a view of locks for operators.
//!
//! Each subcommand has a file in `commands/`. `connecting.rs` knows how servers are reached, `servers.rs` asks each
//! server separately, `exit_code.rs` has the exit codes, and `output.rs` prints. `child/` runs a command and passes
//! signals on to it.

#![forbid(unsafe_code)]

mod arguments;
mod child;
mod commands;
mod connecting;
mod duration;
mod exit_code;
mod fields;
mod output;
mod servers;
mod story;
mod writer;

use arguments::Arguments;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use exit_code::{Code, Failure};
use nix::libc::SIGINT;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let ended = child::processes::run_if_asked().unwrap_or_else(run);
    writer::finish();
    ended
}

fn run() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        // Otherwise the message would depend on whether the variable of the address is set.
        Err(refused) if refused.kind() == ErrorKind::MissingSubcommand => {
            let help = Arguments::command().render_help();
            let _ = std::io::stderr().write_all(help.to_string().as_bytes());
            return Code::Usage.into();
        }
        Err(refused) => {
            // Code 0 is for --help and --version.
            let code = if refused.use_stderr() { Code::Usage } else { Code::Done };
            let _ = refused.print();
            return code.into();
        }
    };
    // One thread: PR_SET_PDEATHSIG signals the command when the thread that started it ends.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime
        .map_err(|error| Failure::of_system("this program cannot start", &error))
        .and_then(|runtime| {
            let ended = runtime.block_on(commands::run(arguments));
            // Otherwise the end would wait for a read of standard input, or for the lookup of a name.
            runtime.shutdown_background();
            ended
        })
        .and_then(|code| output::all_was_printed().map(|()| code));
    match ended {
        Ok(code) if code == Code::of_signal(SIGINT) => child::processes::end_by_interrupt(),
        Ok(code) => code.into(),
        Err(failure) => {
            output::say(&failure.text);
            failure.code.into()
        }
    }
}
