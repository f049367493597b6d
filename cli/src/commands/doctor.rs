//! `leasehold doctor`: what of the servers endangers locks, and what to do about it.
//!
//! First every server is asked for facts, `Facts`; what is wrong is decided from these alone, by `findings`. What a server does
//! not tell, because it is managed by somebody else or this user may not ask, is no finding: it is said to be unknown.

use crate::connecting::Connection;
use crate::duration::show;
use crate::exit_code::{Code, Failure};
use crate::output::{Json, print, printable};
use crate::servers::{self, Server};
use clap::Args;
use redis::cmd;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What fences are ahead of the clock after a start, unless a server says otherwise.
const USUAL_MARGIN: Duration = Duration::from_secs(15);

/// Clocks are compared through answers, which take a while.
const CLOCKS_AGREE_WITHIN: Duration = Duration::from_secs(1);

/// Whoever waits beyond so many of a hundred is about to be refused.
const NEARLY_FULL: u64 = 80;

const SETTINGS: [&str; 8] = [
    "maxmemory",
    "maxmemory-policy",
    "appendonly",
    "appendfsync",
    "min-replicas-to-write",
    "min-replicas-max-lag",
    "leasehold.fence-margin",
    "leasehold.quarantine-ms",
];

/// Connects to all servers, primaries and replicas, and says what endangers locks, each with what to do. Ends with 1 if
/// something does.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// As JSON, in one line
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  leasehold doctor
  leasehold --url redis+sentinel://a:26379,b:26379/main doctor
  leasehold doctor --json | jq '.findings[].what'";

/// What one server says of itself.
#[derive(Default)]
struct Facts {
    address: String,
    server: String,
    /// None: it has no module.
    module: Option<String>,
    is_primary: bool,
    replicas: u64,
    /// How far its clock is ahead of the one of this machine, in milliseconds.
    clock: i64,
    settings: BTreeMap<String, String>,
    waiters: u64,
    most_waiters: Option<u64>,
}

#[derive(Debug, PartialEq, Eq)]
struct Finding {
    address: String,
    what: String,
    remedy: &'static str,
}

pub(crate) async fn run(connection: &Connection, arguments: Arguments) -> Result<Code, Failure> {
    let mut all = Vec::new();
    let mut found = Vec::new();
    for primary in servers::primaries(connection).await? {
        let (facts, replicas) = examine(&primary).await?;
        all.push(facts);
        for (host, port) in replicas {
            match servers::replica(connection, &host, port).await {
                Ok(replica) => all.push(examine(&replica).await?.0),
                Err(failure) => found.push(Finding {
                    address: format!("{host}:{port}"),
                    what: format!("its replica was not reached from here: {}", failure.text),
                    remedy: "If that is not meant, look at its address (replica-announce-ip) and its user.",
                }),
            }
        }
    }
    found.extend(findings(&all));
    if arguments.json {
        json(&all, &found).print();
    } else {
        print(&text(&all, &found));
    }
    Ok(if found.is_empty() { Code::Done } else { Code::No })
}

async fn examine(server: &Server) -> Result<(Facts, Vec<(String, u16)>), Failure> {
    let info =
        server.ask(cmd("INFO").arg("everything")).await.map_err(|error| server.failure(&error))?;
    let info: String = redis::from_redis_value(info).unwrap_or_default();
    let field = |name: &str| {
        let value = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.to_owned());
        info.lines().find_map(value)
    };
    let number = |name: &str| field(name).and_then(|value| value.parse().ok());
    let version = match (field("valkey_version"), field("redis_version")) {
        (Some(version), _) => format!("Valkey {version}"),
        (None, Some(version)) => format!("Redis {version}"),
        (None, None) => "unknown".to_owned(),
    };
    let mut facts = Facts {
        address: server.address.clone(),
        server: version,
        is_primary: field("role").as_deref() == Some("master"),
        replicas: number("connected_slaves").unwrap_or_default(),
        clock: clock_of(server).await?,
        module: module_of(&info),
        waiters: number("leasehold_waiters").unwrap_or_default(),
        most_waiters: number("leasehold_effective_max_waiters"),
        ..Facts::default()
    };
    for name in SETTINGS {
        let told = server.ask(cmd("CONFIG").arg("GET").arg(name)).await;
        let told = told.ok().and_then(|told| redis::from_redis_value(told).ok());
        facts.settings.extend(told.unwrap_or_else(BTreeMap::<String, String>::new));
    }
    let mut replicas = Vec::new();
    for index in 0..facts.replicas {
        replicas.extend(field(&format!("slave{index}")).and_then(|line| address_in(&line)));
    }
    Ok((facts, replicas))
}

/// `module:name=leasehold,ver=100,api=1,…`
fn module_of(info: &str) -> Option<String> {
    let line = info.lines().find_map(|line| line.strip_prefix("module:name=leasehold,ver="))?;
    let number: u64 = line.split(',').next()?.parse().ok()?;
    let part = |of: u64| number.checked_div(of).unwrap_or_default() % 100;
    Some(format!("{}.{}.{}", part(10_000), part(100), part(1)))
}

/// `ip=10.0.0.7,port=6379,state=online,…`
fn address_in(line: &str) -> Option<(String, u16)> {
    let part = |name: &str| line.split(',').find_map(|part| part.strip_prefix(name));
    Some((part("ip=")?.to_owned(), part("port=")?.parse().ok()?))
}

/// By the moment in the middle of the question and the answer.
async fn clock_of(server: &Server) -> Result<i64, Failure> {
    let (begun, asked) = (Instant::now(), SystemTime::now());
    let told = server.ask(&cmd("TIME")).await.map_err(|error| server.failure(&error))?;
    let half = begun.elapsed().checked_div(2).unwrap_or_default();
    let (seconds, micros): (u64, u64) = redis::from_redis_value(told).unwrap_or_default();
    let theirs = Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros));
    let ours = asked.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_add(half);
    let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    Ok(millis(theirs).saturating_sub(millis(ours)))
}

impl Facts {
    fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.setting(name) == Some(value)
    }

    fn margin(&self) -> Option<Duration> {
        let told = self.setting("leasehold.fence-margin").and_then(|margin| margin.parse().ok());
        told.map(Duration::from_millis)
    }

    /// Redis tells of modules' settings since 7.0.
    fn hides(&self, setting: &str) -> bool {
        self.module.is_some() && self.setting(setting).is_none()
    }

    fn finding(&self, what: impl Into<String>, remedy: &'static str) -> Finding {
        Finding { address: self.address.clone(), what: what.into(), remedy }
    }
}

/// What is wrong, from what the servers have said.
fn findings(all: &[Facts]) -> Vec<Finding> {
    let mut found: Vec<_> = all.iter().flat_map(of_one).collect();
    let some_have = all.iter().any(|facts| facts.module.is_some());
    for facts in all.iter().filter(|facts| facts.module.is_none() && some_have) {
        found.push(facts.finding(
            "it has no module, and others have: whoever waits polls when it takes over",
            "Load the module on all of them: docs/operating.md.",
        ));
    }
    let first = all.iter().min_by_key(|facts| facts.clock);
    let last = all.iter().max_by_key(|facts| facts.clock);
    if let (Some(first), Some(last)) = (first, last) {
        let apart = Duration::from_millis(last.clock.abs_diff(first.clock));
        let is_unknown = all.iter().any(|facts| facts.hides("leasehold.fence-margin"));
        let known = all.iter().filter_map(Facts::margin).min();
        let margin = known.unwrap_or(if is_unknown { Duration::MAX } else { USUAL_MARGIN });
        let what = || format!("its clock is {} behind that of {}", show(apart), last.address);
        if apart >= margin {
            found.push(first.finding(
                format!("{}, and leasehold.fence-margin is {}: fences may go back after a failover", what(), show(margin)),
                "Set the clock by NTP; until then raise leasehold.fence-margin: docs/safety.md, fences.",
            ));
        } else if apart > CLOCKS_AGREE_WITHIN && is_unknown {
            found.push(first.finding(
                format!(
                    "{}, and not all servers tell their fence-margin: if it is not larger, \
                     fences may go back after a failover",
                    what()
                ),
                "Set the clock by NTP; until then see that loadmodule gives a larger fence-margin: docs/safety.md, fences.",
            ));
        } else if apart > CLOCKS_AGREE_WITHIN {
            found.push(first.finding(
                what(),
                "Set the clock by NTP, before it is behind by more than leasehold.fence-margin.",
            ));
        }
    }
    found
}

fn of_one(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let evicts = facts.setting("maxmemory-policy").is_some_and(|policy| policy != "noeviction");
    if evicts && !facts.is("maxmemory", "0") {
        found.push(facts.finding(
            "it evicts keys when memory is short, locks among them (maxmemory-policy)",
            "CONFIG SET maxmemory-policy noeviction, or keep locks on a server of their own: docs/safety.md, eviction.",
        ));
    }
    if facts.is("appendonly", "no") && facts.is("leasehold.quarantine-ms", "0") {
        found.push(facts.finding(
            "it keeps no append-only file: after a restart locks that are still held may be granted again",
            "CONFIG SET appendonly yes; or set leasehold.quarantine-ms to the longest ttl in use.",
        ));
    } else if facts.is("appendonly", "no") && facts.hides("leasehold.quarantine-ms") {
        found.push(facts.finding(
            "it keeps no append-only file, and does not tell its quarantine-ms: if that is 0, \
             after a restart locks that are still held may be granted again",
            "CONFIG SET appendonly yes; or see that loadmodule gives quarantine-ms the longest ttl in use.",
        ));
    } else if facts.is("appendonly", "yes") && facts.is("appendfsync", "no") {
        found.push(facts.finding(
            "it leaves it to the system when its append-only file is on disk (appendfsync no)",
            "CONFIG SET appendfsync everysec, or always, which loses no grant when the power fails.",
        ));
    }
    if facts.is_primary && facts.replicas > 0 && facts.is("min-replicas-to-write", "0") {
        found.push(facts.finding(
            "it goes on granting when it is cut off from its replicas, while one of them takes over",
            "CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag 10, or less: docs/safety.md, failover.",
        ));
    }
    let full = |most: u64| facts.waiters.saturating_mul(100) >= most.saturating_mul(NEARLY_FULL);
    if let Some(most) = facts.most_waiters
        && full(most)
    {
        found.push(facts.finding(
            format!("{} wait, and at most {most} may (leasehold.max-waiters)", facts.waiters),
            "Raise leasehold.max-waiters and maxclients: docs/capacity.md; or see who waits: LOCK.TOP.",
        ));
    }
    found
}

fn text(all: &[Facts], found: &[Finding]) -> String {
    let mut text = String::new();
    let known = |setting: Option<&str>| setting.map_or("unknown".to_owned(), printable);
    for facts in all {
        let role = if facts.is_primary { "primary" } else { "replica" };
        let module =
            facts.module.as_ref().map_or("no module".to_owned(), |v| format!("leasehold {v}"));
        let margin = match facts.module {
            Some(_) => {
                format!("margin {}", facts.margin().map_or_else(|| "unknown".to_owned(), show))
            }
            None => "no margin".to_owned(),
        };
        let lines = [
            format!("{}: {}, {module}, {role}", facts.address, printable(&facts.server)),
            format!("  clock        {} ms from this machine's, {margin}", facts.clock),
            format!("  eviction     {}", known(facts.setting("maxmemory-policy"))),
            format!(
                "  persistence  appendonly {}, appendfsync {}",
                known(facts.setting("appendonly")),
                known(facts.setting("appendfsync")),
            ),
            format!(
                "  replicas     {}, min-replicas-to-write {}",
                facts.replicas,
                known(facts.setting("min-replicas-to-write")),
            ),
            match facts.most_waiters {
                Some(most) => format!("  waiters      {} of {most}", facts.waiters),
                None => "  waiters      poll".to_owned(),
            },
        ];
        text.push_str(&lines.join("\n"));
        text.push('\n');
    }
    text.push('\n');
    for finding in found {
        let Finding { address, what, remedy } = finding;
        text.push_str(&format!("! {address}: {}\n  {remedy}\n", printable(what)));
    }
    if found.is_empty() {
        text.push_str("Nothing was found that endangers locks.\n");
    }
    text
}

fn json(all: &[Facts], found: &[Finding]) -> Json {
    let server = |facts: &Facts| {
        let settings = facts.settings.iter();
        let settings = settings.map(|(name, value)| format!("{name} {value}"));
        Json::Object(vec![
            ("address", Json::text(&facts.address)),
            ("server", Json::text(&facts.server)),
            ("module", facts.module.as_ref().map_or(Json::Null, Json::text)),
            ("role", Json::text(if facts.is_primary { "primary" } else { "replica" })),
            ("replicas", Json::Number(facts.replicas)),
            ("clock_ahead_ms", Json::Signed(facts.clock)),
            ("waiters", Json::Number(facts.waiters)),
            ("most_waiters", Json::optional(facts.most_waiters)),
            ("settings", Json::List(settings.map(Json::text).collect())),
        ])
    };
    let finding = |finding: &Finding| {
        Json::Object(vec![
            ("address", Json::text(&finding.address)),
            ("what", Json::text(&finding.what)),
            ("remedy", Json::text(finding.remedy)),
        ])
    };
    Json::Object(vec![
        ("servers", Json::List(all.iter().map(server).collect())),
        ("findings", Json::List(found.iter().map(finding).collect())),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str, clock: i64) -> Facts {
        Facts { address: address.to_owned(), clock, ..Facts::default() }
    }

    #[test]
    fn clocks_that_differ_by_more_than_the_margin_are_worse_than_those_that_differ() {
        let of = |clock| findings(&[at("a", 0), at("b", clock)]);
        assert_eq!(of(900), []);
        let [ref little] = of(5_000)[..] else { panic!() };
        assert_eq!(
            (little.address.as_str(), little.what.as_str()),
            ("a", "its clock is 5s behind that of b")
        );
        let [ref much] = of(-20_000)[..] else { panic!() };
        assert!(much.address == "b" && much.what.contains("fences may go back"), "{much:?}");
    }

    #[test]
    fn a_margin_that_is_not_told_is_not_taken_for_the_usual_one() {
        let with_margin = |margin: Option<&str>, mut facts: Facts| {
            let setting = |margin: &str| ("leasehold.fence-margin".to_owned(), margin.to_owned());
            facts.module = Some("0.2.0".to_owned());
            facts.settings.extend(margin.map(setting));
            facts
        };
        let of = |margins: [Option<&str>; 2], clock| {
            let [first, second] = margins;
            findings(&[with_margin(first, at("a", 0)), with_margin(second, at("b", clock))])
        };
        let [ref known] = of([Some("15000"), Some("6000")], 5_000)[..] else { panic!() };
        assert_eq!(known.what, "its clock is 5s behind that of b");
        for clock in [5_000, 20_000] {
            let [ref hidden] = of([None, None], clock)[..] else { panic!() };
            let what =
                "not all servers tell their fence-margin: if it is not larger, fences may go back";
            assert!(hidden.what.contains(what), "{hidden:?}");
        }
        let [ref smaller] = of([Some("4000"), None], 5_000)[..] else { panic!() };
        assert!(smaller.what.contains("leasehold.fence-margin is 4s"), "{smaller:?}");
        assert!(text(&[with_margin(None, at("a", 0))], &[]).contains("margin unknown"));
    }

    #[test]
    fn what_info_says_is_read() {
        assert_eq!(
            module_of("a:1\r\nmodule:name=leasehold,ver=10203,api=1").as_deref(),
            Some("1.2.3")
        );
        assert_eq!(module_of("module:name=other,ver=1"), None);
        let line = "ip=10.0.0.7,port=6380,state=online,offset=1,lag=0";
        assert_eq!(address_in(line), Some(("10.0.0.7".to_owned(), 6_380)));
    }
}
