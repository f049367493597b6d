//! `leasehold doctor`: what endangers locks on the servers, and what to do about it.
//!
//! `facts` asks every server first. `findings` decides only from these facts what is wrong.

mod facts;
mod findings;

use crate::connecting::Connection;
use crate::duration::show;
use crate::exit_code::{Code, Failure};
use crate::output::{Json, print, printable};
use clap::Args;
use facts::{Facts, Role, examine_all};
use findings::{Finding, findings};

/// Connects to all servers, primaries and replicas, and says what endangers locks, each with what to do. Ends with 1 if
/// something does, or could not be looked at.
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

pub(crate) async fn run(connection: &Connection, arguments: Arguments) -> Result<Code, Failure> {
    let examined = examine_all(connection).await?;
    let found = findings(&examined);
    if arguments.json {
        json(&examined.all, &found).print();
    } else {
        print(&text(&examined.all, &found));
    }
    Ok(if found.is_empty() { Code::Done } else { Code::No })
}

impl Role {
    fn text(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Replica => "replica",
            Self::Unknown => "role unknown",
        }
    }
}

fn text(all: &[Facts], found: &[Finding]) -> String {
    let mut text = String::new();
    let known = |setting: Option<&str>| setting.map_or("unknown".to_owned(), printable);
    for facts in all {
        let role = facts.role.text();
        let module =
            facts.module.as_ref().map_or("no module".to_owned(), |v| format!("leasehold {v}"));
        let margin = match facts.module {
            Some(_) => {
                format!("margin {}", facts.margin().map_or_else(|| "unknown".to_owned(), show))
            }
            None => "no margin".to_owned(),
        };
        let most = facts.most_tickets().map_or("unknown".to_owned(), |most| most.to_string());
        let tickets = format!("tickets {} of {most}", facts.tickets);
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
                Some(most) => format!("  waiters      {} of {most}, {tickets}", facts.waiters),
                None => "  waiters      poll".to_owned(),
            },
        ];
        text.push_str(&lines.join("\n"));
        text.push('\n');
        if let Some(from) = &facts.patched_from {
            text.push_str(&format!(
                "  weaknesses   known, and mended from {from} on, unless whoever packaged it has mended them\n"
            ));
        }
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
            ("patched_from", facts.patched_from.as_ref().map_or(Json::Null, Json::text)),
            ("module", facts.module.as_ref().map_or(Json::Null, Json::text)),
            ("role", Json::text(facts.role.text())),
            ("replicas", Json::Number(facts.replicas)),
            ("clock_ahead_ms", Json::Signed(facts.clock)),
            ("waiters", Json::Number(facts.waiters)),
            ("most_waiters", Json::optional(facts.most_waiters)),
            ("tickets", Json::Number(facts.tickets)),
            ("most_tickets", Json::optional(facts.most_tickets())),
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
