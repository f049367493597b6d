//! `leasehold release`: an operator ends a hold.

use crate::connecting::Connection;
use crate::exit_code::{Code, Failure};
use crate::output::{Json, print, printable};
use crate::servers::{self, Server};
use clap::Args;
use leasehold_client::Holder;
use redis::{RedisError, Value, cmd};

/// Releases a lock, whoever holds it; all holds if several share it. Ends with 1 if there was none.
///
/// The next one who waits is granted the lock at once. A holder that is alive learns of it at its next renewal only, and
/// may go on writing until then: end it first, and let the stores compare fences.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Release only the hold with this fence, as `leasehold show` tells it, and never a later one
    #[arg(long)]
    fence: Option<u64>,
    /// Release only the hold of this owner
    #[arg(long, value_parser = crate::arguments::not_empty)]
    owner: Option<String>,
    /// As JSON, in one line
    #[arg(long)]
    json: bool,
    /// The lock
    #[arg(value_parser = crate::arguments::not_empty)]
    name: String,
}

/// Releases a hold without the module: deletes the key if its value is still that of the hold.
const DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

const EXAMPLES: &str = "\
Examples:
  leasehold release nightly
  leasehold release --fence 1795233601234567 nightly     not a later grant
  leasehold release --owner web-1:4711:3f9a page";

pub(crate) async fn run(connection: &Connection, arguments: Arguments) -> Result<Code, Failure> {
    let place = connection.open()?;
    let failed = |error| place.failure(error);
    let name = &arguments.name;
    let holders = place.locks.holders(name).await.map_err(failed)?;
    let mut released = Vec::new();
    let key = place.key(name);
    let server = servers::of_key(connection, &key).await?;
    for holder in holders.iter().filter(|holder| arguments.mean(holder)) {
        let ended = end_hold(&server, &key, holder).await;
        if ended.map_err(|error| server.failure(&error))? {
            released.push(holder);
        }
    }
    if arguments.json {
        let hold = |holder: &&Holder| {
            Json::Object(vec![
                ("owner", Json::text(&holder.owner)),
                ("fence", Json::Number(holder.fence.into())),
            ])
        };
        let released = Json::List(released.iter().map(hold).collect());
        Json::Object(vec![("name", Json::text(name)), ("released", released)]).print();
    } else {
        let name = printable(name);
        for holder in &released {
            let owner = printable(&holder.owner);
            print(&format!("released {name}, held by {owner} with fence {}\n", holder.fence));
        }
        match holders.as_slice() {
            [] => print(&format!("{name} is free\n")),
            [first, ..] if released.is_empty() => {
                let owner = printable(&first.owner);
                print(&format!(
                    "nothing was released: {name} is held by {owner} with fence {}\n",
                    first.fence
                ));
            }
            _ => {}
        }
    }
    Ok(if released.is_empty() { Code::No } else { Code::Done })
}

/// Returns whether the hold still existed.
async fn end_hold(server: &Server, key: &str, holder: &Holder) -> Result<bool, RedisError> {
    let (owner, fence) = (&holder.owner, u64::from(holder.fence));
    let mut release = cmd("LOCK.RELEASE");
    let ended = match server.ask(release.arg(key).arg(owner).arg(fence)).await {
        Err(error) if is_unknown_command(&error) => {
            let value = if fence == 0 { owner.clone() } else { format!("{fence:016}:{owner}") };
            server.ask(cmd("EVAL").arg(DELETE).arg(1).arg(key).arg(value)).await
        }
        ended => ended,
    };
    Ok(ended? == Value::Int(1))
}

fn is_unknown_command(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.starts_with("unknown command"))
}

impl Arguments {
    fn mean(&self, holder: &Holder) -> bool {
        self.fence.is_none_or(|fence| fence == u64::from(holder.fence))
            && self.owner.as_ref().is_none_or(|owner| *owner == holder.owner)
    }
}
