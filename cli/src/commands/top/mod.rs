//! `leasehold top`: what happens to locks now, on one server or on many.
//!
//! ```text
//!   asking    one round of requests to one server         told     its replies as data, parsed by `reading`
//!   watching  when to ask which server                    model    what is known now; rates from two rounds
//!   live      the view: keys, signals, drawing            rows     which locks are shown, in which order
//!   terminal  taken, and restored on every way out        view     what the user looks at; what keys change
//!   once      one round, printed                          screen/  the screen, drawn from all of these
//! ```
//!
//! The right half uses no server, no terminal and no clock.

mod asking;
mod live;
mod model;
mod once;
mod reading;
mod rows;
mod screen;
mod terminal;
mod told;
mod view;
mod watching;

use crate::connecting::{Connection, usage};
use crate::duration;
use crate::exit_code::{Code, Failure};
use clap::Args;
use rows::Sort;
use std::io::IsTerminal;
use std::time::Duration;
use view::View;

/// Faster than a person can read, and often enough for a server in trouble.
const FASTEST: Duration = Duration::from_millis(100);

/// Shows what happens to locks now: which are contended, who holds and who waits for them, for how long; grants, hand-offs
/// and waits of each server, how near it is to its limits, and what was lost. It asks the servers little: at most 500 keys
/// a round are looked at for locks that nobody waits for, and it says so until it has seen all.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Print one round of it, and end
    #[arg(long)]
    once: bool,
    /// As JSON, in one line
    #[arg(long, requires = "once")]
    json: bool,
    /// How often the servers are asked: every 100ms at most
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration::parse)]
    every: Duration,
    /// What the locks are sorted by; the key s changes it
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,
    /// Only locks whose name or holder has this text; the key / changes it
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,
    /// Servers, clusters or sentinels to look at, instead of the one of --url; in the same words
    #[arg(value_name = "URL", value_parser = crate::arguments::not_empty)]
    urls: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  leasehold top
  leasehold --url redis+cluster://a:6379,b:6379 top --sort waited
  leasehold top redis://a:6379 redis://b:6379 redis://c:6379
  leasehold top --filter order: --every 5s
  leasehold top --once --json | jq -r '.locks[] | select(.stuck) | .name'";

pub(crate) async fn run(connection: &Connection, arguments: Arguments) -> Result<Code, Failure> {
    let places = places(connection, &arguments.urls)?;
    let view = View::of(arguments.sort, arguments.filter);
    if arguments.once {
        return once::run(&places, &view, arguments.json).await;
    }
    if !std::io::stdout().is_terminal() {
        return Err(usage(
            "top: standard output is no terminal, so the view cannot be shown there. Use --once, and --json in scripts.",
        ));
    }
    if std::env::var("TERM").is_ok_and(|terminal| terminal == "dumb") {
        return Err(usage(
            "top: a terminal of the type dumb cannot show the view. Set TERM, or use --once.",
        ));
    }
    live::run(&places, arguments.every.max(FASTEST), view).await
}

/// Checks each address by itself. An invalid address is refused before anything is shown.
fn places(connection: &Connection, urls: &[String]) -> Result<Vec<Connection>, Failure> {
    let mut places: Vec<_> =
        urls.iter().map(|url| Connection { url: url.clone(), ..connection.clone() }).collect();
    if places.is_empty() {
        places.push(connection.clone());
    }
    for place in &places {
        place.check()?;
        if !place.url.contains("://") {
            return Err(usage(&format!(
                "top: {} is no address, such as redis://host:6379. To see only some locks, use --filter.",
                place.name()
            )));
        }
        let is_of_many = place.urls_of_cluster().is_some() || place.urls_of_sentinels()?.is_some();
        if !is_of_many {
            let _ = place.client(&place.url)?;
        }
    }
    Ok(places)
}
