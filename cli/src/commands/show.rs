//! `leasehold show`: who holds a lock, and who waits for it.

use crate::connecting::Connection;
use crate::duration::{in_millis, show};
use crate::exit_code::{Code, Failure};
use crate::output::{Json, print, print_table, printable};
use crate::servers;
use clap::Args;
use leasehold_client::{Holder, Waiter};
use redis::cmd;
use std::time::Duration;

/// Shows who holds a lock and who waits for it. Ends with 1 if it is free.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// As JSON, in one line
    #[arg(long)]
    json: bool,
    /// The lock
    #[arg(value_parser = crate::arguments::not_empty)]
    name: String,
}

const EXAMPLES: &str = "\
Examples:
  leasehold show nightly
  leasehold show --json nightly | jq .holders[0].fence
  leasehold show nightly > /dev/null && echo \"it runs somewhere\"";

pub(crate) async fn run(connection: &Connection, arguments: Arguments) -> Result<Code, Failure> {
    let place = connection.open()?;
    let failed = |error| place.failure(error);
    let holders = place.locks.holders(&arguments.name).await.map_err(failed)?;
    let waiters = place.locks.waiters(&arguments.name).await.map_err(failed)?;
    if arguments.json {
        let key = place.key(&arguments.name);
        let server = servers::of_key(connection, &key).await?;
        let has_queue = server.ask(cmd("LOCK.WAITERS").arg(&key)).await.is_ok();
        json(&arguments.name, &holders, has_queue.then_some(waiters.as_slice())).print();
    } else {
        print_all(&arguments.name, &holders, &waiters);
    }
    Ok(if holders.is_empty() { Code::No } else { Code::Done })
}

fn print_all(name: &str, holders: &[Holder], waiters: &[Waiter]) {
    let name = printable(name);
    if holders.is_empty() {
        print(&format!("{name} is free\n"));
    } else {
        let row = |holder: &Holder| {
            let ttl = holder.ttl.map_or("for ever".to_owned(), show);
            vec![printable(&holder.owner), holder.fence.to_string(), ttl, share(holder.share)]
        };
        let rows: Vec<_> = holders.iter().map(row).collect();
        print_table(&["HOLDER", "FENCE", "LEFT", "SHARE"], &rows);
    }
    if !waiters.is_empty() {
        let row = |waiter: &Waiter| {
            let patience = waiter.patience.map_or("for ever".to_owned(), show);
            vec![printable(&waiter.owner), show(waiter.waited), patience, share(waiter.share)]
        };
        let rows: Vec<_> = waiters.iter().map(row).collect();
        print("\n");
        print_table(&["WAITER", "WAITED", "PATIENCE", "SHARE"], &rows);
    }
}

fn share(share: u64) -> String {
    match share {
        0 => "any".to_owned(),
        1 => "alone".to_owned(),
        count => format!("of {count}"),
    }
}

/// Durations are in milliseconds; null means without end. A server without a queue has no list of waiters.
fn json(name: &str, holders: &[Holder], waiters: Option<&[Waiter]>) -> Json {
    let millis = |time: Option<Duration>| Json::optional(time.map(in_millis));
    let holder = |holder: &Holder| {
        Json::Object(vec![
            ("owner", Json::text(&holder.owner)),
            ("fence", Json::Number(holder.fence.into())),
            ("ttl", millis(holder.ttl)),
            ("share", Json::Number(holder.share)),
        ])
    };
    let waiter = |waiter: &Waiter| {
        Json::Object(vec![
            ("owner", Json::text(&waiter.owner)),
            ("waited", Json::Number(in_millis(waiter.waited))),
            ("patience", millis(waiter.patience)),
            ("share", Json::Number(waiter.share)),
        ])
    };
    let waiters = waiters.map(|waiters| Json::List(waiters.iter().map(waiter).collect()));
    Json::Object(vec![
        ("name", Json::text(name)),
        ("holders", Json::List(holders.iter().map(holder).collect())),
        ("waiters", waiters.unwrap_or(Json::Null)),
    ])
}
