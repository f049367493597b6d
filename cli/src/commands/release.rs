//! `leasehold release`: an operator ends a hold, or everything that an owner has.

use super::ls::{self, MARK, Progress, is_lock};
use crate::connecting::Connection;
use crate::exit_code::{Code, Failure};
use crate::output::{self, Json, print, printable};
use crate::servers::{self, Server};
use clap::Args;
use leasehold_client::Holder;
use redis::{RedisError, Value, cmd, pipe};
use std::cell::Cell;
use std::time::Instant;

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
    /// Release every lock that this owner holds, and give up every place where it waits. All keys are looked at;
    /// one whose whole value is the owner counts if it has an expiry
    #[arg(long, requires = "owner", conflicts_with_all = ["fence", "name"])]
    all: bool,
    /// As JSON, in one line
    #[arg(long)]
    json: bool,
    /// The lock
    #[arg(required_unless_present = "all", value_parser = crate::arguments::not_empty)]
    name: Option<String>,
}

/// Releases a hold without the module: deletes the key if its value is still that of the hold.
const DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

const EXAMPLES: &str = "\
Examples:
  leasehold release nightly
  leasehold release --fence 1795233601234567 nightly     not a later grant
  leasehold release --owner web-1:4711:3f9a page
  leasehold release --owner web-1:4711:3f9a --all        its process has died";

pub(crate) async fn run(connection: &Connection, arguments: Arguments) -> Result<Code, Failure> {
    match (&arguments.name, &arguments.owner) {
        (Some(name), _) => release(connection, &arguments, name).await,
        (None, Some(owner)) => release_all(connection, owner, arguments.json).await,
        // The arguments are declared so that this does not happen.
        (None, None) => Ok(Code::Usage),
    }
}

/// First what the modules remember, which is done at once; then what only a look at all keys can find. What fails on one
/// server or key is told in the end, when the others are done.
async fn release_all(connection: &Connection, owner: &str, as_json: bool) -> Result<Code, Failure> {
    connection.check()?;
    let layout = servers::parts(connection, &[]).await?;
    let mut left = Left::default();
    let mut servers = Vec::new();
    let (mut remembered, mut found) = (0_u64, 0_u64);
    for url in servers::urls_of(&layout) {
        let server = match servers::open(connection, &url).await {
            Ok(server) => server,
            Err(failure) => {
                left.add(failure);
                continue;
            }
        };
        match drop_on(&server, owner, &mut remembered).await {
            Ok(()) => servers.push(server),
            Err(error) => left.add(server.failure(&error)),
        }
    }
    let mut progress = Progress::start();
    for server in &servers {
        let begun = Cell::new(Instant::now());
        let scanned = ls::scan(server, "*", &mut progress, async |keys| {
            let released = release_among(server, &keys, owner, &mut left).await?;
            found = found.saturating_add(released);
            // Leaves others at least half of the server's time.
            tokio::time::sleep(begun.get().elapsed()).await;
            begun.set(Instant::now());
            Ok(())
        });
        if let Err(error) = scanned.await {
            left.add(server.failure(&error));
        }
    }
    output::clear_line();
    match servers::parts(connection, &[]).await {
        Ok(now) if now == layout => {}
        Ok(_) => {
            let text = "slots of the cluster have moved meanwhile: release again.";
            left.add(Failure::new(Code::Unreachable, text));
        }
        Err(failure) => left.add(failure),
    }
    let freed = remembered.saturating_add(found);
    let failed = left.into_failure();
    if freed == 0
        && let Some(failure) = failed
    {
        return Err(failure);
    }
    if as_json {
        let fields = vec![
            ("owner", Json::text(owner)),
            ("freed", Json::Number(freed)),
            ("found_by_scan", Json::Number(found)),
        ];
        Json::Object(fields).print();
    } else {
        let owner = printable(owner);
        print(&format!("freed {freed} holds and places of {owner}, {found} found by a scan\n"));
    }
    failed.map_or(Ok(if freed == 0 { Code::No } else { Code::Done }), Err)
}

/// What could not be done, and why.
#[derive(Default)]
struct Left {
    first: Vec<Failure>,
    more: u64,
}

impl Left {
    const MOST_TOLD: usize = 20;

    fn add(&mut self, failure: Failure) {
        if self.first.len() < Self::MOST_TOLD {
            self.first.push(failure);
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    fn add_key(&mut self, server: &Server, key: &[u8], error: &RedisError) {
        let Failure { code, text } = server.failure(error);
        let key = printable(&String::from_utf8_lossy(key));
        self.add(Failure::new(code, format!("{text} The key is {key}.")));
    }

    /// A line for each.
    fn into_failure(self) -> Option<Failure> {
        let code = self.first.first()?.code;
        let mut lines: Vec<_> = self.first.into_iter().map(|failure| failure.text).collect();
        if self.more > 0 {
            lines.push(format!("{} more servers or keys failed.", self.more));
        }
        Some(Failure::new(code, lines.join("\n")))
    }
}

/// Counts the holds and places that the module frees: none if the server has no module, or an older one.
async fn drop_on(server: &Server, owner: &str, all: &mut u64) -> Result<(), RedisError> {
    let mut cursor = 0_u64;
    loop {
        let mut step = cmd("LOCK.DROP");
        let (next, freed): (u64, u64) =
            match server.ask(step.arg(owner).arg("CURSOR").arg(cursor)).await {
                Err(error) if is_unknown_command(&error) => return Ok(()),
                told => redis::from_redis_value(told?)?,
            };
        *all = all.saturating_add(freed);
        if next == 0 {
            return Ok(());
        }
        cursor = next;
    }
}

/// Releases the holds of the owner among these keys. Returns how many it had.
async fn release_among(
    server: &Server,
    keys: &[Vec<u8>],
    owner: &str,
    left: &mut Left,
) -> Result<u64, RedisError> {
    // One byte more than the owner's exclusive hold has.
    let longest = owner.len().saturating_add(MARK.unsigned_abs());
    let mut begins = pipe();
    for key in keys {
        begins.cmd("GETRANGE").arg(key).arg(0).arg(longest);
    }
    let begins = server.ask_each(&mut begins).await?;
    let mut released = 0_u64;
    for (key, begin) in keys.iter().zip(&begins) {
        let begin = match begin {
            Ok(begin) => begin,
            Err(error) => {
                left.add_key(server, key, error);
                continue;
            }
        };
        let Value::BulkString(value) = begin else { continue };
        let kind = match value.split_at_checked(MARK.unsigned_abs()) {
            _ if value == owner.as_bytes() => Kind::Foreign,
            Some((_, rest)) if is_lock(begin) && rest == owner.as_bytes() => Kind::Exclusive,
            Some((mark, _)) if is_lock(begin) && mark.ends_with(b" ") => Kind::Shared,
            _ => continue,
        };
        match release_one(server, key, owner, value, kind).await {
            Ok(is_released) => released = released.saturating_add(is_released.into()),
            Err(error) if error.is_io_error() => return Err(error),
            Err(error) => left.add_key(server, key, &error),
        }
    }
    Ok(released)
}

/// What the beginning of a value says of the owner's hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The whole value is the owner.
    Foreign,
    Exclusive,
    /// There are other holds, and perhaps one of the owner.
    Shared,
}

/// Releases the owner's hold of this lock, if it is still there. Without the module only an exclusive hold is.
async fn release_one(
    server: &Server,
    key: &[u8],
    owner: &str,
    value: &[u8],
    kind: Kind,
) -> Result<bool, RedisError> {
    if kind == Kind::Foreign && matches!(server.ask(cmd("PTTL").arg(key)).await?, Value::Int(..0)) {
        // It may be anything.
        return Ok(false);
    }
    let held = match server.ask(cmd("LOCK.CHECK").arg(key).arg(owner)).await {
        Err(error) if is_unknown_command(&error) && kind == Kind::Shared => return Ok(false),
        Err(error) if is_unknown_command(&error) => {
            let deleted = cmd("EVAL").arg(DELETE).arg(1).arg(key).arg(value).take();
            return Ok(server.ask(&deleted).await? == Value::Int(1));
        }
        held => held?,
    };
    let Value::Int(fence) = held else { return Ok(false) };
    let released = server.ask(cmd("LOCK.RELEASE").arg(key).arg(owner).arg(fence)).await?;
    Ok(released == Value::Int(1))
}

async fn release(
    connection: &Connection,
    arguments: &Arguments,
    name: &str,
) -> Result<Code, Failure> {
    let place = connection.open()?;
    let failed = |error| place.failure(error);
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
