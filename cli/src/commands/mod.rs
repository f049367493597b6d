//! One file for each subcommand.

pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod elect;
pub(crate) mod holding;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod release;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod top;
pub(crate) mod wait;
mod waiting;

use crate::arguments::{Arguments, Command};
use crate::exit_code::{Code, Failure};

pub(crate) async fn run(arguments: Arguments) -> Result<Code, Failure> {
    let connection = &arguments.connection;
    match arguments.command {
        Command::Run(arguments) => run::run(connection, arguments).await,
        Command::Doctor(arguments) => doctor::run(connection, arguments).await,
        Command::Elect(arguments) => elect::run(connection, arguments).await,
        Command::Ls(arguments) => ls::run(connection, arguments).await,
        Command::Show(arguments) => show::run(connection, arguments).await,
        Command::Top(arguments) => top::run(connection, arguments).await,
        Command::Wait(arguments) => wait::run(connection, arguments).await,
        Command::Release(arguments) => release::run(connection, arguments).await,
        Command::Mcp(arguments) => mcp::run(connection, arguments).await,
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Man(arguments) => man::run(&arguments),
    }
}
