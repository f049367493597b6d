//! What is wrong, decided only from what the servers have said.
//!
//! A fact that a server does not tell is a finding too. Otherwise "nothing found" would cover what nobody has checked.

use super::facts::{Examined, Facts, Role, SETTINGS};
use crate::duration::show;
use std::time::Duration;

/// How far fences are ahead of the clock after a start, unless a server says otherwise.
const USUAL_MARGIN: Duration = Duration::from_secs(15);

/// Clocks are compared through replies, which take time.
const CLOCKS_AGREE_WITHIN: Duration = Duration::from_secs(1);

/// A queue or table of tickets that is full to this percentage is about to refuse waiters.
const NEARLY_FULL: u64 = 80;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) address: String,
    pub(super) what: String,
    pub(super) remedy: &'static str,
}

impl Facts {
    fn finding(&self, what: impl Into<String>, remedy: &'static str) -> Finding {
        Finding { address: self.address.clone(), what: what.into(), remedy }
    }
}

pub(super) fn findings(examined: &Examined) -> Vec<Finding> {
    let Examined { all, not_reached } = examined;
    let mut found: Vec<_> = not_reached
        .iter()
        .map(|((host, port), role, failure)| Finding {
            address: format!("{host}:{port}"),
            what: format!("nothing is known of this {}: {}", role.text(), failure.text),
            remedy: "If that is not meant, look at its address (replica-announce-ip) and its user.",
        })
        .collect();
    found.extend(all.iter().flat_map(of_one));
    let some_have = all.iter().any(|facts| facts.module.is_some());
    for facts in all.iter().filter(|facts| facts.module.is_none() && some_have) {
        found.push(facts.finding(
            "it has no module, and others have: whoever waits polls when it takes over",
            "Load the module on all of them: docs/operating.md.",
        ));
    }
    found.extend(of_clocks(all));
    found
}

fn of_clocks(all: &[Facts]) -> Option<Finding> {
    let first = all.iter().min_by_key(|facts| facts.clock)?;
    let last = all.iter().max_by_key(|facts| facts.clock)?;
    let apart = Duration::from_millis(last.clock.abs_diff(first.clock));
    let is_unknown = all.iter().any(|facts| facts.hides("leasehold.fence-margin"));
    let known = all.iter().filter_map(Facts::margin).min();
    let margin = known.unwrap_or(if is_unknown { Duration::MAX } else { USUAL_MARGIN });
    let what = format!("its clock is {} behind that of {}", show(apart), last.address);
    if apart >= margin {
        Some(first.finding(
            format!(
                "{what}, and leasehold.fence-margin is {}: fences may go back after a failover",
                show(margin)
            ),
            "Set the clock by NTP; until then raise leasehold.fence-margin: docs/safety.md, fences.",
        ))
    } else if apart <= CLOCKS_AGREE_WITHIN {
        None
    } else if is_unknown {
        Some(first.finding(
            format!(
                "{what}, and not all servers tell their fence-margin: if it is not larger, \
                 fences may go back after a failover"
            ),
            "Set the clock by NTP; until then see that loadmodule gives a larger fence-margin: docs/safety.md, fences.",
        ))
    } else {
        Some(first.finding(
            what,
            "Set the clock by NTP, before it is behind by more than leasehold.fence-margin.",
        ))
    }
}

fn of_one(facts: &Facts) -> Vec<Finding> {
    let mut found = unseen(facts);
    let evicts = facts.setting("maxmemory-policy").is_some_and(|policy| policy != "noeviction");
    if evicts && !facts.is("maxmemory", "0") {
        found.push(facts.finding(
            "it evicts keys when memory is short, locks among them (maxmemory-policy)",
            "CONFIG SET maxmemory-policy noeviction, or keep locks on a server of their own: docs/safety.md, eviction.",
        ));
    }
    found.extend(of_file(facts));
    found.extend(of_replication(facts));
    let most = [
        (facts.waiters, facts.most_waiters, "wait", "leasehold.max-waiters"),
        (facts.tickets, facts.most_tickets(), "wait by tickets", "leasehold.max-tickets"),
    ];
    for (count, most, wait, setting) in most {
        let is_full = |most: u64| count.saturating_mul(100) >= most.saturating_mul(NEARLY_FULL);
        if let Some(most) = most.filter(|most| is_full(*most)) {
            found.push(facts.finding(
                format!("{count} {wait}, and at most {most} may ({setting})"),
                "Raise the limit, and maxclients with it: docs/capacity.md; or see who waits: LOCK.TOP.",
            ));
        }
    }
    found
}

/// What could not be checked.
fn unseen(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if facts.role == Role::Unknown {
        found.push(facts.finding(
            "it does not say whether it is a primary or a replica, as servers of locks do",
            "Name the server itself: this may be a proxy or a sentinel.",
        ));
    }
    if facts.is_one_of_cluster {
        found.push(facts.finding(
            "it is a node of a cluster, and the others were not looked at",
            "Use redis+cluster://host:port.",
        ));
    }
    let unknown: Vec<_> =
        SETTINGS.into_iter().filter(|name| facts.setting(name).is_none()).collect();
    if !unknown.is_empty() {
        let reason = facts.refusal.as_ref();
        let is_forbidden = reason.is_some_and(|error| error.code() == Some("NOPERM"));
        let why = reason.map_or(String::new(), |error| format!(" ({error})"));
        found.push(facts.finding(
            format!("it does not tell {}{why}", unknown.join(", ")),
            if is_forbidden {
                "Let the user of the address read its settings: ACL SETUSER user +config|get."
            } else {
                "See where it is managed that it does not evict, keeps its data, and stops without replicas: docs/operating.md."
            },
        ));
    }
    if facts.unnamed_replicas() > 0 {
        let (unnamed, all) = (facts.unnamed_replicas(), facts.replicas);
        found.push(facts.finding(
            format!("it does not say where {unnamed} of its {all} replicas are"),
            "Look at each of them by --url.",
        ));
    }
    found
}

/// Whether grants survive a restart.
fn of_file(facts: &Facts) -> Option<Finding> {
    if facts.is("appendonly", "yes") && facts.is("appendfsync", "no") {
        return Some(facts.finding(
            "it leaves it to the system when its append-only file is on disk (appendfsync no)",
            "CONFIG SET appendfsync everysec, or always, which loses no grant when the power fails.",
        ));
    }
    if !facts.is("appendonly", "no") {
        return None;
    }
    let lost = "it keeps no append-only file: after a restart locks that are still held may be granted again";
    if facts.module.is_none() {
        return Some(facts.finding(lost, "CONFIG SET appendonly yes."));
    }
    if facts.is("leasehold.quarantine-ms", "0") {
        return Some(facts.finding(
            lost,
            "CONFIG SET appendonly yes; or set leasehold.quarantine-ms to the longest ttl in use.",
        ));
    }
    facts.hides("leasehold.quarantine-ms").then(|| {
        facts.finding(
            "it keeps no append-only file, and does not tell its quarantine-ms: if that is 0, \
             after a restart locks that are still held may be granted again",
            "CONFIG SET appendonly yes; or see that loadmodule gives quarantine-ms the longest ttl in use.",
        )
    })
}

/// Which grants could be lost in a failover, and which other servers could grant.
fn of_replication(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let is_replica = facts.role == Role::Replica;
    let goes_on = facts.is("min-replicas-to-write", "0") || facts.is("min-replicas-max-lag", "0");
    let remedy = "CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag 10, or less: docs/safety.md, failover.";
    if goes_on && facts.role == Role::Primary && facts.replicas > 0 {
        found.push(facts.finding(
            "it goes on granting when it is cut off from its replicas, while one of them takes over",
            remedy,
        ));
    }
    if goes_on && is_replica && !facts.never_leads {
        found.push(facts.finding(
            "once it has taken over, it goes on granting when it is cut off from its replicas",
            remedy,
        ));
    }
    if is_replica && facts.is_cut_off {
        found.push(facts.finding(
            "its link to the primary is down, so it knows nothing of what is granted meanwhile",
            "Look at the network, and at masterauth: its log says why.",
        ));
    }
    if is_replica && facts.is("replica-read-only", "no") {
        found.push(facts.finding(
            "it takes writes, so clients that reach it are granted locks that its primary does not know of",
            "CONFIG SET replica-read-only yes.",
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str, clock: i64) -> Facts {
        let mut facts = Facts::default();
        (facts.address, facts.clock) = (address.to_owned(), clock);
        facts
    }

    #[test]
    fn clocks_that_differ_by_more_than_the_margin_are_worse_than_those_that_differ() {
        let of = |clock| of_clocks(&[at("a", 0), at("b", clock)]);
        assert_eq!(of(900), None);
        let little = of(5_000).unwrap();
        assert_eq!(
            (little.address.as_str(), little.what.as_str()),
            ("a", "its clock is 5s behind that of b")
        );
        let much = of(-20_000).unwrap();
        assert!(much.address == "b" && much.what.contains("fences may go back"), "{much:?}");
    }

    #[test]
    fn a_margin_that_is_not_told_is_not_taken_for_the_usual_one() {
        let with_margin = |margin: Option<&str>, mut facts: Facts| {
            let setting = |margin: &str| ("leasehold.fence-margin".to_owned(), margin.to_owned());
            facts.module = Some("0.3.0".to_owned());
            facts.settings.extend(margin.map(setting));
            facts
        };
        let of = |margins: [Option<&str>; 2], clock| {
            let [first, second] = margins;
            of_clocks(&[with_margin(first, at("a", 0)), with_margin(second, at("b", clock))])
                .unwrap()
        };
        let known = of([Some("15000"), Some("6000")], 5_000);
        assert_eq!(known.what, "its clock is 5s behind that of b");
        for clock in [5_000, 20_000] {
            let hidden = of([None, None], clock);
            let what =
                "not all servers tell their fence-margin: if it is not larger, fences may go back";
            assert!(hidden.what.contains(what), "{hidden:?}");
        }
        let smaller = of([Some("4000"), None], 5_000);
        assert!(smaller.what.contains("leasehold.fence-margin is 4s"), "{smaller:?}");
    }

    #[test]
    fn nothing_is_found_of_a_server_that_tells_of_itself_that_it_is_safe() {
        let mut facts = at("a", 0);
        facts.role = Role::Primary;
        for setting in SETTINGS {
            facts.settings.insert(setting.to_owned(), "1".to_owned());
        }
        facts.settings.insert("maxmemory-policy".to_owned(), "noeviction".to_owned());
        assert_eq!(of_one(&facts), []);
        for setting in SETTINGS {
            let told = facts.settings.remove(setting);
            let [ref unknown] = of_one(&facts)[..] else { panic!("{setting}") };
            assert_eq!(unknown.what, format!("it does not tell {setting}"));
            facts.settings.extend(told.map(|told| (setting.to_owned(), told)));
        }
    }
}
