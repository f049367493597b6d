//! `leasehold ls`: the locks that are held.
//!
//! Servers keep no list of locks. The value of a key shows whether the key is a lock. So all keys are scanned, a
//! thousand per request, which is too few to block a server.

use crate::connecting::Connection;
use crate::duration::{in_millis, show};
use crate::exit_code::{Code, Failure};
use crate::fields::Fields;
use crate::output::{self, Json, print_table, printable};
use crate::servers::{self, Server};
use clap::Args;
use redis::{Value, cmd, pipe};
use std::time::{Duration, Instant};

/// How many keys one request scans.
const AT_A_TIME: usize = 1_000;

/// A scan that takes longer than this shows its progress.
const SILENT_FOR: Duration = Duration::from_secs(1);

/// The length of a fence and the byte after it.
pub(super) const MARK: isize = 17;

/// Lists the locks that are held, with their holders. All keys of the server are looked at: on one with millions of
/// them it takes seconds.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// As JSON, in one line
    #[arg(long)]
    json: bool,
    /// Only names that match, as by KEYS: * for any text, ? for a character, [abc] for one of these
    #[arg(default_value = "*", value_parser = crate::arguments::not_empty)]
    pattern: String,
}

const EXAMPLES: &str = "\
Examples:
  leasehold ls
  leasehold ls 'order:*'
  leasehold ls --json | jq -r '.[] | select(.waiters > 10) | .name'";

struct Held {
    /// The key as the server has it. Names that are not UTF-8 may look alike when they are shown.
    key: Vec<u8>,
    name: String,
    holder: String,
    fence: u64,
    /// None if the hold never expires.
    left: Option<Duration>,
    holders: u64,
    /// None if the server has no queue.
    waiters: Option<u64>,
}

pub(crate) async fn run(connection: &Connection, arguments: Arguments) -> Result<Code, Failure> {
    let prefix = std::env::var("LEASEHOLD_PREFIX").unwrap_or_default();
    let pattern = format!("{}{}", escaped(&prefix), arguments.pattern);
    let mut all = Vec::new();
    let mut progress = Progress::start();
    for server in servers::primaries(connection).await? {
        let held = look(&server, &pattern, &mut progress).await;
        all.extend(held.map_err(|error| server.failure(&error))?);
    }
    output::clear_line();
    for held in &mut all {
        if let Some(name) = held.name.strip_prefix(&prefix) {
            held.name = name.to_owned();
        }
    }
    all.sort_by(|one, other| one.key.cmp(&other.key));
    // A key that moves to another server during the scan is seen twice.
    all.dedup_by(|one, other| one.key == other.key);
    if arguments.json {
        Json::List(all.iter().map(json).collect()).print();
    } else if !all.is_empty() {
        let rows: Vec<_> = all.iter().map(row).collect();
        print_table(&["NAME", "HOLDER", "FENCE", "LEFT", "HOLDERS", "WAITERS"], &rows);
    }
    Ok(Code::Done)
}

/// How far a scan of all keys is.
pub(super) struct Progress {
    begun: Instant,
    looked_at: usize,
}

impl Progress {
    pub(super) fn start() -> Self {
        Self { begun: Instant::now(), looked_at: 0 }
    }

    fn add(&mut self, keys: usize) {
        self.looked_at = self.looked_at.saturating_add(keys);
        if self.begun.elapsed() > SILENT_FOR && output::is_at_terminal() {
            output::show_line(&format!("{} keys looked at", self.looked_at));
        }
    }
}

async fn look(
    server: &Server,
    pattern: &str,
    progress: &mut Progress,
) -> Result<Vec<Held>, redis::RedisError> {
    let has_module = server.ask(&cmd("LOCK.HELP")).await.is_ok();
    let mut found = Vec::new();
    scan(server, pattern, progress, async |keys| {
        found.extend(held_among(server, &keys, has_module).await?);
        Ok(())
    })
    .await?;
    Ok(found)
}

/// Passes the keys of all strings that match to `visit`, some at a time.
pub(super) async fn scan(
    server: &Server,
    pattern: &str,
    progress: &mut Progress,
    mut visit: impl AsyncFnMut(Vec<Vec<u8>>) -> Result<(), redis::RedisError>,
) -> Result<(), redis::RedisError> {
    let mut cursor = 0_u64;
    loop {
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(AT_A_TIME);
        let answer = server.ask(scan.arg("TYPE").arg("string")).await?;
        let (next, keys): (u64, Vec<Vec<u8>>) = redis::from_redis_value(answer)?;
        progress.add(keys.len());
        if !keys.is_empty() {
            visit(keys).await?;
        }
        if next == 0 {
            return Ok(());
        }
        cursor = next;
    }
}

async fn held_among(
    server: &Server,
    keys: &[Vec<u8>],
    has_module: bool,
) -> Result<Vec<Held>, redis::RedisError> {
    let mut begins = pipe();
    for key in keys {
        begins.cmd("GETRANGE").arg(key).arg(0).arg(MARK.saturating_sub(1));
    }
    let begins = server.ask_all(&begins).await?;
    let locks: Vec<_> = keys.iter().zip(&begins).filter(|(_, begin)| is_lock(begin)).collect();
    if locks.is_empty() {
        return Ok(Vec::new());
    }
    let mut asked = pipe();
    for (key, _) in &locks {
        if has_module {
            asked.cmd("LOCK.INFO").arg(key);
        } else {
            asked.cmd("GET").arg(key).cmd("PTTL").arg(key);
        }
    }
    let told = server.ask_all(&asked).await?;
    let each = told.chunks(if has_module { 1 } else { 2 });
    let held = locks.iter().zip(each).filter_map(|((key, _), told)| match told {
        [info] => of_info(key, info),
        [value, left] => of_value(key, value, left),
        _ => None,
    });
    Ok(held.collect())
}

/// Sixteen digits, and the byte that tells an exclusive hold from a shared one.
pub(super) fn is_lock(begin: &Value) -> bool {
    let Value::BulkString(bytes) = begin else { return false };
    let Some((fence, [mark, ..])) = bytes.split_at_checked(16) else { return false };
    fence.iter().all(u8::is_ascii_digit) && matches!(mark, b':' | b' ')
}

fn of_info(key: &[u8], info: &Value) -> Option<Held> {
    // A nil reply: the hold has ended meanwhile.
    let info = Fields::of(info)?;
    Some(Held {
        key: key.to_vec(),
        name: String::from_utf8_lossy(key).into_owned(),
        holder: info.text("owner")?,
        fence: info.number("fence")?,
        left: info.number("ttl").map(Duration::from_millis),
        holders: info.number("holders").unwrap_or(1),
        waiters: info.number("waiters"),
    })
}

fn of_value(key: &[u8], value: &Value, left: &Value) -> Option<Held> {
    let Value::BulkString(value) = value else { return None };
    let value = String::from_utf8_lossy(value);
    let (fence, holder) = value.split_once(':')?;
    let left = match left {
        Value::Int(-1) => None,
        Value::Int(left) => Some(Duration::from_millis(u64::try_from(*left).ok()?)),
        _ => return None,
    };
    let (fence, holder) = (fence.parse().ok()?, holder.to_owned());
    let (key, name) = (key.to_vec(), String::from_utf8_lossy(key).into_owned());
    Some(Held { key, name, holder, fence, left, holders: 1, waiters: None })
}

fn row(held: &Held) -> Vec<String> {
    vec![
        printable(&held.name),
        printable(&held.holder),
        held.fence.to_string(),
        held.left.map_or("for ever".to_owned(), show),
        held.holders.to_string(),
        held.waiters.map_or("-".to_owned(), |waiters| waiters.to_string()),
    ]
}

fn json(held: &Held) -> Json {
    Json::Object(vec![
        ("name", Json::text(&held.name)),
        ("owner", Json::text(&held.holder)),
        ("fence", Json::Number(held.fence)),
        ("ttl", Json::optional(held.left.map(in_millis))),
        ("holders", Json::Number(held.holders)),
        ("waiters", Json::optional(held.waiters)),
    ])
}

/// The pattern that matches only this text.
pub(super) fn escaped(text: &str) -> String {
    let escape = |c: char| if "*?[]\\^-".contains(c) { format!("\\{c}") } else { c.to_string() };
    text.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_known_by_the_beginning_of_its_value() {
        let is_one = |begin: &str| is_lock(&Value::BulkString(begin.as_bytes().to_vec()));
        assert!(is_one("1795233601234567:"));
        assert!(is_one("1795233601234567 "));
        assert!(!is_one("1795233601234567"));
        assert!(!is_one("17952336012345671"));
        assert!(!is_one("179523360123456:a"));
        assert!(!is_one("some other text :"));
    }

    #[test]
    fn a_prefix_matches_only_itself() {
        assert_eq!(escaped("a*[b]:"), "a\\*\\[b\\]:");
    }
}
