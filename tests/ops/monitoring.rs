//! What Prometheus and Grafana are given: it asks for nothing that the server does not tell, and alerts on what the docs
//! say to alert on.

use redis::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use testkit::{Client, Server, announce, is_older_than, lacks, strings};
use yaml_rust2::{Yaml, YamlLoader};

fn text(name: &str) -> String {
    let path = Path::new(crate::ROOT).join(name);
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// JSON is YAML too.
fn parsed(name: &str) -> Yaml {
    let file = YamlLoader::load_from_str(&text(name));
    file.unwrap_or_else(|error| panic!("{name}: {error}")).remove(0)
}

fn fields() -> BTreeSet<String> {
    let told = Server::start().client().info_text("leasehold");
    told.lines().filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect()
}

/// Metrics that alerts ask for and that neither the module nor a setting of it gives: Prometheus's own, redis_exporter's, and
/// those of kube-state-metrics.
const OF_OTHERS: [&str; 9] = [
    "up",
    "redis_up",
    "redis_connected_clients",
    "redis_config_maxclients",
    "redis_uptime_in_seconds",
    "redis_evicted_keys_total",
    "redis_instance_info",
    "kube_statefulset_replicas",
    "kube_statefulset_status_replicas_ready",
];

/// What is no metric in an expression.
const WORDS: [&str; 17] = [
    "increase",
    "resets",
    "min_over_time",
    "max_over_time",
    "last_over_time",
    "absent",
    "unless",
    "and",
    "or",
    "on",
    "job",
    "instance",
    "leasehold",
    "redis_version",
    "e6",
    "statefulset",
    "sentinel",
];

/// The names of metrics in a query.
fn metrics(query: &str) -> BTreeSet<String> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("leasehold_")).map(str::to_owned).collect()
}

/// Settings that the scrape configuration makes metrics of.
fn settings() -> BTreeSet<String> {
    let job = &parsed("monitoring/prometheus.yml")["scrape_configs"][0];
    let rules = job["metric_relabel_configs"].as_vec().unwrap();
    let made = rules.iter().filter_map(|rule| rule["replacement"].as_str());
    made.filter(|name| name.starts_with("leasehold_config_")).map(str::to_owned).collect()
}

fn panels() -> Vec<(String, Vec<String>)> {
    let dashboard = parsed("monitoring/grafana.json");
    let panels = dashboard["panels"].as_vec().unwrap().iter().map(|panel| {
        let targets = panel["targets"].as_vec().unwrap();
        let queries = targets.iter().map(|target| target["expr"].as_str().unwrap().to_owned());
        (panel["title"].as_str().unwrap().to_owned(), queries.collect())
    });
    panels.collect()
}

fn rules() -> Vec<Yaml> {
    let files = ["monitoring/leasehold.rules.yml", "monitoring/kubernetes.rules.yml"];
    files.map(|file| parsed(file)["groups"][0]["rules"].as_vec().unwrap().clone()).concat()
}

fn alerts() -> Vec<(String, String)> {
    let of = |rule: &Yaml| ["alert", "expr"].map(|part| rule[part].as_str().unwrap().to_owned());
    rules().iter().map(of).map(|[name, query]| (name, query)).collect()
}

/// The section of the runbooks for this alert, without its heading.
fn runbook(alert: &str) -> String {
    let page = text("docs/runbooks.md");
    let heading = format!("\n## {alert}\n");
    let section = page.split(&heading).nth(1).unwrap_or_else(|| panic!("no runbook for {alert}"));
    section.split("\n## ").next().unwrap().to_owned()
}

#[test]
fn the_script_of_the_exporter_gives_every_field() {
    let server = Server::start();
    let script = text("monitoring/leasehold.lua");
    let told = strings(&server.client().cmd(["EVAL", &script, "0"]));
    let (names, values): (BTreeSet<_>, Vec<_>) =
        told.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).unzip();
    assert_eq!(names, fields());
    assert!(values.iter().all(|value| value.parse::<i64>().is_ok()), "{values:?}");
}

#[test]
fn every_panel_asks_for_what_the_server_tells() {
    let fields = fields();
    let panels = panels();
    assert!(panels.len() > 5, "this test no longer understands the dashboard");
    for (title, queries) in panels {
        for query in queries {
            let asked = metrics(&query);
            assert!(!asked.is_empty(), "{title}: {query}");
            let unknown: Vec<_> = asked.difference(&fields).collect();
            assert!(unknown.is_empty(), "{title}: {unknown:?}");
        }
    }
}

#[test]
fn there_is_an_alert_for_all_that_the_docs_say_to_alert_on_and_for_nothing_else() {
    let page = text("docs/operating.md");
    let table = page.split("### What to alert on").nth(1).unwrap();
    let rows = table.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let said: BTreeSet<_> = rows.flat_map(|row| metrics(row.split('|').nth(1).unwrap())).collect();
    let asked: BTreeSet<_> = alerts().iter().flat_map(|(_, query)| metrics(query)).collect();
    let asked: BTreeSet<_> = asked.difference(&settings()).cloned().collect();
    assert_eq!(asked, said);
}

#[test]
fn alerts_name_only_metrics_that_exist() {
    let others = OF_OTHERS.iter().map(|&name| name.to_owned());
    let known: BTreeSet<_> = fields().into_iter().chain(settings()).chain(others).collect();
    for (alert, query) in alerts() {
        let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let words = words.map(|word| word.trim_start_matches(|c: char| c.is_ascii_digit()));
        let asked: BTreeSet<_> = words
            .filter(|word| word.len() > 1 && !WORDS.contains(word))
            .map(str::to_owned)
            .collect();
        assert!(!asked.is_empty(), "{alert}");
        let unknown: Vec<_> = asked.difference(&known).collect();
        assert!(unknown.is_empty(), "{alert}: {unknown:?}");
    }
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let page = text("docs/runbooks.md");
    let sections: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let names: Vec<_> = alerts().into_iter().map(|(name, _)| name).collect();
    assert_eq!(sections, names, "in the same order");
    for rule in rules() {
        let name = rule["alert"].as_str().unwrap();
        let url = format!("docs/runbooks.md#{}", name.to_lowercase());
        assert_eq!(rule["annotations"]["runbook_url"].as_str(), Some(&*url), "{name}");
        let runbook = runbook(name);
        for part in ["**Means** ", "**Look at** ", "**Do**", "**Call** "] {
            assert!(runbook.contains(&format!("\n{part}")), "{name} lacks {part}");
        }
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

#[test]
fn the_operator_may_run_every_command_with_which_the_runbooks_look() {
    let server = Server::start();
    let mut client = user(&server, "operator");
    server.client().grant("name", "alice", 60_000);
    let page = text("docs/runbooks.md");
    let commands: Vec<_> =
        page.lines().filter_map(|line| line.strip_prefix("redis-cli ")).collect();
    assert!(commands.len() > 20, "this test no longer understands docs/runbooks.md");
    for command in commands {
        let reply = client.cmd(command);
        assert!(!matches!(reply, Value::ServerError(_)), "{command}: {reply:?}");
        let is_empty = matches!(&reply, Value::Array(rows) if rows.is_empty());
        let is_setting =
            command.starts_with("CONFIG GET") && !lacks((7, 0), "settings of a module");
        assert!(!(is_setting && is_empty), "{command}: there is no such setting");
    }
}

#[test]
fn the_maintainer_may_run_every_command_with_which_the_runbooks_mend() {
    // As whoever starts it can: the server may open so many files.
    let server = Server::start();
    let mut client = user(&server, "maintainer");
    server.client().grant("name", "alice", 60_000);
    let page = text("docs/runbooks.md");
    let quoted = page.split('`').skip(1).step_by(2);
    let commands: BTreeSet<_> =
        quoted.filter(|code| code.starts_with("CONFIG SET ") || code.starts_with("DEL ")).collect();
    assert!(commands.len() > 5, "this test no longer understands docs/runbooks.md: {commands:?}");
    for command in commands {
        if command.contains("leasehold.") && lacks((7, 0), "settings of a module") {
            continue;
        }
        let reply = client.cmd(command);
        assert!(!matches!(reply, Value::ServerError(_)), "{command}: {reply:?}");
    }
}

#[test]
fn every_alert_has_a_test_of_when_it_fires_and_one_of_when_not() {
    let file = parsed("monitoring/leasehold.rules.test.yml");
    let mut tested: BTreeMap<String, BTreeSet<bool>> = BTreeMap::new();
    for test in file["tests"].as_vec().unwrap() {
        for case in test["alert_rule_test"].as_vec().unwrap() {
            let fires = !case["exp_alerts"].as_vec().unwrap().is_empty();
            let name = case["alertname"].as_str().unwrap().to_owned();
            tested.entry(name).or_default().insert(fires);
        }
    }
    let both = BTreeSet::from([false, true]);
    let wanted: BTreeMap<_, _> =
        alerts().into_iter().map(|(name, _)| (name, both.clone())).collect();
    assert_eq!(tested, wanted);
}

/// Where promtool is, or `scripts/check-alerts` has fetched it.
#[test]
fn promtool_finds_that_every_alert_fires_when_it_should() {
    let root = Path::new(crate::ROOT);
    let fetched = root.join("target/promtool/usr/bin/promtool");
    let promtool = if fetched.exists() { fetched } else { "promtool".into() };
    let Ok(output) = Command::new(promtool)
        .args(["test", "rules", "monitoring/leasehold.rules.test.yml"])
        .current_dir(root)
        .output()
    else {
        announce("skipped: no promtool in PATH, and none that scripts/check-alerts has fetched");
        return;
    };
    let told = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&told));
}

#[test]
fn settings_that_alerts_compare_with_are_made_of_those_of_the_server() {
    let config = text("monitoring/prometheus.yml");
    let documented = text("docs/configuration.md");
    let made = settings();
    assert!(!made.is_empty());
    for name in &made {
        let setting = name.strip_prefix("leasehold_config_").unwrap().replace('_', "-");
        let rule = format!(r"regex: redis_config_value;leasehold\.{setting}");
        assert!(config.lines().any(|line| line.trim() == rule), "{name}");
        assert!(documented.contains(&format!("| `leasehold.{setting}` |")), "{name}");
    }
    let asked: BTreeSet<_> = alerts().iter().flat_map(|(_, query)| metrics(query)).collect();
    assert!(made.is_subset(&asked), "nothing compares with {made:?}");
}
