//! What Prometheus and Grafana are given: it asks for nothing that the server does not tell, and alerts on what the docs
//! say to alert on. `scripts/check-alerts` runs the alerts' own tests.

use crate::docs::fields_of_info;
use crate::page::page;
use crate::{text, yaml};
use redis::Value;
use std::collections::BTreeSet;
use testkit::{Client, Server, is_older_than, lacks, strings};
use yaml_rust2::Yaml;

/// The names of the module's metrics in a query.
fn metrics(query: &str) -> BTreeSet<String> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("leasehold_")).map(str::to_owned).collect()
}

/// Settings that the scrape configuration makes metrics of.
fn settings() -> BTreeSet<String> {
    let job = &yaml("monitoring/prometheus.yml")[0]["scrape_configs"][0];
    let rules = job["metric_relabel_configs"].as_vec().unwrap();
    let made = rules.iter().filter_map(|rule| rule["replacement"].as_str());
    made.filter(|name| name.starts_with("leasehold_config_")).map(str::to_owned).collect()
}

fn alerts() -> Vec<Yaml> {
    let files = ["monitoring/leasehold.rules.yml", "monitoring/kubernetes.rules.yml"];
    files.map(|file| yaml(file)[0]["groups"][0]["rules"].as_vec().unwrap().clone()).concat()
}

/// The metrics for which alerts ask.
fn asked() -> BTreeSet<String> {
    alerts().iter().flat_map(|alert| metrics(alert["expr"].as_str().unwrap())).collect()
}

#[test]
fn the_script_of_the_exporter_gives_every_field() {
    let server = Server::start();
    let script = text("monitoring/leasehold.lua");
    let told = strings(&server.client().cmd(["EVAL", &script, "0"]));
    let (names, values): (BTreeSet<_>, Vec<_>) =
        told.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).unzip();
    assert_eq!(names, fields_of_info());
    assert!(values.iter().all(|value| value.parse::<i64>().is_ok()), "{values:?}");
}

#[test]
fn panels_and_alerts_ask_for_what_the_server_tells() {
    let (fields, settings) = (fields_of_info(), settings());
    let dashboard = &yaml("monitoring/grafana.json")[0];
    for panel in dashboard["panels"].as_vec().unwrap() {
        for target in panel["targets"].as_vec().unwrap() {
            let (title, query) = (&panel["title"], target["expr"].as_str().unwrap());
            let asked = metrics(query);
            assert!(!asked.is_empty() && asked.is_subset(&fields), "{title:?}: {query}");
        }
    }
    let unknown: Vec<_> = asked().into_iter().filter(|name| !fields.contains(name)).collect();
    assert_eq!(unknown, settings.into_iter().collect::<Vec<_>>(), "what is no field is a setting");
}

#[test]
fn there_is_an_alert_for_all_that_the_docs_say_to_alert_on_and_for_nothing_else() {
    let page = text("docs/operating.md");
    let table = page.split("### What to alert on").nth(1).unwrap();
    let rows = table.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let said: BTreeSet<_> = rows.flat_map(|row| metrics(row.split('|').nth(1).unwrap())).collect();
    assert_eq!(asked().difference(&settings()).cloned().collect::<BTreeSet<_>>(), said);
}

#[test]
fn every_alert_links_its_runbook_and_every_runbook_has_an_alert() {
    let page = page("docs/runbooks.md");
    let alerts = alerts();
    let names: Vec<_> = alerts.iter().map(|alert| alert["alert"].as_str().unwrap()).collect();
    assert_eq!(page.headings(2), names, "in the same order");
    for (alert, name) in alerts.iter().zip(names) {
        let url = format!("docs/runbooks.md#{}", name.to_lowercase());
        assert_eq!(alert["annotations"]["runbook_url"].as_str(), Some(&*url), "{name}");
    }
}

/// A connection of a user of docs/operating.md, as this server can have it.
fn user(server: &Server, name: &str) -> Client {
    let page = text("docs/operating.md");
    let rule = format!("ACL SETUSER {name} ");
    let rules: Vec<_> = page.lines().filter(|line| line.starts_with(&rule)).collect();
    let [newer, older] = rules[..] else { panic!("{rules:?}") };
    let rule = if is_older_than((7, 4)) { older } else { newer };
    assert_eq!(server.cmd(rule), Value::Okay, "{rule}");
    let password = rule.split(' ').find_map(|word| word.strip_prefix('>')).unwrap();
    let mut client = server.client();
    assert_eq!(client.cmd(["AUTH", name, password]), Value::Okay);
    client
}

/// As whoever starts the server can: it may open as many files as the runbooks say.
#[test]
fn who_looks_and_who_mends_by_the_runbooks_may_run_every_command_in_them() {
    let page = page("docs/runbooks.md");
    let looks = page.text.lines().filter_map(|line| line.strip_prefix("redis-cli "));
    let is_mending = |code: &&str| code.starts_with("CONFIG SET ") || code.starts_with("DEL ");
    let users = [
        ("operator", looks.collect::<Vec<_>>()),
        ("maintainer", page.spans().filter(is_mending).collect()),
    ];
    for (name, commands) in users {
        let server = Server::start();
        let mut client = user(&server, name);
        server.client().grant("name", "alice", 60_000);
        assert!(
            commands.len() > 5,
            "this test no longer understands docs/runbooks.md: {commands:?}"
        );
        for command in commands {
            let is_setting = command.contains("leasehold.");
            if is_setting && lacks((7, 0), "settings of a module") {
                continue;
            }
            let reply = client.cmd(command);
            assert!(!matches!(reply, Value::ServerError(_)), "{command}: {reply:?}");
            let is_empty = matches!(&reply, Value::Array(rows) if rows.is_empty());
            let asks = command.starts_with("CONFIG GET");
            assert!(!(asks && is_empty), "{command}: there is no such setting");
        }
    }
}

#[test]
fn settings_that_alerts_compare_with_are_made_of_those_of_the_server() {
    let config = text("monitoring/prometheus.yml");
    let documented = page("docs/configuration.md").names("Name");
    for name in settings() {
        let setting = name.strip_prefix("leasehold_config_").unwrap().replace('_', "-");
        let rule = format!(r"regex: redis_config_value;leasehold\.{setting}");
        assert!(config.lines().any(|line| line.trim() == rule), "{name}");
        assert!(documented.contains(&format!("leasehold.{setting}")), "{name}");
    }
}
