//! What stands in the manifests, and no program that runs here would show. `scripts/check-kubernetes` builds them, and compares
//! them with the schemas of Kubernetes.

use crate::{files, text, words, yaml};
use yaml_rust2::Yaml;

const RESTARTING: [&str; 4] =
    ["livenessProbe", "startupProbe", "customLivenessProbe", "customStartupProbe"];

/// Every value of this name, however deep.
fn all<'a>(place: &'a Yaml, name: &str) -> Vec<&'a Yaml> {
    match place {
        Yaml::Hash(entries) => {
            let of = |(key, value): (&'a Yaml, &'a Yaml)| {
                let itself = Some(value).filter(|_| key.as_str() == Some(name));
                itself.into_iter().chain(all(value, name)).collect::<Vec<_>>()
            };
            entries.iter().flat_map(of).collect()
        }
        Yaml::Array(items) => items.iter().flat_map(|item| all(item, name)).collect(),
        _ => Vec::new(),
    }
}

/// In the values for charts too.
#[test]
fn nothing_is_restarted_because_it_grants_no_lock() {
    let documents: Vec<_> =
        files("kubernetes", ".yaml").iter().flat_map(|name| yaml(name)).collect();
    let probes = documents.iter().flat_map(|document| RESTARTING.map(|probe| all(document, probe)));
    let commands: Vec<_> =
        probes.flatten().flat_map(|probe| all(probe, "command")).map(words).collect();
    assert!(commands.len() > 5, "this test no longer understands the probes");
    for command in commands {
        assert!(!command.join(" ").contains("ready"), "{command:?}");
    }
}

/// Holders have to reach a server that grants nothing, and replicas a primary that nobody is ready for.
#[test]
fn services_send_to_servers_that_are_not_ready() {
    for name in ["kubernetes/base/service.yaml", "kubernetes/monitoring/service.yaml"] {
        let services = yaml(name).into_iter().filter(|one| one["kind"].as_str() == Some("Service"));
        for service in services {
            let sends = service["spec"]["publishNotReadyAddresses"].as_bool();
            assert_eq!(sends, Some(true), "{name}");
        }
    }
}

#[test]
fn alerts_and_names_of_metrics_are_those_of_the_folder_monitoring() {
    let rules = &yaml("kubernetes/monitoring/rules.yaml")[0];
    let files = ["monitoring/leasehold.rules.yml", "monitoring/kubernetes.rules.yml"];
    let wanted = files.map(|file| yaml(file)[0]["groups"].as_vec().unwrap().clone()).concat();
    let groups = rules["spec"]["groups"].as_vec().unwrap();
    assert_eq!(*groups, wanted, "scripts/check-kubernetes --write");
    assert_eq!(text("kubernetes/monitoring/leasehold.lua"), text("monitoring/leasehold.lua"));

    let config = &yaml("monitoring/prometheus.yml")[0]["scrape_configs"][0];
    let monitor = &yaml("kubernetes/monitoring/service-monitor.yaml")[0]["spec"];
    let said = |rules: &Yaml, names: [&str; 4]| -> Vec<_> {
        rules.as_vec().unwrap().iter().map(|rule| names.map(|name| rule[name].clone())).collect()
    };
    let ours = ["source_labels", "regex", "target_label", "replacement"];
    let theirs = ["sourceLabels", "regex", "targetLabel", "replacement"];
    assert_eq!(
        said(&monitor["endpoints"][0]["metricRelabelings"], theirs),
        said(&config["metric_relabel_configs"], ours)
    );
    // The rules name the job, which the operator calls by this label of the service.
    let label = monitor["jobLabel"].as_str().unwrap();
    let service = &yaml("kubernetes/monitoring/service.yaml")[0]["metadata"]["labels"];
    assert_eq!(service[label], config["job_name"]);
}
