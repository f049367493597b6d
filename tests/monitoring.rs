//! What Prometheus and Grafana are given: it asks for nothing that the server does not tell, and alerts on what the docs
//! say to alert on.

use crate::support::{Server, strings};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use yaml_rust2::{Yaml, YamlLoader};

fn text(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
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

fn alerts() -> Vec<(String, String)> {
    let rules = parsed("monitoring/leasehold.rules.yml");
    let rules = rules["groups"][0]["rules"].as_vec().unwrap();
    let of = |rule: &Yaml| ["alert", "expr"].map(|part| rule[part].as_str().unwrap().to_owned());
    rules.iter().map(of).map(|[name, query]| (name, query)).collect()
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
    // Whether anything is told at all.
    let said: BTreeSet<_> = said.into_iter().chain(["leasehold_held".to_owned()]).collect();
    assert_eq!(asked, said);
    assert!(asked.is_subset(&fields()), "{asked:?}");
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
