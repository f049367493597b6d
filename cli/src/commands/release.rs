//! `leasehold release`: the end of a hold by an operator.

use crate::connecting::Connection;
use crate::exit_code::{Code, Failure};
use crate::output::{Json, print, printable};
use clap::Args;
use leasehold_client::{HolderInfo, Released};

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
    for holder in holders.iter().filter(|holder| arguments.mean(holder)) {
        let ended = place.locks.end_hold(name, &holder.owner, holder.fence).await;
        if ended.map_err(failed)? == Released::Released {
            released.push(holder);
        }
    }
    if arguments.json {
        let hold = |holder: &&HolderInfo| {
            Json::Object(vec![
                ("owner", Json::text(&holder.owner)),
                ("fence", Json::Number(holder.fence)),
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

impl Arguments {
    fn mean(&self, holder: &HolderInfo) -> bool {
        self.fence.is_none_or(|fence| fence == holder.fence)
            && self.owner.as_ref().is_none_or(|owner| *owner == holder.owner)
    }
}
