//! What stands in the manifests, and no program that runs here would show. `scripts/check-kubernetes` builds them, and compares
//! them with the schemas of Kubernetes.

use crate::{files, text, words, yaml};
use yaml_rust2::Yaml;

const RESTARTING: [&str; 4] =
    ["livenessProbe", "startupProbe", "customLivenessProbe", "customStartupProbe"];

fn stateful_sets() -> Vec<(String, Yaml)> {
    let names = files("kubernetes", ".yaml").into_iter().filter(|name| !name.contains("/values/"));
    let documents = names
        .flat_map(|name| yaml(&name).into_iter().map(move |document| (name.clone(), document)));
    let is_one = |(_, document): &(_, Yaml)| document["kind"].as_str() == Some("StatefulSet");
    let sets: Vec<_> = documents.filter(is_one).collect();
    assert!(sets.len() > 4, "this test no longer understands kubernetes/");
    sets
}

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

/// Its sentinels may be away for long. A restart would not bring them back, and the next one would begin later.
#[test]
fn a_server_may_wait_for_its_sentinels_for_a_day_and_probes_for_the_health_check() {
    let number = |file: &str, name: &str| {
        let set = &yaml(&format!("kubernetes/{file}"))[0];
        all(all(set, "startupProbe")[0], name)[0].as_i64().unwrap()
    };
    let period = number("base/stateful-set.yaml", "periodSeconds");
    let tries = number("sentinel/servers.yaml", "failureThreshold");
    assert!(period * tries >= 24 * 60 * 60, "{period} s, {tries} times");
    for (name, set) in stateful_sets() {
        let probes = ["livenessProbe", "startupProbe", "readinessProbe"].map(|one| all(&set, one));
        // A patch says only what is new in it.
        for probe in probes.concat().into_iter().filter(|probe| !probe["exec"].is_badvalue()) {
            // The health check ends by itself after four seconds.
            assert!(probe["timeoutSeconds"].as_i64().unwrap() > 4, "{name}: {probe:?}");
        }
    }
}

#[test]
fn no_container_runs_as_root_writes_to_its_image_or_gains_rights() {
    for (name, set) in stateful_sets() {
        let pod = &set["spec"]["template"]["spec"];
        let containers = ["containers", "initContainers"].map(|kind| pod[kind].as_vec());
        for container in containers.into_iter().flatten().flatten() {
            let context = &container["securityContext"];
            // A patch says only what is new in it.
            if context.is_badvalue() && container["command"].is_badvalue() {
                continue;
            }
            assert_eq!(context["allowPrivilegeEscalation"].as_bool(), Some(false), "{name}");
            assert_eq!(context["readOnlyRootFilesystem"].as_bool(), Some(true), "{name}");
            assert_eq!(words(&context["capabilities"]["drop"]), ["ALL"], "{name}");
            let memory =
                ["limits", "requests"].map(|what| container["resources"][what]["memory"].as_str());
            assert!(memory[0].is_some() && memory[0] == memory[1], "{name}");
        }
        if !set["spec"]["selector"].is_badvalue() {
            let context = &pod["securityContext"];
            let profile = context["seccompProfile"]["type"].as_str();
            assert_eq!(profile, Some("RuntimeDefault"), "{name}");
            assert_eq!(context["runAsNonRoot"].as_bool(), Some(true), "{name}");
            assert_eq!(pod["automountServiceAccountToken"].as_bool(), Some(false), "{name}");
        }
    }
}

#[test]
fn servers_keep_their_locks_and_services_send_to_those_that_are_not_ready() {
    for (file, line) in [
        ("base/server.conf", "appendonly yes"),
        ("base/server.conf", "maxmemory-policy noeviction"),
        ("sentinel/server.conf", "appendonly yes"),
        ("sentinel/server.conf", "maxmemory-policy noeviction"),
        ("sentinel/server.conf", "min-replicas-to-write 1"),
    ] {
        let text = text(&format!("kubernetes/{file}"));
        assert!(text.lines().any(|said| said == line), "{file}: {line}");
    }
    // Holders have to reach a server that grants nothing, and replicas a primary that nobody is ready for.
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
